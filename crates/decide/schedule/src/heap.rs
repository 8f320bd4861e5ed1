//! A priority queue whose entries can be found by id: least key first, one entry per id.

use sextant_types::index::Number;
use smallvec::{SmallVec, smallvec};

/// A 4-ary heap of (key, id) that stores the position of each id, so that a key changes in O(log n).
///
/// Four children share a cache line, and most changes of a scheduler move an entry by one level.
#[derive(Debug, Clone)]
pub struct IndexedHeap<I> {
    entries: Vec<(u64, I)>,
    /// By id: position in `entries`, or `ABSENT`.
    position: Vec<u32>,
}

const ABSENT: u32 = u32::MAX;

// === impl IndexedHeap ===

impl<I> Default for IndexedHeap<I> {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            position: Vec::new(),
        }
    }
}

impl<I: Number> IndexedHeap<I> {
    /// The least (key, id).
    #[inline]
    pub fn first(&self) -> Option<(u64, I)> {
        self.entries.first().copied()
    }

    /// The least key.
    #[inline]
    pub fn first_key(&self) -> Option<u64> {
        self.entries.first().map(|(key, _)| *key)
    }

    /// The least key; the largest number if the heap is empty.
    #[inline]
    pub fn least(&self) -> u64 {
        self.entries.first().map_or(u64::MAX, |(key, _)| *key)
    }

    /// The key of `id`.
    #[inline]
    pub fn key(&self, id: I) -> Option<u64> {
        let at = *self.position.get(id.get() as usize)?;
        self.entries.get(at as usize).map(|(key, _)| *key)
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Every (key, id), in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, I)> + Clone + '_ {
        self.entries.iter().copied()
    }

    /// The least key below `bound` among the entries for which `is` is true. Skips every entry whose key is not less
    /// than a key found already, and everything below such an entry.
    #[inline]
    pub fn least_below(&self, bound: u64, is: impl FnMut(I) -> bool) -> Option<u64> {
        match self.least() < bound {
            true => self.search(bound, is),
            false => None,
        }
    }

    fn search(&self, bound: u64, mut is: impl FnMut(I) -> bool) -> Option<u64> {
        let mut least = bound;
        let mut open: SmallVec<[usize; 16]> = smallvec![0];
        while let Some(at) = open.pop() {
            let Some((key, id)) = self.entries.get(at).copied() else {
                continue;
            };
            #[cfg(test)]
            looks::add();
            if key >= least {
                continue;
            }
            match is(id) {
                true => least = key,
                false => open.extend(4 * at + 1..4 * at + 5),
            }
        }
        (least < bound).then_some(least)
    }

    /// Inserts `id` or changes its key.
    #[inline]
    pub fn set(&mut self, id: I, key: u64) {
        if self.position.len() <= id.get() as usize {
            self.position.resize(id.get() as usize + 1, ABSENT);
        }
        let at = self.position[id.get() as usize];
        if at == ABSENT {
            self.entries.push((key, id));
            self.rise(self.entries.len() - 1);
            return;
        }
        let at = at as usize;
        let before = self.entries[at].0;
        if key == before {
            return;
        }
        self.entries[at].0 = key;
        match key < before {
            true => self.rise(at),
            false => self.sink(at),
        }
    }

    /// Removes `id`. Returns its key.
    #[inline]
    pub fn remove(&mut self, id: I) -> Option<u64> {
        let at = *self.position.get(id.get() as usize)?;
        if at == ABSENT {
            return None;
        }
        Some(self.remove_at(at as usize, id))
    }

    fn remove_at(&mut self, at: usize, id: I) -> u64 {
        self.position[id.get() as usize] = ABSENT;
        let removed = self.entries.swap_remove(at);
        if let Some(moved) = self.entries.get(at).copied() {
            self.position[moved.1.get() as usize] = at as u32;
            match moved < removed {
                true => self.rise(at),
                false => self.sink(at),
            }
        }
        removed.0
    }

    fn rise(&mut self, mut at: usize) {
        let entry = self.entries[at];
        while at > 0 {
            let parent = (at - 1) / 4;
            let above = self.entries[parent];
            if above <= entry {
                break;
            }
            self.place(at, above);
            at = parent;
        }
        self.place(at, entry);
    }

    fn sink(&mut self, mut at: usize) {
        let entry = self.entries[at];
        loop {
            let first = 4 * at + 1;
            let end = (first + 4).min(self.entries.len());
            let Some(children) = self.entries.get(first..end) else {
                break;
            };
            let Some((mut child, mut least)) = children.first().map(|child| (0, *child)) else {
                break;
            };
            for (number, of) in children.iter().enumerate().skip(1) {
                if *of < least {
                    (child, least) = (number, *of);
                }
            }
            if least >= entry {
                break;
            }
            self.place(at, least);
            at = first + child;
        }
        self.place(at, entry);
    }

    #[inline]
    fn place(&mut self, at: usize, entry: (u64, I)) {
        #[cfg(test)]
        looks::add();
        self.entries[at] = entry;
        self.position[entry.1.get() as usize] = at as u32;
    }
}

/// How many entries the heaps of this thread have looked at or moved.
#[cfg(test)]
pub(crate) mod looks {
    use std::cell::Cell;

    thread_local! {
        static LOOKS: Cell<u64> = const { Cell::new(0) };
    }

    pub(crate) fn add() {
        LOOKS.set(LOOKS.get() + 1);
    }

    /// How many since the last call.
    pub(crate) fn take() -> u64 {
        LOOKS.take()
    }
}
