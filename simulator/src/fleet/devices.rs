//! Emulated devices: they start, run batches in their slots and loads one by one, drain and go.

use std::collections::{BTreeMap, VecDeque};

use sextant_policies::schedule::Nanos;

/// Where a device is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Ordered, and not there yet.
    Starting,
    /// Takes work.
    Up,
    /// Ends what it has, and goes.
    Draining,
}

/// What there is of a variant on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Held {
    Loading,
    Loaded,
}

/// One device.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) kind: usize,
    pub(super) state: State,
    /// Tells it from those that had its number before.
    pub(super) life: u64,
    pub(super) since: Nanos,
    pub(super) held: BTreeMap<u32, Held>,
    /// Batches that have not ended.
    pub(super) batches: u32,
    /// By slot: when it is free.
    slots: Vec<Nanos>,
    loader_free_at: Nanos,
    /// Since the last look: from when until when, and in how many slots.
    ran: VecDeque<(Nanos, Nanos, u16)>,
    /// Share of the last look in which it was busy, 0 to 1.
    pub(super) busy_share: f64,
    /// Whether what it has alone moves to others, so that it may go.
    pub(super) emptying: bool,
}

impl Device {
    pub(super) fn new(kind: usize, state: State, life: u64, now: Nanos, slots: u16) -> Self {
        Self {
            kind,
            state,
            life,
            since: now,
            held: BTreeMap::new(),
            batches: 0,
            slots: vec![0; usize::from(slots.max(1))],
            loader_free_at: 0,
            ran: VecDeque::new(),
            busy_share: 0.0,
            emptying: false,
        }
    }

    /// A batch in so many slots that may start at `earliest`: when it starts.
    pub(super) fn start_at(&mut self, earliest: Nanos, slots: u16) -> Nanos {
        self.slots.sort_unstable();
        let last = usize::from(slots).clamp(1, self.slots.len()) - 1;
        earliest.max(self.slots[last])
    }

    /// The batch runs from then until then.
    pub(super) fn occupy(&mut self, from: Nanos, until: Nanos, slots: u16) {
        let taken = usize::from(slots).clamp(1, self.slots.len());
        self.slots[..taken].fill(until);
        self.batches += 1;
        self.ran.push_back((from, until, taken as u16));
    }

    /// A load that may start at `earliest` and takes so long: when it starts, and it ends after that.
    pub(super) fn load(&mut self, earliest: Nanos, takes: Nanos) -> Nanos {
        let start = earliest.max(self.loader_free_at);
        self.loader_free_at = start.saturating_add(takes);
        start
    }

    /// Measures how busy it was since `from`.
    pub(super) fn measure(&mut self, from: Nanos, now: Nanos) {
        let busy = self.ran.iter().map(|(start, end, slots)| {
            let here = (*end).min(now).saturating_sub((*start).max(from));
            here as f64 * f64::from(*slots)
        });
        let whole = (now - from).max(1) as f64 * self.slots.len() as f64;
        self.busy_share = (busy.sum::<f64>() / whole).clamp(0.0, 1.0);
        self.ran.retain(|(_, end, _)| *end > now);
    }
}
