//! The dispatcher that knows pipelines, over the one that a front end was given.

use std::sync::Arc;

use sextant_pipeline::Pipelines;
use sextant_rpc::DispatcherClient;

use super::memory::StepMemory;
use crate::{ApiParts, metrics::Steps, room::Room};

/// Puts it over `beneath`, in the place of the front end's dispatcher; its steps are counted, and so is what they make.
pub fn over(beneath: DispatcherClient, room: &Room, parts: &mut ApiParts) -> Arc<Pipelines> {
    let memory = Arc::new(StepMemory::new(room));
    let pipelines = Pipelines::with_python(beneath, memory, Arc::clone(&parts.python));
    parts.dispatcher = Arc::clone(&pipelines) as DispatcherClient;
    let steps = Steps::of(&pipelines);
    parts.metrics.register_collector(Box::new(steps));
    pipelines
}
