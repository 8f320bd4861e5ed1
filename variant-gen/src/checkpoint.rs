//! Points at which a registration can be watched, and in tests stopped.

use async_trait::async_trait;

use crate::Error;

/// A moment of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Nothing has been done.
    Begin,
    /// The work is done, and its result is not stored.
    Worked,
    /// The result is stored, and the job has not advanced.
    Stored,
}

impl Phase {
    /// Every phase in order.
    pub const ALL: [Self; 3] = [Self::Begin, Self::Worked, Self::Stored];
}

/// Called at each phase of each step that is really executed. An error is treated as an error of
/// the step. Dropping the registration while this waits is a crash at this phase.
#[async_trait]
pub trait Checkpoint: Send + Sync {
    /// `step` has reached `phase`.
    async fn reached(&self, step: &str, phase: Phase) -> Result<(), Error>;
}

/// Watches nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoWatch;

#[async_trait]
impl Checkpoint for NoWatch {
    async fn reached(&self, _step: &str, _phase: Phase) -> Result<(), Error> {
        Ok(())
    }
}
