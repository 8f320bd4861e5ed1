//! The choice for a query that prefers accuracy or latency to a low price.
//!
//! Of the variants that meet all targets now, the most accurate one answers, or the one that would answer first. Of
//! equal ones, the cheapest.
//!
//! **Accuracy gives way before answers do.** The more accurate a variant, the longer its batches hold a device, so
//! always taking it would make all queries wait. Waits show this. A variant is taken for its accuracy only if
//! [`CAUTION`] times the wait for it would still meet the target. The part of a wait that is no longer than the
//! variant's own run may be the end of one batch. The rest of the wait says that queries arrive faster than they leave.
//! It is multiplied by the ratio of the variant's cost to that of the cheapest variant active on such a device; prices
//! there are shares of the device's time. As devices fill, the variants that take the most time for what they gain
//! therefore give way first, devices settle at a wait that each query can afford, and accuracy returns when there is
//! room. If devices are full ([`Readiness::Degraded`]), the cheapest goes first, as for all queries.
//!
//! **Quick for one is not quick for all.** A query delays all queries behind it for as long as it holds the device.
//! Suppose a variant answers one query soon, but holds the device eight times as long as another variant would, because
//! it does not batch. It is the quickest only while no query waits. If queries wait, the wait is therefore multiplied
//! by the ratio of the variant's cost to that of the cheapest variant active on such a device; prices there are shares
//! of the device's time. The added time is the time that its query takes from those that wait, as many as are ahead of
//! it now.

use sextant_types::{Prefer, index::VariantIx};

use super::{Demand, Entry, Index, Load, Readiness, expected_ms, meets_when_idle};

/// How many times the wait must fit into the time that a target leaves beside the run.
const CAUTION: f64 = 2.0;

/// The preferred entry of those that meet the targets now; `None` if a low price is preferred, or no entry meets them.
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
        let wait_ms = match demand.prefer {
            Prefer::Accuracy => cautious_wait_ms(index, entry, (run_ms, ms - run_ms)),
            _ => ms - run_ms,
        };
        run_ms + wait_ms <= demand.latency_ms
    });
    let of_all_ms = |entry: &Entry| of_all_ms(index, entry, demand, load);
    let best = in_time.min_by(|(one, one_ms), (other, other_ms)| {
        let by_choice = match demand.prefer {
            Prefer::Accuracy => other
                .quality()
                .exceeds(one.quality())
                .cmp(&one.quality().exceeds(other.quality())),
            _ => of_all_ms(one).total_cmp(&of_all_ms(other)),
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

/// The expected time of a query on `entry` now, plus the time that its run adds to the waits of others, ms.
fn of_all_ms(index: &Index, entry: &Entry, demand: &Demand, load: &impl Load) -> f64 {
    if entry.readiness != Readiness::Active {
        return expected_ms(entry, demand, load);
    }
    let run_ms = entry.latency_ms + load.extra_ms(entry.ordinal, entry.kind, demand.rows);
    run_ms + load.wait_ms(entry.ordinal, entry.kind) * times_cheapest(index, entry)
}

/// The wait, as a query that prefers accuracy counts it, ms.
fn cautious_wait_ms(index: &Index, entry: &Entry, (run_ms, wait_ms): (f64, f64)) -> f64 {
    let own_ms = wait_ms.min(run_ms);
    CAUTION * (own_ms + (wait_ms - own_ms) * times_cheapest(index, entry))
}

/// How many times as much device time a query on `entry` takes as on the cheapest entry that is active on such a
/// device; 1 for an entry that is not active, and if devices cost nothing.
fn times_cheapest(index: &Index, entry: &Entry) -> f64 {
    let least = index.least_cost(entry.kind);
    match entry.readiness == Readiness::Active && least > 0.0 {
        true => (entry.cost_per_1k_usd / least).max(1.0),
        false => 1.0,
    }
}
