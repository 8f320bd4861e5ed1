//! Work-conserving dispatch: a free device gets a batch at once.
//!
//! The strong baseline orders by latest start and drops only requests that can no longer be met. The weak one orders by
//! the planned start as in Fig 16 of Symphony, which on a busy device is little more than the order of the last
//! arrivals.

use sextant_schedule::{DropReason, NextBatch, Rule, View};

/// The rule of `eager` and `eager-weak`.
#[derive(Debug, Clone, Copy)]
pub struct Eager {
    by_latest: bool,
}

impl Eager {
    /// By latest start.
    pub fn strong() -> Self {
        Self { by_latest: true }
    }

    /// By planned start.
    pub fn weak() -> Self {
        Self { by_latest: false }
    }
}

impl Rule for Eager {
    type Memory = ();

    fn form<T>(&mut self, view: &View<'_, T>, (): &mut ()) -> NextBatch {
        let reason = DropReason::Expired;
        let Some((passed, rows)) = view.first_batch() else {
            return NextBatch::none(view.queue.len(), reason);
        };
        let deadline = view.queue.deadline(passed);
        let latest = view.latest(deadline, rows);
        let planned = view.earliest(rows).max(view.latest(deadline, rows + 1));
        NextBatch {
            passed,
            reason,
            rows,
            ready_at: 0,
            latest,
            rank: if self.by_latest { latest } else { planned },
            until: view.expiry(latest, rows),
            worth: f32::INFINITY,
        }
    }
}
