//! The candidates of one shard as its ranker sees them: only the latest of each model.

use sextant_policies::schedule::{NEVER, Nanos};

use crate::{dirty::DirtySet, slot::LatestSlot, sync::Arc};

/// The batch that would run next of a model, as far as ranking needs to know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// From when it may be given to a device; 0 for at once, [`NEVER`] for no candidate.
    pub ready_at: Nanos,
    /// Where it stands among those that are ready: least first.
    pub key: u64,
}

/// The shard's side.
#[derive(Debug)]
pub struct Writer(Arc<Board>);

/// The ranker's side.
#[derive(Debug)]
pub struct Reader(Arc<Board>);

#[derive(Debug)]
struct Board {
    slots: Box<[LatestSlot<2>]>,
    dirty: DirtySet,
}

/// A board for `models` models, without candidates.
pub fn board(models: u32) -> (Writer, Reader) {
    let empty = |_| LatestSlot::new(Candidate::NONE.words());
    let board = Arc::new(Board {
        slots: (0..models).map(empty).collect(),
        dirty: DirtySet::new(models),
    });
    (Writer(Arc::clone(&board)), Reader(board))
}

// === impl Candidate ===

impl Candidate {
    /// No batch.
    pub const NONE: Self = Self {
        ready_at: NEVER,
        key: u64::MAX,
    };

    fn words(self) -> [u64; 2] {
        [self.ready_at, self.key]
    }
}

// === impl Writer ===

impl Writer {
    /// Overwrites the candidate of a model.
    #[inline]
    pub fn publish(&mut self, model: u32, candidate: Candidate) {
        self.0.slots[model as usize].write(candidate.words());
        self.0.dirty.mark(model);
    }
}

// === impl Reader ===

impl Reader {
    /// Hands out every candidate that has changed since the last call, at least once after its last
    /// change.
    pub fn drain(&mut self, mut each: impl FnMut(u32, Candidate)) {
        self.0.dirty.drain(|model| {
            // One that is being written is marked again when it is complete.
            if let Some(candidate) = self.0.read(model) {
                each(model, candidate);
            }
        });
    }

    /// The latest candidate; none while it is being written.
    pub fn latest(&mut self, model: u32) -> Option<Candidate> {
        self.0.read(model)
    }

    /// Whether nothing has changed.
    pub fn is_empty(&self) -> bool {
        self.0.dirty.is_empty()
    }
}

// === impl Board ===

impl Board {
    #[inline]
    fn read(&self, model: u32) -> Option<Candidate> {
        let [ready_at, key] = self.slots[model as usize].read()?;
        Some(Candidate { ready_at, key })
    }
}
