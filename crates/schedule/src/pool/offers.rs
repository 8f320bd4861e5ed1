//! Workers with several slots, in order of how many of them a batch could have.

use std::collections::BTreeMap;

use crate::slots::SlotSet;

#[derive(Debug, Clone, Default)]
struct Member {
    slots: Vec<u32>,
    /// How many of them a batch could have now.
    offered: u16,
}

/// The workers of a pool that have more than one slot. What a batch of several slots needs is found
/// in O(slots of a worker), however many workers there are.
#[derive(Debug, Clone, Default)]
pub(super) struct Offers {
    members: BTreeMap<u32, Member>,
    /// By number of offered slots: the workers.
    by_offered: Vec<SlotSet>,
    /// By number of slots: how many workers have as many.
    sizes: BTreeMap<u16, u32>,
}

// === impl Offers ===

impl Offers {
    /// Whether any worker has more than one slot.
    #[inline]
    pub fn has_several(&self) -> bool {
        !self.members.is_empty()
    }

    /// A worker comes with these slots, of which `offered` could take a batch.
    pub fn admit(&mut self, worker: u32, slots: Vec<u32>, offered: u16) {
        if slots.len() > 1 {
            *self.sizes.entry(slots.len() as u16).or_default() += 1;
            self.place(worker, offered);
            self.members.insert(worker, Member { slots, offered });
        }
    }

    /// A worker goes.
    pub fn dismiss(&mut self, worker: u32) {
        if let Some(member) = self.members.remove(&worker) {
            self.by_offered[usize::from(member.offered)].remove(worker);
            let size = member.slots.len() as u16;
            if let Some(count) = self.sizes.get_mut(&size) {
                *count -= 1;
                if *count == 0 {
                    self.sizes.remove(&size);
                }
            }
        }
    }

    /// One more slot of a worker could take a batch.
    #[inline]
    pub fn more(&mut self, worker: u32) {
        if self.has_several() {
            self.change(worker, |offered| offered + 1);
        }
    }

    /// One slot of a worker less could take a batch.
    #[inline]
    pub fn fewer(&mut self, worker: u32) {
        if self.has_several() {
            self.change(worker, |offered| offered - 1);
        }
    }

    /// The worker on which a batch of `slots` slots leaves the fewest free, and how many it takes
    /// there: all, where no worker has as many.
    pub fn find(&self, slots: u16) -> Option<(u32, u16)> {
        let most = self.by_offered.len().saturating_sub(1) as u16;
        let largest = self.sizes.keys().next_back().copied();
        let slots = slots.min(largest.unwrap_or(1));
        let fitting =
            (slots..=most).find_map(|offered| self.by_offered[usize::from(offered)].first());
        fitting.map(|worker| (worker, slots))
    }

    /// The slots of a worker that has several.
    pub fn slots_of(&self, worker: u32) -> &[u32] {
        self.members
            .get(&worker)
            .map_or(&[], |member| &member.slots)
    }

    fn change(&mut self, worker: u32, to: impl Fn(u16) -> u16) {
        let Some(member) = self.members.get_mut(&worker) else {
            return;
        };
        let before = member.offered;
        member.offered = to(before);
        let after = member.offered;
        self.by_offered[usize::from(before)].remove(worker);
        self.place(worker, after);
    }

    fn place(&mut self, worker: u32, offered: u16) {
        let at = usize::from(offered);
        if self.by_offered.len() <= at {
            self.by_offered.resize_with(at + 1, SlotSet::default);
        }
        self.by_offered[at].insert(worker);
    }
}
