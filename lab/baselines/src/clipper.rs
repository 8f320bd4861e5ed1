//! Clipper (Crankshaw's thesis, chapter 3): every replica batches on its own, as many rows as it has learned to finish
//! within the target.
//!
//! Devices are divided evenly among the queues, once; if there are more queues than devices, queues share them in turn.
//! Each (device, queue) has its own requests and its own limit on rows. The limit adapts to measured run times, either
//! by additive increase and multiplicative decrease or by a line through the run times' 99th percentile. With a queue
//! delay, a batch below the limit waits until its first request has waited that long.
//!
//! The target bounds the run time of a batch, without the time that a request has waited. So under load, answers are
//! late by up to a run. Only requests that are past their deadline are dropped, and a batch may be late: Clipper knows
//! no profile, only limits.

use crate::{Options, Policy};

use super::replicas::{Demand, LaneBatch, Replicas, Share, Sharing, View};

mod limit;

use limit::{Aimd, Quantile};

/// The sharing of `clipper-aimd` and `clipper-quantile`.
#[derive(Debug)]
pub(super) struct Clipper {
    quantile: bool,
    queue_delay: u64,
}

/// The limit of a replica, of either kind.
#[derive(Debug, Default)]
pub(super) struct ReplicaLimit {
    aimd: Aimd,
    quantile: Quantile,
}

impl Clipper {
    /// The scheduler for these options.
    pub fn scheduler<T>(options: &Options) -> Replicas<T, Self> {
        let clipper = Self {
            quantile: options.policy == Policy::ClipperQuantile,
            queue_delay: options.max_queue_delay,
        };
        Replicas::new(clipper, options.delay)
    }
}

impl Sharing for Clipper {
    type Memory = ReplicaLimit;

    fn frontends(&self) -> u32 {
        1
    }

    fn epoch(&self) -> Option<u64> {
        None
    }

    fn plan(&self, demands: &[Demand<'_>], devices: u32) -> Vec<Vec<Share>> {
        let (queues, devices) = (demands.len(), devices as usize);
        let mut plan = vec![Vec::new(); devices];
        for at in 0..queues.max(devices) {
            let demand = demands[at % queues];
            plan[at % devices].push(Share {
                queue: demand.queue,
                rows: demand.spec.max_rows,
                weight: 1.0,
            });
        }
        plan
    }

    fn form<T>(&self, view: &View<'_, T>, learned: &ReplicaLimit) -> LaneBatch {
        let passed = view.requests.due_before(view.now.saturating_add(1));
        if passed == view.requests.len() {
            return LaneBatch {
                passed,
                rows: 0,
                ready_at: 0,
            };
        }
        let limit = if self.quantile {
            learned.quantile.rows(view.target)
        } else {
            learned.aimd.rows()
        };
        let limit = limit.min(view.spec.max_rows);
        let (_, rows) = view.fit(passed, limit);
        let full = rows >= limit || !view.spec.batched;
        LaneBatch {
            passed,
            rows,
            ready_at: match view.requests.arrived(passed) {
                _ if full => 0,
                arrived => arrived.saturating_add(self.queue_delay),
            },
        }
    }

    fn learn(&self, learned: &mut ReplicaLimit, rows: u32, ran: u64, target: u64) {
        if self.quantile {
            learned.quantile.learn(rows, ran);
        } else {
            learned.aimd.learn(rows, ran, target);
        }
    }
}
