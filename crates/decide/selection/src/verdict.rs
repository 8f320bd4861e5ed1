//! The facts about one entry: whether it answers, when, by how much it misses the targets, and why it was not chosen.

use sextant_types::Prefer;

use crate::{Demand, Entry, Load, Readiness};

/// Why `entry` was or was not chosen, as a stable word for explanations.
pub fn verdict(entry: &Entry, demand: &Demand, load: &impl Load) -> &'static str {
    if entry.max_rows < demand.rows {
        return "rows";
    }
    if !demand.least_quality.is_met_by(entry.quality()) {
        let is_asked_for = demand.least_quality.agreement < f64::INFINITY;
        return match entry.agreement && !is_asked_for {
            true => "agreement",
            false => "accuracy",
        };
    }
    if entry.cost_per_1k_usd > demand.max_cost_per_1k_usd {
        return "cost";
    }
    let run_ms = entry.latency_ms + load.extra_ms(entry.ordinal, entry.kind, demand.rows);
    match entry.readiness {
        _ if run_ms > demand.latency_ms => "latency",
        Readiness::Active | Readiness::Degraded => {
            if run_ms + load.wait_ms(entry.ordinal, entry.kind) > demand.latency_ms {
                "busy"
            } else if entry.readiness == Readiness::Degraded {
                "degraded"
            } else {
                match demand.prefer {
                    Prefer::Cost => "dearer",
                    Prefer::Accuracy => "less_accurate",
                    Prefer::Latency => "slower",
                }
            }
        }
        Readiness::Failed => "failed",
        _ if entry.dominated => "dominated",
        _ if run_ms + entry.load_ms > demand.latency_ms => "load",
        _ => "not_loaded",
    }
}

/// Whether an active instance of `entry` meets every target now.
pub fn answers_now(entry: &Entry, demand: &Demand, load: &impl Load) -> bool {
    entry.readiness == Readiness::Active
        && entry.max_rows >= demand.rows
        && demand.least_quality.is_met_by(entry.quality())
        && entry.cost_per_1k_usd <= demand.max_cost_per_1k_usd
        && expected_ms(entry, demand, load) <= demand.latency_ms
}

/// Expected time of a query on `entry` now, ms: load or wait, then run.
pub fn expected_ms(entry: &Entry, demand: &Demand, load: &impl Load) -> f64 {
    let run_ms = entry.latency_ms + load.extra_ms(entry.ordinal, entry.kind, demand.rows);
    match entry.readiness {
        Readiness::Active | Readiness::Degraded => run_ms + load.wait_ms(entry.ordinal, entry.kind),
        _ => run_ms + entry.load_ms,
    }
}

/// How far `entry` misses `demand`: the sum of the relative misses, 0 when it meets all.
pub fn distance(entry: &Entry, demand: &Demand) -> f64 {
    let relative = |excess: f64, scale: f64| (excess / scale.abs().max(1e-9)).max(0.0);
    let mut sum = 0.0;
    if demand.latency_ms.is_finite() {
        sum += relative(entry.latency_ms - demand.latency_ms, demand.latency_ms);
    }
    sum += demand.least_quality.miss(entry.quality());
    if demand.max_cost_per_1k_usd.is_finite() {
        let excess = entry.cost_per_1k_usd - demand.max_cost_per_1k_usd;
        sum += relative(excess, demand.max_cost_per_1k_usd);
    }
    sum
}
