//! The observations of a job that autoscalers get.

use std::collections::VecDeque;

use sextant_scaling::autoscale::{Observation, TICK_S};

use super::{Nanos, SECOND, cluster::Executor, job::Job, seconds};

/// Time between two ticks.
pub(super) const TICK: Nanos = TICK_S as Nanos * SECOND;

/// Autoscalers observe the latency of requests that ended within this time.
const WINDOW: Nanos = 30 * SECOND;

/// The watch of a job; see the module.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// Number of replicas that was last asked for.
    pub(super) desired: u32,
    /// Requests in each tick.
    arrivals: Vec<u32>,
    /// When requests ended and after how many ms, oldest first.
    ended: VecDeque<(Nanos, f64)>,
    /// Requests inside the job, and the time of the last change.
    inside: u32,
    since: Nanos,
    /// Integral of the requests inside since the last tick, request-seconds.
    area: f64,
    /// Mean number of requests inside, for each tick.
    concurrency: Vec<f64>,
}

// === impl Watch ===

impl Watch {
    /// A request has come.
    pub(super) fn arrived(&mut self, now: Nanos) {
        let tick = (now / TICK) as usize;
        if self.arrivals.len() <= tick {
            self.arrivals.resize(tick + 1, 0);
        }
        self.arrivals[tick] += 1;
        self.count(now);
        self.inside += 1;
    }

    /// A request has ended after `latency_ms` ms.
    pub(super) fn ended(&mut self, now: Nanos, latency_ms: f64) {
        self.ended.push_back((now, latency_ms));
        self.count(now);
        self.inside -= 1;
    }

    fn count(&mut self, now: Nanos) {
        self.area += f64::from(self.inside) * seconds(now - self.since);
        self.since = now;
    }

    /// A tick ends.
    pub(super) fn tick(&mut self, now: Nanos) {
        let ticks = (now / TICK) as usize;
        self.arrivals.resize(ticks.max(self.arrivals.len()), 0);
        self.count(now);
        let area = std::mem::take(&mut self.area);
        self.concurrency.push(area / f64::from(TICK_S));
        let is_old = |of: &(Nanos, f64)| of.0 + WINDOW <= now;
        while self.ended.front().is_some_and(is_old) {
            self.ended.pop_front();
        }
    }

    /// The observation at the end of a tick.
    pub(super) fn seen(&self, job: &Job, executor: &Executor) -> Observation<'_> {
        let sum: f64 = self.ended.iter().map(|(_, ms)| ms).sum();
        Observation {
            desired: self.desired,
            running: job.running(),
            busy: executor.is_busy(),
            mean_latency_ms: sum / (self.ended.len().max(1)) as f64,
            // Requests that come at the time of the tick belong to the next tick.
            arrivals: &self.arrivals[..self.concurrency.len()],
            concurrency: &self.concurrency,
            waiting: job.waiting(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replicas::job::Request;

    #[test]
    fn requests_inside_are_a_mean_over_time() {
        let mut watch = Watch::default();
        watch.arrived(0);
        watch.arrived(5 * SECOND);
        watch.tick(TICK);
        watch.ended(12 * SECOND, 12_000.0);
        watch.tick(2 * TICK);
        // One request for 5 s and two for 5 s; two for 2 s and one for 8 s.
        assert_eq!(watch.concurrency, [1.5, 1.2]);
        let seen = watch.seen(&Job::default(), &Executor::new(1));
        assert_eq!((seen.arrivals, seen.mean_latency_ms), (&[2, 0][..], 12e3));
    }

    #[test]
    fn what_no_replica_runs_waits() {
        let mut job = Job::default();
        job.join(|_| {});
        for _ in 0..6 {
            let request = Request {
                arrived: 0,
                failed: false,
                outward: false,
            };
            assert!(job.admit(request, 50).is_ok());
        }
        assert_eq!(job.waiting(), 6);
        // One request runs; three are behind it, one is held and one is in the queue.
        job.dispatch();
        assert_eq!((job.waiting(), job.running()), (5, 1));
    }
}
