//! Which variant answers a query (INFaaS section 4.1, "Case I").
//!
//! The order of preference is: an instance that is active and meets the targets; else one that is overloaded and meets
//! them even so; else a variant that meets them although it has to be loaded first; else nothing, with the closest
//! variants as a suggestion. Among feasible ones the cheapest wins, and ties go to the less loaded. Six points differ
//! from the paper, each on purpose:
//!
//! * Accuracy targets are compared with the *lower bound* of the measured interval. Agreement with the uploaded file,
//!   which a model without labels has, meets none of them ([`sextant_types::LeastQuality`]).
//! * Latency targets are compared with the expected time *now*: the wait on the instance's device plus the 99th
//!   percentile of the run. A query that would be late is therefore refused at once instead of being served late.
//! * Interfered instances count as active, with the time that runs take there now. What slows them down slows every
//!   variant on the device. The scheduler prefers other devices, and a more expensive variant is worth its price only
//!   if the target requires it.
//! * Overloaded instances come after active ones; the paper never uses them. If their wait leaves the target within
//!   reach, an answer in time is better than a refusal. It is also cheaper than a load, which takes memory and device
//!   time from the same overload. A variant that is not loaded comes next, for the queries that the others would answer
//!   late.
//! * A device as a whole counts as overloaded. Another variant on the device waits for the same slots, and one that
//!   takes longer for a query would fill them further and keep them full after the load is over. Everything that a full
//!   device has loaded therefore counts as overloaded ([`Readiness::Degraded`]), and the cheapest goes first.
//! * Dominated variants are loaded for a query only if no other can answer it. Dominance is judged within the scope of
//!   the query: a model that others of its application dominate is the best choice for a query that names it
//!   ([`mark_dominated`]).
//!
//! If a query prefers accuracy or latency, the most accurate or the quickest of the active variants goes first, instead
//! of the cheapest ([`sextant_types::Prefer`], `preferred.rs`).
//!
//! A variant has an entry for each kind of device, with the latency and the price that it has there.
//!
//! A query without a latency target waits for its load, however long it takes.
//!
//! A look-up must take microseconds with ten thousand variants. The [`Index`] keeps each readiness class in order of
//! cost, as columns, in blocks of [`BLOCK`] with a summary each (lowest latency, highest quality bound). A block that
//! cannot hold a feasible variant is skipped with one comparison, and the first feasible entry ends the search.
//!
//! [`composite`] decides whether a pipeline that is a variant of the application answers in place of the variant chosen
//! here.
//!
//! [`budget`] determines what an application can pay.
//!
//! **Invariant:** no clock, no async, no lock, no I/O, no logging. Time is an argument, order never
//! depends on a hash, and the same inputs give the same answer.

pub mod budget;
mod composite;
mod preferred;
mod verdict;

pub use composite::{Composite, composite};
pub use verdict::{answers_now, distance, expected_ms, verdict};

use sextant_types::{
    LeastQuality, Prefer, Quality,
    index::{KindIx, VariantIx},
};
use std::{cmp::Ordering, collections::BTreeSet};

/// Entries in one block of a column.
pub const BLOCK: usize = 32;

/// The most suggestions that are returned for targets that nothing meets.
pub const SUGGESTIONS: usize = 5;

/// How soon a variant could start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Readiness {
    /// It is loaded on a device that has room.
    Active,
    /// It is loaded, and all devices that have it are full, possibly because of other variants.
    Degraded,
    /// An instance is being loaded.
    Loading,
    /// Not loaded anywhere.
    Inactive,
    /// No worker can load it: its loads failed, or no worker has its engine.
    Failed,
}

impl Readiness {
    /// Lower-case name, as in the state machine.
    pub fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Degraded => "degraded",
            Self::Loading => "loading",
            Self::Inactive => "inactive",
            Self::Failed => "failed",
        }
    }
}

/// What the selection knows of one variant on one kind of device.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The caller's number for the variant. The variant has an entry for each kind of device.
    pub ordinal: VariantIx,
    /// The caller's number for the kind of device.
    pub kind: KindIx,
    /// Lower bound of the measured quality (larger is better). For agreement, the share of the uploaded file's answers.
    pub quality_bound: f64,
    /// Whether `quality_bound` is agreement, which is compared only with agreement ([`Quality`]).
    pub agreement: bool,
    /// 99th percentile of a lone query's run, ms, including the slow-down.
    pub latency_ms: f64,
    /// Time to load, ms.
    pub load_ms: f64,
    /// US dollars for a thousand queries.
    pub cost_per_1k_usd: f64,
    /// The most rows in one query.
    pub max_rows: u32,
    /// Dominated variants are used if they happen to be loaded, and are loaded only as a last resort.
    pub dominated: bool,
    /// How soon it could start.
    pub readiness: Readiness,
}

/// What a query asks for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Demand {
    /// Time left, ms; infinite when there is no target.
    pub latency_ms: f64,
    /// Least quality.
    pub least_quality: LeastQuality,
    /// The highest cost per thousand queries; infinite when there is no target.
    pub max_cost_per_1k_usd: f64,
    /// Rows of the query, at least 1.
    pub rows: u32,
    /// Which of the variants that meet all of this answers.
    pub prefer: Prefer,
}

/// The part of the state that changes with every query. It is asked for candidates only.
pub trait Load {
    /// Time until the least-loaded device of this kind could start a new batch of a variant, ms.
    fn wait_ms(&self, ordinal: VariantIx, kind: KindIx) -> f64;

    /// Time that a batch of `rows` takes there beyond a batch of one row, ms.
    fn extra_ms(&self, ordinal: VariantIx, kind: KindIx, rows: u32) -> f64;
}

/// What to do with a query.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    /// An instance is ready: send the query there.
    Use {
        /// The variant.
        ordinal: VariantIx,
    },
    /// Load the variant, wait, and send the query there: the targets are met even so.
    LoadThenUse {
        /// The variant.
        ordinal: VariantIx,
    },
    /// Once loaded, the variant would meet the targets, but not for this query. Load it, and refuse the query with a
    /// hint to try again.
    Warming {
        /// The variant.
        ordinal: VariantIx,
        /// Expected load time, ms.
        load_ms: f64,
    },
    /// Loaded variants could meet the targets if they were less busy.
    Busy {
        /// The variant that would be free first.
        ordinal: VariantIx,
        /// When, ms.
        wait_ms: f64,
    },
    /// Variants could meet the targets, but no worker can load them.
    Unavailable {
        /// The cheapest of these variants.
        ordinal: VariantIx,
    },
    /// Nothing registered can meet the targets.
    Infeasible {
        /// The closest variants, best first, at most [`SUGGESTIONS`].
        closest: Vec<VariantIx>,
    },
}

/// One readiness class in order of cost.
#[derive(Debug, Default)]
struct Class {
    ordinal: Vec<VariantIx>,
    kind: Vec<KindIx>,
    quality: Vec<Quality>,
    latency: Vec<f64>,
    cost: Vec<f64>,
    max_rows: Vec<u32>,
    blocks: Vec<Block>,
}

#[derive(Debug, Clone, Copy)]
struct Block {
    min_latency: f64,
    max_accuracy: f64,
    max_agreement: f64,
}

/// The variants that may answer one application (or one model), ready to be searched.
#[derive(Debug, Default)]
pub struct Index {
    active: Class,
    degraded: Class,
    /// Inactive and loading variants. Their latency includes the load.
    cold: Class,
    /// The least cost of the active entries on each kind of device.
    least_costs: Vec<(KindIx, f64)>,
    entries: Vec<Entry>,
}

/// A feasible candidate found in a class.
#[derive(Clone, Copy)]
struct FeasibleCandidate {
    at: usize,
    wait_ms: f64,
}

/// Chooses a variant for `demand`. The function is pure, and allocates only when nothing is feasible.
pub fn select(index: &Index, demand: &Demand, load: &impl Load) -> Decision {
    let is_loaded = |entry: &Entry| entry.readiness == Readiness::Active;
    if let Some(ordinal) = preferred::among(index, demand, load, is_loaded) {
        return Decision::Use { ordinal };
    }
    if let Some(found) = index.active.cheapest(demand, load) {
        return Decision::Use {
            ordinal: index.active.ordinal[found.at],
        };
    }
    if let Some(found) = index.degraded.cheapest(demand, load) {
        return Decision::Use {
            ordinal: index.degraded.ordinal[found.at],
        };
    }
    let is_cold = |entry: &Entry| {
        matches!(entry.readiness, Readiness::Loading | Readiness::Inactive) && !entry.dominated
    };
    if let Some(ordinal) = preferred::among(index, demand, load, is_cold) {
        return Decision::LoadThenUse { ordinal };
    }
    if let Some(found) = index.cold.cheapest(demand, &NoWait(load)) {
        return Decision::LoadThenUse {
            ordinal: index.cold.ordinal[found.at],
        };
    }
    index.last_resort(demand, load)
}

/// The variant to use although it misses a target: the closest one, loaded ones first. `None` only if the index is
/// empty or no variant takes that many rows.
pub fn best_effort(index: &Index, demand: &Demand) -> Option<VariantIx> {
    let ready = index.closest(demand, |entry| {
        matches!(entry.readiness, Readiness::Active | Readiness::Degraded)
    });
    let any = || {
        index.closest(demand, |entry| {
            entry.readiness != Readiness::Failed && !entry.dominated
        })
    };
    ready.first().copied().or_else(|| any().first().copied())
}

/// Marks those entries in `unsure`, positions in `entries`, that another entry makes unnecessary. The other entry can
/// be loaded on the same kind of device and is there at least as good in quality, latency, load time, cost and rows; of
/// equal ones it is the first by number. `unsure` has the entries whose dominance is known only among other entries
/// than these.
///
/// The entries are sorted, then each is compared with the frontier so far: n log n + n times the frontier's size.
pub fn mark_dominated(entries: &mut [Entry], unsure: &[usize]) {
    let mut order: Vec<usize> = (0..entries.len()).collect();
    // A dominator sorts before the entries that it covers.
    order.sort_by(|a, b| entries[*a].by_merit(&entries[*b]));
    let mut frontier: Vec<usize> = Vec::new();
    let mut covered = vec![false; entries.len()];
    for at in order {
        let entry = &entries[at];
        covered[at] = frontier.iter().any(|other| entries[*other].covers(entry));
        if !covered[at] && entry.readiness != Readiness::Failed {
            frontier.push(at);
        }
    }
    for at in unsure {
        entries[*at].dominated = covered[*at];
    }
}

// === impl Entry ===

impl Entry {
    /// Its quality, as targets are compared with it.
    pub fn quality(&self) -> Quality {
        match self.agreement {
            true => Quality::Agreement(self.quality_bound),
            false => Quality::Accuracy(self.quality_bound),
        }
    }

    fn by_merit(&self, other: &Self) -> Ordering {
        self.cost_per_1k_usd
            .total_cmp(&other.cost_per_1k_usd)
            .then(other.quality_bound.total_cmp(&self.quality_bound))
            .then(self.latency_ms.total_cmp(&other.latency_ms))
            .then(self.load_ms.total_cmp(&other.load_ms))
            .then(other.max_rows.cmp(&self.max_rows))
            .then(self.ordinal.cmp(&other.ordinal))
            .then(self.kind.cmp(&other.kind))
    }

    fn covers(&self, other: &Self) -> bool {
        self.kind == other.kind
            && self.agreement == other.agreement
            && self.cost_per_1k_usd <= other.cost_per_1k_usd
            && self.quality_bound >= other.quality_bound
            && self.latency_ms <= other.latency_ms
            && self.load_ms <= other.load_ms
            && self.max_rows >= other.max_rows
    }

    /// Loads the variant for the query if that is in time, else for later queries.
    fn load_first(&self, demand: &Demand, load: &impl Load) -> Decision {
        let ordinal = self.ordinal;
        if expected_ms(self, demand, load) <= demand.latency_ms {
            return Decision::LoadThenUse { ordinal };
        }
        let load_ms = self.load_ms;
        Decision::Warming { ordinal, load_ms }
    }
}

// === impl Index ===

impl Index {
    /// Sorts `entries` into classes. O(n log n). It is done when the metadata changes, not per query.
    pub fn new(entries: Vec<Entry>) -> Self {
        let mut order: Vec<&Entry> = entries.iter().collect();
        order.sort_by(|a, b| {
            a.cost_per_1k_usd
                .total_cmp(&b.cost_per_1k_usd)
                .then(a.ordinal.cmp(&b.ordinal))
        });
        let mut index = Self::default();
        for entry in order {
            match entry.readiness {
                Readiness::Active => {
                    index.active.push(entry, entry.latency_ms);
                    index.note_cost(entry);
                }
                Readiness::Degraded => index.degraded.push(entry, entry.latency_ms),
                Readiness::Loading | Readiness::Inactive if !entry.dominated => {
                    index.cold.push(entry, entry.latency_ms + entry.load_ms);
                }
                _ => {}
            }
        }
        index.entries = entries;
        index
    }

    /// Called with active entries in order of cost.
    fn note_cost(&mut self, entry: &Entry) {
        if !self.least_costs.iter().any(|(kind, _)| *kind == entry.kind) {
            self.least_costs.push((entry.kind, entry.cost_per_1k_usd));
        }
    }

    /// The cost of a thousand queries of the cheapest variant that is active on a kind of device, US dollars; 0 if none
    /// is.
    fn least_cost(&self, kind: KindIx) -> f64 {
        let least = self.least_costs.iter().find(|(of, _)| *of == kind);
        least.map_or(0.0, |(_, cost)| *cost)
    }

    /// All entries, in the order given.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The first entry of a variant.
    pub fn entry(&self, ordinal: VariantIx) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.ordinal == ordinal)
    }

    /// Chooses a dominated variant that would have to be loaded, or refuses.
    fn last_resort(&self, demand: &Demand, load: &impl Load) -> Decision {
        let fits = |entry: &&Entry| meets_when_idle(entry, demand, load);
        let busy = self
            .entries
            .iter()
            .filter(|entry| matches!(entry.readiness, Readiness::Active | Readiness::Degraded))
            .filter(fits)
            .map(|entry| (load.wait_ms(entry.ordinal, entry.kind), entry.ordinal))
            .min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        if let Some((wait_ms, ordinal)) = busy {
            return Decision::Busy { ordinal, wait_ms };
        }
        let best = |states: &[Readiness]| {
            let states = |entry: &&Entry| states.contains(&entry.readiness);
            let found = self.entries.iter().filter(states).filter(fits);
            found.min_by(|a, b| by_preference(a, b))
        };
        let cold = [Readiness::Loading, Readiness::Inactive];
        if let Some(entry) = best(&cold) {
            return entry.load_first(demand, load);
        }
        if let Some(entry) = best(&[Readiness::Failed]) {
            let ordinal = entry.ordinal;
            return Decision::Unavailable { ordinal };
        }
        let mut closest = self.closest(demand, |entry| !entry.dominated);
        closest.truncate(SUGGESTIONS);
        Decision::Infeasible { closest }
    }

    fn closest(&self, demand: &Demand, filter: impl Fn(&Entry) -> bool) -> Vec<VariantIx> {
        let mut near: Vec<(f64, f64, VariantIx)> = self
            .entries
            .iter()
            .filter(|entry| entry.max_rows >= demand.rows && filter(entry))
            .map(|entry| {
                (
                    distance(entry, demand),
                    entry.cost_per_1k_usd,
                    entry.ordinal,
                )
            })
            .collect();
        near.sort_by(|a, b| {
            a.0.total_cmp(&b.0)
                .then(a.1.total_cmp(&b.1))
                .then(a.2.cmp(&b.2))
        });
        let mut seen = BTreeSet::new();
        let ordinals = near.into_iter().map(|(_, _, ordinal)| ordinal);
        ordinals.filter(|ordinal| seen.insert(*ordinal)).collect()
    }
}

/// Undominated entries first, then the cheapest.
fn by_preference(a: &Entry, b: &Entry) -> Ordering {
    let by_cost = a.cost_per_1k_usd.total_cmp(&b.cost_per_1k_usd);
    let by_dominance = a.dominated.cmp(&b.dominated);
    by_dominance.then(by_cost).then(a.ordinal.cmp(&b.ordinal))
}

/// Whether an entry would meet every target of a query if nothing waited. Answering and planning use this one rule of
/// feasibility.
pub fn meets_when_idle(entry: &Entry, demand: &Demand, load: &impl Load) -> bool {
    entry.max_rows >= demand.rows
        && demand.least_quality.is_met_by(entry.quality())
        && entry.cost_per_1k_usd <= demand.max_cost_per_1k_usd
        && entry.latency_ms + load.extra_ms(entry.ordinal, entry.kind, demand.rows)
            <= demand.latency_ms
}

// === impl Block ===

impl Block {
    /// Whether one of its entries may be good enough.
    fn may_be_good(&self, least: &LeastQuality) -> bool {
        self.max_accuracy >= least.accuracy || self.max_agreement >= least.agreement
    }
}

// === impl Class ===

impl Class {
    fn push(&mut self, entry: &Entry, latency_ms: f64) {
        if self.ordinal.len().is_multiple_of(BLOCK) {
            self.blocks.push(Block {
                min_latency: f64::INFINITY,
                max_accuracy: f64::NEG_INFINITY,
                max_agreement: f64::NEG_INFINITY,
            });
        }
        if let Some(block) = self.blocks.last_mut() {
            block.min_latency = block.min_latency.min(latency_ms);
            let best = match entry.agreement {
                true => &mut block.max_agreement,
                false => &mut block.max_accuracy,
            };
            *best = best.max(entry.quality_bound);
        }
        self.ordinal.push(entry.ordinal);
        self.kind.push(entry.kind);
        self.quality.push(entry.quality());
        self.latency.push(latency_ms);
        self.cost.push(entry.cost_per_1k_usd);
        self.max_rows.push(entry.max_rows);
    }

    /// The first feasible entry in order of cost. Among entries of the same cost, the one with the shortest wait.
    fn cheapest(&self, demand: &Demand, load: &impl Load) -> Option<FeasibleCandidate> {
        let mut best: Option<FeasibleCandidate> = None;
        for (number, block) in self.blocks.iter().enumerate() {
            let start = number * BLOCK;
            if self.cost[start] > best.map_or(demand.max_cost_per_1k_usd, |b| self.cost[b.at]) {
                break;
            }
            let hopeless =
                block.min_latency > demand.latency_ms || !block.may_be_good(&demand.least_quality);
            if !hopeless {
                let end = (start + BLOCK).min(self.ordinal.len());
                best = self.scan(start..end, demand, load, best);
            }
        }
        best
    }

    fn scan(
        &self,
        range: std::ops::Range<usize>,
        demand: &Demand,
        load: &impl Load,
        mut best: Option<FeasibleCandidate>,
    ) -> Option<FeasibleCandidate> {
        for at in range {
            if self.cost[at] > best.map_or(demand.max_cost_per_1k_usd, |b| self.cost[b.at]) {
                break;
            }
            let fits = self.latency[at] <= demand.latency_ms
                && demand.least_quality.is_met_by(self.quality[at])
                && self.max_rows[at] >= demand.rows;
            if !fits {
                continue;
            }
            let ordinal = self.ordinal[at];
            let wait_ms = load.wait_ms(ordinal, self.kind[at]);
            let extra_ms = load.extra_ms(ordinal, self.kind[at], demand.rows);
            let total = self.latency[at] + wait_ms + extra_ms;
            if total <= demand.latency_ms && best.is_none_or(|b| wait_ms < b.wait_ms) {
                best = Some(FeasibleCandidate { at, wait_ms });
            }
        }
        best
    }
}

/// The load of a variant that is not loaded: it waits only for its load.
struct NoWait<'a, L>(&'a L);

impl<L: Load> Load for NoWait<'_, L> {
    fn wait_ms(&self, _ordinal: VariantIx, _kind: KindIx) -> f64 {
        0.0
    }

    fn extra_ms(&self, ordinal: VariantIx, kind: KindIx, rows: u32) -> f64 {
        self.0.extra_ms(ordinal, kind, rows)
    }
}
