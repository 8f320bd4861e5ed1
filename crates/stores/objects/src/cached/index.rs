//! Which blobs a cache holds, how large they are, and which one is evicted first. Pure.

use std::collections::{BTreeMap, HashMap};

use sextant_types::Digest;

/// The state of a blob in the folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// The whole blob.
    Whole,
    /// The beginning of the blob, from a download that was interrupted.
    Begun,
    /// The blob is being written; its whole size is counted.
    Busy,
}

#[derive(Debug)]
struct Entry {
    bytes: u64,
    state: State,
    /// Its place in the order of last use.
    turn: u64,
}

/// The blobs of a cache. A blob that it tells the caller to remove no longer counts.
#[derive(Debug)]
pub(super) struct Index {
    max_bytes: u64,
    used_bytes: u64,
    next_turn: u64,
    entries: HashMap<Digest, Entry>,
    order: BTreeMap<u64, Digest>,
}

impl Index {
    pub(super) fn new(max_bytes: u64) -> Self {
        Self {
            max_bytes,
            used_bytes: 0,
            next_turn: 0,
            entries: HashMap::new(),
            order: BTreeMap::new(),
        }
    }

    pub(super) fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    pub(super) fn state(&self, digest: &Digest) -> Option<State> {
        self.entries.get(digest).map(|entry| entry.state)
    }

    /// Sets the state of a blob, and marks it as the one used last.
    pub(super) fn set(&mut self, digest: &Digest, bytes: u64, state: State) {
        self.remove(digest);
        let turn = self.next_turn;
        self.next_turn += 1;
        self.used_bytes += bytes;
        self.order.insert(turn, *digest);
        self.entries.insert(*digest, Entry { bytes, state, turn });
    }

    /// Notes the use of a whole blob.
    pub(super) fn touch(&mut self, digest: &Digest) {
        if let Some(Entry { bytes, state, .. }) = self.entries.get(digest) {
            self.set(digest, *bytes, *state);
        }
    }

    pub(super) fn remove(&mut self, digest: &Digest) {
        if let Some(entry) = self.entries.remove(digest) {
            self.used_bytes -= entry.bytes;
            self.order.remove(&entry.turn);
        }
    }

    /// Takes `bytes` for a blob that is now being written. Returns the blobs that must be removed
    /// for it; `None` if it does not fit beside the blobs being written, and then nothing was
    /// changed.
    pub(super) fn reserve(&mut self, digest: &Digest, bytes: u64) -> Option<Vec<Digest>> {
        let busy: u64 = self
            .entries
            .values()
            .filter(|entry| entry.state == State::Busy)
            .map(|entry| entry.bytes)
            .sum();
        if busy.checked_add(bytes)? > self.max_bytes {
            return None;
        }
        self.set(digest, bytes, State::Busy);
        Some(self.shrink())
    }

    /// Removes the blobs that were used longest ago until the rest fits.
    pub(super) fn shrink(&mut self) -> Vec<Digest> {
        let mut removed = Vec::new();
        while self.used_bytes > self.max_bytes {
            let oldest = self.order.values().find(|digest| {
                let entry = self.entries.get(*digest);
                entry.is_some_and(|entry| entry.state != State::Busy)
            });
            let Some(oldest) = oldest.copied() else {
                break;
            };
            self.remove(&oldest);
            removed.push(oldest);
        }
        removed
    }
}
