//! Ours: waiting where it pays, drops where they cost least, misses spread evenly.
//!
//! A batch of n rows takes alpha n + beta of device time. Deferral ([`super::symphony`]) pays beta
//! for fewer batches, but loses to eager dispatch where devices are all busy: what waits until its
//! last moment has only alpha of slack left when no device is free then. Eager dispatch is right
//! there and wasteful elsewhere. Four decisions, each by what it costs in device time:
//!
//! - **Starting early.** A batch that starts before its time makes the next one start earlier too:
//!   per unit of time that costs beta lambda / n of device time (lambda: the queue's rate; with one
//!   device this is Symphony's wait-or-run rule, section 3). It gains what the idle device is worth:
//!   the share of time in which there is none. So a candidate may start at any time once beta
//!   lambda / n is at most the share of the last second in which no slot was idle. While one always
//!   was, every batch waits for its last moment, and idle time shows true spare capacity; queues
//!   with a small beta / alpha start first, and fill what the others leave.
//! - **The last moment.** A device is free every l / N (l: mean run time, N: devices), so a candidate
//!   is offered that long before its last moment, and up to a twentieth of l more when less than
//!   one device in twelve is idle: both were scanned, neither is sharp.
//! - **Which goes first.** The earliest latest start, as the strong eager baseline does; a queue that
//!   has missed more than its part goes 0.3 ms ahead for each miss, about one place among the
//!   devices of a large pool. So the misses of all queues rise together, and the worst of them is
//!   no worse than the mean. A tenant's weight multiplies it.
//! - **What to give up.** When the first deadlines force a batch smaller than what waits, dropping j
//!   heads lets b rows of the others run together. The j with the least (l(b) + c j) / (b + j) is
//!   taken. The price c is what a drop may save: the head's own alpha, and lambda x beta / b for the
//!   gap x after it. Of a share of requests that may be missed, a batch of b rows may spend b times
//!   as much; among exponential gaps those longer than theta / lambda with exp(-theta) equal to that
//!   are worth it, hence c = alpha + beta theta / b, theta = -ln(share b) and at least 1. This one
//!   rule is Symphony's window drop and the sacrifice of a lonely request at once. A queue that has
//!   had its part pays more, by how rarely all devices are busy. Nothing is given up while another
//!   device is idle.
//!
//! What it does not do: foresee bursts (rates are averages over a second), or match candidates with
//! devices beyond the next free one.

use super::{
    DropReason, Eagerness, Formed, NEVER, Nanos, Options, Pool, Rule, View, symphony::beta,
};

/// The rule of `sextant`.
#[derive(Debug, Clone, Copy)]
pub struct Sextant {
    hold: f64,
}

/// What [`Sextant`] remembers of a seat.
#[derive(Debug, Clone, Copy)]
pub struct Account {
    /// Misses that the queue may still have; negative when it has had more than its part.
    allowance: f32,
    /// Device time that a dropped request is charged, ns; 0 until the rate is known.
    price: f32,
    /// Fixed cost of a batch times the queue's rate, rows: what comes while one is paid for.
    overlap: f32,
}

/// Part of its requests that each queue may miss: a little less than the one in a hundred that
/// goodput allows.
const MISSES: f32 = 0.008;

/// Most misses that an idle queue saves up.
const SAVED: f32 = 10.0;

/// Most misses over its part for which a queue is moved forward.
const OWED: f32 = 20.0;

/// Most rows to give up at the head of a batch.
const HEADS: usize = 64;

impl Sextant {
    /// With the options' share of slack to hold.
    pub fn new(options: &Options) -> Self {
        Self {
            hold: options.hold.clamp(0.0, 1.0),
        }
    }
}

impl Rule for Sextant {
    type Memory = Account;

    fn form<T>(&mut self, view: &View<'_, T>, account: &mut Account) -> Formed {
        if view.rate_changed || account.price == 0.0 {
            account.estimate(view);
        }
        let queue = view.queue;
        let Some((mut passed, mut rows)) = view.first_batch() else {
            return Formed::none(queue.len(), DropReason::Expired);
        };
        let mut reason = DropReason::Expired;
        if view.pool.idle() <= 1 && !view.pool.is_shared(view.now) {
            let heads;
            (heads, rows) = account.heads_to_drop(view, passed, rows);
            if heads > 0 {
                passed += heads;
                reason = DropReason::Shed;
            }
        }
        self.plan(view, account, passed, rows, reason)
    }

    fn eagerness(&self, pool: &Pool) -> Eagerness {
        let slots = f64::from(pool.slots().max(1));
        let idle = f64::from(pool.idle());
        let run = pool.mean_run();
        let scarcity = (1.0 - idle / (0.08 * slots)).max(0.0);
        Eagerness {
            early: (run / slots + 0.05 * run * scarcity) as Nanos,
            // What an idle device is worth is how often there is none: while there always is one,
            // waiting costs nothing; when there never is, time that one stands idle is lost.
            worth: pool.crowded_share() as f32,
        }
    }

    fn arrived(account: &mut Account) {
        account.allowance = (account.allowance + MISSES).min(SAVED);
    }

    fn lost(account: &mut Account, count: usize) {
        account.allowance = (account.allowance - count as f32).max(-2.0 * OWED);
    }
}

impl Sextant {
    fn plan<T>(
        &self,
        view: &View<'_, T>,
        account: &Account,
        passed: usize,
        rows: u32,
        reason: DropReason,
    ) -> Formed {
        let queue = view.queue;
        let deadline = queue.deadline(passed);
        let latest = view.latest(deadline, rows);
        let full = rows >= view.spec.max_rows || deadline == NEVER || !view.spec.batched;
        let mut ready_at = if full {
            0
        } else {
            let sent = view.delay.before_start(rows + 1);
            view.latest(deadline, rows + 1).saturating_sub(sent)
        };
        if self.hold < 1.0 && !full {
            let arrived = queue.arrived(passed);
            let held = ready_at.saturating_sub(arrived) as f64 * self.hold;
            ready_at = arrived.saturating_add(held as Nanos);
        }
        let last_chance = view.latest(deadline, queue.rows_of(passed));
        Formed {
            passed,
            reason,
            rows,
            ready_at,
            latest,
            rank: match latest {
                NEVER => NEVER,
                latest => latest.saturating_sub(account.debt(view)),
            },
            until: view.expiry(last_chance, rows),
            worth: account.overlap / rows as f32,
        }
    }
}

// === impl Account ===

impl Default for Account {
    fn default() -> Self {
        Self {
            allowance: 0.0,
            price: 0.0,
            overlap: 0.0,
        }
    }
}

impl Account {
    fn estimate<T>(&mut self, view: &View<'_, T>) {
        let latency = view.latency();
        let beta = beta(latency);
        let alpha = latency.of(1) as f64 - beta;
        let (rate, slack) = (view.queue.rate(), view.queue.slack());
        let most = latency.rows_within(slack, view.spec.max_rows).max(1);
        // Rows of a batch that waits as long as it can.
        let open = slack as f64 - beta;
        let rows = (1.0 + rate * open.max(0.0)) / (1.0 + rate * alpha);
        let rows = rows.clamp(1.0, f64::from(most));
        let gap = (-(f64::from(MISSES) * rows).ln()).max(1.0);
        self.price = (alpha + beta * gap / rows) as f32;
        self.overlap = (beta * rate) as f32;
    }

    /// How many first requests to drop so that the rest costs least.
    fn heads_to_drop<T>(&self, view: &View<'_, T>, from: usize, rows: u32) -> (usize, u32) {
        let queue = view.queue;
        let mut left = queue.rows_from(from);
        if rows >= left || rows >= view.spec.max_rows {
            return (0, rows);
        }
        // A queue that has had its part of the misses drops only while devices are really scarce.
        let surcharge = match self.allowance < 0.0 {
            true => view.pool.crowded_share().max(0.01).sqrt().recip(),
            false => 1.0,
        };
        let price = f64::from(self.price) * surcharge;
        let cost = |rows: u32, dropped: u32| {
            let spent = view.latency().of(rows) as f64 + price * f64::from(dropped);
            spent / f64::from(rows + dropped)
        };
        let mut best = (cost(rows, 0), 0, rows);
        let mut dropped = 0;
        for heads in 1..=HEADS.min(queue.len() - from - 1) {
            let head = queue.rows_of(from + heads - 1);
            (left, dropped) = (left - head, dropped + head);
            let rows = view.rows_within(queue.deadline(from + heads), left);
            if rows < queue.rows_of(from + heads) {
                continue;
            }
            let cost = cost(rows, dropped);
            if cost < best.0 {
                best = (cost, heads, rows);
            }
            if rows == left {
                break;
            }
        }
        (best.1, best.2)
    }

    /// How far the queue is moved forward for what it has missed, ns.
    fn debt<T>(&self, view: &View<'_, T>) -> Nanos {
        let owed = (-self.allowance).clamp(0.0, OWED);
        (f64::from(owed) * f64::from(view.spec.weight) * 300_000.0) as Nanos
    }
}
