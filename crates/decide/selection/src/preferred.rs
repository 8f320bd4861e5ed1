//! The choice of a query that prefers accuracy or latency to a low price.
//!
//! Of the variants that meet all targets now the most accurate one answers, or the one that would answer first. Equal
//! ones: the cheapest.
//!
//! **Accuracy gives way before answers do.** The more accurate a variant, the longer its batches hold a device, so
//! always taking it is what makes everybody wait. Waits are the sign: a variant is taken for its accuracy only where the
//! wait for it, [`CAUTION`] times as long, would leave the target within reach. As devices fill, queries go to quicker
//! variants one after the other while the target still has room, devices come to rest at a wait that each query can
//! afford, and accuracy comes back with the room. Where devices are full ([`Readiness::Degraded`]) the cheapest goes
//! first, as for everybody.

use sextant_types::{Prefer, index::VariantIx};

use super::{Demand, Entry, Index, Load, expected_ms, meets_when_idle};

/// How many times the wait must fit into what a target leaves beside the run.
const CAUTION: f64 = 2.0;

/// The preferred of those entries that meet the targets now; `None` where a low price is preferred, or nothing does.
pub(super) fn among(
    index: &Index,
    demand: &Demand,
    load: &impl Load,
    is_meant: impl Fn(&Entry) -> bool,
) -> Option<VariantIx> {
    if demand.prefer == Prefer::Cost {
        return None;
    }
    let meant = index.entries().iter().filter(|entry| is_meant(entry));
    let fit = meant.filter(|entry| meets_when_idle(entry, demand, load));
    let timed = fit.map(|entry| (entry, expected_ms(entry, demand, load)));
    let in_time = timed.filter(|(entry, ms)| {
        let run_ms = entry.latency_ms + load.extra_ms(entry.ordinal, entry.kind, demand.rows);
        let caution = match demand.prefer {
            Prefer::Accuracy => CAUTION,
            _ => 1.0,
        };
        run_ms + (ms - run_ms) * caution <= demand.latency_ms
    });
    let best = in_time.min_by(|(one, one_ms), (other, other_ms)| {
        let by_choice = match demand.prefer {
            Prefer::Accuracy => other
                .quality()
                .exceeds(one.quality())
                .cmp(&one.quality().exceeds(other.quality())),
            _ => one_ms.total_cmp(other_ms),
        };
        let by_cost = || one.cost_per_1k_usd.total_cmp(&other.cost_per_1k_usd);
        let by_time = || one_ms.total_cmp(other_ms);
        let by_number = || one.ordinal.cmp(&other.ordinal);
        by_choice
            .then_with(by_cost)
            .then_with(by_time)
            .then_with(by_number)
    });
    best.map(|(entry, _)| entry.ordinal)
}
