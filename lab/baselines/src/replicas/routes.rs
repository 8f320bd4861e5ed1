//! Which of a queue's slots gets the next request: weighted round-robin, for each frontend separately.

use sextant_schedule::IndexedHeap;
use sextant_types::index::SlotIx;

/// The slots of a queue.
#[derive(Debug, Default)]
pub(super) struct Routes {
    /// Slot and lane on it.
    targets: Vec<(SlotIx, u32)>,
    /// The distance to a target's next turn after a request.
    strides: Vec<u64>,
    /// For each frontend: targets by their next turn.
    turns: Vec<IndexedHeap<u32>>,
}

impl Routes {
    /// Routes of `frontends` senders to targets of (slot, lane, weight). Each sender begins with another target:
    /// senders do not know of each other, but are not in step either.
    pub fn new(targets: &[(SlotIx, u32, f64)], frontends: u32) -> Self {
        const UNIT: f64 = 1_048_576.0;
        let heaviest = targets
            .iter()
            .map(|of| of.2)
            .fold(f64::MIN_POSITIVE, f64::max);
        let stride = |weight: f64| (UNIT * heaviest / weight.max(heaviest * 1e-6)).round() as u64;
        let strides: Vec<u64> = targets.iter().map(|of| stride(of.2)).collect();
        let count = targets.len();
        let turns = (0..frontends.max(1) as usize).map(|frontend| {
            let mut turns = IndexedHeap::default();
            for (at, stride) in strides.iter().enumerate() {
                let phase = (at + count - frontend % count) % count;
                turns.set(at as u32, stride * phase as u64 / count as u64);
            }
            turns
        });
        Self {
            targets: targets.iter().map(|of| (of.0, of.1)).collect(),
            turns: turns.collect(),
            strides,
        }
    }

    /// The slot and lane for a frontend's next request; `None` if there is none.
    pub fn next(&mut self, frontend: usize) -> Option<(SlotIx, u32)> {
        let turns = self.turns.get_mut(frontend)?;
        let (turn, at) = turns.first()?;
        turns.set(at, turn + self.strides[at as usize]);
        self.targets.get(at as usize).copied()
    }

    /// Every slot and lane.
    pub fn targets(&self) -> &[(SlotIx, u32)] {
        &self.targets
    }
}
