//! The replicas of one variant, by device.

use smallvec::SmallVec;

use super::{Nanos, Presence};
use sextant_types::index::DeviceIx;

/// A variant on a device.
#[derive(Debug, Clone, Copy)]
pub(super) struct Replica {
    pub device: DeviceIx,
    pub presence: Presence,
    /// Batches under way.
    pub running: u32,
    /// When a batch was last sent, or, before the first, when the LOAD was issued.
    pub used: Nanos,
}

/// The replicas in order of device, so that one is found in O(log replicas).
#[derive(Debug, Default)]
pub(super) struct Replicas {
    list: SmallVec<[Replica; 2]>,
    loaded: usize,
    leaving: usize,
}

// === impl Replicas ===

impl Replicas {
    /// The number of replicas in any state.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The number of replicas that are loaded.
    pub fn loaded(&self) -> usize {
        self.loaded
    }

    /// The number of replicas that are loaded or will be.
    pub fn staying(&self) -> usize {
        self.list.len() - self.leaving
    }

    pub fn iter(&self) -> impl Iterator<Item = &Replica> {
        self.list.iter()
    }

    /// The replica at a position in the order of devices.
    pub fn at(&self, position: usize) -> Option<&Replica> {
        self.list.get(position)
    }

    pub fn on(&self, device: DeviceIx) -> Option<&Replica> {
        self.list.get(self.position(device).ok()?)
    }

    /// Gives access to everything about a replica except its state.
    pub fn on_mut(&mut self, device: DeviceIx) -> Option<&mut Replica> {
        let at = self.position(device).ok()?;
        self.list.get_mut(at)
    }

    pub fn set_presence(&mut self, device: DeviceIx, presence: Presence) {
        let Ok(at) = self.position(device) else {
            return;
        };
        let before = std::mem::replace(&mut self.list[at].presence, presence);
        self.count(before, -1);
        self.count(presence, 1);
    }

    /// Adds a replica. There must be none on its device.
    pub fn insert(&mut self, replica: Replica) {
        if let Err(at) = self.position(replica.device) {
            self.list.insert(at, replica);
            self.count(replica.presence, 1);
        }
    }

    /// Removes a replica. Returns whether there was one.
    pub fn remove(&mut self, device: DeviceIx) -> bool {
        let Ok(at) = self.position(device) else {
            return false;
        };
        let gone = self.list.remove(at);
        self.count(gone.presence, -1);
        true
    }

    fn position(&self, device: DeviceIx) -> Result<usize, usize> {
        self.list
            .binary_search_by_key(&device, |replica| replica.device)
    }

    fn count(&mut self, presence: Presence, by: isize) {
        match presence {
            Presence::Loaded => self.loaded = self.loaded.saturating_add_signed(by),
            Presence::Leaving => self.leaving = self.leaving.saturating_add_signed(by),
            Presence::Absent | Presence::Loading => {}
        }
    }
}
