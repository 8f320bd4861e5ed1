//! Bounds that no scheduler can exceed, and analytical results.

mod clairvoyant;

use sextant_schedule::{LatencyTable, NEVER, Nanos};

use crate::Setting;

pub use clairvoyant::{Demand, clairvoyant_bound_rps};

/// The highest total rate, requests per second, that the devices can carry when every batch is the
/// largest that meets its target: devices / sum over models of `share * l(b) / b`, `b` the largest
/// batch with `l(b) <= target`. Zero when a model that is asked for cannot meet its target.
///
/// With several kinds of devices, the bound is that of the best prices: a request takes at least `min over kinds of
/// price * l(b) / b`, and the devices' time is worth 1 in all. Every choice of prices gives a bound; the function
/// returns the least one that a descent finds.
pub fn fluid_bound_rps(setting: &Setting, shares: &[f64]) -> f64 {
    let kinds = setting.devices.iter().map(|device| device.kind as usize);
    let mut counts: Vec<f64> = Vec::new();
    for kind in kinds {
        if counts.len() <= kind {
            counts.resize(kind + 1, 0.0);
        }
        counts[kind] += 1.0;
    }
    let costs: Vec<(f64, Vec<f64>)> = setting
        .models
        .iter()
        .zip(shares)
        .filter(|(_, share)| **share > 0.0)
        .map(|(model, share)| {
            let cost = |kind: usize| match model.latency.get(kind) {
                Some(Some(latency)) if counts[kind] > 0.0 => row_cost_s(latency, model.target),
                _ => f64::INFINITY,
            };
            (*share, (0..counts.len()).map(cost).collect())
        })
        .collect();
    best_prices(&counts, &costs)
}

/// The least device time of a row within `target`, s; infinite if not even one row meets it.
fn row_cost_s(latency: &LatencyTable, target: Nanos) -> f64 {
    let most = latency.measured_rows();
    let rows = if target == NEVER {
        most
    } else {
        latency.rows_within(target, most)
    };
    if rows == 0 {
        return f64::INFINITY;
    }
    latency.of(rows) as f64 / 1e9 / f64::from(rows)
}

/// Descent over prices by multiplicative weights.
fn best_prices(counts: &[f64], costs: &[(f64, Vec<f64>)]) -> f64 {
    let used: Vec<usize> = (0..counts.len())
        .filter(|kind| counts[*kind] > 0.0)
        .collect();
    let Some(one) = used.first() else { return 0.0 };
    if costs.is_empty() {
        return 0.0;
    }
    // The total worth of each kind's devices; sums to 1.
    let mut worth = vec![0.0; counts.len()];
    for kind in &used {
        worth[*kind] = 1.0 / used.len() as f64;
    }
    let rounds = if used.len() == 1 { 1 } else { 2_000 };
    let mut best = f64::INFINITY;
    for round in 0..rounds {
        let mut load = vec![0.0; counts.len()];
        let mut total = 0.0;
        for (share, cost) in costs {
            let price = |kind: usize| worth[kind] / counts[kind] * cost[kind];
            let least = used
                .iter()
                .copied()
                .min_by(|a, b| price(*a).total_cmp(&price(*b)))
                .unwrap_or(*one);
            if !cost[least].is_finite() {
                return 0.0;
            }
            total += share * price(least);
            load[least] += share * cost[least] / counts[least];
        }
        best = best.min(1.0 / total);
        let most = load.iter().copied().fold(0.0, f64::max);
        let step = 1.0 / (1.0 + f64::from(round)).sqrt();
        for kind in &used {
            worth[*kind] *= (step * load[*kind] / most).exp();
        }
        let sum: f64 = worth.iter().sum();
        worth.iter_mut().for_each(|worth| *worth /= sum);
    }
    best
}

/// The analytical result for one model on identical devices (Symphony, section 3.1).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Analytic {
    /// Rows of each batch.
    pub rows: u32,
    /// Requests per second on all devices.
    pub rps: f64,
}

/// Each device batches on its own: a request may wait for a whole batch, so `2 l(b) <= target`.
/// All in ms.
pub fn no_coordination(alpha: f64, beta: f64, target: f64, devices: u32) -> Analytic {
    throughput(alpha, beta, target / 2.0, devices)
}

/// Batches start evenly staggered over the devices: `(1 + 1 / devices) l(b) <= target`. All in ms.
pub fn staggered(alpha: f64, beta: f64, target: f64, devices: u32) -> Analytic {
    let budget = target / (1.0 + 1.0 / f64::from(devices));
    throughput(alpha, beta, budget, devices)
}

fn throughput(alpha: f64, beta: f64, budget: f64, devices: u32) -> Analytic {
    let rows = ((budget - beta) / alpha).floor().max(0.0);
    let latency = alpha * rows + beta;
    Analytic {
        rows: rows as u32,
        rps: f64::from(devices) * rows / latency * 1e3,
    }
}

/// The standard deviation of the requests that a backend gets in a window, when Poisson arrivals of
/// `rps` are split over `frontends` that each go round `backends` (Symphony, table 2):
/// `sqrt(F * (Var / B^2 + E f (1 - f)))` with the variance of a frontend's requests in the window
/// and `f` the part of their number that is left over after whole rounds, divided by `B`.
pub fn round_robin_deviation(rps: f64, window_s: f64, frontends: u32, backends: u32) -> f64 {
    let mean = rps * window_s / f64::from(frontends);
    let rounds = f64::from(backends);
    let spread = 10.0 * mean.sqrt() + 10.0;
    let (from, to) = ((mean - spread).max(0.0).floor(), (mean + spread).ceil());
    let mut left_over = 0.0;
    // The log of a Poisson probability, stepped from one count to the next.
    let mut log = -mean + from * mean.ln() - log_factorial(from);
    let mut count = from;
    while count <= to {
        let f = (count / rounds).fract();
        left_over += log.exp() * f * (1.0 - f);
        count += 1.0;
        log += (mean / count).ln();
    }
    (f64::from(frontends) * (mean / (rounds * rounds) + left_over)).sqrt()
}

fn log_factorial(count: f64) -> f64 {
    (1..=count as u64).map(|n| (n as f64).ln()).sum()
}
