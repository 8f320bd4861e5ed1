//! The devices of one kind: which are free, and how long the others run.

use super::{IndexedHeap, Nanos, numbers::NumberSet};
use sextant_types::index::{DeviceIx, IndexVec, SlotIx};

mod fleet;
mod offers;

use offers::Offers;

pub use fleet::{BatchId, Fleet, RunningBatch};

/// The slots that a batch occupies once it is placed.
#[derive(Debug, Clone)]
pub struct Place {
    /// The device.
    pub device: DeviceIx,
    /// When its slots become free.
    pub free_at: Nanos,
    slot: SlotIx,
    more: Vec<SlotIx>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    device: DeviceIx,
    /// Batches that were sent and not answered; 2 while one waits behind another.
    batches: u8,
    /// When the last of them should end.
    until: Nanos,
    /// The positions of these batches in the table of running batches.
    running: [Option<u32>; 2],
    up: bool,
}

/// The slots of one pool. A slot runs one batch at a time. A device with one executor has one slot;
/// a processor has one per core.
///
/// Of several free slots the one with the lowest number is taken, so that at low load the last
/// devices stay entirely idle and can be given back. For the same reason a batch of several slots
/// goes to the device on which the fewest others are free.
#[derive(Debug, Clone, Default)]
pub struct Pool {
    slots: IndexVec<SlotIx, Slot>,
    vacant: Vec<SlotIx>,
    /// Idle slots.
    free: NumberSet<SlotIx>,
    /// Slots that will be idle within the lead.
    soon: NumberSet<SlotIx>,
    /// Busy slots, by the time from which they may take their next batch.
    grantable: IndexedHeap<SlotIx>,
    /// Devices with several slots, by the number of slots that a batch could have.
    offers: Offers,
    /// How long before its end the next batch may be sent.
    lead: Nanos,
    up: u32,
    idle: u32,
    crowding: Crowding,
    /// The time until which slots count as shared with batches without a deadline.
    shared_until: Nanos,
}

/// How scarce devices have been lately.
#[derive(Debug, Clone, Copy, Default)]
struct Crowding {
    /// Share of time with no idle slot, weighted exponentially over a second.
    share: f64,
    observed: Nanos,
    /// Mean run time of batches, ns.
    mean_run: f64,
}

/// Time constant with which [`Crowding`] forgets, ns.
const CROWDING_MEMORY: f64 = 1e9;

/// Within this time crowding does not change enough for a decision to be made again, ns.
pub const CROWDING_STEP: Nanos = 250_000_000;

// === impl Pool ===

impl Pool {
    /// Slots of devices that are up.
    pub fn slots(&self) -> u32 {
        self.up
    }

    /// Slots on which nothing runs.
    pub fn idle(&self) -> u32 {
        self.idle
    }

    /// Share of time in which no slot was idle over about the last second, 0 to 1.
    pub fn crowded_share(&self) -> f64 {
        self.crowding.share
    }

    /// Mean run time of about the last hundred batches, ns; 0 before the first.
    pub fn mean_run(&self) -> f64 {
        self.crowding.mean_run
    }

    /// A batch without a deadline runs from `start` to `until`.
    pub fn share(&mut self, start: Nanos, until: Nanos) {
        let after = until.saturating_add(until - start);
        self.shared_until = self.shared_until.max(after);
    }

    /// Whether a batch without a deadline runs, or ended no longer ago than it ran. If so, there is
    /// device time that batches with deadlines could have had.
    pub fn is_shared(&self, now: Nanos) -> bool {
        now < self.shared_until
    }

    /// Accounts for the time until `now`. It must be called before slots are taken or given back.
    pub fn observe(&mut self, now: Nanos) {
        let passed = now.saturating_sub(self.crowding.observed) as f64;
        let all_busy = if self.idle == 0 { 1.0 } else { 0.0 };
        let weight = passed / (passed + CROWDING_MEMORY);
        self.crowding.share += weight * (all_busy - self.crowding.share);
        self.crowding.observed = now;
    }

    /// Accounts for the time until `now` if no slot was taken or given back for a while. Returns
    /// whether that changes anything.
    pub fn observe_rest(&mut self, now: Nanos) -> bool {
        let rested = now.saturating_sub(self.crowding.observed) >= CROWDING_STEP;
        if rested {
            self.observe(now);
        }
        rested
    }

    /// Whether some slot may take a batch.
    #[inline]
    pub fn has_free(&self) -> bool {
        !self.free.is_empty() || !self.soon.is_empty()
    }

    /// When the next busy slot ends, as far as is known; `None` when none is busy.
    pub fn next_free(&self) -> Option<Nanos> {
        let (_, slot) = self.grantable.first()?;
        Some(self.slots[slot].until)
    }

    /// A batch was sent that takes `lead` to arrive. The pool's lead follows the largest lead of
    /// about the last hundred batches. A slot is then offered early enough for most batches, and
    /// not so early that small batches wait on it while others end.
    pub fn raise_lead(&mut self, lead: Nanos) {
        self.lead = lead.max(self.lead - self.lead / 64);
    }

    /// The time from which a busy slot may take its next batch before its current one ends; `None`
    /// without a lead.
    pub fn next_grant(&self) -> Option<Nanos> {
        if self.lead == 0 {
            return None;
        }
        self.grantable.first().map(|(at, _)| at)
    }

    /// Makes the slots grantable whose batch ends within the lead.
    pub fn advance(&mut self, now: Nanos) {
        while self.lead > 0
            && let Some((at, slot)) = self.grantable.first()
            && at <= now
        {
            self.grantable.remove(slot);
            self.soon.insert(slot);
            self.offers.more(self.slots[slot].device);
        }
    }

    /// Where a batch of `slots` slots could run now. The batch takes all slots of a device that has
    /// fewer. Does not take the place.
    pub fn find(&self, slots: u16) -> Option<Place> {
        if slots <= 1 || !self.offers.has_several() {
            let slot = self.free.first().or_else(|| self.soon.first())?;
            return Some(self.place(&[slot]));
        }
        let (device, slots) = self.offers.find(slots)?;
        let of_device = self.offers.slots_of(device).iter().copied();
        let free = of_device.filter(|slot| self.offers(*slot));
        let free: Vec<SlotIx> = free.take(usize::from(slots)).collect();
        Some(self.place(&free))
    }

    fn offers(&self, slot: SlotIx) -> bool {
        self.free.contains(slot) || self.soon.contains(slot)
    }

    fn place(&self, slots: &[SlotIx]) -> Place {
        let free_at = slots
            .iter()
            .map(|slot| self.slots[*slot])
            .map(|slot| if slot.batches == 0 { 0 } else { slot.until })
            .max()
            .unwrap_or(0);
        Place {
            device: self.slots[slots[0]].device,
            free_at,
            slot: slots[0],
            more: slots[1..].to_vec(),
        }
    }

    /// Gives a slot to the batch at position `running`.
    fn occupy(&mut self, slot: SlotIx, until: Nanos, running: u32) {
        let offered = self.offers(slot);
        let state = &mut self.slots[slot];
        if state.batches == 0 {
            self.idle -= 1;
        }
        state.batches += 1;
        state.until = until;
        if let Some(place) = state.running.iter_mut().find(|at| at.is_none()) {
            *place = Some(running);
        }
        let behind = state.batches > 1;
        if offered {
            self.offers.fewer(state.device);
        }
        self.free.remove(slot);
        self.soon.remove(slot);
        if !behind {
            self.grantable.set(slot, until.saturating_sub(self.lead));
        }
    }

    fn release(&mut self, slot: SlotIx, running: u32) {
        let offered = self.offers(slot);
        let state = &mut self.slots[slot];
        if !state.up {
            return;
        }
        state.batches = state.batches.saturating_sub(1);
        if let Some(place) = state.running.iter_mut().find(|at| **at == Some(running)) {
            *place = None;
        }
        if state.batches == 0 {
            self.idle += 1;
            self.grantable.remove(slot);
            self.soon.remove(slot);
            self.free.insert(slot);
            if !offered {
                self.offers.more(state.device);
            }
        } else {
            let at = state.until.saturating_sub(self.lead);
            self.grantable.set(slot, at);
        }
    }

    /// Takes over the observations of the pool from which this pool's first devices come.
    fn inherit(&mut self, before: &Self) {
        self.lead = before.lead;
        self.crowding = before.crowding;
        self.shared_until = before.shared_until;
    }

    /// Adds the slots of a device, in their current state. Returns their numbers in this pool.
    fn admit(&mut self, device: DeviceIx, slots: Vec<Slot>) -> Vec<SlotIx> {
        let mut numbers = Vec::with_capacity(slots.len());
        for state in slots {
            let vacant = self.vacant.pop();
            let slot = vacant.unwrap_or_else(|| self.slots.push(Slot::default()));
            self.slots[slot] = state;
            self.up += 1;
            if state.batches == 0 {
                self.idle += 1;
                self.free.insert(slot);
            } else if state.batches == 1 {
                self.grantable
                    .set(slot, state.until.saturating_sub(self.lead));
            }
            numbers.push(slot);
        }
        let offered = numbers.iter().filter(|slot| self.offers(**slot)).count();
        self.offers.admit(device, numbers.clone(), offered as u16);
        numbers
    }

    /// Removes the slots of a device. Returns the state in which they leave.
    fn dismiss(&mut self, device: DeviceIx, slots: &[SlotIx]) -> Vec<Slot> {
        self.offers.dismiss(device);
        let mut states = Vec::with_capacity(slots.len());
        for slot in slots {
            self.free.remove(*slot);
            self.soon.remove(*slot);
            self.grantable.remove(*slot);
            let state = std::mem::take(&mut self.slots[*slot]);
            self.up -= 1;
            self.idle -= u32::from(state.batches == 0);
            self.vacant.push(*slot);
            states.push(state);
        }
        states
    }
}

// === impl Crowding ===

impl Crowding {
    fn ran(&mut self, nanos: f64) {
        let weight = if self.mean_run == 0.0 { 1.0 } else { 0.01 };
        self.mean_run += weight * (nanos - self.mean_run);
    }
}
