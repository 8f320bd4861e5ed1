//! KEDA with a trigger on the length of a queue, by its documentation (keda.sh, ScaledObject
//! specification and the scalers of queues): a metric for the Horizontal Pod Autoscaler.
//!
//! - *Rule*: waiting requests over the target for each replica, rounded up, with the tolerance, the limits and the 300
//!   s before scaling down of [`super::Hpa`]. The target is 5, the default of the scalers for SQS queues and Redis
//!   lists.
//! - *When*: the queue is read every 30 s, KEDA's polling interval. Syncs in between use the last reading, as with
//!   KEDA's cached metrics.
//! - *Cool-down*: a queue that was empty for 300 s leaves the least number of replicas, here one. KEDA applies its
//!   cool-down only before it removes the last replica. Above one replica the autoscaler's window applies. Both are 300
//!   s long.

use super::{
    Autoscaler, Change, Observation,
    hpa::{Behavior, SYNC_S, changes, is_due},
};

/// Waiting requests for each replica.
const TARGET: f64 = 5.0;

/// Time between two readings of the queue, s.
const POLLING_S: u32 = 30;

/// The KEDA autoscaler; see the module.
#[derive(Debug, Clone, Default)]
pub struct KedaQueue {
    jobs: Vec<Job>,
}

#[derive(Debug, Clone, Default)]
struct Job {
    behavior: Behavior,
    /// The number of waiting requests at the last reading.
    waiting: u32,
}

// === impl KedaQueue ===

impl Autoscaler for KedaQueue {
    fn decide(&mut self, now_s: u32, jobs: &[Observation<'_>]) -> Vec<Change> {
        self.jobs.resize_with(jobs.len(), Job::default);
        if is_due(now_s, POLLING_S) {
            for (job, seen) in self.jobs.iter_mut().zip(jobs) {
                job.waiting = seen.waiting;
            }
        }
        if !is_due(now_s, SYNC_S) {
            return Vec::new();
        }
        let desired = self.jobs.iter_mut().zip(jobs).map(|(job, seen)| {
            let load = f64::from(job.waiting) / TARGET;
            job.behavior.sync(now_s, seen.desired, load)
        });
        changes(desired.collect(), jobs)
    }
}
