//! Graphs of models that are not on the device.
//!
//! Entry point: [`ParkedGraphs`]. A model that comes back uses the graphs of the last time. Meanwhile they keep device
//! memory, which is the driver's own and of which no more is left than what the arena has not taken. Its size is for the
//! driver to decide, so it is measured: where less than half is left, each new graph costs those of the model that went
//! longest ago. Whether the driver gives memory back when a graph is destroyed or keeps it for the next one, it takes no
//! more than that from then on.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::{
    graphs::CapturedGraph,
    operation::Address,
    prepared::{PreparedModel, Shapes},
};

/// Of the memory that is left at the start, the part below which graphs are destroyed: one half.
const KEPT_FREE: u64 = 2;

/// What a model has left on the device.
#[derive(Default)]
pub(crate) struct ParkedState {
    /// Where it lay.
    pub pages: Vec<u32>,
    /// Where it read them; `None` where they lie.
    pub window: Option<Address>,
    /// Good for the window, or for these pages.
    pub graphs: Vec<(Shapes, Arc<CapturedGraph>)>,
}

/// See the module.
pub(crate) struct ParkedGraphs {
    /// Free memory, bytes, below which graphs are destroyed.
    scarce_bytes: u64,
    /// Models that have gone, the last at the end. Some have come back.
    gone: Mutex<Vec<Weak<PreparedModel>>>,
}

// === impl ParkedGraphs ===

impl ParkedGraphs {
    /// For a device of which so much is left.
    pub fn new(free_bytes: u64) -> Self {
        Self {
            scarce_bytes: free_bytes / KEPT_FREE,
            gone: Mutex::default(),
        }
    }

    /// Keeps what a model leaves.
    pub fn park(&self, model: &Arc<PreparedModel>, parked: ParkedState) {
        let has_graphs = !parked.graphs.is_empty();
        *model.parked.lock() = parked;
        let mut gone = self.gone.lock();
        gone.retain(|it| it.strong_count() > 0 && !std::ptr::eq(it.as_ptr(), &raw const **model));
        if has_graphs {
            gone.push(Arc::downgrade(model));
        }
    }

    /// Before a new graph, with so much memory free.
    pub fn make_room(&self, free_bytes: u64) {
        if free_bytes >= self.scarce_bytes {
            return;
        }
        while let Some(model) = self.oldest() {
            let graphs = std::mem::take(&mut model.parked.lock().graphs);
            if !graphs.is_empty() {
                tracing::debug!(free_bytes, graphs = graphs.len(), "parked graphs make room");
                return;
            }
        }
    }

    /// The model that went longest ago, which is forgotten here.
    fn oldest(&self) -> Option<Arc<PreparedModel>> {
        let mut gone = self.gone.lock();
        while !gone.is_empty() {
            if let Some(model) = gone.remove(0).upgrade() {
                return Some(model);
            }
        }
        None
    }
}
