//! What is done about an instance that something else slows down (INFaaS, section 4.2: it is moved to
//! other resources of its worker, otherwise to the least loaded worker).
//!
//! 1. The worker is told to keep to other cores ([`quieter_cores`]), which takes effect at once and
//!    loads nothing.
//!    A worker whose threads are as many as its cores keeps to those of them that others leave alone, and to all
//!    again once others have gone.
//! 2. Where there are none, or where it did not help, the variant leaves for workers of the same type that are not
//!    slowed down themselves and have time for it: where one has it already it is only unloaded here, else it moves
//!    to the least busy of them. It is loaded there first and unloaded here after.
//! 3. Where there is no such worker either, the autoscaler adds one, once all of a type are slowed down
//!    (`sextant_scaling::fleet`).
//!
//! Meanwhile queries go to workers first that nothing slows down.

use sextant_types::index::{DeviceIx, KindIx, VariantIx};
use std::collections::BTreeMap;

/// Share of a core's time beyond which others use it too much to move there.
const TAKEN: f64 = 0.5;

/// Share of its time up to which a worker has time for what another one has answered.
const FULL: f64 = 0.8;

/// By how much less others must use the cores that are moved to, share of their time.
const WORTH_IT: f64 = 0.2;

/// How patient relief is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// Time for new cores to help before variants move, ms. A worker's monitor needs some seconds to
    /// notice ([`crate::Thresholds::leave_windows`]).
    pub settle_ms: u64,
    /// A worker is not told again to keep to other cores before, ms.
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

/// A worker, as far as interference goes.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Place {
    /// The caller's number of it.
    pub worker: DeviceIx,
    /// The caller's number of its type.
    pub kind: KindIx,
    /// Share of its time in which it is busy, 0 to 1.
    pub busy_share: f64,
    /// The variants of it that are interfered; none where nothing slows it down.
    pub interfered: Vec<VariantIx>,
    /// The variants that it serves.
    pub serves: Vec<VariantIx>,
}

/// What has to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// A worker is to keep to other cores. To be answered by [`Mitigation::on_repinned`].
    Repin {
        /// Which worker.
        worker: DeviceIx,
    },
    /// A variant is to move to one of these workers, the best first. Ordered at each look until it is
    /// interfered no more.
    Move {
        /// Which variant.
        variant: VariantIx,
        /// From which worker.
        from: DeviceIx,
        /// To which.
        to: Vec<DeviceIx>,
    },
    /// A variant is to leave a worker, because these others have it and have time for it.
    Leave {
        /// Which variant.
        variant: VariantIx,
        /// Which worker.
        from: DeviceIx,
        /// Who has it.
        stay: Vec<DeviceIx>,
    },
}

/// What was done for a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Remedy {
    at_ms: u64,
    /// Whether it has found other cores; `None` while it has not answered.
    found: Option<bool>,
}

/// Work of a worker that was left to others, which do not show it yet.
#[derive(Debug, Clone, PartialEq)]
struct Handover {
    at_ms: u64,
    /// Share of a worker's time that it takes.
    busy_share: f64,
    to: Vec<DeviceIx>,
}

/// Who is slowed down and what was done about it.
#[derive(Debug, Clone, Default)]
pub struct Mitigation {
    patience: Patience,
    told: BTreeMap<DeviceIx, Remedy>,
    /// By the worker whose work it was.
    handed: BTreeMap<DeviceIx, Handover>,
}

/// How much others use a core.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CoreUse {
    /// Its number.
    pub core: usize,
    /// Share of its time that others have used, 0 to 1.
    pub others: f64,
}

// === impl Mitigation ===

impl Mitigation {
    /// Before anything has happened.
    pub fn new(patience: Patience) -> Self {
        Self {
            patience,
            told: BTreeMap::new(),
            handed: BTreeMap::new(),
        }
    }

    /// What has to be done now. `places` are all workers that may be used.
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

    /// The workers of a worker's type that nothing slows down, the least busy first, with what has just been left to them.
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

    /// What others than `from` have just left to a worker, share of its time.
    fn handed_to(&self, worker: DeviceIx, from: DeviceIx) -> f64 {
        let handed = self.handed.iter().filter(|(of, _)| **of != from);
        let handed = handed.filter(|(_, it)| it.to.contains(&worker));
        handed
            .map(|(_, it)| it.busy_share / it.to.len() as f64)
            .sum()
    }

    /// Remembers whom a worker leaves its work to.
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

    /// Whether other cores, or those that a worker still looks for, may end it.
    fn may_help(&self, now_ms: u64, told: Remedy) -> bool {
        let settled = now_ms >= told.at_ms.saturating_add(self.patience.settle_ms);
        !settled && told.found != Some(false)
    }
}

/// All interfered variants of a worker leave for quiet workers of its type, in their order.
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

/// Whether workers have time for all that another one does.
fn has_time(from: &Place, stay: &[&Place]) -> bool {
    let busy: f64 = stay.iter().map(|place| place.busy_share).sum();
    !stay.is_empty() && busy + from.busy_share <= FULL * stay.len() as f64
}

/// The `count` cores that others use least, in order of their numbers, if threads that keep to `now`
/// (anywhere where it is empty) are better off there. `cores` are all that they may use. Where those are no more than
/// `count`, the ones that others leave alone: threads that share a core of their own are done sooner, one after the
/// other, than one that shares it with somebody who never rests.
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
    // Of cores that others use alike, those that are kept to now: they have what was computed on in
    // their caches.
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

/// Whether threads that keep to `now` may have all of `cores` again: fewer than they are, because others used the rest,
/// and others leave that alone now.
pub fn may_spread(cores: &[CoreUse], now: &[usize], count: usize) -> bool {
    let mut rest = cores.iter().filter(|of| !now.contains(&of.core)).peekable();
    let is_crowded = !now.is_empty() && now.len() < count.min(cores.len());
    is_crowded && rest.peek().is_some() && rest.all(|of| of.others <= TAKEN - WORTH_IT)
}

fn mean(cores: &[&CoreUse]) -> f64 {
    let sum: f64 = cores.iter().map(|of| of.others).sum();
    sum / cores.len().max(1) as f64
}
