//! How candidates are formed: the part in which policies of one growing batch per queue differ.

use super::{Delay, DropReason, LatencyTable, NEVER, Nanos, Pool, QueueSpec, RequestQueue};

/// Why a candidate is formed again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// A request came, or some left.
    Queue,
    /// The time that the candidate asked for has come.
    Timer,
    /// It may be ready now that a slot is free.
    Promotion,
    /// A slot is free for it.
    Device,
}

/// What a rule sees.
#[derive(Debug)]
pub struct View<'a, T> {
    /// Now.
    pub now: Nanos,
    /// Why it is asked.
    pub cause: Cause,
    /// When the slot at hand is free; 0 when it is idle, or none is at hand.
    pub free_at: Nanos,
    /// The requests.
    pub queue: &'a RequestQueue<T>,
    /// The seat's spec.
    pub spec: &'a QueueSpec,
    /// The seat's pool.
    pub pool: &'a Pool,
    /// Delays to make room for.
    pub delay: Delay,
    /// Whether the average rate has changed since the last call.
    pub rate_changed: bool,
    /// Most rows in the batch: those of the spec, or fewer for the sake of other tenants.
    pub max_rows: u32,
}

/// What surrounds a queue when its candidate is formed.
#[derive(Debug, Clone, Copy)]
pub struct Surroundings<'a> {
    /// Now.
    pub now: Nanos,
    /// Why it is formed.
    pub cause: Cause,
    /// When the device at hand is free; 0 when it is idle, or none is at hand.
    pub free_at: Nanos,
    /// The devices as far as they are known here.
    pub pool: &'a Pool,
    /// Delays to make room for.
    pub delay: Delay,
}

/// The next batch of a seat.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NextBatch {
    /// How many of the first requests cannot be part of it.
    pub passed: usize,
    /// Why they are dropped, when they are.
    pub reason: DropReason,
    /// Most rows that it may have; 0 for no batch.
    pub rows: u32,
    /// From when it may be given to a slot.
    pub ready_at: Nanos,
    /// Not to be started after this.
    pub latest: Nanos,
    /// Where it stands among those that are ready: least first.
    pub rank: Nanos,
    /// When it has to be formed again if nothing happens before.
    pub until: Nanos,
    /// What waiting is worth, per row that it has: compared with [`Eagerness::worth`]; infinite
    /// for a candidate that only starts when its time has come.
    pub worth: f32,
}

/// How much before its time a candidate may start on a pool as it is now.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Eagerness {
    /// This long before [`NextBatch::ready_at`].
    pub early: Nanos,
    /// At any time, when its [`NextBatch::worth`] is at most this.
    pub worth: f32,
}

/// How candidates are formed.
pub trait Rule: std::fmt::Debug + Send {
    /// What the rule remembers of a seat.
    type Memory: Default + std::fmt::Debug + Send;

    /// The candidate of a seat whose queue is not empty.
    fn form<T>(&mut self, view: &View<'_, T>, memory: &mut Self::Memory) -> NextBatch;

    /// How eager candidates are on `pool`: not at all, if the rule does not say otherwise. Asked
    /// whenever slots are taken or given back.
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

/// A request without a deadline ranks as if it had to start within this time, and has a place in
/// its queue's next batch then, so that those with deadlines cannot keep it waiting for ever.
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

    /// The worth of a candidate that this eagerness may allow while it waits: the share of time
    /// that it follows changes by a few hundredths in that time, so that others need not be kept
    /// in order.
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
    /// What a rule sees of a queue on a seat with `spec`.
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
    /// When a batch of `rows` rows could start at the earliest.
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

    /// Most rows of a batch that ends by `deadline`, at most `most` and the seat's maximum.
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

    /// The batch that the first request which can still be met leads: how many are before it,
    /// and the rows that run in time with it. `None` when no request can be met.
    pub fn first_batch(&self) -> Option<(usize, u32)> {
        let passed = self.first_feasible(0);
        if passed == self.queue.len() {
            return None;
        }
        let rows = self.rows_within(self.queue.deadline(passed), self.queue.rows_from(passed));
        Some((passed, rows))
    }

    /// Just after the last moment at which a batch of `rows` rows could be sent that has to start
    /// by `latest`.
    pub fn expiry(&self, latest: Nanos, rows: u32) -> Nanos {
        latest
            .saturating_sub(self.delay.before_start(rows))
            .saturating_add(1)
    }

    /// The first request, from `from` on, that can still be met alone.
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
    /// Its place among the ready candidates of all queues, least first, kept back for the sake
    /// of other tenants or not.
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

/// When a batch of `rows` rows could start at the earliest on a slot that is free at `free_at`.
#[inline]
pub(super) fn earliest(delay: Delay, now: Nanos, free_at: Nanos, rows: u32) -> Nanos {
    now.saturating_add(delay.before_start(rows)).max(free_at)
}

/// Set in the key of a candidate that is kept back: behind all others of its priority.
pub(super) const KEPT_BACK: u64 = 1 << 55;

/// Priority, then [`KEPT_BACK`], then rank in one key: 8 bits, 1 bit and 55 bits, a year of nanoseconds.
#[inline]
fn rank(priority: u8, rank: Nanos) -> u64 {
    (u64::from(u8::MAX - priority) << 56) | rank.min(KEPT_BACK - 1)
}
