//! The treatment of an instance that something else slows down (INFaaS, section 4.2: it is moved to other resources of
//! its worker, otherwise to the least loaded worker).
//!
//! 1. The worker is told to keep to other cores ([`quieter_cores`]). This takes effect at once and loads nothing. A
//!    worker that has as many threads as cores keeps to those cores that others leave alone, and uses all again once
//!    the others have gone.
//! 2. If there are no such cores, or if they did not help, the variant leaves for workers of the same type that are not
//!    slowed down themselves and have time for it. If such workers already have the variant, it is only unloaded here.
//!    Otherwise it moves to the least busy of them: it is loaded there first and unloaded here afterwards.
//! 3. If there is no such worker either, the autoscaler adds one once all workers of a type are slowed down
//!    (`sextant_scaling::fleet`).
//!
//! In the meantime queries prefer workers that nothing slows down.

use sextant_types::index::{DeviceIx, KindIx, VariantIx};
use std::collections::BTreeMap;

/// The share of a core's time above which others use the core too much for a move to it.
const TAKEN: f64 = 0.5;

/// The utilisation up to which a worker has time for the work of another.
const FULL: f64 = 0.8;

/// By how much less others must use the new cores for a move to be worthwhile, as a share of their time.
const WORTH_IT: f64 = 0.2;

/// The pauses of the treatment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// The time for new cores to help before variants move, ms. A worker's monitor needs some seconds to notice
    /// ([`crate::Thresholds::leave_windows`]).
    pub settle_ms: u64,
    /// The time before a worker is told again to keep to other cores, ms.
    pub again_ms: u64,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            settle_ms: 10_000,
            again_ms: 60_000,
        }
    }
}

/// The facts about a worker that matter for interference.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Place {
    /// The caller's number of the worker.
    pub worker: DeviceIx,
    /// The caller's number of its type.
    pub kind: KindIx,
    /// Share of its time in which it is busy, 0 to 1.
    pub busy_share: f64,
    /// Its variants that are interfered; empty if nothing slows it down.
    pub interfered: Vec<VariantIx>,
    /// The variants that it serves.
    pub serves: Vec<VariantIx>,
}

/// An action that must be carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// A worker must keep to other cores. The caller answers with [`Mitigation::on_repinned`].
    Repin {
        /// The worker.
        worker: DeviceIx,
    },
    /// A variant must move to one of these workers, best first. It is ordered at each look until the variant is no
    /// longer interfered.
    Move {
        /// The variant.
        variant: VariantIx,
        /// The worker that it leaves.
        from: DeviceIx,
        /// The workers to which it may move.
        to: Vec<DeviceIx>,
    },
    /// A variant must leave a worker, because these other workers have it and have time for it.
    Leave {
        /// The variant.
        variant: VariantIx,
        /// The worker that it leaves.
        from: DeviceIx,
        /// The workers that keep it.
        stay: Vec<DeviceIx>,
    },
}

/// The treatment of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Remedy {
    at_ms: u64,
    /// Whether it has found other cores; `None` until it answers.
    found: Option<bool>,
}

/// Work of a worker that was handed to other workers, whose utilisation does not show it yet.
#[derive(Debug, Clone, PartialEq)]
struct Handover {
    at_ms: u64,
    /// The share of a worker's time that the work takes.
    busy_share: f64,
    to: Vec<DeviceIx>,
}

/// The workers that are slowed down, and their treatment.
#[derive(Debug, Clone, Default)]
pub struct Mitigation {
    patience: Patience,
    told: BTreeMap<DeviceIx, Remedy>,
    /// By the worker that handed over the work.
    handed: BTreeMap<DeviceIx, Handover>,
}

/// The use of a core by others.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CoreUse {
    /// The number of the core.
    pub core: usize,
    /// Share of its time that others have used, 0 to 1.
    pub others: f64,
}

// === impl Mitigation ===

impl Mitigation {
    /// Makes an instance without history.
    pub fn new(patience: Patience) -> Self {
        Self {
            patience,
            told: BTreeMap::new(),
            handed: BTreeMap::new(),
        }
    }

    /// The actions that are due now. `places` are all workers that may be used.
    pub fn look(&mut self, now_ms: u64, places: &[Place]) -> Vec<Order> {
        let Patience {
            settle_ms,
            again_ms,
        } = self.patience;
        self.told
            .retain(|_, told| now_ms < told.at_ms.saturating_add(again_ms));
        self.handed
            .retain(|_, handed| now_ms < handed.at_ms.saturating_add(settle_ms));
        let mut orders = Vec::new();
        for place in places.iter().filter(|place| !place.interfered.is_empty()) {
            match self.told.get(&place.worker).copied() {
                None => {
                    let told = Remedy {
                        at_ms: now_ms,
                        found: None,
                    };
                    self.told.insert(place.worker, told);
                    orders.push(Order::Repin {
                        worker: place.worker,
                    });
                }
                Some(told) if self.may_help(now_ms, told) => {}
                Some(_) => {
                    let moves = moves(place, &self.quiet(place, places));
                    self.note(now_ms, place, &moves);
                    orders.extend(moves);
                }
            }
        }
        orders
    }

    /// A worker has said whether it keeps to other cores now.
    pub fn on_repinned(&mut self, worker: DeviceIx, found: bool) {
        if let Some(told) = self.told.get_mut(&worker) {
            told.found = Some(found);
        }
    }

    /// A worker is gone, or another one has its number.
    pub fn forget(&mut self, worker: DeviceIx) {
        self.told.remove(&worker);
    }

    /// The workers of the same type that nothing slows down, the least busy first, including the work that was just
    /// handed to them.
    fn quiet(&self, from: &Place, places: &[Place]) -> Vec<Place> {
        let quiet = places.iter().filter(|other| {
            other.worker != from.worker && other.kind == from.kind && other.interfered.is_empty()
        });
        let mut quiet: Vec<Place> = quiet
            .map(|other| Place {
                busy_share: other.busy_share + self.handed_to(other.worker, from.worker),
                ..other.clone()
            })
            .collect();
        quiet.sort_by(|a, b| {
            let by_load = a.busy_share.total_cmp(&b.busy_share);
            by_load.then_with(|| a.worker.cmp(&b.worker))
        });
        quiet
    }

    /// The share of a worker's time for work that workers other than `from` have just handed to it.
    fn handed_to(&self, worker: DeviceIx, from: DeviceIx) -> f64 {
        let handed = self.handed.iter().filter(|(of, _)| **of != from);
        let handed = handed.filter(|(_, it)| it.to.contains(&worker));
        handed
            .map(|(_, it)| it.busy_share / it.to.len() as f64)
            .sum()
    }

    /// Remembers to which workers a worker hands its work.
    fn note(&mut self, now_ms: u64, from: &Place, orders: &[Order]) {
        let left = orders.iter().find_map(|order| match order {
            Order::Leave { stay, .. } => Some(stay),
            _ => None,
        });
        if let Some(stay) = left {
            let handed = Handover {
                at_ms: now_ms,
                busy_share: from.busy_share,
                to: stay.clone(),
            };
            self.handed.insert(from.worker, handed);
        }
    }

    /// Whether other cores, including those that a worker is still looking for, may end the interference.
    fn may_help(&self, now_ms: u64, told: Remedy) -> bool {
        let settled = now_ms >= told.at_ms.saturating_add(self.patience.settle_ms);
        !settled && told.found != Some(false)
    }
}

/// All interfered variants of a worker leave for quiet workers of its type, in the workers' order.
fn moves(from: &Place, quiet: &[Place]) -> Vec<Order> {
    let each = from.interfered.iter().filter_map(|variant| {
        let (stay, to): (Vec<&Place>, Vec<&Place>) = quiet
            .iter()
            .partition(|place| place.serves.contains(variant));
        let of = |places: &[&Place]| places.iter().map(|place| place.worker).collect();
        if has_time(from, &stay) {
            return Some(Order::Leave {
                variant: *variant,
                from: from.worker,
                stay: of(&stay),
            });
        }
        (!to.is_empty()).then(|| Order::Move {
            variant: *variant,
            from: from.worker,
            to: of(&to),
        })
    });
    each.collect()
}

/// Whether these workers have time for all the work of another.
fn has_time(from: &Place, stay: &[&Place]) -> bool {
    let busy: f64 = stay.iter().map(|place| place.busy_share).sum();
    !stay.is_empty() && busy + from.busy_share <= FULL * stay.len() as f64
}

/// The `count` cores that others use least, in order of their numbers, if threads that keep to `now` (anywhere if it is
/// empty) are better off there. `cores` are all cores that they may use. If these are no more than `count`, the cores
/// that others leave alone: threads that share a core of their own one after the other finish sooner than a thread that
/// shares its core with a program that never rests.
pub fn quieter_cores(cores: &[CoreUse], now: &[usize], count: usize) -> Option<Vec<usize>> {
    let left_alone = cores.iter().filter(|of| of.others <= TAKEN).count();
    let count = match count >= cores.len() {
        true => left_alone,
        false => count,
    };
    if count == 0 || count >= cores.len() {
        return None;
    }
    let is_here = |of: &&CoreUse| now.is_empty() || now.contains(&of.core);
    let mut order: Vec<&CoreUse> = cores.iter().collect();
    // Of cores that others use equally, the present ones are preferred, because their caches hold the data of the
    // computation.
    order.sort_by(|a, b| {
        let by_use = a.others.total_cmp(&b.others);
        by_use
            .then_with(|| is_here(b).cmp(&is_here(a)))
            .then_with(|| a.core.cmp(&b.core))
    });
    let chosen = &order[..count];
    let here: Vec<&CoreUse> = cores.iter().filter(is_here).collect();
    let worst = chosen.last().map_or(1.0, |of| of.others);
    if here.is_empty() || worst > TAKEN || mean(&here) - mean(chosen) < WORTH_IT {
        return None;
    }
    let mut chosen: Vec<usize> = chosen.iter().map(|of| of.core).collect();
    chosen.sort_unstable();
    Some(chosen)
}

/// Whether threads that keep to `now` may use all of `cores` again: they keep to fewer cores than there are threads
/// because others used the rest, and others now leave the rest alone.
pub fn may_spread(cores: &[CoreUse], now: &[usize], count: usize) -> bool {
    let mut rest = cores.iter().filter(|of| !now.contains(&of.core)).peekable();
    let is_crowded = !now.is_empty() && now.len() < count.min(cores.len());
    is_crowded && rest.peek().is_some() && rest.all(|of| of.others <= TAKEN - WORTH_IT)
}

fn mean(cores: &[&CoreUse]) -> f64 {
    let sum: f64 = cores.iter().map(|of| of.others).sum();
    sum / cores.len().max(1) as f64
}
