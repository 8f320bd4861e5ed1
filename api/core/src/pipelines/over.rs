//! Adds pipelines to a front end's dispatcher.

use std::sync::Arc;

use sextant_pipeline::Pipelines;
use sextant_rpc::DispatcherClient;

use super::memory::StepMemory;
use crate::{ApiParts, metrics::Steps, room::Room};

/// Replaces the front end's dispatcher by one that knows pipelines and asks `beneath`. Its steps are counted, and so is
/// the memory of what they make.
pub fn over(beneath: DispatcherClient, room: &Room, parts: &mut ApiParts) -> Arc<Pipelines> {
    let memory = Arc::new(StepMemory::new(room));
    let pipelines = Pipelines::with_python(beneath, memory, Arc::clone(&parts.python));
    parts.dispatcher = Arc::clone(&pipelines) as DispatcherClient;
    let steps = Steps::of(&pipelines);
    parts.metrics.register_collector(Box::new(steps));
    pipelines
}
