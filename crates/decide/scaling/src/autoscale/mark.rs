//! MArk, Cocktail and Barista, as implemented by Faro's authors: each job has as many replicas as its largest rate
//! needs, in the order of the jobs until no processor is left.

use super::{Autoscaler, Change, Observation, Reactive, TICK_S};

/// The time for which a request is assumed to occupy a replica, ms.
const PROCESSING_MS: f64 = 180.0;

/// When the first plan is made, s.
const FIRST_S: u32 = 60;

/// Time between two later plans, s.
const PERIOD_S: u32 = 300;

/// Ticks in a minute.
const MINUTE: usize = 60 / TICK_S as usize;

/// The number of trials of a planned change.
const TRIALS: u8 = 5;

/// Plans by the rates of the minutes since the last plan. Forecasts are left out: when processors are scarce, the
/// published results with forecasts differ by less than those of different seeds.
#[derive(Debug, Clone)]
pub struct Mark {
    target_ms: f64,
    reactive: Reactive,
    /// The number of ticks that the last plan had seen.
    planned: usize,
}

impl Mark {
    /// For a target of `target_ms`.
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
