//! Nexus (SOSP 2019), as Symphony (sections 2 and 5) measures it: devices are assigned by epoch, without coordination.
//!
//! Once per epoch, every queue gets devices according to its measured rate. A batch is the largest that can run twice
//! within the target, because a request that just misses one batch waits for it and runs with the next. The part of a
//! queue's rate that is left after whole devices is packed with those of other queues onto shared devices (*squishy bin
//! packing*, in `pack`). Until rates are known, after the first second, every queue counts the same.
//!
//! Frontends spread requests over the devices of a queue by weighted round-robin, each on its own; a hash of a
//! request's number chooses its frontend. Each device batches its lanes in turn. A batch begins with the first request
//! from which on a whole window, of the planned size or of all that is left, ends in time. Requests before it are
//! dropped (*early drop*), so no answer is late by its profile. Drops happen when a batch is formed, not before.
//!
//! Nexus finds the smallest number of devices for the rates. Here the number is given, so rates are scaled to what just
//! fits: up if devices are left over, down if there are too few.

use crate::Options;
use sextant_schedule::Nanos;

use super::replicas::{Demand, LaneBatch, Replicas, Share, Sharing, View};

mod pack;

/// The sharing of `nexus`.
#[derive(Debug)]
pub(super) struct Nexus {
    frontends: u32,
    epoch: Nanos,
}

impl Nexus {
    /// The scheduler for these options.
    pub fn scheduler<T>(options: &Options) -> Replicas<T, Self> {
        let nexus = Self {
            frontends: options.frontends.max(1),
            epoch: options.epoch.max(1),
        };
        Replicas::new(nexus, options.delay)
    }
}

impl Sharing for Nexus {
    type Memory = ();

    fn frontends(&self) -> u32 {
        self.frontends
    }

    fn epoch(&self) -> Option<Nanos> {
        Some(self.epoch)
    }

    fn plan(&self, demands: &[Demand<'_>], devices: u32) -> Vec<Vec<Share>> {
        pack::plan(demands, devices)
    }

    fn form<T>(&self, view: &View<'_, T>, (): &()) -> LaneBatch {
        let most = view.planned.min(view.spec.max_rows).max(1);
        // The target may have changed since the plan was made.
        let alone = view.spec.latency.rows_within(view.target / 2, most).max(1);
        let mut passed = 0;
        while passed < view.requests.len() {
            let (_, rows) = view.fit(passed, alone);
            if view.ends(rows) <= view.requests.deadline(passed) {
                return LaneBatch {
                    passed,
                    rows,
                    ready_at: 0,
                };
            }
            passed += 1;
        }
        LaneBatch {
            passed,
            rows: 0,
            ready_at: 0,
        }
    }
}
