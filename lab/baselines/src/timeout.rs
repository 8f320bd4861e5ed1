//! Triton's dynamic batcher: preferred sizes, a queue delay, first come first served.
//!
//! It knows no run times. A batch is as large as a preferred size (or the maximum) allows, and closes when it has
//! reached one or its first request has waited for the delay. A request is given up when its deadline has passed, not
//! when it has become impossible. So batches may be late.

use crate::Options;
use sextant_schedule::{DropReason, NEVER, NextBatch, Rule, View};

/// The rule of `timeout`.
#[derive(Debug, Clone)]
pub struct Timeout {
    preferred: Vec<u32>,
    delay: u64,
}

impl Timeout {
    /// The rule with the preferred sizes and the delay of `options`.
    pub fn new(options: &Options) -> Self {
        let mut preferred = options.preferred_rows.clone();
        preferred.sort_unstable();
        Self {
            preferred,
            delay: options.max_queue_delay,
        }
    }

    /// Rows of the batch, and whether it is complete.
    fn rows(&self, waiting: u32, most: u32) -> (u32, bool) {
        let waiting = waiting.min(most);
        let preferred = self.preferred.iter().rev().find(|rows| **rows <= waiting);
        match preferred {
            Some(rows) => (*rows, true),
            None => (waiting, waiting == most),
        }
    }
}

impl Rule for Timeout {
    type Memory = ();

    fn form<T>(&mut self, view: &View<'_, T>, (): &mut ()) -> NextBatch {
        let queue = view.queue;
        let mut passed = 0;
        while passed < queue.len() && queue.deadline(passed) <= view.now {
            passed += 1;
        }
        let reason = DropReason::Expired;
        if passed == queue.len() {
            return NextBatch::none(passed, reason);
        }
        let (rows, complete) = self.rows(queue.rows_from(passed), view.max_rows);
        let arrived = queue.arrived(passed);
        NextBatch {
            passed,
            reason,
            rows: rows.max(queue.rows_of(passed)),
            ready_at: if complete {
                0
            } else {
                arrived.saturating_add(self.delay)
            },
            latest: NEVER,
            rank: arrived,
            until: queue.deadline(passed),
            worth: f32::INFINITY,
        }
    }
}
