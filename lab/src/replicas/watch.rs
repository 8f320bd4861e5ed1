//! What autoscalers see of a job.

use std::collections::VecDeque;

use sextant_scaling::autoscale::{Observation, TICK_S};

use super::{Nanos, SECOND, cluster::Executor, job::Job, seconds};

/// Time from a tick to the next.
pub(super) const TICK: Nanos = TICK_S as Nanos * SECOND;

/// Requests that have ended within this time make the latency that autoscalers see.
const WINDOW: Nanos = 30 * SECOND;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// Replicas that were asked for last.
    pub(super) desired: u32,
    /// Requests in each tick.
    arrivals: Vec<u32>,
    /// When requests ended and after how many ms, oldest first.
    ended: VecDeque<(Nanos, f64)>,
    /// Requests inside, and since when so many.
    inside: u32,
    since: Nanos,
    /// Request-seconds inside since the last tick.
    area: f64,
    /// Mean requests inside in each tick.
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

    /// A request has ended after so many ms.
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

    /// What there is to see at the end of a tick.
    pub(super) fn seen(&self, job: &Job, executor: &Executor) -> Observation<'_> {
        let sum: f64 = self.ended.iter().map(|(_, ms)| ms).sum();
        Observation {
            desired: self.desired,
            running: job.running(),
            busy: executor.is_busy(),
            mean_latency_ms: sum / (self.ended.len().max(1)) as f64,
            // What came at the very time of the tick belongs to the next.
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
        // One for 5 s and two for 5 s; two for 2 s and one for 8 s.
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
        // One runs; three are behind it, one is held and one is in the queue.
        job.dispatch();
        assert_eq!((job.waiting(), job.running()), (5, 1));
    }
}
