//! The latency that every query would have: a discrete-event estimate with centralised batched queues.
//!
//! Each step has one queue, first come first served. An idle replica takes what waits, up to its largest batch, and is
//! busy for as long as its profile says for that many rows (InferLine, section 4.4). A step waits for all steps before
//! it that the query visits; skipped steps cost nothing. The rows of a query that fans out are queued one by one, and
//! the step has ended when the last of them has.
//!
//! **No event heap.** Nothing flows back: what arrives at a step depends only on the steps before it. Each step is
//! therefore simulated to its end before the next one begins, in the order of the graph, and the results of the steps
//! before a changed one need not be computed again. This is exact, and it makes planning by estimates cheap.

mod station;

use sextant_schedule::{LatencyTable, NEVER};

use crate::{Graph, Nanos, Routes};

pub(crate) use station::Item;

/// The queries of a sample: when they arrive, and which steps they visit.
#[derive(Debug, Clone, Copy)]
pub struct Load<'a> {
    /// When each query arrives, ns, in order.
    pub arrivals: &'a [Nanos],
    /// Their routes. They repeat if there are fewer routes than arrivals.
    pub routes: &'a Routes,
}

/// The replicas that serve a step.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Station {
    /// Kinds of replicas.
    pub classes: Vec<Class>,
    /// The replicas.
    pub replicas: Vec<Replica>,
}

/// A kind of replicas: how long batches take, and how large they get.
#[derive(Debug, Clone, PartialEq)]
pub struct Class {
    /// Run time by rows.
    pub latency: LatencyTable,
    /// The most rows of a batch.
    pub batch: u32,
}

/// A replica, which may come and go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replica {
    /// The position of its class.
    pub class: usize,
    /// From when it serves, ns.
    pub from: Nanos,
    /// The time from which it begins no more batches, ns.
    pub until: Nanos,
}

/// The latency of each query.
#[derive(Debug, Clone, PartialEq)]
pub struct Estimate {
    /// By query, ns; [`NEVER`] if no replica was left for it.
    pub latencies: Vec<Nanos>,
    /// By step: the time that batches took, ns.
    pub busy: Vec<Nanos>,
    /// By step: the rows of the largest batch.
    pub largest: Vec<u32>,
    sorted: Vec<Nanos>,
}

/// The result of one step.
#[derive(Debug, Clone, Default)]
pub(crate) struct StepResult {
    /// By query: when the step ended, ns; 0 if the query does not visit it.
    pub ends: Vec<Nanos>,
    pub busy: Nanos,
    pub largest: u32,
}

/// Estimates the latency of each query of `load`, with a station for each step of `graph`. Queues are drained.
pub fn estimate(graph: &Graph, stations: &[Station], load: Load<'_>) -> Estimate {
    let mut ends: Vec<Vec<Nanos>> = Vec::with_capacity(stations.len());
    let mut latest = load.arrivals.to_vec();
    let (mut busy, mut largest) = (Vec::new(), Vec::new());
    for (at, station) in stations.iter().enumerate() {
        let items = items(graph, load, at, |before| &ends[before]);
        let mut served = StepResult {
            ends: vec![0; load.arrivals.len()],
            ..StepResult::default()
        };
        station::serve(station, &items, &mut served, |query, end| {
            let latest = &mut latest[query as usize];
            *latest = end.max(*latest);
            true
        });
        ends.push(served.ends);
        busy.push(served.busy);
        largest.push(served.largest);
    }
    let latencies = latest.iter().zip(load.arrivals);
    let latencies =
        latencies.map(|(end, arrived)| if *end == NEVER { NEVER } else { end - arrived });
    Estimate::new(latencies.collect(), busy, largest)
}

/// The rows that arrive at a step, in order of time, each with its query.
pub(crate) fn items<'a>(
    graph: &Graph,
    load: Load<'_>,
    step: usize,
    ends: impl Fn(usize) -> &'a Vec<Nanos>,
) -> Vec<Item> {
    let mut items = Vec::with_capacity(load.arrivals.len());
    let before: Vec<&Vec<Nanos>> = graph.steps()[step]
        .after
        .iter()
        .map(|before| ends(*before))
        .collect();
    let routes = load.routes;
    if routes.is_empty() {
        return items;
    }
    for (query, arrived) in load.arrivals.iter().enumerate() {
        let rows = routes.of(query)[step];
        if rows == 0 {
            continue;
        }
        let ready = before
            .iter()
            .map(|ends| ends[query])
            .fold(*arrived, Nanos::max);
        for _ in 0..rows {
            items.push((ready, query as u32));
        }
    }
    if !before.is_empty() {
        items.sort_unstable();
    }
    items
}

/// Simulates one step to its end, or until `ended` says that enough is known.
pub(crate) fn serve(
    station: &Station,
    items: &[Item],
    queries: usize,
    ended: impl FnMut(u32, Nanos) -> bool,
) -> StepResult {
    let mut served = StepResult {
        ends: vec![0; queries],
        ..StepResult::default()
    };
    station::serve(station, items, &mut served, ended);
    served
}

// === impl Station ===

impl Station {
    /// Makes a station of equal replicas that stay.
    pub fn alike(latency: LatencyTable, batch: u32, replicas: u32) -> Self {
        let mut station = Self::default();
        station.add(latency, batch, replicas);
        station
    }

    /// Adds replicas that stay.
    pub fn add(&mut self, latency: LatencyTable, batch: u32, replicas: u32) {
        let class = self.classes.len();
        self.classes.push(Class { latency, batch });
        let replica = Replica {
            class,
            from: 0,
            until: NEVER,
        };
        self.replicas.extend((0..replicas).map(|_| replica));
    }
}

// === impl Estimate ===

impl Estimate {
    fn new(latencies: Vec<Nanos>, busy: Vec<Nanos>, largest: Vec<u32>) -> Self {
        let mut sorted = latencies.clone();
        sorted.sort_unstable();
        Self {
            latencies,
            busy,
            largest,
            sorted,
        }
    }

    /// The latency that a share of the queries does not exceed, ns; 0 if there are no queries.
    pub fn quantile(&self, share: f64) -> Nanos {
        let rank = (share * self.sorted.len() as f64).ceil() as usize;
        let at = rank.clamp(1, self.sorted.len().max(1)) - 1;
        self.sorted.get(at).copied().unwrap_or(0)
    }

    /// The number of queries whose latency exceeds a target.
    pub fn misses(&self, target: Nanos) -> usize {
        self.sorted.len() - self.sorted.partition_point(|latency| *latency <= target)
    }

    /// The share of the queries whose latency exceeds a target, 0 to 1.
    pub fn missed_share(&self, target: Nanos) -> f64 {
        self.misses(target) as f64 / self.sorted.len().max(1) as f64
    }

    /// Mean latency, ns; 0 if there are no queries.
    pub fn mean(&self) -> f64 {
        let sum: f64 = self.sorted.iter().map(|latency| *latency as f64).sum();
        sum / self.sorted.len().max(1) as f64
    }
}
