//! Programs captured as graphs of the device.

use std::sync::Arc;

use sextant_engine::Error;

use crate::{
    device::Device,
    driver::Graph,
    operation::Address,
    plan::{Program, Slot},
};

/// A captured program. It is valid for its model's window or, without one, for the pages that the model held at the
/// capture.
pub(crate) struct CapturedGraph {
    device: Arc<Device>,
    pub program: Arc<Program>,
    /// `None` where nothing is computed because all outputs are inputs or weights.
    pub graph: Option<Graph>,
    /// Where each output lies when the graph has run.
    pub outputs: Vec<(Address, Slot)>,
}

// === impl CapturedGraph ===

impl CapturedGraph {
    /// Captures a program whose weights lie at the addresses that `weight` returns.
    pub fn new(
        device: &Arc<Device>,
        program: Arc<Program>,
        weight: impl Fn(usize) -> Address,
    ) -> Result<Self, Error> {
        let workspace = device.layout.workspace().start;
        let (operations, outputs) = program.bind(workspace, weight);
        let graph = match operations.is_empty() {
            true => None,
            false => Some(device.capture(&operations)?),
        };
        Ok(Self {
            graph,
            device: Arc::clone(device),
            program,
            outputs,
        })
    }
}

impl Drop for CapturedGraph {
    fn drop(&mut self) {
        if let Some(graph) = self.graph {
            self.device.driver.destroy_graph(graph);
        }
    }
}
