//! What a queue's specification means for a request and for waiting rows.

use super::{Delay, DropReason, Nanos, QueueSpec, Request};

impl QueueSpec {
    /// The reason for which a request is refused on arrival, with `waiting` rows before it.
    pub fn refusal<T>(
        &self,
        now: Nanos,
        delay: Delay,
        waiting: u32,
        request: &Request<T>,
    ) -> Option<DropReason> {
        if request.rows > self.max_rows.max(1) {
            return Some(DropReason::Infeasible);
        }
        if waiting.saturating_add(request.rows) > self.max_waiting_rows {
            return Some(DropReason::QueueFull);
        }
        let end = now
            .saturating_add(delay.before_start(request.rows))
            .saturating_add(self.latency.of(request.rows))
            .saturating_add(delay.response);
        (end > request.deadline).then_some(DropReason::Infeasible)
    }

    /// Device time that `rows` rows will take in full batches, ns.
    pub fn work(&self, rows: u32) -> Nanos {
        let most = if self.batched {
            self.max_rows.min(self.planned_rows).max(1)
        } else {
            1
        };
        if rows == 0 {
            return 0;
        }
        if rows <= most {
            return self.latency.of(rows);
        }
        let rest = match rows % most {
            0 => 0,
            rest => self.latency.of(rest),
        };
        Nanos::from(rows / most)
            .saturating_mul(self.latency.of(most))
            .saturating_add(rest)
    }
}
