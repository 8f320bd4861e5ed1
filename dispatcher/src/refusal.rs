//! Why a query is refused, in the words that clients see.

use std::time::{Duration, Instant};

use sextant_picture::IndexedVariant;
use sextant_rpc::{Candidate, InferError, QueryError};
use sextant_schedule::DropReason;
use sextant_selection::{Decision, Demand, Entry, Index};
use sextant_types::Code;

use crate::{ask::Ask, explain::candidate, live_load::LiveLoad, pending::Refusal, reach};

/// When a client may retry a query at a dispatcher that does not lead, ms: by then another dispatcher has been elected.
const STAND_BY_RETRY_MS: f64 = 500.0;

/// This dispatcher does not lead; another one takes queries.
pub(crate) fn standing_by() -> QueryError {
    let message = "this dispatcher stands by for the one that leads; try again";
    QueryError::new(Code::Unavailable, message).retry_after_ms(STAND_BY_RETRY_MS)
}

/// This dispatcher has not yet read what is registered.
pub(crate) fn uninformed() -> QueryError {
    let message = "the dispatcher starts and has not read yet what is registered; try again";
    QueryError::new(Code::Unavailable, message).retry_after_ms(STAND_BY_RETRY_MS)
}

/// The query's time was over before it could be placed.
pub(crate) fn overdue(waited: Duration) -> QueryError {
    let message = format!(
        "no time was left for a variant that meets the targets after `{:.1}` ms of waiting",
        waited.as_secs_f64() * 1e3
    );
    QueryError::new(Code::DeadlineExceeded, message)
}

/// No engine takes inputs of this length.
pub(crate) fn too_long(longest: u64) -> QueryError {
    let message = format!(
        "the inputs are too long: the registered variants take at most `{longest}` in each dynamic \
         dimension"
    );
    QueryError::new(Code::InvalidTensor, message)
}

pub(crate) fn refuse(
    decision: &Decision,
    index: &Index,
    demand: &Demand,
    load: &LiveLoad<'_>,
) -> QueryError {
    match decision {
        // The worker cannot be reached, so nobody knows when it will be free.
        Decision::Busy { wait_ms, ordinal } if !wait_ms.is_finite() => {
            match load.snapshot.known(*ordinal) {
                Some(known) => unreached(known),
                None => retired(),
            }
        }
        Decision::Busy { wait_ms, ordinal } => {
            let known = load.snapshot.known(*ordinal);
            let name = known.map_or("", |known| known.variant.id.as_str());
            let message = format!(
                "variants that meet the targets are busy, or slower now than they were measured; `{name}` is \
                 free in {wait_ms:.1} ms"
            );
            QueryError::new(Code::Overloaded, message).retry_after_ms(*wait_ms)
        }
        Decision::Warming { ordinal, .. } => match load.snapshot.known(*ordinal) {
            Some(known) => warming(known),
            None => retired(),
        },
        Decision::Unavailable { ordinal } => match load.snapshot.known(*ordinal) {
            Some(known) => {
                let failure = load.driver.load_failure(*ordinal);
                unloadable(known, failure, load.snapshot.unreached)
            }
            None => retired(),
        },
        Decision::Infeasible { closest } => {
            let most = reach::most_rows(index);
            if closest.is_empty() && demand.rows > most && most > 0 {
                return QueryError::too_many_rows(demand.rows, most, "what was registered");
            }
            let message = reach::sentence(index, demand, load);
            let mut error = QueryError::new(Code::TargetInfeasible, message);
            let closest = closest.iter();
            let known = closest
                .filter_map(|at| Some((load.snapshot.known(*at)?, index.entry(*at)?)))
                .map(|(known, entry)| (entry, candidate(known, entry, demand, load)));
            let mut known: Vec<(&Entry, Candidate)> = known.collect();
            known.sort_by(|a, b| miss(a, demand).total_cmp(&miss(b, demand)));
            error.closest = known.into_iter().map(|(_, candidate)| candidate).collect();
            error
        }
        Decision::Use { .. } | Decision::LoadThenUse { .. } => QueryError::new(
            Code::Internal,
            format!("{} variants", index.entries().len()),
        ),
    }
}

/// The variant that the query names is not accurate enough or not cheap enough.
pub(crate) fn unsuited(known: &IndexedVariant, demand: &Demand, load: &LiveLoad<'_>) -> QueryError {
    let entry = known.entry(load.extent);
    let id = &known.variant.id;
    let message = match demand.least_quality.is_met_by(entry.quality()) {
        true => format!("variant `{id}`, which the query names, costs too much"),
        false => format!(
            "variant `{id}`, which the query names, is not accurate enough: {}",
            reach::measured(
                &known.variant.accuracy,
                entry.quality(),
                &demand.least_quality
            )
        ),
    };
    let mut error = QueryError::new(Code::TargetInfeasible, message);
    error.closest = vec![candidate(known, &entry, demand, load)];
    error
}

/// How far a candidate misses the targets, by the figures that the client sees: the sum of the relative misses.
fn miss((entry, of): &(&Entry, Candidate), demand: &Demand) -> f64 {
    let relative = |excess: f64, target: f64| match target.is_finite() {
        true => (excess / target.abs().max(1e-9)).max(0.0),
        false => 0.0,
    };
    relative(of.expected_ms - demand.latency_ms, demand.latency_ms)
        + demand.least_quality.miss(entry.quality())
        + relative(
            of.cost_per_1k_usd - demand.max_cost_per_1k_usd,
            demand.max_cost_per_1k_usd,
        )
}

/// Retry time if no worker can load the variant, ms. A worker that can may come, and a failed load is tried again after
/// a pause.
const UNLOADABLE_RETRY_MS: f64 = 1000.0;

/// No worker can load the variant; the reason is given if a load has failed. `unreached` workers of the fleet cannot be
/// reached, so it is unknown what they could load.
pub(crate) fn unloadable(
    known: &IndexedVariant,
    failure: Option<String>,
    unreached: usize,
) -> QueryError {
    let none = || {
        let id = &known.variant.id;
        match unreached {
            0 => format!("no worker has the engine and the memory for variant `{id}`"),
            1 => format!(
                "no worker that can be reached has the engine and the memory for variant `{id}`, and 1 worker \
                 of the fleet cannot be reached; try again"
            ),
            many => format!(
                "no worker that can be reached has the engine and the memory for variant `{id}`, and {many} \
                 workers of the fleet cannot be reached; try again"
            ),
        }
    };
    let message = failure.unwrap_or_else(none);
    QueryError::new(Code::Unavailable, message).retry_after_ms(UNLOADABLE_RETRY_MS)
}

/// The variant is loaded only where nothing can be sent at the moment.
fn unreached(known: &IndexedVariant) -> QueryError {
    let id = &known.variant.id;
    let message = format!("no worker that has variant `{id}` can be reached; try again");
    QueryError::new(Code::Unavailable, message).retry_after_ms(UNLOADABLE_RETRY_MS)
}

fn retired() -> QueryError {
    QueryError::new(Code::Unavailable, "the variant was retired")
}

pub(crate) fn warming(known: &IndexedVariant) -> QueryError {
    let (id, ms) = (&known.variant.id, known.load_ms());
    let message =
        format!("variant `{id}` is being loaded, which takes about {ms:.0} ms; try again");
    QueryError::new(Code::Warming, message).retry_after_ms(ms)
}

pub(crate) fn refused(refusal: &Refusal, known: &IndexedVariant, ask: &Ask) -> QueryError {
    let id = &known.variant.id;
    let run_ms = known.run_ms(ask.extent);
    let (code, message) = match refusal {
        Refusal::Dropped(DropReason::Infeasible)
            if ask.targets.latency_ms.is_some_and(|target| target < run_ms) =>
        {
            (
                Code::TargetInfeasible,
                format!("variant `{id}` takes `{run_ms:.3}` ms even on an idle device"),
            )
        }
        Refusal::Dropped(DropReason::Infeasible) => (
            Code::Overloaded,
            format!("variant `{id}` is too busy to answer in time"),
        ),
        Refusal::Dropped(DropReason::Shed) => (
            Code::Overloaded,
            format!("variant `{id}` is overloaded: the query made room for others"),
        ),
        Refusal::Dropped(DropReason::QueueFull) => (
            Code::Overloaded,
            format!("the queue of variant `{id}` is full"),
        ),
        Refusal::Dropped(DropReason::Expired) | Refusal::Worker(InferError::TooLate) => (
            Code::DeadlineExceeded,
            format!("variant `{id}` could not start before the deadline"),
        ),
        Refusal::Dropped(DropReason::Gone) | Refusal::Worker(InferError::NotLoaded(_)) => {
            (Code::Unavailable, format!("variant `{id}` was unloaded"))
        }
        Refusal::Worker(InferError::InputsMissing) => (
            match ask.deadline().is_some_and(|by| by <= Instant::now()) {
                true => Code::DeadlineExceeded,
                false => Code::Unavailable,
            },
            format!("the inputs did not reach the worker of variant `{id}` in time"),
        ),
        Refusal::Worker(InferError::Failed { code, reason }) => {
            (*code, format!("variant `{id}` failed: {reason}"))
        }
        Refusal::Worker(InferError::BadShape(reason)) => (
            Code::InvalidTensor,
            format!("variant `{id}` does not take these inputs: {reason}"),
        ),
        Refusal::Worker(error @ InferError::Lost { .. }) => (Code::EngineFailed, error.to_string()),
        Refusal::Worker(
            error @ (InferError::TooEarly
            | InferError::NoMemory(_)
            | InferError::WeightsChanged(_)
            | InferError::Disconnected { .. }),
        ) => (Code::Unavailable, error.to_string()),
        Refusal::Worker(InferError::ShuttingDown) => (
            Code::Unavailable,
            format!(
                "the worker of variant `{id}` ends, or was lost before it took the query; try again"
            ),
        ),
    };
    let error = QueryError::new(code, message);
    match code.kind().is_retryable() {
        true => error.retry_after_ms(known.variant.latency_ms()),
        false => error,
    }
}
