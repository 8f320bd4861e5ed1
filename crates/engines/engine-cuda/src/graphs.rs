//! Programs as graphs of the device.

use std::sync::Arc;

use sextant_engine::Error;

use crate::{
    device::Device,
    driver::Graph,
    operation::Address,
    plan::{Program, Slot},
};

/// A graph of one program, for its model's window, or for the pages that the model held when it was captured.
pub(crate) struct CapturedGraph {
    device: Arc<Device>,
    pub program: Arc<Program>,
    /// `None` where nothing is computed: the outputs are inputs or weights.
    pub graph: Option<Graph>,
    /// Where each output lies when the graph is done.
    pub outputs: Vec<(Address, Slot)>,
}

// === impl CapturedGraph ===

impl CapturedGraph {
    /// Captures a program whose weights lie where `weight` says.
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
