//! Clients that wait for their answers.

use std::{cmp::Reverse, collections::BinaryHeap};

use sextant_schedule::Nanos;

use crate::{Arrival, Source};

/// Clients, each of which has one request under way and sends the next when it has been answered.
#[derive(Debug)]
pub struct ClosedLoop {
    /// (when, order, model, client).
    ready: BinaryHeap<Reverse<(Nanos, u64, u32, u32)>>,
    order: u64,
    /// By model and client: when it last sent a request.
    sent: Vec<Vec<Nanos>>,
    think: Nanos,
}

/// The least time between two requests of a client, ns. Otherwise a client that is refused at once
/// would ask again without time passing.
const LEAST_CYCLE: Nanos = 1_000_000;

/// Several sources as one. Each model belongs to one of them.
pub struct MixedSource {
    sources: Vec<Box<dyn Source>>,
    /// By model: its source.
    owner: Vec<usize>,
    first: usize,
}

// === impl ClosedLoop ===

impl ClosedLoop {
    /// `clients` for each of the `models`, which wait `think` ns between an answer and the next
    /// request. They begin one after the other within a millisecond.
    pub fn new(models: &[u32], clients: u32, think: Nanos) -> Self {
        let mut source = Self {
            ready: BinaryHeap::new(),
            order: 0,
            sent: Vec::new(),
            think,
        };
        let count = (models.len() as u64 * u64::from(clients)).max(1);
        for client in 0..clients {
            for model in models {
                let at = source.order * LEAST_CYCLE / count;
                source.wait_until(at, *model, client);
            }
        }
        source
    }

    fn wait_until(&mut self, at: Nanos, model: u32, client: u32) {
        self.ready.push(Reverse((at, self.order, model, client)));
        self.order += 1;
    }

    fn sent_by(&mut self, model: u32, client: u32) -> &mut Nanos {
        let (model, client) = (model as usize, client as usize);
        if self.sent.len() <= model {
            self.sent.resize(model + 1, Vec::new());
        }
        let clients = &mut self.sent[model];
        if clients.len() <= client {
            clients.resize(client + 1, 0);
        }
        &mut clients[client]
    }
}

impl Source for ClosedLoop {
    fn peek(&mut self) -> Option<Nanos> {
        self.ready.peek().map(|Reverse((at, ..))| *at)
    }

    fn next(&mut self) -> Arrival {
        let Reverse((at, _, model, client)) =
            self.ready.pop().expect("asked only when there is a next");
        *self.sent_by(model, client) = at;
        Arrival { at, model, client }
    }

    fn on_answer(&mut self, now: Nanos, model: u32, client: u32) {
        let earliest = *self.sent_by(model, client) + LEAST_CYCLE;
        self.wait_until((now + self.think).max(earliest), model, client);
    }
}

// === impl MixedSource ===

impl MixedSource {
    /// Combines sources, each with its models.
    pub fn new(sources: Vec<(Vec<u32>, Box<dyn Source>)>) -> Self {
        let mut owner = Vec::new();
        let mut merged = Vec::new();
        for (at, (models, source)) in sources.into_iter().enumerate() {
            for model in models {
                let model = model as usize;
                if owner.len() <= model {
                    owner.resize(model + 1, 0);
                }
                owner[model] = at;
            }
            merged.push(source);
        }
        Self {
            sources: merged,
            owner,
            first: 0,
        }
    }
}

impl Source for MixedSource {
    fn peek(&mut self) -> Option<Nanos> {
        let mut least = None;
        for (at, source) in self.sources.iter_mut().enumerate() {
            let Some(next) = source.peek() else { continue };
            if least.is_none_or(|least| next < least) {
                least = Some(next);
                self.first = at;
            }
        }
        least
    }

    fn next(&mut self) -> Arrival {
        let _ = self.peek();
        self.sources[self.first].next()
    }

    fn on_answer(&mut self, now: Nanos, model: u32, client: u32) {
        if let Some(at) = self.owner.get(model as usize) {
            self.sources[*at].on_answer(now, model, client);
        }
    }

    fn on_drop(&mut self, now: Nanos, model: u32, client: u32) {
        if let Some(at) = self.owner.get(model as usize) {
            self.sources[*at].on_drop(now, model, client);
        }
    }
}
