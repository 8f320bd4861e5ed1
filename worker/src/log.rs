//! Compares the expected with the actual duration of the last actions (Clockwork, section 6.5 and
//! figure 10).
//!
//! An action's *error* is its actual duration less the expected one. Its *completion error* is its
//! actual end less the end that follows from its window's start and the expected duration: every
//! cause of a late start adds to it. The log holds only successful actions with an expected
//! duration. Noting a result takes one short lock and no allocation.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use sextant_rpc::{ActionKind, ActionStats, Mispredictions, WorkerStats};

/// Number of actions of each kind that the log keeps.
const REMEMBERED: usize = 8192;

/// Counts and a ring of the last actions, by kind.
pub(crate) struct Log {
    infer: Mutex<Record>,
    load: Mutex<Record>,
    unload: Mutex<Record>,
}

/// One finished action.
pub(crate) struct Action {
    pub(crate) expected: Duration,
    pub(crate) actual: Duration,
    /// Start of its window, or its arrival if that was later.
    pub(crate) earliest: Instant,
    pub(crate) ended: Instant,
}

#[derive(Default)]
struct Record {
    succeeded: u64,
    failed: BTreeMap<&'static str, u64>,
    ring: Vec<Sample>,
    /// Index of the next sample once the ring is full.
    next: usize,
}

#[derive(Clone, Copy)]
struct Sample {
    error_us: f32,
    completion_us: f32,
}

impl Log {
    pub(crate) fn new() -> Self {
        let record = |size| {
            Mutex::new(Record {
                ring: Vec::with_capacity(size),
                ..Record::default()
            })
        };
        Self {
            infer: record(REMEMBERED),
            load: record(REMEMBERED),
            // Unloads have no expected duration: they take no time of the device.
            unload: record(0),
        }
    }

    /// Notes an action: its durations, or the code of its error.
    pub(crate) fn note(&self, kind: ActionKind, result: Result<Option<Action>, &'static str>) {
        let mut record = self
            .record(kind)
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match result {
            Ok(action) => {
                record.succeeded += 1;
                if let Some(action) = action.filter(|action| !action.expected.is_zero()) {
                    record.remember(action.sample());
                }
            }
            Err(code) => *record.failed.entry(code).or_default() += 1,
        }
    }

    pub(crate) fn stats(&self) -> WorkerStats {
        let kinds = [ActionKind::Infer, ActionKind::Load, ActionKind::Unload];
        let stats = |kind| {
            let record = self.record(kind).lock();
            (kind, record.unwrap_or_else(PoisonError::into_inner).stats())
        };
        WorkerStats {
            actions: kinds.into_iter().map(stats).collect(),
        }
    }

    /// The number of successful actions of a kind, and the number of failed ones by code.
    pub(crate) fn counts(&self, kind: ActionKind) -> (u64, BTreeMap<&'static str, u64>) {
        let record = self.record(kind).lock();
        let record = record.unwrap_or_else(PoisonError::into_inner);
        (record.succeeded, record.failed.clone())
    }

    fn record(&self, kind: ActionKind) -> &Mutex<Record> {
        match kind {
            ActionKind::Infer => &self.infer,
            ActionKind::Load => &self.load,
            ActionKind::Unload => &self.unload,
        }
    }
}

impl Action {
    fn sample(&self) -> Sample {
        Sample {
            error_us: signed_us(self.actual, self.expected),
            completion_us: signed_us(self.ended - self.earliest, self.expected),
        }
    }
}

fn signed_us(actual: Duration, expected: Duration) -> f32 {
    ((actual.as_secs_f64() - expected.as_secs_f64()) * 1e6) as f32
}

impl Record {
    fn remember(&mut self, sample: Sample) {
        if self.ring.len() < REMEMBERED {
            self.ring.push(sample);
            return;
        }
        self.ring[self.next] = sample;
        self.next = (self.next + 1) % REMEMBERED;
    }

    fn stats(&self) -> ActionStats {
        let errors = |error: fn(&Sample) -> f32| quantiles(self.ring.iter().map(error).collect());
        ActionStats {
            succeeded: self.succeeded,
            failed: self.failed.clone(),
            under_predicted: errors(|sample| sample.error_us),
            over_predicted: errors(|sample| -sample.error_us),
            late_completion: errors(|sample| sample.completion_us),
        }
    }
}

/// Quantiles of the positive errors, by nearest rank.
fn quantiles(mut errors_us: Vec<f32>) -> Mispredictions {
    errors_us.retain(|error| *error > 0.0);
    errors_us.sort_unstable_by(f32::total_cmp);
    let quantile = |share: f64| {
        let rank = (errors_us.len() as f64 * share).ceil() as usize;
        let error = errors_us.get(rank.saturating_sub(1));
        error.map_or(0.0, |error| f64::from(*error))
    };
    Mispredictions {
        count: errors_us.len() as u64,
        p50_us: quantile(0.5),
        p99_us: quantile(0.99),
        p999_us: quantile(0.999),
        max_us: quantile(1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(log: &Log, expected_us: u64, actual_us: u64, waited_us: u64) {
        let earliest = Instant::now();
        let [expected, actual, waited] =
            [expected_us, actual_us, waited_us].map(Duration::from_micros);
        let action = Action {
            expected,
            actual,
            earliest,
            ended: earliest + waited + actual,
        };
        log.note(ActionKind::Infer, Ok(Some(action)));
    }

    #[test]
    fn errors_are_told_apart_by_sign_and_ranked() {
        let log = Log::new();
        (1..=1000).for_each(|error| note(&log, 2000, 2000 + error, 0));
        (1..=10).for_each(|error| note(&log, 2000, 2000 - error, 500));
        note(&log, 0, 700, 0);
        log.note(ActionKind::Infer, Err("too_late"));
        let stats = &log.stats().actions[&ActionKind::Infer];
        let rounded = |errors: Mispredictions| {
            let values = [errors.p50_us, errors.p99_us, errors.p999_us, errors.max_us];
            (errors.count, values.map(|value| value.round() as u64))
        };
        assert_eq!(
            rounded(stats.under_predicted),
            (1000, [500, 990, 999, 1000])
        );
        assert_eq!(rounded(stats.over_predicted), (10, [5, 10, 10, 10]));
        assert_eq!(stats.late_completion.count, 1010);
        assert_eq!((stats.succeeded, stats.failed["too_late"]), (1011, 1));
    }

    #[test]
    fn only_the_last_actions_are_remembered() {
        let log = Log::new();
        note(&log, 1, 1_000_000, 0);
        (0..REMEMBERED).for_each(|_| note(&log, 1, 3, 0));
        let stats = &log.stats().actions[&ActionKind::Infer];
        assert_eq!(stats.under_predicted.count, REMEMBERED as u64);
        assert!(stats.under_predicted.max_us < 3.0);
    }
}
