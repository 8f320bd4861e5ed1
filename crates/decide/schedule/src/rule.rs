//! How candidates are formed. Policies with one growing batch per queue differ in this part.

use super::{Delay, DropReason, LatencyTable, NEVER, Nanos, Pool, QueueSpec, RequestQueue};

/// Why a candidate is formed again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// A request came, or requests left.
    Queue,
    /// The time for which the candidate asked has come.
    Timer,
    /// The candidate may be ready now that a slot is free.
    Promotion,
    /// A slot is free for it.
    Device,
}

/// The state that a rule sees.
#[derive(Debug)]
pub struct View<'a, T> {
    /// Now.
    pub now: Nanos,
    /// Why the candidate is formed.
    pub cause: Cause,
    /// When the slot under consideration becomes free; 0 if it is idle or there is none.
    pub free_at: Nanos,
    /// The requests.
    pub queue: &'a RequestQueue<T>,
    /// The specification of the seat.
    pub spec: &'a QueueSpec,
    /// The seat's pool.
    pub pool: &'a Pool,
    /// Delays for which to allow.
    pub delay: Delay,
    /// Whether the average rate has changed since the last call.
    pub rate_changed: bool,
    /// The most rows in the batch: those of the specification, or fewer for the sake of other tenants.
    pub max_rows: u32,
}

/// The state around a queue when its candidate is formed.
#[derive(Debug, Clone, Copy)]
pub struct Surroundings<'a> {
    /// Now.
    pub now: Nanos,
    /// Why the candidate is formed.
    pub cause: Cause,
    /// When the device under consideration becomes free; 0 if it is idle or there is none.
    pub free_at: Nanos,
    /// The devices, as far as they are known.
    pub pool: &'a Pool,
    /// Delays for which to allow.
    pub delay: Delay,
}

/// The next batch of a seat.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NextBatch {
    /// The number of first requests that cannot be part of it.
    pub passed: usize,
    /// The reason for dropping them, if they are dropped.
    pub reason: DropReason,
    /// The most rows that it may have; 0 for no batch.
    pub rows: u32,
    /// From when it may be given to a slot.
    pub ready_at: Nanos,
    /// The batch must not start after this.
    pub latest: Nanos,
    /// Its rank among those that are ready, least first.
    pub rank: Nanos,
    /// When it must be formed again if nothing happens before.
    pub until: Nanos,
    /// What waiting is worth, per row of the batch. It is compared with [`Eagerness::worth`], and is infinite for a
    /// candidate that starts only when its time has come.
    pub worth: f32,
}

/// How long before its time a candidate may start, in the present state of the pool.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Eagerness {
    /// It may start this long before [`NextBatch::ready_at`].
    pub early: Nanos,
    /// It may start at any time if its [`NextBatch::worth`] is at most this.
    pub worth: f32,
}

/// How candidates are formed.
pub trait Rule: std::fmt::Debug + Send {
    /// What the rule remembers of a seat.
    type Memory: Default + std::fmt::Debug + Send;

    /// The candidate of a seat whose queue is not empty.
    fn form<T>(&mut self, view: &View<'_, T>, memory: &mut Self::Memory) -> NextBatch;

    /// How eager candidates are on `pool`. By default they are not eager. It is asked whenever slots are taken or given
    /// back.
    fn eagerness(&self, _pool: &Pool) -> Eagerness {
        Eagerness::NONE
    }

    /// A request has come.
    fn arrived(_memory: &mut Self::Memory) {}

    /// `count` requests were dropped.
    fn lost(_memory: &mut Self::Memory, _count: usize) {}

    /// `count` requests from position `from` on have left the queue.
    fn left(_memory: &mut Self::Memory, _from: usize, _count: usize) {}

    /// A request was inserted before the end of the queue.
    fn inserted(_memory: &mut Self::Memory, _at: usize) {}
}

/// A request without a deadline ranks as if it had to start within this time. After this time it has a place in its
/// queue's next batch, so that requests with deadlines cannot delay it for ever.
pub(super) const PATIENCE: Nanos = 5_000_000_000;

// === impl Eagerness ===

impl Default for Eagerness {
    fn default() -> Self {
        Self::NONE
    }
}

impl Eagerness {
    /// Nothing starts before its time.
    pub const NONE: Self = Self {
        early: 0,
        worth: 0.0,
    };

    /// The worth of a candidate, if this eagerness may allow it to start while it waits. The share of time that
    /// eagerness follows changes by only a few hundredths in that time, so other candidates need not be kept in order.
    #[inline]
    pub(super) fn may_allow(&self, formed: &NextBatch) -> Option<f32> {
        (formed.worth <= self.worth + 0.05).then_some(formed.worth)
    }

    #[inline]
    pub(super) fn allows(&self, now: Nanos, formed: &NextBatch) -> bool {
        formed.ready_at <= now.saturating_add(self.early) || formed.worth <= self.worth
    }
}

// === impl Surroundings ===

impl<'a> Surroundings<'a> {
    /// The view that a rule has of a queue on a seat with `spec`.
    #[inline]
    pub fn view<T>(
        &self,
        queue: &'a RequestQueue<T>,
        spec: &'a QueueSpec,
        rate_changed: bool,
    ) -> View<'a, T> {
        View {
            now: self.now,
            cause: self.cause,
            free_at: self.free_at,
            queue,
            spec,
            pool: self.pool,
            delay: self.delay,
            rate_changed,
            max_rows: spec.max_rows,
        }
    }
}

// === impl View ===

impl<T> View<'_, T> {
    /// The earliest time at which a batch of `rows` rows could start.
    #[inline]
    pub fn earliest(&self, rows: u32) -> Nanos {
        earliest(self.delay, self.now, self.free_at, rows)
    }

    /// Whether a batch of `rows` rows would end by `deadline`.
    #[inline]
    pub fn fits(&self, rows: u32, deadline: Nanos) -> bool {
        self.earliest(rows)
            .saturating_add(self.spec.latency.of(rows))
            <= deadline
    }

    /// The most rows of a batch that ends by `deadline`, at most `most` and the seat's maximum.
    #[inline]
    pub fn rows_within(&self, deadline: Nanos, most: u32) -> u32 {
        let most = most.min(self.max_rows);
        if deadline == NEVER {
            return most;
        }
        let budget = deadline.saturating_sub(self.earliest(0));
        let rows = self.latency().rows_within(budget, most);
        if self.delay.data_per_row == 0 || rows == 0 || self.fits(rows, deadline) {
            return rows;
        }
        let (mut fits, mut late) = (0, rows);
        while late - fits > 1 {
            let middle = fits + (late - fits) / 2;
            if self.fits(middle, deadline) {
                fits = middle;
            } else {
                late = middle;
            }
        }
        fits
    }

    /// Run times on this seat.
    #[inline]
    pub fn latency(&self) -> &LatencyTable {
        &self.spec.latency
    }

    /// Latest start of a batch of `rows` rows that ends by `deadline`.
    #[inline]
    pub fn latest(&self, deadline: Nanos, rows: u32) -> Nanos {
        if deadline == NEVER {
            return NEVER;
        }
        deadline.saturating_sub(self.latency().of(rows))
    }

    /// The batch led by the first request that can still be met: the number of requests before it, and the rows that
    /// run in time with it. `None` if no request can be met.
    pub fn first_batch(&self) -> Option<(usize, u32)> {
        let passed = self.first_feasible(0);
        if passed == self.queue.len() {
            return None;
        }
        let rows = self.rows_within(self.queue.deadline(passed), self.queue.rows_from(passed));
        Some((passed, rows))
    }

    /// The moment just after the last one at which a batch of `rows` rows that has to start by `latest` could be sent.
    pub fn expiry(&self, latest: Nanos, rows: u32) -> Nanos {
        latest
            .saturating_sub(self.delay.before_start(rows))
            .saturating_add(1)
    }

    /// The position of the first request, from `from` on, that can still be met alone.
    pub fn first_feasible(&self, mut from: usize) -> usize {
        while from < self.queue.len()
            && !self.fits(self.queue.rows_of(from), self.queue.deadline(from))
        {
            from += 1;
        }
        from
    }
}

// === impl NextBatch ===

impl NextBatch {
    /// Its key among the ready candidates of all queues, least first. `kept_back` says whether it is held back for the
    /// sake of other tenants.
    #[inline]
    pub fn key<T>(&self, priority: u8, kept_back: bool, queue: &RequestQueue<T>) -> u64 {
        let by_rank = match self.rank {
            NEVER => queue.arrived(self.passed).saturating_add(PATIENCE),
            rank => rank,
        };
        rank(priority, by_rank) | if kept_back { KEPT_BACK } else { 0 }
    }

    /// No batch: the first `passed` requests cannot be met.
    pub fn none(passed: usize, reason: DropReason) -> Self {
        Self {
            passed,
            reason,
            rows: 0,
            ready_at: NEVER,
            latest: NEVER,
            rank: NEVER,
            until: NEVER,
            worth: f32::INFINITY,
        }
    }
}

/// The earliest time at which a batch of `rows` rows could start on a slot that becomes free at `free_at`.
#[inline]
pub(super) fn earliest(delay: Delay, now: Nanos, free_at: Nanos, rows: u32) -> Nanos {
    now.saturating_add(delay.before_start(rows)).max(free_at)
}

/// Set in the key of a candidate that is held back, which puts it behind all others of its priority.
pub(super) const KEPT_BACK: u64 = 1 << 55;

/// Priority, then [`KEPT_BACK`], then rank in one key: 8 bits, 1 bit and 55 bits, which is a year of nanoseconds.
#[inline]
fn rank(priority: u8, rank: Nanos) -> u64 {
    (u64::from(u8::MAX - priority) << 56) | rank.min(KEPT_BACK - 1)
}
