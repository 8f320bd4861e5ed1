//! Our policy: it waits where waiting pays, drops requests where drops cost least, and spreads misses evenly.
//!
//! A batch of n rows takes alpha n + beta of device time. Deferral (Symphony) pays beta for fewer batches. It loses to
//! eager dispatch when all devices are busy: a batch that waits until its last moment has only alpha of slack left if
//! no device is free then. Eager dispatch is right at such times and wasteful at others. The policy makes six
//! decisions, each by its cost in device time:
//!
//! - **Whether to wait at all.** Waiting costs latency and saves device time. Device time is worth something only if
//!   devices may run out before the batch is done. The number of busy devices varies like the number of customers in a
//!   queue with many servers, by about the square root of its mean, so that many more must be allowed for. Of a batch
//!   of n rows that starts at once, beta / (alpha n + beta) of the run time is fixed cost that waiting could share. All
//!   queues decide alike. A batch therefore starts if that part of the devices in use, and of as many more as chance
//!   may add, is less than the number of idle devices. At low load that is eager dispatch, at high load it never
//!   happens, and in between it happens as often as the devices can afford. With few devices chance tells little, so
//!   the share of the last second in which none was idle counts as well, less what the queue's own batches would have
//!   saved had they been larger. `hold` is the part of the spare devices that is kept idle.
//! - **Starting early.** A batch that starts before its time makes the next one start earlier too. Per unit of time
//!   that costs beta lambda / n of device time (lambda: the queue's rate; with one device this is Symphony's
//!   wait-or-run rule, section 3). It gains what the idle device is worth: the share of time in which there is none. A
//!   candidate may therefore start at any time if beta lambda / n is at most the share of the last second in which no
//!   slot was idle. With `hold` 1, while a slot was always idle, every batch waits for its last moment, and idle time
//!   shows true spare capacity. Queues with a small beta / alpha start first and fill what the others leave.
//! - **The last moment.** A device becomes free every l / N (l: mean run time, N: devices), so a candidate is offered
//!   that long before its last moment. Devices do not become free evenly, and other queues take them: the probability
//!   that none becomes free for k times as long is exp(-k). If the reserve is used up, the candidate is therefore
//!   offered four times as long before, so that one in fifty comes too late. A queue does not compete with itself, so
//!   it gets only the part of the additional time that corresponds to the others' part of the load. A queue that is
//!   alone would only start smaller batches.
//! - **Which goes first.** The candidate with the earliest latest start goes first, as in the strong eager baseline. A
//!   queue that has missed more than its part goes 0.3 ms ahead for each miss, which is about one place among the
//!   devices of a large pool. The misses of all queues therefore rise together, and the worst of them is no worse than
//!   the mean. A tenant's weight multiplies the 0.3 ms.
//! - **What to give up.** If the first deadlines force a batch smaller than what waits, dropping j heads lets b rows of
//!   the others run together. The policy takes the j with the least (l(b) + c j) / (b + j). The price c is what a drop
//!   may save: the head's own alpha, and lambda x beta / b for the gap x after it. Of a share of requests that may be
//!   missed, a batch of b rows may spend b times as much. Among exponential gaps, those longer than theta / lambda with
//!   exp(-theta) equal to that share are worth it, hence c = alpha + beta theta / b, where theta = -ln(share b) is at
//!   least 1. This one rule covers both Symphony's window drop and the sacrifice of a lonely request. A queue that has
//!   had its part of the misses pays more, by the fourth root of how rarely all devices are busy: if they are often busy,
//!   the misses are those of peaks, and saving them up for later costs more than their price. Nothing is given up while
//!   another device is idle.
//!
//! It does not foresee bursts (rates are averages over a second), and it does not match candidates with devices beyond
//! the next free one. For one queue on two devices that costs up to an eighth.

use super::{
    DropReason, Eagerness, NEVER, Nanos, NextBatch, Options, Pool, RequestQueue, Rule, View,
    pool::CROWDING_STEP,
};

/// The rule of the policy `sextant`.
#[derive(Debug, Clone, Copy)]
pub struct Sextant {
    hold: f64,
}

/// The memory of [`Sextant`] for a seat.
#[derive(Debug, Clone, Copy)]
pub struct Account {
    /// Misses that the queue may still have. It is negative if the queue has had more than its part.
    allowance: f32,
    /// Device time that is charged for a dropped request, ns; 0 until the rate is known.
    price: f32,
    /// The number of devices that the queue would keep busy if batches had no fixed cost.
    devices: f32,
    /// Fixed cost of a batch times the queue's rate, rows: the rows that arrive during one fixed cost.
    overlap: f32,
    /// The number of devices that the queue keeps busy with batches that wait as long as they can.
    least: f32,
    /// The mean number of requests that left together lately.
    batch: f32,
    /// When the decision whether to wait is made again.
    look: Nanos,
}

/// The share of its requests that each queue may miss: a little less than the one in a hundred that goodput allows.
const MISSES: f32 = 0.008;

/// The most misses that an idle queue saves up.
const SAVED: f32 = 10.0;

/// The most misses beyond its part for which a queue is moved forward.
const OWED: f32 = 20.0;

/// How many times the mean time between two free devices a candidate is offered earlier when devices are scarce.
const RIVALS: f64 = 3.0;

/// The number of batches over which the mean batch size is taken.
const BATCHES: f32 = 16.0;

/// After this many mean gaps without an arrival the load of a queue counts as ended.
const QUIET: f64 = 8.0;

/// The most requests to give up at the head of a batch.
const HEADS: usize = 64;

impl Sextant {
    /// A rule with the options' share of spare devices to keep idle.
    pub fn new(options: &Options) -> Self {
        Self {
            hold: options.hold.clamp(0.0, 1.0),
        }
    }
}

impl Rule for Sextant {
    type Memory = Account;

    fn form<T>(&mut self, view: &View<'_, T>, account: &mut Account) -> NextBatch {
        if view.rate_changed || account.price == 0.0 {
            account.estimate(view);
        }
        let queue = view.queue;
        let Some((mut passed, mut rows)) = view.first_batch() else {
            return NextBatch::none(queue.len(), DropReason::Expired);
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
        // An idle device is worth the share of time in which there is none. While there always is one, waiting costs
        // nothing. While there never is, idle time is lost.
        Eagerness {
            early: (between(pool) * (1.0 + RIVALS * scarcity(pool))) as Nanos,
            worth: pool.crowded_share() as f32,
        }
    }

    fn arrived(account: &mut Account) {
        account.allowance = (account.allowance + MISSES).min(SAVED);
    }

    fn left(account: &mut Account, _from: usize, count: usize) {
        account.batch += (count as f32 - account.batch) / BATCHES;
    }

    fn lost(account: &mut Account, count: usize) {
        account.allowance = (account.allowance - count as f32).max(-2.0 * OWED);
    }
}

impl Sextant {
    fn plan<T>(
        &self,
        view: &View<'_, T>,
        account: &mut Account,
        passed: usize,
        rows: u32,
        reason: DropReason,
    ) -> NextBatch {
        let queue = view.queue;
        let deadline = queue.deadline(passed);
        let latest = view.latest(deadline, rows);
        let full = rows >= view.max_rows || deadline == NEVER || !view.spec.batched;
        let quiet_at = quiet_at(queue);
        let waits = !full && view.now < quiet_at && !self.can_afford(view.pool, account, rows);
        let ready_at = match waits {
            true => account.last_moment(view, deadline, rows),
            false => 0,
        };
        let last_chance = view.latest(deadline, queue.rows_of(passed));
        let until = view.expiry(last_chance, rows);
        // The time added for rivals and the time by which the pool is early both follow the scarcity of devices. If
        // devices become less scarce before then, the candidate must not wait beyond its time beside an idle device.
        let last_start = view.expiry(latest, rows).saturating_sub(1);
        let decided_again = match ready_at > view.now {
            true => account.next_look(view.now, quiet_at),
            false => NEVER,
        };
        NextBatch {
            passed,
            reason,
            rows,
            ready_at,
            latest,
            rank: match latest {
                NEVER => NEVER,
                latest => latest.saturating_sub(account.debt(view)),
            },
            until: match view.now < last_start && last_start < ready_at {
                true => last_start.min(decided_again),
                false => until.min(decided_again),
            },
            worth: account.overlap / rows as f32,
        }
    }
}

impl Sextant {
    /// Whether the idle devices could pay for the fixed cost of batches whose run time has as large a fixed part as a
    /// batch of `rows` rows of this queue, if the batches of all queues were like that. The devices that this queue
    /// keeps busy only because its batches are small do not count, because larger batches are possible.
    fn can_afford(&self, pool: &Pool, account: &Account, rows: u32) -> bool {
        let least = f64::from(account.least);
        let saved = f64::from(account.in_use(account.batch.max(1.0))) - least;
        let busy = f64::from(pool.slots() - pool.idle());
        let in_use = (in_use(pool) - saved.max(0.0)).max(busy).max(least);
        let spare = (1.0 - self.hold) * f64::from(pool.idle());
        account.fixed_part(rows) * (in_use + in_use.sqrt()) < spare
    }
}

/// Mean time between two slots that become free while all are busy, ns.
fn between(pool: &Pool) -> f64 {
    pool.mean_run() / f64::from(pool.slots().max(1))
}

/// The time after which no request is expected to share the batch: one in `exp(QUIET)` of exponential gaps is that
/// long. [`NEVER`] while the rate is unknown.
fn quiet_at<T>(queue: &RequestQueue<T>) -> Nanos {
    // The cast saturates.
    let quiet = (QUIET / queue.rate().max(f64::MIN_POSITIVE)) as Nanos;
    queue.last_arrival().saturating_add(quiet)
}

/// Slots in use: those in use now, or, if that is more, the share of the last second without an idle slot times all
/// slots.
fn in_use(pool: &Pool) -> f64 {
    let slots = f64::from(pool.slots());
    (slots - f64::from(pool.idle())).max(slots * pool.crowded_share())
}

/// The part of the reserve for bursts that is missing, not counting the slot under consideration, 0 to 1.
fn scarcity(pool: &Pool) -> f64 {
    let spare = f64::from(pool.idle().saturating_sub(1));
    (1.0 - spare / in_use(pool).sqrt().max(1.0)).max(0.0)
}

// === impl Account ===

impl Default for Account {
    fn default() -> Self {
        Self {
            allowance: 0.0,
            price: 0.0,
            devices: 0.0,
            overlap: 0.0,
            least: 0.0,
            batch: 0.0,
            look: 0,
        }
    }
}

impl Account {
    fn estimate<T>(&mut self, view: &View<'_, T>) {
        let latency = view.latency();
        let beta = latency.fixed_part();
        let alpha = latency.of(1) as f64 - beta;
        let (rate, slack) = (view.queue.rate(), view.queue.slack());
        let largest = view.spec.max_rows.min(view.spec.planned_rows);
        let most = latency.rows_within(slack, largest).max(1);
        // Rows of a batch that waits as long as it can.
        let open = slack as f64 - beta;
        let rows = (1.0 + rate * open.max(0.0)) / (1.0 + rate * alpha);
        let rows = rows.clamp(1.0, f64::from(most));
        let gap = (-(f64::from(MISSES) * rows).ln()).max(1.0);
        self.price = (alpha + beta * gap / rows) as f32;
        self.overlap = (beta * rate) as f32;
        self.devices = (alpha * rate) as f32;
        self.least = self.in_use(rows as f32);
    }

    /// The number of devices that the queue keeps busy with batches of this many rows.
    fn in_use(&self, rows: f32) -> f32 {
        self.devices + self.overlap / rows
    }

    /// The part of the run time of a batch of `rows` that is fixed cost, 0 to 1.
    fn fixed_part(&self, rows: u32) -> f64 {
        let per_row = self.devices * rows as f32;
        f64::from(self.overlap / (self.overlap + per_row).max(f32::MIN_POSITIVE))
    }

    /// When the decision whether to wait is made again. Once set, the time is kept, so that not every arrival moves it.
    fn next_look(&mut self, now: Nanos, quiet_at: Nanos) -> Nanos {
        if self.look <= now {
            self.look = now.saturating_add(CROWDING_STEP).min(quiet_at);
        }
        self.look
    }

    /// When a candidate is ready: at the last moment at which one more row could join it, plus the time that
    /// [`Rule::eagerness`] adds for rivals that this queue does not have.
    fn last_moment<T>(&self, view: &View<'_, T>, deadline: Nanos, rows: u32) -> Nanos {
        let sent = view.delay.before_start(rows + 1);
        let ready_at = view.latest(deadline, rows + 1).saturating_sub(sent);
        let own = f64::from(self.in_use(rows as f32));
        let own = own / in_use(view.pool).max(1.0);
        let for_rivals = between(view.pool) * RIVALS * scarcity(view.pool);
        ready_at.saturating_add((for_rivals * own.min(1.0)) as Nanos)
    }

    /// The number of first requests to drop, so that the rest costs least.
    fn heads_to_drop<T>(&self, view: &View<'_, T>, from: usize, rows: u32) -> (usize, u32) {
        let queue = view.queue;
        let mut left = queue.rows_from(from);
        if rows >= left || rows >= view.max_rows {
            return (0, rows);
        }
        // A queue that has had its part of the misses drops requests only while devices are really scarce.
        let surcharge = match self.allowance < 0.0 {
            true => view.pool.crowded_share().max(0.01).sqrt().sqrt().recip(),
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

    /// The time by which the queue is moved forward for its misses, ns.
    fn debt<T>(&self, view: &View<'_, T>) -> Nanos {
        let owed = (-self.allowance).clamp(0.0, OWED);
        (f64::from(owed) * f64::from(view.spec.weight) * 300_000.0) as Nanos
    }
}
