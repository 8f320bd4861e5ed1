//! Counts the memory of steps in the room of all requests.

use sextant_pipeline::{Memory, Part};
use sextant_rpc::QueryError;

use crate::{problem::Problem, room::Room};

/// The room of all requests, for the steps of pipelines.
pub struct StepMemory(Room);

impl StepMemory {
    /// The memory of steps in `room`.
    pub fn new(room: &Room) -> Self {
        Self(room.clone())
    }
}

impl Memory for StepMemory {
    fn take(&self, bytes: u64) -> Result<Part, QueryError> {
        let mut part = self.0.take();
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        part.grow(bytes).map_err(|problem| refusal(&problem))?;
        Ok(Box::new(part))
    }
}

fn refusal(problem: &Problem) -> QueryError {
    let error = QueryError::new(problem.code(), problem.detail());
    match problem.retries_after_ms() {
        Some(ms) => error.retry_after_ms(ms as f64),
        None => error,
    }
}
