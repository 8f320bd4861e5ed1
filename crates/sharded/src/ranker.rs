//! The one structure that knows which device is free: devices go to candidates by rank.
//!
//! Pure: candidates, replies and the time in, grants out. Events change what is known, and
//! [`Ranker::grant`] acts on all of it. A candidate waits for its time, then for a slot. A slot that is granted is taken for ever until the shard replies, and its model gets no
//! other grant meanwhile, whatever candidates come. A shard may find a granted candidate gone or not
//! ready any more; then the slot is free again at once, and a candidate that was refused just as it
//! stands is not tried again before something changes.

use std::collections::BTreeSet;

use sextant_policies::schedule::{Delay, IndexedHeap, NEVER, Nanos};

use crate::{
    board::Candidate,
    links::{Grant, Reply, Ticket},
};

/// What a slot was given to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placed {
    /// Nothing runs on it.
    Idle,
    /// Granted, and not yet answered.
    Granted,
    /// A batch runs on it.
    Busy,
    /// Its device is down.
    Down,
}

/// Ranks the candidates of all models of one pool.
#[derive(Debug)]
pub struct Ranker {
    /// How long before its end a slot may be granted again: what a message needs.
    lead: Nanos,
    models: Vec<Model>,
    /// By the time from which they are ready.
    waiting: IndexedHeap,
    /// By key: the candidates that want a slot.
    ready: IndexedHeap,
    /// Models whose candidate was refused as it stands.
    refused: BTreeSet<u32>,
    slots: Vec<Slot>,
    /// Slots that may be granted.
    free: BTreeSet<u32>,
    /// Busy slots by the time from which they may be granted ahead.
    ahead: IndexedHeap,
    numbers: u64,
}

#[derive(Debug, Clone, Copy)]
struct Model {
    candidate: Candidate,
    granted: Option<Granted>,
}

#[derive(Debug, Clone, Copy)]
struct Granted {
    ticket: Ticket,
    candidate: Candidate,
}

#[derive(Debug, Clone, Default)]
struct Slot {
    up: bool,
    /// Number of the grant that is not answered.
    granted: Option<u64>,
    /// Number and end of the batches on it: at most one that runs and one behind it.
    batches: Vec<(u64, Nanos)>,
}

// === impl Ranker ===

impl Ranker {
    /// For models and slots below the counts. Every slot is idle.
    pub fn new(models: u32, slots: u32, delay: Delay, max_rows: u32) -> Self {
        let model = Model {
            candidate: Candidate::NONE,
            granted: None,
        };
        let slot = Slot {
            up: true,
            ..Slot::default()
        };
        Self {
            lead: delay.before_start(max_rows),
            models: vec![model; models as usize],
            waiting: IndexedHeap::default(),
            ready: IndexedHeap::default(),
            refused: BTreeSet::new(),
            slots: vec![slot; slots as usize],
            free: (0..slots).collect(),
            ahead: IndexedHeap::default(),
            numbers: 0,
        }
    }

    /// The latest candidate of a model. While a grant to it is under way it is only remembered.
    pub fn on_candidate(&mut self, now: Nanos, model: u32, candidate: Candidate) {
        let Some(of) = self.models.get_mut(model as usize) else {
            return;
        };
        let same = std::mem::replace(&mut of.candidate, candidate) == candidate;
        if of.granted.is_some() || (same && self.refused.contains(&model)) {
            return;
        }
        self.place(now, model);
    }

    /// What became of a grant, or of its batch. `latest` is the model's candidate as it was written
    /// before the reply, or later; `None` when it is being written and will come by itself.
    pub fn on_reply(
        &mut self,
        now: Nanos,
        (model, ticket, reply): (u32, Ticket, Reply),
        latest: Option<Candidate>,
    ) {
        match reply {
            Reply::Used { until } => self.settle(ticket, Some(until)),
            Reply::Unused { .. } => self.settle(ticket, None),
            Reply::Done => self.finish(ticket),
        }
        self.update(now, ticket.slot);
        if reply == Reply::Done {
            self.retry(now);
        } else {
            self.answered(now, model, ticket, reply, latest);
        }
    }

    /// The slot's device is up, with nothing on it.
    pub fn on_up(&mut self, now: Nanos, slot: u32) {
        self.on_down(slot);
        if let Some(of) = self.slots.get_mut(slot as usize) {
            of.up = true;
            self.update(now, slot);
            self.retry(now);
        }
    }

    /// The slot's device is gone. What is still said of its batches is ignored.
    pub fn on_down(&mut self, slot: u32) {
        if let Some(of) = self.slots.get_mut(slot as usize) {
            *of = Slot::default();
            self.free.remove(&slot);
            self.ahead.remove(slot);
        }
    }

    /// Gives free slots to what is ready by now, first by rank. To be called when everything that
    /// is known has been told, and when [`Self::next_timer`] says.
    pub fn grant(&mut self, now: Nanos, grants: &mut Vec<Grant>) {
        while let Some((at, slot)) = self.ahead.first()
            && at <= now
        {
            self.ahead.remove(slot);
            self.free.insert(slot);
        }
        if self.free.is_empty() {
            return;
        }
        while let Some((at, model)) = self.waiting.first()
            && at <= now
        {
            self.place(now, model);
        }
        while let Some((_, model)) = self.ready.first()
            && let Some(slot) = self.free.pop_first()
        {
            grants.push(self.give(model, slot));
        }
    }

    /// When [`Self::grant`] is next worth calling if nothing happens before: with a free slot when
    /// a candidate is ready, without one when a slot may be granted ahead.
    pub fn next_timer(&self) -> Option<Nanos> {
        if !self.free.is_empty() {
            return self.waiting.first().map(|(at, _)| at);
        }
        let wanted = !self.ready.is_empty() || !self.waiting.is_empty();
        self.ahead.first().filter(|_| wanted).map(|(at, _)| at)
    }

    /// What is known of a slot.
    pub fn placed(&self, slot: u32) -> Placed {
        match self.slots.get(slot as usize) {
            Some(of) if of.granted.is_some() => Placed::Granted,
            Some(of) if of.up && of.batches.is_empty() => Placed::Idle,
            Some(of) if of.up => Placed::Busy,
            _ => Placed::Down,
        }
    }

    /// Puts a model's candidate where it belongs.
    fn place(&mut self, now: Nanos, model: u32) {
        self.waiting.remove(model);
        self.ready.remove(model);
        self.refused.remove(&model);
        let Candidate { ready_at, key } = self.models[model as usize].candidate;
        if ready_at <= now {
            self.ready.set(model, key);
        } else if ready_at < NEVER {
            self.waiting.set(model, ready_at);
        }
    }

    fn give(&mut self, model: u32, slot: u32) -> Grant {
        self.ready.remove(model);
        self.numbers += 1;
        let number = self.numbers;
        let ticket = Ticket { slot, number };
        let of = &mut self.models[model as usize];
        of.granted = Some(Granted {
            ticket,
            candidate: of.candidate,
        });
        let slot = &mut self.slots[slot as usize];
        slot.granted = Some(number);
        Grant {
            model,
            ticket,
            free_at: slot.batches.last().map_or(0, |(_, until)| *until),
        }
    }

    /// The model may be granted again.
    fn answered(
        &mut self,
        now: Nanos,
        model: u32,
        ticket: Ticket,
        reply: Reply,
        latest: Option<Candidate>,
    ) {
        let Some(of) = self.models.get_mut(model as usize) else {
            return;
        };
        let Some(granted) = of.granted.take_if(|granted| granted.ticket == ticket) else {
            return;
        };
        of.candidate = latest.unwrap_or(Candidate::NONE);
        match reply {
            Reply::Unused { again } if of.candidate == granted.candidate => {
                self.refused.insert(model);
                if (now + 1..NEVER).contains(&again) {
                    self.waiting.set(model, again);
                }
            }
            _ => self.place(now, model),
        }
    }

    fn settle(&mut self, ticket: Ticket, until: Option<Nanos>) {
        let Some(slot) = self.slots.get_mut(ticket.slot as usize) else {
            return;
        };
        let granted = slot.granted.take_if(|number| *number == ticket.number);
        if let (Some(number), Some(until)) = (granted, until) {
            slot.batches.push((number, until));
        }
    }

    fn finish(&mut self, ticket: Ticket) {
        if let Some(slot) = self.slots.get_mut(ticket.slot as usize) {
            slot.batches.retain(|(number, _)| *number != ticket.number);
        }
    }

    /// Puts a slot where it belongs.
    fn update(&mut self, now: Nanos, slot: u32) {
        self.free.remove(&slot);
        self.ahead.remove(slot);
        let Some(of) = self.slots.get(slot as usize) else {
            return;
        };
        if !of.up || of.granted.is_some() {
            return;
        }
        match of.batches[..] {
            [] => {
                self.free.insert(slot);
            }
            [(_, until)] if self.lead > 0 => {
                let from = until.saturating_sub(self.lead);
                if from <= now {
                    self.free.insert(slot);
                } else {
                    self.ahead.set(slot, from);
                }
            }
            _ => {}
        }
    }

    /// Another slot may suit those that refused one.
    fn retry(&mut self, now: Nanos) {
        while let Some(model) = self.refused.first().copied() {
            self.place(now, model);
        }
    }
}
