//! Devices with several slots, in order of the number of slots that a batch could have.

use std::collections::BTreeMap;

use crate::numbers::NumberSet;
use sextant_types::index::{DeviceIx, SlotIx};

#[derive(Debug, Clone, Default)]
struct Member {
    slots: Vec<SlotIx>,
    /// The number of its slots that a batch could have now.
    offered: u16,
}

/// The devices of a pool that have more than one slot. A place for a batch of several slots is
/// found in O(slots of a device), however many devices there are.
#[derive(Debug, Clone, Default)]
pub(super) struct Offers {
    members: BTreeMap<DeviceIx, Member>,
    /// The devices, by the number of slots that they offer.
    by_offered: Vec<NumberSet<DeviceIx>>,
    /// The number of devices, by their number of slots.
    sizes: BTreeMap<u16, u32>,
}

// === impl Offers ===

impl Offers {
    /// Whether any device has more than one slot.
    #[inline]
    pub fn has_several(&self) -> bool {
        !self.members.is_empty()
    }

    /// Adds a device with these slots, `offered` of which could take a batch.
    pub fn admit(&mut self, device: DeviceIx, slots: Vec<SlotIx>, offered: u16) {
        if slots.len() > 1 {
            *self.sizes.entry(slots.len() as u16).or_default() += 1;
            self.place(device, offered);
            self.members.insert(device, Member { slots, offered });
        }
    }

    /// Removes a device.
    pub fn dismiss(&mut self, device: DeviceIx) {
        if let Some(member) = self.members.remove(&device) {
            self.by_offered[usize::from(member.offered)].remove(device);
            let size = member.slots.len() as u16;
            if let Some(count) = self.sizes.get_mut(&size) {
                *count -= 1;
                if *count == 0 {
                    self.sizes.remove(&size);
                }
            }
        }
    }

    /// One more slot of a device could take a batch.
    #[inline]
    pub fn more(&mut self, device: DeviceIx) {
        if self.has_several() {
            self.change(device, |offered| offered + 1);
        }
    }

    /// One slot fewer of a device could take a batch.
    #[inline]
    pub fn fewer(&mut self, device: DeviceIx) {
        if self.has_several() {
            self.change(device, |offered| offered - 1);
        }
    }

    /// The device on which a batch of `slots` slots leaves the fewest free, and the number of slots
    /// that the batch takes there: all slots, if no device has that many.
    pub fn find(&self, slots: u16) -> Option<(DeviceIx, u16)> {
        let most = self.by_offered.len().saturating_sub(1) as u16;
        let largest = self.sizes.keys().next_back().copied();
        let slots = slots.min(largest.unwrap_or(1));
        let fitting =
            (slots..=most).find_map(|offered| self.by_offered[usize::from(offered)].first());
        fitting.map(|device| (device, slots))
    }

    /// The slots of a device that has several slots.
    pub fn slots_of(&self, device: DeviceIx) -> &[SlotIx] {
        self.members
            .get(&device)
            .map_or(&[], |member| &member.slots)
    }

    fn change(&mut self, device: DeviceIx, to: impl Fn(u16) -> u16) {
        let Some(member) = self.members.get_mut(&device) else {
            return;
        };
        let before = member.offered;
        member.offered = to(before);
        let after = member.offered;
        self.by_offered[usize::from(before)].remove(device);
        self.place(device, after);
    }

    fn place(&mut self, device: DeviceIx, offered: u16) {
        let at = usize::from(offered);
        if self.by_offered.len() <= at {
            self.by_offered.resize_with(at + 1, NumberSet::default);
        }
        self.by_offered[at].insert(device);
    }
}
