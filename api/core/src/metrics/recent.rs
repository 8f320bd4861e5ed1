//! Outcomes of the queries of each application over the last minute. This is the front end's one rolling window;
//! metrics count the same since the start.
//!
//! Times are grouped by the total, in steps of a twelfth of it, each with the sums of its stages. So the stages of a
//! percentile are those of the queries around it, and add up to the percentile.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::{Mutex, RwLock};
use sextant_rpc::Answer;
use sextant_types::{ApplicationId, Code, ErrorKind};

/// Step of the window, seconds.
const STEP_S: u64 = 5;
/// Steps in the window, with the present one.
const STEPS: u64 = 12;
/// Steps in which a total doubles.
const PER_DOUBLING: f64 = 8.0;

/// The last minute of all applications.
pub struct RecentMinutes {
    begun: Instant,
    by_application: RwLock<HashMap<ApplicationId, Arc<RecentMinute>>>,
}

/// The last minute of an application.
#[derive(Default)]
pub struct RecentMinute(Mutex<VecDeque<Step>>);

/// Counts of the window.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Counts {
    /// Queries answered.
    pub answered: u64,
    /// Those of them that met every target.
    pub in_time: u64,
    /// Queries not answered, by code.
    pub refused: BTreeMap<Code, u64>,
    /// Answers by their total.
    times: BTreeMap<u16, Times>,
}

/// Sums of the stages of several queries.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Times {
    queries: u64,
    load_us: f64,
    queue_us: f64,
    run_us: f64,
    total_us: f64,
}

/// The stages of a query, milliseconds. The rest of the total is the way back and writing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Split {
    /// Waiting while the variant was loaded.
    pub load_ms: f64,
    /// Waiting for a batch and a device.
    pub queue_ms: f64,
    /// Running.
    pub run_ms: f64,
    /// The total.
    pub total_ms: f64,
}

struct Step {
    number: u64,
    counts: Counts,
}

// === impl RecentMinutes ===

impl RecentMinutes {
    /// Windows without queries.
    pub fn new() -> Self {
        Self {
            begun: Instant::now(),
            by_application: RwLock::default(),
        }
    }

    /// The window of an application, which is made at its first query.
    pub fn of(&self, application: &ApplicationId) -> Arc<RecentMinute> {
        if let Some(recent) = self.by_application.read().get(application) {
            return Arc::clone(recent);
        }
        let mut known = self.by_application.write();
        Arc::clone(known.entry(application.clone()).or_default())
    }

    /// The counts of its queries, and the seconds that they cover.
    pub fn look(&self, application: &ApplicationId) -> (Counts, f64) {
        let now = self.begun.elapsed();
        let recent = self.by_application.read().get(application).cloned();
        let counts = recent.map(|recent| recent.look(now)).unwrap_or_default();
        (counts, covered_s(now))
    }

    /// Forgets an application that has been deleted.
    pub fn forget(&self, application: &ApplicationId) {
        self.by_application.write().remove(application);
    }

    /// Counts an answer.
    pub fn answered(&self, recent: &RecentMinute, answer: &Answer, elapsed: Duration) {
        recent.count(self.begun.elapsed(), |counts| counts.add(answer, elapsed));
    }

    /// Counts a query that was not answered.
    pub fn refused(&self, application: &ApplicationId, code: Code) {
        let recent = self.of(application);
        recent.count(self.begun.elapsed(), |counts| {
            *counts.refused.entry(code).or_default() += 1;
        });
    }
}

fn step(now: Duration) -> u64 {
    now.as_secs() / STEP_S
}

/// The first step of the window.
fn first(now: Duration) -> u64 {
    (step(now) + 1).saturating_sub(STEPS)
}

/// Seconds of the time until `now` that the window covers.
fn covered_s(now: Duration) -> f64 {
    let left_out = Duration::from_secs(first(now) * STEP_S);
    now.saturating_sub(left_out).as_secs_f64().max(1.0)
}

// === impl RecentMinute ===

impl RecentMinute {
    fn count(&self, now: Duration, count: impl FnOnce(&mut Counts)) {
        let number = step(now);
        let mut steps = self.0.lock();
        let is_new = steps.back().is_none_or(|last| last.number < number);
        if is_new {
            let first = first(now);
            steps.retain(|step| step.number >= first);
            let counts = Counts::default();
            steps.push_back(Step { number, counts });
        }
        if let Some(last) = steps.back_mut() {
            count(&mut last.counts);
        }
    }

    fn look(&self, now: Duration) -> Counts {
        let first = first(now);
        let steps = self.0.lock();
        let within = steps.iter().filter(|step| step.number >= first);
        within.fold(Counts::default(), |sum, step| sum.plus(&step.counts))
    }
}

// === impl Counts ===

impl Counts {
    /// Queries that the service owed an answer. Queries that could not be read, or were not allowed, are left out,
    /// because the client caused that.
    pub fn owed(&self) -> u64 {
        let refused = self.refused.iter();
        let refused = refused.filter(|(code, _)| is_owed(**code));
        self.answered + refused.map(|(_, count)| count).sum::<u64>()
    }

    /// All queries.
    pub fn asked(&self) -> u64 {
        self.answered + self.refused.values().sum::<u64>()
    }

    /// The stages of the queries around a percentile; `None` before the first answer.
    pub fn split(&self, percentile: f64) -> Option<Split> {
        let rank = (self.answered as f64 * percentile / 100.0).ceil().max(1.0);
        let mut passed = 0;
        let around = self.times.values().find(|times| {
            passed += times.queries;
            passed as f64 >= rank
        });
        around.map(Times::mean)
    }

    fn add(&mut self, answer: &Answer, elapsed: Duration) {
        self.answered += 1;
        self.in_time += u64::from(answer.targets_met);
        let total_us = elapsed.as_secs_f64() * 1e6;
        // Totals below a microsecond count as a microsecond.
        let at = (total_us.max(1.0).log2() * PER_DOUBLING) as u16;
        let times = self.times.entry(at).or_default();
        let load_us = answer.timings.load_us;
        *times = times.plus(&Times {
            queries: 1,
            load_us,
            queue_us: (answer.timings.queue_us - load_us).max(0.0),
            run_us: answer.timings.compute_us,
            total_us,
        });
    }

    fn plus(mut self, other: &Self) -> Self {
        self.answered += other.answered;
        self.in_time += other.in_time;
        for (code, count) in &other.refused {
            *self.refused.entry(*code).or_default() += count;
        }
        for (at, times) in &other.times {
            let sum = self.times.entry(*at).or_default();
            *sum = sum.plus(times);
        }
        self
    }
}

fn is_owed(code: Code) -> bool {
    match code.kind() {
        ErrorKind::Infeasible
        | ErrorKind::Overloaded
        | ErrorKind::Internal
        | ErrorKind::Unavailable
        | ErrorKind::DeadlineExceeded
        | ErrorKind::StorageFull => true,
        ErrorKind::Invalid
        | ErrorKind::NotFound
        | ErrorKind::Unauthenticated
        | ErrorKind::Forbidden
        | ErrorKind::Conflict
        | ErrorKind::TooLarge => false,
    }
}

// === impl Times ===

impl Times {
    fn plus(&self, other: &Self) -> Self {
        Self {
            queries: self.queries + other.queries,
            load_us: self.load_us + other.load_us,
            queue_us: self.queue_us + other.queue_us,
            run_us: self.run_us + other.run_us,
            total_us: self.total_us + other.total_us,
        }
    }

    fn mean(&self) -> Split {
        let ms = |sum: f64| sum / self.queries.max(1) as f64 / 1000.0;
        Split {
            load_ms: ms(self.load_us),
            queue_ms: ms(self.queue_us),
            run_ms: ms(self.run_us),
            total_ms: ms(self.total_us),
        }
    }
}

#[cfg(test)]
mod tests {
    use sextant_rpc::Timings;

    use super::*;

    fn answer(targets_met: bool, queue_us: f64, load_us: f64) -> Answer {
        Answer {
            variant: "mlp-ort-fp32-all-t1-b32".parse().expect("a name"),
            model: "mlp".parse().expect("a name"),
            outputs: Vec::new(),
            rows: 1,
            timings: Timings {
                queue_us,
                load_us,
                compute_us: 500.0,
                total_us: 0.0,
                batch_rows: 1,
            },
            targets_met,
            cost_usd: 0.0,
            explanation: None,
        }
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn what_is_older_than_a_minute_is_forgotten() {
        let recent = RecentMinute::default();
        for second in [0, 30, 59, 60, 64] {
            let refused = |counts: &mut Counts| {
                *counts.refused.entry(Code::Overloaded).or_default() += 1;
            };
            recent.count(at(second), refused);
        }
        assert_eq!(recent.look(at(64)).asked(), 4);
        assert_eq!(recent.look(at(94)).asked(), 3);
        assert_eq!(recent.look(at(500)), Counts::default());
    }

    #[test]
    fn a_window_covers_what_has_passed_and_a_minute_at_most() {
        let covered = [0, 3, 59, 60, 64, 1000].map(|second| covered_s(at(second)));
        assert_eq!(covered, [1.0, 3.0, 59.0, 55.0, 59.0, 55.0]);
    }

    #[test]
    fn the_stages_of_a_percentile_are_those_of_the_queries_around_it() {
        let mut counts = Counts::default();
        for _ in 0..98 {
            counts.add(&answer(true, 200.0, 0.0), Duration::from_millis(1));
        }
        for _ in 0..2 {
            counts.add(
                &answer(false, 90_000.0, 80_000.0),
                Duration::from_millis(100),
            );
        }
        let median = counts.split(50.0).expect("there are answers");
        assert_eq!((median.queue_ms, median.load_ms), (0.2, 0.0));
        assert!((median.total_ms - 1.0).abs() < 1e-9);
        let slow = counts.split(99.0).expect("there are answers");
        assert_eq!(
            (slow.queue_ms, slow.load_ms, slow.run_ms),
            (10.0, 80.0, 0.5)
        );
        assert_eq!(counts.in_time, 98);
    }

    #[test]
    fn only_refusals_of_the_service_are_owed() {
        let counts = Counts {
            refused: [(Code::Overloaded, 2), (Code::InvalidTensor, 5)].into(),
            ..Counts::default()
        };
        assert_eq!((counts.owed(), counts.asked()), (2, 7));
        assert_eq!(counts.split(50.0), None);
    }
}
