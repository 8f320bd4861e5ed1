//! Ours: waiting where it pays, drops where they cost least, misses spread evenly.
//!
//! A batch of n rows takes alpha n + beta of device time. Deferral (Symphony) pays beta
//! for fewer batches, but loses to eager dispatch where devices are all busy: what waits until its
//! last moment has only alpha of slack left when no device is free then. Eager dispatch is right
//! there and wasteful elsewhere. Six decisions, each by what it costs in device time:
//!
//! - **Whether to wait at all.** Waiting costs latency and saves device time, which is worth
//!   something only where devices may run out before the batch is done. How many are busy scatters
//!   like the number of customers in a queue with many servers, by about the square root of its mean,
//!   so that many more have to be reckoned with. Of a batch of n rows that starts at once,
//!   beta / (alpha n + beta) of the run time is fixed cost that waiting could share. All queues decide
//!   alike, so a batch starts while that part of the devices in use, and of as many more as chance may
//!   add, is less than what is idle. At low load that is eager dispatch, at high load it never happens, and in
//!   between there is as much of it as the devices can afford. With few devices chance tells little,
//!   so that the share of the last second in which none was idle counts as well, less what the
//!   queue's own batches would have spared it had they been larger. `hold` is the part of the spare
//!   devices that is kept idle.
//! - **Starting early.** A batch that starts before its time makes the next one start earlier too:
//!   per unit of time that costs beta lambda / n of device time (lambda: the queue's rate; with one
//!   device this is Symphony's wait-or-run rule, section 3). It gains what the idle device is worth:
//!   the share of time in which there is none. So a candidate may start at any time once beta
//!   lambda / n is at most the share of the last second in which no slot was idle. With `hold` 1,
//!   while one always was, every batch waits for its last moment, and idle time shows true spare
//!   capacity; queues with a small beta / alpha start first, and fill what the others leave.
//! - **The last moment.** A device is free every l / N (l: mean run time, N: devices), so a candidate
//!   is offered that long before its last moment. Devices don't come free evenly, and other queues
//!   take them: the chance that none comes for k times as long is exp(-k). So where the reserve is used
//!   up it is four times as long, at which one in fifty comes too late. A queue doesn't compete with
//!   itself: of the additional time it gets the part that others have of the load. One queue alone
//!   would only start smaller batches.
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
//!   had its part pays more, by the fourth root of how rarely all devices are busy: where that is
//!   often, the misses are those of peaks, and saving them up for later is worse than their price.
//!   Nothing is given up while another device is idle.
//!
//! What it does not do: foresee bursts (rates are averages over a second), or match candidates with
//! devices beyond the next free one. For one queue on two devices that costs up to an eighth.

use super::{
    DropReason, Eagerness, NEVER, Nanos, NextBatch, Options, Pool, RequestQueue, Rule, View,
    pool::CROWDING_STEP,
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
    /// Devices that the queue would keep busy if batches had no fixed cost.
    devices: f32,
    /// Fixed cost of a batch times the queue's rate, rows: what comes while one is paid for.
    overlap: f32,
    /// Devices that the queue keeps busy with batches that wait as long as they can.
    least: f32,
    /// Requests that lately left together.
    batch: f32,
    /// When whether to wait is decided again.
    look: Nanos,
}

/// Part of its requests that each queue may miss: a little less than the one in a hundred that
/// goodput allows.
const MISSES: f32 = 0.008;

/// Most misses that an idle queue saves up.
const SAVED: f32 = 10.0;

/// Most misses over its part for which a queue is moved forward.
const OWED: f32 = 20.0;

/// By how many times the mean time between two free devices a candidate is offered earlier where
/// devices are scarce.
const RIVALS: f64 = 3.0;

/// Batches over which the mean of their sizes goes.
const BATCHES: f32 = 16.0;

/// Mean gaps without an arrival after which a queue's load is taken to have ended.
const QUIET: f64 = 8.0;

/// Most rows to give up at the head of a batch.
const HEADS: usize = 64;

impl Sextant {
    /// With the options' share of spare devices to keep idle.
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
        // What an idle device is worth is how often there is none: while there always is one,
        // waiting costs nothing; when there never is, time that one stands idle is lost.
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
        // What rivals defer it by and what the pool is early by go with how scarce devices are. Should
        // they be less so until then, it must not wait beyond its time beside an idle one.
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
    /// Whether the idle devices could pay for what batches cost that have as large a fixed part in
    /// their run time as one of `rows` rows of this queue, if those of all queues were like that. What
    /// this queue keeps busy by the smallness of its batches does not count: larger ones are at hand.
    fn can_afford(&self, pool: &Pool, account: &Account, rows: u32) -> bool {
        let least = f64::from(account.least);
        let saved = f64::from(account.in_use(account.batch.max(1.0))) - least;
        let busy = f64::from(pool.slots() - pool.idle());
        let in_use = (in_use(pool) - saved.max(0.0)).max(busy).max(least);
        let spare = (1.0 - self.hold) * f64::from(pool.idle());
        account.fixed_part(rows) * (in_use + in_use.sqrt()) < spare
    }
}

/// Mean time between two slots that come free when all are busy, ns.
fn between(pool: &Pool) -> f64 {
    pool.mean_run() / f64::from(pool.slots().max(1))
}

/// When it is clear that nobody comes who would share the batch: among exponential gaps one in
/// `exp(QUIET)` is that long. [`NEVER`] while the rate is unknown.
fn quiet_at<T>(queue: &RequestQueue<T>) -> Nanos {
    // The cast saturates.
    let quiet = (QUIET / queue.rate().max(f64::MIN_POSITIVE)) as Nanos;
    queue.last_arrival().saturating_add(quiet)
}

/// Slots in use: those that are now, or as many as the last second's share without an idle one says.
fn in_use(pool: &Pool) -> f64 {
    let slots = f64::from(pool.slots());
    (slots - f64::from(pool.idle())).max(slots * pool.crowded_share())
}

/// How much of the reserve for bursts is missing beside the slot at hand, 0 to 1.
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

    /// Devices that the queue keeps busy with batches of so many rows.
    fn in_use(&self, rows: f32) -> f32 {
        self.devices + self.overlap / rows
    }

    /// The part of the fixed cost in the run time of a batch of `rows`, 0 to 1.
    fn fixed_part(&self, rows: u32) -> f64 {
        let per_row = self.devices * rows as f32;
        f64::from(self.overlap / (self.overlap + per_row).max(f32::MIN_POSITIVE))
    }

    /// When whether to wait is decided again: a time once set is kept, so that not each arrival moves it.
    fn next_look(&mut self, now: Nanos, quiet_at: Nanos) -> Nanos {
        if self.look <= now {
            self.look = now.saturating_add(CROWDING_STEP).min(quiet_at);
        }
        self.look
    }

    /// When a candidate is ready: at the last moment at which a row more could join it, later by what
    /// [`Rule::eagerness`] adds for rivals that this queue doesn't have.
    fn last_moment<T>(&self, view: &View<'_, T>, deadline: Nanos, rows: u32) -> Nanos {
        let sent = view.delay.before_start(rows + 1);
        let ready_at = view.latest(deadline, rows + 1).saturating_sub(sent);
        let own = f64::from(self.in_use(rows as f32));
        let own = own / in_use(view.pool).max(1.0);
        let for_rivals = between(view.pool) * RIVALS * scarcity(view.pool);
        ready_at.saturating_add((for_rivals * own.min(1.0)) as Nanos)
    }

    /// How many first requests to drop so that the rest costs least.
    fn heads_to_drop<T>(&self, view: &View<'_, T>, from: usize, rows: u32) -> (usize, u32) {
        let queue = view.queue;
        let mut left = queue.rows_from(from);
        if rows >= left || rows >= view.max_rows {
            return (0, rows);
        }
        // A queue that has had its part of the misses drops only while devices are really scarce.
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

    /// How far the queue is moved forward for what it has missed, ns.
    fn debt<T>(&self, view: &View<'_, T>) -> Nanos {
        let owed = (-self.allowance).clamp(0.0, OWED);
        (f64::from(owed) * f64::from(view.spec.weight) * 300_000.0) as Nanos
    }
}
