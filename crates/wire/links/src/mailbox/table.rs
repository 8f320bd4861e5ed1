//! The batches and inputs that have arrived. Pure state: this module uses no clock and no link.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use sextant_rpc::{Infer, InferError, Part, Ticket};
use sextant_types::NamedTensor;

use super::{MailboxOptions, ServerLink};

/// What arrived for a ticket.
pub(super) enum Content {
    Inputs {
        inputs: Vec<NamedTensor>,
        rows: u32,
    },
    /// No inputs will come; the reason.
    Never(InferError),
}

/// One part of a batch.
pub(super) enum Slot {
    /// Its inputs came with the batch.
    Own(Vec<NamedTensor>),
    /// Nothing has arrived for it.
    Wanted(Ticket),
    /// What arrived for it, from where and when.
    Held(Ticket, Content, ServerLink, Instant),
}

/// A batch with parts whose inputs come from front ends.
pub(super) struct Batch {
    /// The batch without its parts.
    pub(super) infer: Infer,
    pub(super) slots: Vec<Slot>,
    pub(super) arrived: Instant,
    /// Number of parts for which nothing has arrived.
    wanted: usize,
    /// Bytes of the inputs that have arrived for it from front ends.
    bytes: u64,
}

pub(super) enum Put {
    /// It was the last one that the batch needed.
    Complete(Box<Batch>),
    /// It is stored. `sooner` is true if the expiry timer must be moved forward.
    Kept {
        sooner: bool,
    },
    NoRoom,
}

pub(super) enum AddOutcome {
    /// Everything that it needs was there.
    Complete(Box<Batch>),
    /// It waits; see [`Put::Kept`].
    Waits { sooner: bool },
}

/// Batches and inputs that have waited too long.
pub(super) struct Due {
    pub(super) batches: Vec<Batch>,
    pub(super) inputs: Vec<(Ticket, ServerLink)>,
    /// When to look again.
    pub(super) next: Option<Instant>,
}

/// Inputs whose batch has not arrived.
struct EarlyInputs {
    content: Content,
    link: ServerLink,
    at: Instant,
    bytes: u64,
}

pub(super) struct Table {
    options: MailboxOptions,
    next: u64,
    batches: HashMap<u64, Box<Batch>>,
    /// By ticket: the batch that needs its inputs, and the part.
    wanted: HashMap<Ticket, (u64, usize)>,
    early: HashMap<Ticket, EarlyInputs>,
    /// Bytes of all waiting inputs.
    bytes: u64,
    /// When the keeper looks next.
    look: Option<Instant>,
}

/// Time before its latest start at which a batch must reach the worker: timers are late by up to 1 ms.
const MARGIN: Duration = Duration::from_millis(2);

/// Assumed speed of inputs, about a gigabit a second, which extends the wait for them.
const BYTES_PER_US: u64 = 100;

fn bytes_of(inputs: &[NamedTensor]) -> u64 {
    let bytes = inputs.iter().map(|input| input.tensor.byte_len() as u64);
    bytes.sum()
}

// === impl Batch ===

impl Batch {
    /// Returns a batch that needs nothing from a front end.
    pub(super) fn new(mut infer: Infer, arrived: Instant) -> Result<Self, Infer> {
        if !infer.parts.iter().any(|part| matches!(part, Part::Held(_))) {
            return Err(infer);
        }
        let parts = std::mem::take(&mut infer.parts).into_iter();
        let slots = parts.map(|part| match part {
            Part::Inputs(inputs) => Slot::Own(inputs),
            Part::Held(ticket) => Slot::Wanted(ticket),
        });
        Ok(Self {
            slots: slots.collect(),
            infer,
            arrived,
            wanted: 0,
            bytes: 0,
        })
    }

    /// When the batch is passed on without the missing inputs. However late its latest start is, parts with inputs do
    /// not wait for a front end that may be gone.
    fn due(&self, options: &MailboxOptions) -> Instant {
        let patient = match self.slots.iter().all(Slot::is_wanted) {
            // Without a part that can run, the wait delays no query.
            true => self.arrived + options.longest_wait.saturating_mul(self.doublings()),
            false => self.infer.earliest.max(self.arrived) + self.patience(options),
        };
        let Some(latest) = self.infer.latest else {
            return patient;
        };
        let ahead = latest.saturating_duration_since(self.arrived);
        let before = latest.checked_sub(MARGIN.min(ahead / 2));
        patient.min(before.unwrap_or(latest))
    }

    /// Time for which the batch waits for the inputs of some of its parts: longer for large inputs, whose size is
    /// estimated from those that are there.
    fn patience(&self, options: &MailboxOptions) -> Duration {
        let patience = options.patience.saturating_mul(self.doublings());
        let largest = self.slots.iter().map(Slot::bytes).max().unwrap_or(0);
        let bytes = largest.saturating_mul(self.slots.len() as u64);
        patience.min(options.longest_wait) + Duration::from_micros(bytes / BYTES_PER_US)
    }

    /// Factor by which the wait is longer than at first, because missing inputs were missed before.
    fn doublings(&self) -> u32 {
        let missed = self.slots.iter().filter_map(|slot| match slot {
            Slot::Wanted(ticket) => Some(ticket.placed_before()),
            Slot::Own(_) | Slot::Held(..) => None,
        });
        2u32.saturating_pow(missed.max().unwrap_or(0))
    }
}

// === impl Slot ===

impl Slot {
    /// Bytes of its inputs that are there.
    fn bytes(&self) -> u64 {
        match self {
            Self::Own(inputs) => bytes_of(inputs),
            Self::Held(_, content, ..) => content.bytes(),
            Self::Wanted(_) => 0,
        }
    }

    fn is_wanted(&self) -> bool {
        matches!(self, Self::Wanted(_))
    }
}

// === impl Content ===

impl Content {
    fn bytes(&self) -> u64 {
        match self {
            Self::Inputs { inputs, .. } => bytes_of(inputs),
            Self::Never(_) => 0,
        }
    }
}

// === impl Table ===

impl Table {
    pub(super) fn new(options: MailboxOptions) -> Self {
        Self {
            options,
            next: 0,
            batches: HashMap::new(),
            wanted: HashMap::new(),
            early: HashMap::new(),
            bytes: 0,
            look: None,
        }
    }

    /// Adds what arrived for `ticket` on `link`.
    pub(super) fn put(
        &mut self,
        ticket: Ticket,
        content: Content,
        link: &ServerLink,
        now: Instant,
    ) -> Put {
        let bytes = content.bytes();
        let fits = self.bytes.saturating_add(bytes) <= self.options.max_bytes;
        if !fits && !self.completes(&ticket) {
            return Put::NoRoom;
        }
        self.bytes += bytes;
        let link = ServerLink::clone(link);
        let wanted = self.wanted.remove(&ticket);
        let Some((id, part, batch)) =
            wanted.and_then(|(id, part)| Some((id, part, self.batches.get_mut(&id)?)))
        else {
            return self.put_early(ticket, content, link, now);
        };
        batch.slots[part] = Slot::Held(ticket, content, link, now);
        batch.bytes += bytes;
        batch.wanted -= 1;
        let due = batch.due(&self.options);
        match batch.wanted {
            0 => self
                .take(id)
                .map_or(Put::Kept { sooner: false }, Put::Complete),
            _ => Put::Kept {
                sooner: self.look_by(due),
            },
        }
    }

    /// Whether a batch waits only for this: then it goes to the worker with the batch and does not wait here.
    fn completes(&self, ticket: &Ticket) -> bool {
        let batch = self.wanted.get(ticket);
        let batch = batch.and_then(|(id, _)| self.batches.get(id));
        batch.is_some_and(|batch| batch.wanted == 1)
    }

    fn put_early(
        &mut self,
        ticket: Ticket,
        content: Content,
        link: ServerLink,
        now: Instant,
    ) -> Put {
        let early = EarlyInputs {
            bytes: content.bytes(),
            content,
            link,
            at: now,
        };
        if let Some(replaced) = self.early.insert(ticket, early) {
            self.bytes -= replaced.bytes;
        }
        Put::Kept {
            sooner: self.look_by(now + self.options.keep),
        }
    }

    /// Adds a batch, with what has arrived for it.
    pub(super) fn add(&mut self, mut batch: Batch) -> AddOutcome {
        self.next += 1;
        for (part, slot) in batch.slots.iter_mut().enumerate() {
            let Slot::Wanted(ticket) = *slot else {
                continue;
            };
            match self.early.remove(&ticket) {
                Some(early) => {
                    *slot = Slot::Held(ticket, early.content, early.link, early.at);
                    batch.bytes += early.bytes;
                }
                None => {
                    self.wanted.insert(ticket, (self.next, part));
                    batch.wanted += 1;
                }
            }
        }
        if batch.wanted == 0 {
            self.bytes -= batch.bytes;
            return AddOutcome::Complete(Box::new(batch));
        }
        let due = batch.due(&self.options);
        self.batches.insert(self.next, Box::new(batch));
        AddOutcome::Waits {
            sooner: self.look_by(due),
        }
    }

    /// Removes and returns what has waited too long.
    pub(super) fn take_due(&mut self, now: Instant) -> Due {
        let options = self.options;
        let batches = self.batches.iter();
        let late = batches.filter(|(_, batch)| batch.due(&options) <= now);
        let mut ids: Vec<u64> = late.map(|(id, _)| *id).collect();
        ids.sort_unstable();
        let batches = ids.into_iter().filter_map(|id| self.take(id));
        let batches = batches.map(|batch| *batch).collect();
        let gone = self
            .early
            .extract_if(|_, early| early.at + options.keep <= now);
        let mut inputs = Vec::new();
        for (ticket, early) in gone {
            self.bytes -= early.bytes;
            inputs.push((ticket, early.link));
        }
        let dues = self.batches.values().map(|batch| batch.due(&options));
        let ends = self.early.values().map(|early| early.at + options.keep);
        self.look = dues.chain(ends).min();
        Due {
            batches,
            inputs,
            next: self.look,
        }
    }

    /// Bytes of the waiting inputs.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Removes and returns every batch.
    pub(super) fn take_all(&mut self) -> Vec<Batch> {
        self.wanted.clear();
        self.batches.drain().map(|(_, batch)| *batch).collect()
    }

    fn take(&mut self, id: u64) -> Option<Box<Batch>> {
        let batch = self.batches.remove(&id)?;
        for slot in &batch.slots {
            if let Slot::Wanted(ticket) = slot {
                self.wanted.remove(ticket);
            }
        }
        self.bytes -= batch.bytes;
        Some(batch)
    }

    /// Whether the keeper must be told to look by `due`.
    fn look_by(&mut self, due: Instant) -> bool {
        let sooner = self.look.is_none_or(|look| due < look);
        if sooner {
            self.look = Some(due);
        }
        sooner
    }
}
