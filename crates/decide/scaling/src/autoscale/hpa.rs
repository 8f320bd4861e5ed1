//! The Horizontal Pod Autoscaler of Kubernetes, by the rule and the defaults of its documentation
//! (kubernetes.io, Horizontal Pod Autoscaling, "Algorithm details" and "Default behavior").
//!
//! - *Rule*: the number of replicas times metric over target, rounded up. No change while metric over target is within
//!   0.1 of one.
//! - *Metric*: the utilisation of a replica that the requests of the last 20 s would cause if all replicas had equal
//!   parts of them. The target is 0.8, the default for an autoscaler without one. Below saturation the metric equals
//!   CPU utilisation. Beyond saturation CPU utilisation stays at one, while a metric of requests, as here, says how
//!   many replicas are missing.
//! - *When*: every 15 s. Decisions come every 10 s, so a sync that is due between two decisions is made at the second:
//!   at 20, 30, 50, 60, 80, .. s.
//! - *Down*: at most to the highest recommendation of the last 300 s.
//! - *Up*: at once; within 15 s to twice the replicas or four more, whichever is more.

use std::collections::VecDeque;

use super::{Autoscaler, Change, Observation, Setting, TICK_S};

/// The target utilisation of a replica.
const TARGET: f64 = 0.8;

/// Metric over target may differ by this much from one.
const TOLERANCE: f64 = 0.1;

/// Time between two syncs, s. It is also the period of the limit to growth.
pub(super) const SYNC_S: u32 = 15;

/// Recommendations within this time limit scaling down, s.
const WINDOW_S: u32 = 300;

/// Replicas that may always be added in a period.
const MORE: u32 = 4;

/// The ticks whose requests make the metric: as many as cover a sync period.
const MEASURED: usize = SYNC_S.div_ceil(TICK_S) as usize;

/// The Horizontal Pod Autoscaler; see the module.
#[derive(Debug, Clone)]
pub struct Hpa {
    /// Time of a request on a replica, s.
    mean_s: f64,
    jobs: Vec<Behavior>,
}

/// The memory of the default behaviour for one job.
#[derive(Debug, Clone, Default)]
pub(super) struct Behavior {
    /// The recommendations in the window with their times, s, oldest first.
    recommended: VecDeque<(u32, u32)>,
    /// When the last sync was, s, and how many replicas were desired before it.
    last: Option<(u32, u32)>,
}

// === impl Hpa ===

impl Hpa {
    /// Makes an autoscaler without history.
    pub fn new(setting: &Setting) -> Self {
        Self {
            mean_s: setting.service.mean_s,
            jobs: Vec::new(),
        }
    }
}

impl Autoscaler for Hpa {
    fn decide(&mut self, now_s: u32, jobs: &[Observation<'_>]) -> Vec<Change> {
        self.jobs.resize_with(jobs.len(), Behavior::default);
        if !is_due(now_s, SYNC_S) {
            return Vec::new();
        }
        let mean_s = self.mean_s;
        let desired = self.jobs.iter_mut().zip(jobs).map(|(job, seen)| {
            let from = seen.arrivals.len().saturating_sub(MEASURED);
            let ticks = &seen.arrivals[from..];
            let seconds = (ticks.len() as u32 * TICK_S).max(1);
            let rps = f64::from(ticks.iter().sum::<u32>()) / f64::from(seconds);
            job.sync(now_s, seen.desired, rps * mean_s / TARGET)
        });
        changes(desired.collect(), jobs)
    }
}

/// Whether an event with the period `period_s` has become due since the tick before.
pub(super) fn is_due(now_s: u32, period_s: u32) -> bool {
    now_s / period_s > now_s.saturating_sub(TICK_S) / period_s
}

/// The changes that give each job its desired replicas.
pub(super) fn changes(desired: Vec<u32>, jobs: &[Observation<'_>]) -> Vec<Change> {
    let changes = desired.into_iter().zip(jobs).enumerate();
    let changes = changes.filter(|(_, (target, seen))| *target != seen.desired);
    let changes = changes.map(|(job, (target, _))| Change {
        job,
        target,
        trials: 1,
    });
    changes.collect()
}

// === impl Behavior ===

impl Behavior {
    /// The number of replicas to ask for, if `current` were asked for before and the metric of all of them together is
    /// `load` times the target of one.
    pub(super) fn sync(&mut self, now_s: u32, current: u32, load: f64) -> u32 {
        let ratio = load / f64::from(current.max(1));
        let desired = match (ratio - 1.0).abs() <= TOLERANCE {
            true => current,
            // The cast saturates.
            false => (load.ceil() as u32).max(1),
        };
        let stable = self.stabilize(now_s, current, desired);
        let limited = stable.min(self.limit(now_s, current));
        self.last = Some((now_s, current));
        limited
    }

    /// The highest recommendation of the window, but no more than the greater of `current` and `desired`.
    fn stabilize(&mut self, now_s: u32, current: u32, desired: u32) -> u32 {
        if self.last.is_none() {
            self.recommended.push_back((now_s, current));
        }
        self.recommended.push_back((now_s, desired));
        self.recommended.retain(|(at, _)| at + WINDOW_S > now_s);
        let recommended = self.recommended.iter().map(|(_, of)| *of);
        let highest = recommended.max().unwrap_or(desired);
        current.max(desired).min(highest)
    }

    /// The most replicas allowed now, by the number at the beginning of the period.
    fn limit(&self, now_s: u32, current: u32) -> u32 {
        let within = self.last.filter(|(at, _)| at + SYNC_S > now_s);
        let begun = within.map_or(current, |(_, before)| before.min(current));
        let most = begun.saturating_mul(2).max(begun.saturating_add(MORE));
        most.max(current)
    }
}
