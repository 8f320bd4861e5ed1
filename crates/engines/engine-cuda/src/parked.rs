//! Graphs of models that are not on the device.
//!
//! Entry point: [`ParkedGraphs`]. A model that comes back to the device uses its graphs of the last time. Meanwhile the
//! graphs keep device memory that belongs to the driver, of which there is only what the arena has left. The driver
//! decides how large this memory is, so it is measured: when less than half of it is left, each new graph costs the
//! graphs of the model that left longest ago. When a graph is destroyed, the driver gives its memory back or keeps it
//! for the next graph; in both cases it takes no more memory from then on.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::{
    graphs::CapturedGraph,
    operation::Address,
    prepared::{PreparedModel, Shapes},
};

/// Graphs are destroyed when free memory falls below one part in this many of the memory that is free at the start: one
/// half.
const KEPT_FREE: u64 = 2;

/// What a model has left behind on the device.
#[derive(Default)]
pub(crate) struct ParkedState {
    /// The pages that it had.
    pub pages: Vec<u32>,
    /// Where it read its pages; `None` where it read them in the arena.
    pub window: Option<Address>,
    /// The graphs, valid for the window or, without one, for these pages.
    pub graphs: Vec<(Shapes, Arc<CapturedGraph>)>,
}

/// The parked graphs of a device; see the module.
pub(crate) struct ParkedGraphs {
    /// Free memory, bytes, below which graphs are destroyed.
    scarce_bytes: u64,
    /// Models that have left the device, the last at the end. Some have come back.
    gone: Mutex<Vec<Weak<PreparedModel>>>,
}

// === impl ParkedGraphs ===

impl ParkedGraphs {
    /// For a device with `free_bytes` free bytes.
    pub fn new(free_bytes: u64) -> Self {
        Self {
            scarce_bytes: free_bytes / KEPT_FREE,
            gone: Mutex::default(),
        }
    }

    /// Keeps the state that a model leaves behind.
    pub fn park(&self, model: &Arc<PreparedModel>, parked: ParkedState) {
        let has_graphs = !parked.graphs.is_empty();
        *model.parked.lock() = parked;
        let mut gone = self.gone.lock();
        gone.retain(|it| it.strong_count() > 0 && !std::ptr::eq(it.as_ptr(), &raw const **model));
        if has_graphs {
            gone.push(Arc::downgrade(model));
        }
    }

    /// Makes room before a new graph, with `free_bytes` of memory free.
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

    /// Removes and returns the model that left longest ago.
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
