//! One value that one thread overwrites and another reads.

use crate::sync::{AtomicU64, Ordering};

/// The latest value of `W` words, written by one thread.
///
/// The words are atomics of their own, guarded by a sequence number that is odd while a value is
/// being written. A lock would make the writer, who writes with every request, wait for the reader;
/// a boxed value behind one atomic pointer needs an allocation per write and code that the
/// workspace forbids. Neither side ever waits here: a reader that meets a writer gets nothing, and
/// is told again by the writer when the value is complete.
#[derive(Debug)]
#[repr(align(32))]
pub struct LatestSlot<const W: usize> {
    sequence: AtomicU64,
    words: [AtomicU64; W],
}

impl<const W: usize> LatestSlot<W> {
    /// Holds `words`.
    pub fn new(words: [u64; W]) -> Self {
        Self {
            sequence: AtomicU64::new(0),
            words: words.map(AtomicU64::new),
        }
    }

    /// Overwrites the value. Only one thread may do so at a time: of two at once a mixture would
    /// remain.
    #[inline]
    pub fn write(&self, words: [u64; W]) {
        // Each store of a word releases the odd number before it: who reads the word sees the odd
        // number, or a later one, when it looks again.
        let sequence = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(sequence | 1, Ordering::Relaxed);
        for (slot, word) in self.words.iter().zip(words) {
            slot.store(word, Ordering::Release);
        }
        self.sequence.store((sequence | 1) + 1, Ordering::Release);
    }

    /// The value that was written last, or none while one is being written.
    #[inline]
    pub fn read(&self) -> Option<[u64; W]> {
        let before = self.sequence.load(Ordering::Acquire);
        if before & 1 == 1 {
            return None;
        }
        let words = std::array::from_fn(|at| self.words[at].load(Ordering::Acquire));
        let after = self.sequence.load(Ordering::Acquire);
        (before == after).then_some(words)
    }
}
