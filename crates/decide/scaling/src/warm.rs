//! Which variants should be loaded before anyone asks for them: the part of scaling that needs no load forecast.
//!
//! A query whose variant is not loaded waits for the load. Loading everything would leave no memory for variants with
//! demand, so only a share of the memory is filled, with the variants that keep the largest number of different answers
//! ready:
//!
//! 1. the frontier (variants that nothing dominates), smallest first;
//! 2. for each model that has no variant on the frontier that a worker can run, the cheapest variant that some worker
//!    can run, smallest first: a query that names that very model should not wait for a load either. No variant of its
//!    model that is at least as good in every respect comes before it in the order of price, quality, latency and load
//!    time, so it is not dominated within its model.
//!
//! A chosen variant is desired on every worker that can run it. It must therefore fit beside the others on all of
//! these, and the smallest worker decides. Weights that several variants share count once, because they are held once.
//! A variant that does not fit is skipped: a later one may share weights that are already there.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
};

use sextant_types::index::VariantIx;

/// A published variant, as the policy sees it. The numbers of models, engines and groups are the caller's.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// The caller's number for the variant, which is unique. Of two variants that are equal otherwise, the lower number
    /// comes first.
    pub ordinal: VariantIx,
    /// Its model.
    pub model: u32,
    /// The engine that runs it.
    pub engine: u32,
    /// Whether another variant of its application is at least as good in everything.
    pub dominated: bool,
    /// Memory that it takes for itself, bytes.
    pub own_bytes: u64,
    /// Memory that it shares with other variants.
    pub shared: Option<SharedBytes>,
    /// US dollars for a thousand queries.
    pub cost_per_1k_usd: f64,
    /// Lower bound of the measured quality (larger is better).
    pub quality_bound: f64,
    /// Latency of a lone query, ms.
    pub latency_ms: f64,
    /// Time to load, ms.
    pub load_ms: f64,
}

/// Memory that all members of a group occupy once on each worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedBytes {
    /// Identifies the group.
    pub group: u32,
    /// The amount. If members differ, the largest counts.
    pub bytes: u64,
}

/// A worker as the policy sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Engines that it has.
    pub engines: Vec<u32>,
    /// Bytes that loaded variants may occupy.
    pub memory_bytes: u64,
}

/// A variant that should be loaded on every worker that can run it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wish {
    /// The variant.
    pub ordinal: VariantIx,
    /// The reason.
    pub reason: Reason,
}

/// Why a variant should be loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// Nothing dominates it.
    Frontier,
    /// It is the cheapest of a model that has no variant on the frontier that a worker can run.
    BestOfModel,
}

/// The variants that should be loaded within `memory_share` (0 to 1) of each worker's memory, sorted by ordinal. The
/// result does not depend on the order of the arguments nor on what is loaded, so asking again gives the same.
pub fn kept_warm(candidates: &[Candidate], workers: &[Place], memory_share: f64) -> Vec<Wish> {
    let mut rooms = rooms(workers, memory_share);
    let runs = |it: &&Candidate| rooms.iter().any(|room| room.runs(it.engine));
    let runnable: Vec<&Candidate> = candidates.iter().filter(runs).collect();
    let (dominated, frontier): (Vec<_>, Vec<_>) = runnable
        .into_iter()
        .partition(|candidate| candidate.dominated);
    let best = best_of_models(&dominated, &frontier);
    let mut wishes = fill(frontier, Reason::Frontier, &mut rooms);
    wishes.extend(fill(best, Reason::BestOfModel, &mut rooms));
    wishes.sort_unstable();
    wishes
}

/// The cheapest variant of each model that has none on the frontier.
fn best_of_models<'a>(
    dominated: &[&'a Candidate],
    frontier: &[&'a Candidate],
) -> Vec<&'a Candidate> {
    let served: BTreeSet<u32> = frontier.iter().map(|it| it.model).collect();
    let mut best: BTreeMap<u32, &Candidate> = BTreeMap::new();
    let of_others = dominated.iter().filter(|it| !served.contains(&it.model));
    for candidate in of_others {
        let known = best.entry(candidate.model).or_insert(candidate);
        if candidate.by_price(known).is_lt() {
            *known = candidate;
        }
    }
    best.into_values().collect()
}

/// Takes room for the candidates that fit, smallest first.
fn fill(mut candidates: Vec<&Candidate>, reason: Reason, rooms: &mut [Room]) -> Vec<Wish> {
    candidates.sort_by_key(|it| (it.bytes(), it.ordinal));
    let mut wishes = Vec::new();
    for candidate in candidates {
        let runs = |room: &&mut Room| room.runs(candidate.engine);
        let mut where_it_runs: Vec<&mut Room> = rooms.iter_mut().filter(runs).collect();
        if where_it_runs.iter().all(|room| room.fits(candidate)) {
            let take = |room: &mut &mut Room| room.take(candidate);
            where_it_runs.iter_mut().for_each(take);
            wishes.push(Wish {
                ordinal: candidate.ordinal,
                reason,
            });
        }
    }
    wishes
}

// === impl Candidate ===

impl Candidate {
    /// The bytes that it takes where nothing else is loaded.
    fn bytes(&self) -> u64 {
        let shared = self.shared.map_or(0, |shared| shared.bytes);
        self.own_bytes.saturating_add(shared)
    }

    fn by_price(&self, other: &Self) -> Ordering {
        let by_price = self.cost_per_1k_usd.total_cmp(&other.cost_per_1k_usd);
        by_price
            .then_with(|| other.quality_bound.total_cmp(&self.quality_bound))
            .then_with(|| self.latency_ms.total_cmp(&other.latency_ms))
            .then_with(|| self.load_ms.total_cmp(&other.load_ms))
            .then_with(|| self.ordinal.cmp(&other.ordinal))
    }
}

// === impl Room ===

/// The room on the smallest of the workers that have the same engines: what fits there fits on all of them.
struct Room {
    /// Sorted.
    engines: Vec<u32>,
    left_bytes: u64,
    /// Bytes that each group occupies.
    groups: BTreeMap<u32, u64>,
}

fn rooms(workers: &[Place], memory_share: f64) -> Vec<Room> {
    let mut smallest: BTreeMap<Vec<u32>, u64> = BTreeMap::new();
    for worker in workers {
        let mut engines = worker.engines.clone();
        engines.sort_unstable();
        engines.dedup();
        let bytes = smallest.entry(engines).or_insert(u64::MAX);
        *bytes = worker.memory_bytes.min(*bytes);
    }
    let room = |(engines, bytes)| Room {
        engines,
        left_bytes: (bytes as f64 * memory_share.clamp(0.0, 1.0)) as u64,
        groups: BTreeMap::new(),
    };
    smallest.into_iter().map(room).collect()
}

impl Room {
    fn runs(&self, engine: u32) -> bool {
        self.engines.binary_search(&engine).is_ok()
    }

    fn fits(&self, candidate: &Candidate) -> bool {
        self.needs(candidate) <= self.left_bytes
    }

    fn take(&mut self, candidate: &Candidate) {
        self.left_bytes -= self.needs(candidate);
        if let Some(SharedBytes { group, bytes }) = candidate.shared {
            let there = self.groups.entry(group).or_default();
            *there = bytes.max(*there);
        }
    }

    /// The bytes that the candidate takes in addition to what is there.
    fn needs(&self, candidate: &Candidate) -> u64 {
        let missing = candidate.shared.map_or(0, |shared| {
            let there = self.groups.get(&shared.group).copied().unwrap_or(0);
            shared.bytes.saturating_sub(there)
        });
        candidate.own_bytes.saturating_add(missing)
    }
}
