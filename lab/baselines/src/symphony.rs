//! Deferred batches (Symphony, arXiv 2308.07470, section 4.3 and Fig 16).
//!
//! A batch waits, even while devices idle, until the last moment at which one more request could still join it
//! (*frontrun*: first deadline less the run time of one more row). A batch that waits longer is fuller, so fewer
//! invocations are paid for, and idle time shows the true spare capacity. If the first requests would force a small
//! batch, they are dropped so that the rest can run together (*window drop*): the batch keeps at least the size at
//! which a staggered set of devices carries the queue's rate.
//!
//! Corrections of the figure: the beta * lambda rule takes effect (the figure overwrites it); a grant marks the device
//! and removes the candidate (one could be granted twice); and a candidate that timers drop or invalidate is formed
//! again and ranked (low rates stalled until the next arrival).

use crate::Options;
use sextant_schedule::{Cause, DropReason, NEVER, Nanos, NextBatch, Rule, View};

/// The rule of `symphony`.
#[derive(Debug, Clone, Copy)]
pub struct Symphony {
    beta_lambda: bool,
}

/// The state of [`Symphony`] for a queue on a pool.
#[derive(Debug, Clone, Copy, Default)]
pub struct Window {
    /// Number of first requests that cannot run in one batch with all others.
    pub(super) prefix: usize,
    /// Rows that the window drop keeps together; 0 until the rate is known.
    pub(super) target: u32,
}

/// The rule of `symphony-paper`: Fig 16 as printed, for the record.
///
/// It plans by frontrun whatever the rate, orders by planned start, drops only requests that cannot be met alone, and
/// does not rank a candidate again after a timer changed it. The double grant of the figure is not reproduced: a
/// scheduler that loses requests is no baseline.
#[derive(Debug, Clone, Copy)]
pub struct SymphonyPaper;

/// The state of [`SymphonyPaper`] for a queue on a pool.
#[derive(Debug, Clone, Copy, Default)]
pub struct QueuePlan {
    at: Nanos,
    latest: Nanos,
    stalled: bool,
}

// === impl Symphony ===

impl Symphony {
    /// The rule with the options' choice of the beta * lambda rule.
    pub fn new(options: &Options) -> Self {
        Self {
            beta_lambda: options.beta_lambda,
        }
    }
}

impl Rule for Symphony {
    type Memory = Window;

    fn form<T>(&mut self, view: &View<'_, T>, window: &mut Window) -> NextBatch {
        let reason = DropReason::Shed;
        if view.rate_changed || window.target == 0 {
            window.target = staggered_rows(view);
        }
        let Some((passed, rows)) = window.choose(view) else {
            return NextBatch::none(view.queue.len(), DropReason::Expired);
        };
        let deadline = view.queue.deadline(passed);
        let latest = view.latest(deadline, rows);
        let now = view.earliest(rows);
        let full = rows >= view.max_rows || deadline == NEVER || !view.spec.batched;
        let early =
            self.beta_lambda && f64::from(rows) > view.latency().fixed_part() * view.queue.rate();
        let want = if full || early {
            now
        } else {
            let gathered = view.delay.before_start(rows + 1) - view.delay.before_start(rows);
            view.latest(deadline, rows + 1).saturating_sub(gathered)
        };
        let start = now.max(want.min(latest));
        let sent = view.delay.before_start(rows);
        NextBatch {
            passed,
            reason,
            rows,
            ready_at: start.saturating_sub(sent),
            latest,
            rank: latest,
            until: view.expiry(latest, rows),
            worth: f32::INFINITY,
        }
    }

    fn left(window: &mut Window, from: usize, count: usize) {
        window.left(from, count);
    }

    fn inserted(window: &mut Window, at: usize) {
        window.inserted(at);
    }
}

// === impl Window ===

impl Window {
    /// The window drop: the number of first requests to give up, and the rows of the batch after them.
    pub(super) fn choose<T>(&mut self, view: &View<'_, T>) -> Option<(usize, u32)> {
        let queue = view.queue;
        let most = view.max_rows;
        self.prefix = self.prefix.min(queue.len());
        let mut rest = queue.rows_from(self.prefix);
        while self.prefix < queue.len()
            && !view.fits(rest.clamp(1, most), queue.deadline(self.prefix))
        {
            rest -= queue.rows_of(self.prefix);
            self.prefix += 1;
        }
        if self.prefix == queue.len() {
            // Not even the last request can be met alone, unless it has more than one row.
            let passed = view.first_feasible(0);
            if passed == queue.len() {
                return None;
            }
            self.prefix = passed;
            rest = queue.rows_from(passed);
        }
        let together = self.target.min(rest).clamp(1, most);
        let mut passed = 0;
        while passed < self.prefix && !view.fits(together, queue.deadline(passed)) {
            passed += 1;
        }
        loop {
            let rows = view.rows_within(queue.deadline(passed), queue.rows_from(passed));
            if rows >= queue.rows_of(passed) {
                return Some((passed, rows));
            }
            passed += 1;
            if passed >= queue.len() {
                return None;
            }
        }
    }

    pub(super) fn left(&mut self, from: usize, count: usize) {
        if from < self.prefix {
            self.prefix -= count.min(self.prefix - from);
        }
    }

    pub(super) fn inserted(&mut self, at: usize) {
        if at < self.prefix {
            self.prefix = at;
        }
    }
}

impl Rule for SymphonyPaper {
    type Memory = QueuePlan;

    fn form<T>(&mut self, view: &View<'_, T>, planned: &mut QueuePlan) -> NextBatch {
        let reason = DropReason::Expired;
        let Some((passed, rows)) = view.first_batch() else {
            return NextBatch::none(view.queue.len(), reason);
        };
        let deadline = view.queue.deadline(passed);
        let latest = view.latest(deadline, rows);
        let sent = view.delay.before_start(rows);
        let last_chance = view.latest(deadline, view.queue.rows_of(passed));
        match view.cause {
            // The figure knows no request without a deadline and would wait for ever.
            _ if deadline == NEVER => {
                planned.at = view.earliest(rows);
                planned.stalled = false;
            }
            Cause::Queue => {
                planned.at = view.earliest(rows).max(view.latest(deadline, rows + 1));
                planned.latest = latest;
                planned.stalled = false;
            }
            Cause::Timer | Cause::Promotion | Cause::Device => {
                let at_hand = view.now.max(view.free_at);
                planned.stalled |= passed > 0 || at_hand > planned.latest;
            }
        }
        NextBatch {
            passed,
            reason,
            rows,
            ready_at: if planned.stalled {
                NEVER
            } else {
                planned.at.saturating_sub(sent)
            },
            latest,
            rank: planned.at,
            until: view.expiry(last_chance, rows),
            worth: f32::INFINITY,
        }
    }
}

/// The batch with which a staggered set of devices carries the queue's rate (section 3):
/// n = lambda l(b) / b devices start every l(b) / n, so (1 + 1/n) l(b) must be within the target;
/// with less than one device the batch waits b / lambda instead.
pub(super) fn staggered_rows<T>(view: &View<'_, T>) -> u32 {
    let (rate, slack) = (view.queue.rate(), view.queue.slack());
    if rate <= 0.0 || slack == NEVER {
        return 1;
    }
    let within = |rows: u32| {
        let run = view.latency().of(rows) as f64;
        let budget = slack.saturating_sub(view.delay.before_start(rows)) as f64;
        let devices = rate * run / f64::from(rows);
        let wait = if devices <= 1.0 {
            f64::from(rows) / rate
        } else {
            run / devices
        };
        run + wait <= budget
    };
    let (mut fits, mut late) = (1, 2);
    while late <= view.spec.max_rows && within(late) {
        fits = late;
        late *= 2;
    }
    late = late.min(view.spec.max_rows + 1);
    while late - fits > 1 {
        let middle = fits + (late - fits) / 2;
        if within(middle) {
            fits = middle;
        } else {
            late = middle;
        }
    }
    fits
}
