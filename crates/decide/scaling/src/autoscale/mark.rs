//! MArk, Cocktail and Barista, as Faro's authors have them: each job for itself has as many replicas as
//! its largest rate needs, in the order of the jobs until nothing is left.

use super::{Autoscaler, Change, Observation, Reactive, TICK_S};

/// What a request is taken to keep a replica, ms.
const PROCESSING_MS: f64 = 180.0;

/// When the first plan is made, s.
const FIRST_S: u32 = 60;

/// Time between two plans from then on, s.
const PERIOD_S: u32 = 300;

/// Ticks in a minute.
const MINUTE: usize = 60 / TICK_S as usize;

/// Trials of a planned change.
const TRIALS: u8 = 5;

/// Plans by the rates of the minutes since the last plan: forecasts are left out, with which the
/// published results differ by less than from seed to seed where processors are scarce.
#[derive(Debug, Clone)]
pub struct Mark {
    target_ms: f64,
    reactive: Reactive,
    /// Ticks that the last plan had seen.
    planned: usize,
}

impl Mark {
    /// For answers within so many milliseconds.
    pub fn new(target_ms: f64) -> Self {
        Self {
            target_ms,
            reactive: Reactive::new(target_ms),
            planned: 0,
        }
    }
}

impl Autoscaler for Mark {
    fn decide(&mut self, now_s: u32, jobs: &[Observation<'_>]) -> Vec<Change> {
        if now_s != FIRST_S && !now_s.is_multiple_of(PERIOD_S) {
            return self.reactive.decide(jobs);
        }
        self.reactive.forget();
        let planned = std::mem::replace(&mut self.planned, (now_s / TICK_S) as usize);
        let plans = jobs.iter().enumerate().map(|(job, seen)| {
            let since = seen.arrivals.get(planned..).unwrap_or_default();
            // Whole minutes, counted back from now.
            let minutes = since.rchunks(MINUTE).map(|ticks| ticks.iter().sum::<u32>());
            let rps = f64::from(minutes.max().unwrap_or(0)) / 60.0;
            // The cast saturates.
            let replicas = (rps * PROCESSING_MS / self.target_ms).ceil() as u32;
            Change {
                job,
                target: replicas,
                trials: TRIALS,
            }
        });
        plans.collect()
    }
}
