//! A bound that a scheduler cannot exceed even if it knows every arrival in advance.
//!
//! The fluid bound assumes that every batch is the largest that meets its target. The actual arrivals seldom allow
//! that: a batch holds only what comes within its first request's slack. So this bound uses the arrivals. It computes
//! the least device time that serves all but a few of a model's requests in time, if a device is free whenever one is
//! needed.
//!
//! Requests with one target are served in their order, so batches are runs of neighbours. A batch of k rows takes l(k),
//! and its first and last arrival are at most target - l(k) apart. Requests that are given up lie between batches: a
//! gap within a batch would do better at its end. The least cost of the first i requests is therefore a dynamic
//! programme over the rows of the last batch, O(requests * rows). The share that may be missed has a price, the same
//! for each request. The greatest value of cost less price * allowed misses, over all prices, is a lower bound of the
//! cost with the best choice of misses (Lagrange's dual). It is flat where the number of misses is just allowed, so
//! that a few halvings find it.
//!
//! The models' device times add up as if models never got into each other's way. The bound is the rate at which the sum
//! equals all the time that the devices have.

use sextant_schedule::{Delay, LatencyTable, NEVER, Nanos};

use super::fluid_bound_rps;
use crate::Setting;
use sextant_simulator::{Error, Source, Span};

/// The demand on one model.
#[derive(Debug, Clone, Copy)]
pub struct Demand<'a> {
    /// Run times; the table's length is the largest batch.
    pub latency: &'a LatencyTable,
    /// Time within which an answer counts, ns; [`NEVER`] for none.
    pub target: Nanos,
    /// Least delays of the network.
    pub delay: Delay,
    /// Share of requests that may be missed, 0 to 1.
    pub most_missed_share: f64,
}

/// Halvings of the price.
const HALVINGS: u32 = 10;

/// Largest distance of the devices' load from 1.
const PRECISION: f64 = 5e-4;

/// Most rates that are tried.
const ROUNDS: u32 = 20;

/// The highest total rate, requests per second, at which the sum of the models' [`Demand::device_time`] is at most the
/// time that the devices have in the span. `source` makes the requests of a rate. Zero if a model that is asked for
/// cannot meet its target; `shares` are the models' parts of the rate.
///
/// The devices must be of one kind: with several kinds this is no bound.
///
/// # Errors
/// The errors of `source`.
pub fn clairvoyant_bound_rps(
    setting: &Setting,
    shares: &[f64],
    span: &Span,
    most_missed_share: f64,
    mut source: impl FnMut(f64) -> Result<Box<dyn Source>, Error>,
) -> Result<f64, Error> {
    let capacity = (span.until - span.from) as f64 * setting.devices.len() as f64;
    let mut rps = 0.9 * fluid_bound_rps(setting, shares);
    let mut before: Option<(f64, f64)> = None;
    for _ in 0..ROUNDS {
        if !(rps.is_finite() && rps > 0.0) {
            return Ok(0.0);
        }
        let arrivals = by_model(source(rps)?.as_mut(), span, setting.models.len());
        let load = device_time(setting, most_missed_share, &arrivals) / capacity;
        if (load - 1.0).abs() <= PRECISION || !load.is_finite() || load <= 0.0 {
            return Ok(if load > 0.0 && load.is_finite() {
                rps
            } else {
                0.0
            });
        }
        // The load grows like a power of the rate, which two rates determine. A row alone costs most, so the power is
        // at most 1.
        let power = match before {
            Some((other, known)) => (load / known).ln() / (rps / other).ln(),
            None => 1.0,
        };
        before = Some((rps, load));
        rps *= load.powf(-power.clamp(0.4, 1.2).recip());
    }
    Ok(rps)
}

/// The sum of the models' device times, ns.
fn device_time(setting: &Setting, most_missed_share: f64, arrivals: &[Vec<Nanos>]) -> f64 {
    let of_model =
        |(model, arrivals): (&sextant_simulator::Model, &Vec<Nanos>)| match model.latency.first() {
            _ if arrivals.is_empty() => 0.0,
            Some(Some(latency)) => Demand {
                latency,
                target: model.target,
                delay: setting.network.base,
                most_missed_share,
            }
            .device_time(arrivals),
            _ => f64::INFINITY,
        };
    setting.models.iter().zip(arrivals).map(of_model).sum()
}

/// For each model: the arrivals within the span.
fn by_model(source: &mut dyn Source, span: &Span, models: usize) -> Vec<Vec<Nanos>> {
    let mut arrivals = vec![Vec::new(); models];
    while source.peek().is_some_and(|at| at < span.until) {
        let arrival = source.next();
        if arrival.at >= span.from {
            arrivals[arrival.model as usize].push(arrival.at);
        }
    }
    arrivals
}

// === impl Demand ===

impl Demand<'_> {
    /// The least device time, ns, that answers in time all but the allowed share of the requests that come at
    /// `arrivals` (ns, in order); infinite if not even one request alone can be answered in time.
    pub fn device_time(&self, arrivals: &[Nanos]) -> f64 {
        let most = (self.most_missed_share * arrivals.len() as f64).floor();
        let runs = Runs::of(self, arrivals);
        if arrivals.len() as f64 <= most {
            return 0.0;
        }
        if self.window(1).is_none() {
            return f64::INFINITY;
        }
        let mut best = Vec::new();
        let mut cost_at = |price: f64| {
            let missed = runs.solve(price, &mut best);
            (best[arrivals.len()] - price * most, missed as f64)
        };
        // No request is worth more than a batch of its own.
        let (mut low, mut high) = (0.0, self.latency.of(1) as f64 + 1.0);
        let mut most_cost = cost_at(high).0;
        for _ in 0..HALVINGS {
            let price = f64::floor((low + high) / 2.0);
            let (cost, missed) = cost_at(price);
            most_cost = most_cost.max(cost);
            if missed > most {
                low = price;
            } else {
                high = price;
            }
        }
        most_cost
    }

    /// Most time between the first and the last arrival of a batch of `rows`, ns.
    fn window(&self, rows: u32) -> Option<Nanos> {
        if self.target == NEVER {
            return Some(NEVER);
        }
        let spent = self.latency.of(rows) + self.delay.before_start(rows) + self.delay.response;
        self.target.checked_sub(spent)
    }
}

/// Which runs of neighbours may be a batch, and their costs.
struct Runs {
    /// For each last request: the most requests of a batch that ends with it.
    longest: Vec<usize>,
    /// Run time, ns, of the largest batch first and of one row last.
    costs: Vec<f64>,
}

// === impl Runs ===

impl Runs {
    fn of(demand: &Demand<'_>, arrivals: &[Nanos]) -> Self {
        let most = demand.latency.measured_rows();
        let windows: Vec<Option<Nanos>> = (1..=most).map(|rows| demand.window(rows)).collect();
        let mut rows = 0;
        let longest = arrivals.iter().enumerate().map(|(last, at)| {
            // A batch may have one row more than a batch that ends with the neighbour: without its first request, a
            // batch still fits.
            rows = (rows + 1).min(windows.len());
            let fits = |rows: usize| {
                windows[rows - 1].is_some_and(|window| at - arrivals[last + 1 - rows] <= window)
            };
            while rows > 0 && !fits(rows) {
                rows -= 1;
            }
            rows
        });
        let longest = longest.collect();
        let costs = (1..=most).rev().map(|rows| demand.latency.of(rows) as f64);
        Self {
            longest,
            costs: costs.collect(),
        }
    }

    /// Fills `best` with the least cost, ns, of the first 0, 1, 2, .. requests if a missed request costs `price`.
    /// Returns the number of missed requests. Costs are whole numbers and exact.
    fn solve(&self, price: f64, best: &mut Vec<f64>) -> usize {
        best.clear();
        best.push(0.0);
        for (last, longest) in self.longest.iter().enumerate() {
            let runs = least_sum(
                &best[last + 1 - longest..],
                &self.costs[self.costs.len() - longest..],
            );
            best.push(runs.min(best[last] + price));
        }
        self.missed(price, best)
    }

    fn missed(&self, price: f64, best: &[f64]) -> usize {
        let (mut at, mut missed) = (self.longest.len(), 0);
        while at > 0 {
            if best[at] == best[at - 1] + price {
                missed += 1;
                at -= 1;
                continue;
            }
            let costs = &self.costs[self.costs.len() - self.longest[at - 1]..];
            let from = at - costs.len();
            let first = best[from..at].iter().zip(costs);
            let first = first.map(|(before, cost)| before + cost);
            let skipped = first.take_while(|sum| *sum != best[at]).count();
            at = from + skipped;
        }
        missed
    }
}

/// The least `a[i] + b[i]`, computed four at a time; infinite if there is none.
fn least_sum(a: &[f64], b: &[f64]) -> f64 {
    let less = |least: f64, sum: f64| if sum < least { sum } else { least };
    let mut lanes = [f64::INFINITY; 4];
    let (a_lanes, b_lanes) = (a.chunks_exact(4), b.chunks_exact(4));
    let rest = a_lanes.remainder().iter().zip(b_lanes.remainder());
    for (a, b) in a_lanes.zip(b_lanes) {
        for at in 0..4 {
            lanes[at] = less(lanes[at], a[at] + b[at]);
        }
    }
    let rest = rest.map(|(a, b)| a + b);
    rest.chain(lanes).fold(f64::INFINITY, less)
}
