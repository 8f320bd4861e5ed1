//! An emulated worker: one device with a page cache, one executor for batches and one for LOADs.
//!
//! It follows orders and decides nothing (Clockwork, sections 4.3 and 5.2). Each executor runs one action at a time, in
//! the order of `earliest`, starts it no earlier than that and rejects it after `latest`. The two executors run
//! concurrently. A LOAD without enough free pages fails, an UNLOAD takes no time, and a batch whose weights are
//! unloaded fails.

mod executor;

use std::collections::BTreeMap;

use rand_chacha::ChaCha8Rng;
use sextant_schedule::Nanos;
use sextant_types::index::VariantIx;

use super::telemetry::Failure;
use executor::Executor;
use sextant_simulator::Jitter;

/// An order to a worker.
#[derive(Debug, Clone, Copy)]
pub(super) enum Order {
    /// Run a batch that takes `profile` ns by its profile.
    Infer {
        batch: u32,
        model: VariantIx,
        window: Window,
        profile: Nanos,
    },
    /// Load a model.
    Load {
        model: VariantIx,
        pages: u32,
        window: Window,
        profile: Nanos,
    },
    /// Give a model's pages back.
    Unload { model: VariantIx },
}

/// When an action may start, ns.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    pub(super) earliest: Nanos,
    pub(super) latest: Nanos,
}

/// The outcome of an order.
#[derive(Debug, Clone, Copy)]
pub(super) enum Outcome {
    Infer {
        batch: u32,
        ran: Result<RunSpan, Failure>,
    },
    Load {
        model: VariantIx,
        ran: Result<RunSpan, Failure>,
    },
    Unload {
        model: VariantIx,
    },
}

/// Start and end of a run, ns.
#[derive(Debug, Clone, Copy)]
pub(super) struct RunSpan {
    pub(super) start: Nanos,
    pub(super) end: Nanos,
}

#[derive(Debug)]
pub(super) struct Worker {
    exec: Executor<Infer>,
    load: Executor<Load>,
    free_pages: u32,
    /// Models that occupy pages.
    held: BTreeMap<VariantIx, Holding>,
    noise: Noise,
}

/// The scatter of run times.
#[derive(Debug)]
pub(super) struct Noise {
    pub(super) infer: Jitter,
    pub(super) load: Jitter,
    pub(super) random: ChaCha8Rng,
}

#[derive(Debug, Clone, Copy)]
struct Holding {
    pages: u32,
    loaded: bool,
}

#[derive(Debug, Clone, Copy)]
struct Infer {
    batch: u32,
    model: VariantIx,
    profile: Nanos,
}

#[derive(Debug, Clone, Copy)]
struct Load {
    model: VariantIx,
    pages: u32,
    profile: Nanos,
}

// === impl Worker ===

impl Worker {
    pub(super) fn new(pages: u32, noise: Noise) -> Self {
        Self {
            exec: Executor::new(),
            load: Executor::new(),
            free_pages: pages,
            held: BTreeMap::new(),
            noise,
        }
    }

    pub(super) fn is_loaded(&self, model: VariantIx) -> bool {
        self.held.get(&model).is_some_and(|held| held.loaded)
    }

    /// Takes an order, and starts what can start.
    pub(super) fn deliver(&mut self, now: Nanos, order: Order, outcomes: &mut Vec<Outcome>) {
        match order {
            Order::Infer {
                batch,
                model,
                window,
                profile,
            } => {
                let infer = Infer {
                    batch,
                    model,
                    profile,
                };
                self.exec.push(window, infer);
                self.start_batches(now, outcomes);
            }
            Order::Load {
                model,
                pages,
                window,
                profile,
            } => {
                let load = Load {
                    model,
                    pages,
                    profile,
                };
                self.load.push(window, load);
                self.start_loads(now, outcomes);
            }
            Order::Unload { model } => {
                self.unload(model);
                outcomes.push(Outcome::Unload { model });
            }
        }
    }

    /// The time of the next event; never earlier than the last event.
    pub(super) fn next(&self) -> Option<Nanos> {
        let next = [self.exec.next(), self.load.next()];
        next.into_iter().flatten().min()
    }

    /// Ends what has ended by `now` and starts what may start. LOADs end first, so that a batch may start at the same
    /// time.
    pub(super) fn advance(&mut self, now: Nanos, outcomes: &mut Vec<Outcome>) {
        if let Some(ended) = self.load.ended(now) {
            let model = ended.action.model;
            if let (Some(held), false) = (self.held.get_mut(&model), ended.spoilt) {
                held.loaded = true;
            }
            let ran = ended.result();
            outcomes.push(Outcome::Load { model, ran });
        }
        if let Some(ended) = self.exec.ended(now) {
            let batch = ended.action.batch;
            let ran = ended.result();
            outcomes.push(Outcome::Infer { batch, ran });
        }
        self.start_loads(now, outcomes);
        self.start_batches(now, outcomes);
    }

    fn start_batches(&mut self, now: Nanos, outcomes: &mut Vec<Outcome>) {
        while let Some((window, infer)) = self.exec.take(now) {
            let failure = if now > window.latest {
                Failure::TooLate
            } else if self.is_loaded(infer.model) {
                let nanos = self
                    .noise
                    .infer
                    .apply(infer.profile, &mut self.noise.random);
                self.exec.run(now, nanos, infer);
                continue;
            } else {
                Failure::NotLoaded
            };
            outcomes.push(Outcome::Infer {
                batch: infer.batch,
                ran: Err(failure),
            });
        }
    }

    fn start_loads(&mut self, now: Nanos, outcomes: &mut Vec<Outcome>) {
        while let Some((window, load)) = self.load.take(now) {
            let failure = if now > window.latest {
                Failure::TooLate
            } else if load.pages > self.free_pages || self.held.contains_key(&load.model) {
                Failure::NoMemory
            } else {
                self.free_pages -= load.pages;
                let held = Holding {
                    pages: load.pages,
                    loaded: false,
                };
                self.held.insert(load.model, held);
                let nanos = self.noise.load.apply(load.profile, &mut self.noise.random);
                self.load.run(now, nanos, load);
                continue;
            };
            outcomes.push(Outcome::Load {
                model: load.model,
                ran: Err(failure),
            });
        }
    }

    fn unload(&mut self, model: VariantIx) {
        let Some(held) = self.held.remove(&model) else {
            return;
        };
        self.free_pages += held.pages;
        if let Some(running) = &mut self.exec.running {
            running.spoilt |= running.action.model == model;
        }
        if let Some(running) = &mut self.load.running {
            running.spoilt |= running.action.model == model;
        }
    }
}
