//! The machinery shared by the policies that have one growing batch per queue.
//!
//! Each (pool, queue) pair is a *seat* with at most one *candidate*: the batch that would run next
//! there. A [`Rule`] says what the candidate contains and from when it may start. This module keeps
//! the candidates in order, wakes each when its time comes, matches it with a free slot, and takes
//! its requests out of the queue. A request touches its queue and one entry of an indexed heap per
//! seat. A grant touches the heaps and the set of free slots: O(log queues + log slots).

mod events;
mod queues;
mod ranks;

use queues::{Queue, Seat};
use ranks::{Entries, Ranks};

use sextant_types::index::{IndexVec, PoolIx, QueueIx};

use super::{
    Action, Actions, Cause, Delay, DropReason, Eagerness, Fleet, IndexedHeap, LatencyTable, NEVER,
    Nanos, NextBatch, Place, Pool, QueueSpec, Request, RequestQueue, Rule, Surroundings,
    rule::{KEPT_BACK, PATIENCE, earliest},
    shares::Shares,
};

/// A scheduler that follows a [`Rule`].
#[derive(Debug)]
pub struct Candidates<T, R: Rule> {
    rule: R,
    delay: Delay,
    fleet: Fleet,
    ranks: IndexVec<PoolIx, Ranks>,
    queues: IndexVec<QueueIx, Option<Queue<T, R::Memory>>>,
    waiting: usize,
    /// Pools whose first candidate left without taking the free slots for which it waited.
    unblocked: Vec<PoolIx>,
    /// By pool: when it must next be looked at.
    timers: IndexedHeap<PoolIx>,
    /// Pools that have changed since their timers were set, each once.
    changed: Vec<PoolIx>,
}

/// The result of an attempt to start a candidate on a slot.
#[derive(Debug, Clone, Copy)]
enum Start {
    Started,
    /// Requests were given up first, so the candidate must be ranked again.
    Shed,
    /// The candidate may start there from this time, because a slot that becomes free soon can be
    /// too early for a small batch, which needs less time to be sent than a large one; or
    /// [`NEVER`].
    Later(Nanos),
}

impl<T, R: Rule> Candidates<T, R> {
    /// A scheduler without devices or queues.
    pub fn new(rule: R, delay: Delay) -> Self {
        Self {
            rule,
            delay,
            fleet: Fleet::default(),
            ranks: IndexVec::default(),
            queues: IndexVec::default(),
            waiting: 0,
            unblocked: Vec::new(),
            timers: IndexedHeap::default(),
            changed: Vec::new(),
        }
    }

    /// Marks a pool whose next look may be due sooner or later than known.
    fn mark(&mut self, pool: PoolIx) {
        let ranks = &mut self.ranks[pool];
        if !std::mem::replace(&mut ranks.changed, true) {
            self.changed.push(pool);
        }
    }

    /// Sets the timers of the pools that have changed.
    fn set_timers(&mut self) {
        while let Some(pool) = self.changed.pop() {
            let ranks = &mut self.ranks[pool];
            ranks.changed = false;
            let next = self.fleet.pool(pool).and_then(|of| ranks.next(of));
            match next.filter(|at| *at < NEVER) {
                Some(at) => self.timers.set(pool, at),
                None => drop(self.timers.remove(pool)),
            }
        }
    }

    fn queue(&mut self, queue: QueueIx) -> Option<&mut Queue<T, R::Memory>> {
        self.queues.known_mut(queue)
    }

    fn ranks_mut(&mut self, pool: PoolIx) -> &mut Ranks {
        self.fleet.pool_mut(pool);
        self.ranks.grown(pool)
    }

    /// Forms the candidates of a queue again, and starts those that are ready and find a slot.
    fn refresh(&mut self, now: Nanos, queue: QueueIx, mut cause: Cause, actions: &mut Actions<T>) {
        let seats = self
            .queues
            .known(queue)
            .map_or(0, |queue| queue.seats.len());
        let mut at = 0;
        while at < seats {
            let started = self.refresh_seat(now, queue, at, cause, actions);
            // After a batch has started, the rest of the queue is formed again on every seat.
            at = if started { 0 } else { at + 1 };
            if started {
                cause = Cause::Queue;
            }
        }
        if let Some(of) = self.queue(queue) {
            of.rate_changed = false;
        }
    }

    /// Returns whether a batch was started.
    fn refresh_seat(
        &mut self,
        now: Nanos,
        queue: QueueIx,
        at: usize,
        cause: Cause,
        actions: &mut Actions<T>,
    ) -> bool {
        let seat = self.queue(queue).and_then(|of| of.seats.get(at));
        let Some(pool) = seat.map(|seat| seat.pool) else {
            return false;
        };
        let first = |ranks: &Ranks| ranks.ready.first().map(|(_, first)| first);
        let was_first = first(&self.ranks[pool]) == Some(queue);
        let started = self.place_seat(now, queue, at, (cause, NEVER), actions);
        // Either the first candidate has left the order, or slots were taken. Other candidates may
        // follow, and with fewer idle slots the deferred ones are more eager.
        let ranks = &self.ranks[pool];
        let others = first(ranks).is_some_and(|other| other != queue) || !ranks.deferred.is_empty();
        if (was_first || started) && others && self.fleet.pool(pool).is_some_and(Pool::has_free) {
            self.unblocked.push(pool);
        }
        started
    }

    /// Forms the candidate and gives it a slot, or puts it into the heaps to be formed again at
    /// `wake` at the latest.
    fn place_seat(
        &mut self,
        now: Nanos,
        queue: QueueIx,
        at: usize,
        (mut cause, mut wake): (Cause, Nanos),
        actions: &mut Actions<T>,
    ) -> bool {
        loop {
            let Some((pool, formed)) = self.form(now, queue, at, cause, 0, actions) else {
                return false;
            };
            self.mark(pool);
            let may_start = formed.is_some_and(|formed| self.may_start(now, pool, &formed));
            let of = self.queues[queue].as_mut().expect("formed above");
            let seat = &mut of.seats[at];
            let Some(formed) = formed else {
                self.ranks[pool].remove(queue, &mut seat.entries);
                return false;
            };
            if !may_start {
                let wake = formed.until.max(now + 1);
                let ranks = &mut self.ranks[pool];
                let worth = ranks.eager.may_allow(&formed);
                ranks.defer(queue, &mut seat.entries, formed.ready_at, worth, wake);
                return false;
            }
            seat.latest = formed.latest;
            let slots = seat.spec.slots;
            let ranks = &mut self.ranks[pool];
            let kept_back = ranks.keeps_back(&seat.spec, self.fleet.pool(pool));
            let rank = formed.key(seat.spec.priority, kept_back, &of.requests);
            let overtakes = ranks.ready.first().is_none_or(|(first, _)| rank <= first);
            let place = self.fleet.pool(pool).and_then(|of| of.find(slots));
            match place.filter(|_| overtakes && cause != Cause::Promotion) {
                Some(place) => match self.start(now, queue, at, place, actions) {
                    Start::Started => return true,
                    Start::Shed => {}
                    Start::Later(at) => (cause, wake) = (Cause::Promotion, at),
                },
                None => {
                    let wake = formed.until.min(wake).max(now + 1);
                    ranks.make_ready(queue, &mut seat.entries, rank, wake);
                    return false;
                }
            }
        }
    }

    /// Handles the common case of a request that joins a candidate. Nothing starts and nothing is
    /// dropped, so only the candidate's keys change. Returns `false` if some seat needs more than
    /// that.
    fn joined(&mut self, now: Nanos, queue: QueueIx) -> bool {
        let seats = self.queue(queue).map_or(0, |of| of.seats.len());
        let joined = (0..seats).all(|at| self.joined_seat(now, queue, at));
        if joined && let Some(of) = self.queue(queue) {
            of.rate_changed = false;
        }
        joined
    }

    fn joined_seat(&mut self, now: Nanos, queue: QueueIx, at: usize) -> bool {
        let of = self.queues[queue].as_mut().expect("just pushed");
        let seat = &mut of.seats[at];
        let pool = seat.pool;
        let ranks = &mut self.ranks[pool];
        let Some(devices) = self.fleet.pool(pool) else {
            return false;
        };
        let free = devices.has_free();
        if free && seat.entries.deferred.is_none() {
            return false;
        }
        let around = Surroundings {
            now,
            cause: Cause::Queue,
            free_at: 0,
            pool: devices,
            delay: self.delay,
        };
        let most = ranks.shares.most_rows(now, &seat.spec, devices.slots());
        let formed = seat.form(
            &mut self.rule,
            around,
            (&of.requests, of.rate_changed),
            most,
        );
        let formed = seat.hold_back(&of.requests, &self.fleet, self.delay, formed);
        if formed.passed > 0 || formed.rows == 0 {
            return false;
        }
        let wake = formed.until.max(now + 1);
        if free && ranks.eager.allows(now, &formed) {
            return false;
        }
        if formed.ready_at <= now {
            seat.latest = formed.latest;
            let kept_back = ranks.keeps_back(&seat.spec, Some(devices));
            let rank = formed.key(seat.spec.priority, kept_back, &of.requests);
            ranks.make_ready(queue, &mut seat.entries, rank, wake);
        } else {
            let worth = ranks.eager.may_allow(&formed);
            ranks.defer(queue, &mut seat.entries, formed.ready_at, worth, wake);
        }
        self.mark(pool);
        true
    }

    /// Whether a candidate may start now. It need not be checked closely while no slot is free.
    fn may_start(&self, now: Nanos, pool: PoolIx, formed: &NextBatch) -> bool {
        if formed.ready_at <= now {
            return true;
        }
        let eager = self.ranks[pool].eager;
        eager.allows(now, formed) && self.fleet.pool(pool).is_some_and(Pool::has_free)
    }

    /// Moves the deferred candidates whose time has come to the ready ones.
    fn promote(&mut self, now: Nanos, pool: PoolIx, actions: &mut Actions<T>) {
        loop {
            let ranks = &self.ranks[pool];
            let free = self.fleet.pool(pool).is_some_and(Pool::has_free);
            if !free || ranks.deferred.is_empty() {
                return;
            }
            let eager = ranks.eager;
            let limit = now.saturating_add(eager.early);
            let due = ranks.deferred.first().filter(|(at, _)| *at <= limit);
            let cheap = ranks.worth.first();
            let cheap = cheap.filter(|(worth, _)| *worth <= u64::from(eager.worth.to_bits()));
            let Some((_, queue)) = due.or(cheap) else {
                return;
            };
            let Some((at, _)) = self.seat_of(queue, pool) else {
                return;
            };
            self.place_seat(now, queue, at, (Cause::Promotion, NEVER), actions);
        }
    }

    /// Asks the rule for the candidate and drops the requests that it gives up. Returns `None` for
    /// an unknown seat.
    fn form(
        &mut self,
        now: Nanos,
        queue: QueueIx,
        at: usize,
        cause: Cause,
        free_at: Nanos,
        actions: &mut Actions<T>,
    ) -> Option<(PoolIx, Option<NextBatch>)> {
        let of = self.queues.known_mut(queue)?;
        let seat = of.seats.get_mut(at)?;
        let pool = seat.pool;
        if of.requests.is_empty() {
            return Some((pool, None));
        }
        let devices = self.fleet.pool(pool)?;
        let around = Surroundings {
            now,
            cause,
            free_at,
            pool: devices,
            delay: self.delay,
        };
        let shares = &mut self.ranks[pool].shares;
        let most = shares.most_rows(now, &seat.spec, devices.slots());
        let formed = seat.form(
            &mut self.rule,
            around,
            (&of.requests, of.rate_changed),
            most,
        );
        let mut formed = seat.hold_back(&of.requests, &self.fleet, self.delay, formed);
        // A slot that is not free yet may be too late for requests that another slot can still
        // meet. It skips them without dropping them, as a slower device does.
        if at == 0 && free_at <= now && formed.passed > 0 {
            let seats = &self.queues[queue].as_ref()?.seats;
            let free =
                |seat: &Seat<R::Memory>| self.fleet.pool(seat.pool).is_some_and(Pool::has_free);
            // Requests that can still be met are left to another pool that has a device to spare.
            if formed.reason == DropReason::Expired || !seats[1..].iter().any(free) {
                self.give_up(queue, formed.passed, formed.reason, actions);
                formed.passed = 0;
            }
        }
        Some((pool, (formed.rows > 0).then_some(formed)))
    }

    fn give_up(
        &mut self,
        queue: QueueIx,
        count: usize,
        reason: DropReason,
        actions: &mut Actions<T>,
    ) {
        for request in self.take(queue, 0, count, false) {
            actions.push(Action::Drop { request, reason });
        }
    }

    /// Takes requests out of a queue and updates every sum.
    fn take(&mut self, queue: QueueIx, from: usize, count: usize, served: bool) -> Vec<Request<T>> {
        let delay = self.delay;
        let Some(of) = self.queue(queue) else {
            return Vec::new();
        };
        let mut requests = of.requests.take(from, count);
        for request in &mut requests {
            request.deadline = delay.outward(request.deadline);
        }
        for seat in &mut of.seats {
            R::left(&mut seat.memory, from, requests.len());
            if !served {
                R::lost(&mut seat.memory, requests.len());
            }
        }
        self.waiting -= requests.len();
        self.count_work(queue);
        requests
    }

    /// Gives the candidate to a slot, if it still fits the slot.
    fn start(
        &mut self,
        now: Nanos,
        queue: QueueIx,
        at: usize,
        place: Place,
        actions: &mut Actions<T>,
    ) -> Start {
        let waiting = self.waiting;
        let formed = self.form(now, queue, at, Cause::Device, place.free_at, actions);
        if self.waiting < waiting {
            return Start::Shed;
        }
        let Some((pool, Some(formed))) = formed else {
            return Start::Later(NEVER);
        };
        if !self.may_start(now, pool, &formed) {
            return Start::Later(formed.ready_at);
        }
        let Some(of) = self.queue(queue) else {
            return Start::Later(NEVER);
        };
        let spec = &of.seats[at].spec;
        let (fitted, most) = if spec.batched {
            (of.requests.fit(formed.passed, formed.rows), formed.rows)
        } else {
            ((1, of.requests.rows_of(formed.passed)), 0)
        };
        if fitted.0 == 0 {
            return Start::Later(NEVER);
        }
        let (count, rows) = of.admit_patient::<R>(now, formed.passed, fitted, most);
        let spec = &of.seats[at].spec;
        let (expected, tenant, slots) = (spec.latency.of(rows), spec.tenant, spec.slots);
        let requests = self.take(queue, formed.passed, count, true);
        let start = earliest(self.delay, now, place.free_at, rows);
        let until = start.saturating_add(expected);
        let device = place.device;
        let lead = self.delay.before_start(rows);
        let of = self.fleet.pool_mut(pool);
        of.observe(now);
        of.raise_lead(lead);
        if formed.latest == NEVER {
            of.share(start, until);
        }
        let id = self.fleet.occupy(pool, place, queue, rows, (start, until));
        let work = expected.saturating_mul(Nanos::from(slots));
        let ranks = &mut self.ranks[pool];
        ranks.shares.charge(tenant, work);
        ranks.bring_forward();
        self.pool_changed(pool);
        actions.push(Action::Infer {
            queue,
            device,
            requests,
            earliest: start,
            latest: formed.latest.max(start),
            expected,
            id,
        });
        Start::Started
    }

    /// Matches ready candidates with free slots.
    fn dispatch(&mut self, now: Nanos, pool: PoolIx, actions: &mut Actions<T>) {
        loop {
            self.promote(now, pool, actions);
            if !self.fleet.pool(pool).is_some_and(Pool::has_free) {
                return;
            }
            let Some((rank, queue)) = self.ranks[pool].ready.first() else {
                return;
            };
            let Some((at, slots)) = self.seat_of(queue, pool) else {
                return;
            };
            if rank & KEPT_BACK == 0 && self.keeps_back(queue, at, pool) {
                let ready = &mut self.ranks[pool].ready;
                ready.set(queue, rank | KEPT_BACK);
                continue;
            }
            if self.rank_again(now, queue, at, actions) {
                continue;
            }
            // Nothing overtakes the first candidate, even if it waits for slots. Otherwise a
            // candidate with many threads would starve.
            let Some(place) = self.fleet.pool(pool).and_then(|of| of.find(slots)) else {
                return;
            };
            match self.start(now, queue, at, place, actions) {
                Start::Started => self.refresh(now, queue, Cause::Queue, actions),
                // The rest may start later than others, which then go first.
                Start::Shed => {
                    self.place_seat(now, queue, at, (Cause::Promotion, NEVER), actions);
                }
                // Only what is known of this slot has changed. If every seat were looked at again,
                // candidates that fit no slot could call each other up for ever.
                Start::Later(wake) => {
                    self.place_seat(now, queue, at, (Cause::Promotion, wake), actions);
                    let first = self.ranks[pool].ready.first();
                    if first.is_some_and(|(_, first)| first == queue) {
                        return;
                    }
                }
            }
        }
    }

    /// Whether the candidate of a seat is held back for the sake of other tenants.
    fn keeps_back(&mut self, queue: QueueIx, at: usize, pool: PoolIx) -> bool {
        let of = self.queues.known(queue);
        let seat = of.and_then(|of| of.seats.get(at));
        let ranks = &mut self.ranks[pool];
        seat.is_some_and(|seat| ranks.keeps_back(&seat.spec, self.fleet.pool(pool)))
    }

    /// Corrects the rank of a candidate whose latest start passed while it was ready: the rest of
    /// it may start later than others. Its old rank was never too low. Returns whether it lost the
    /// first place.
    fn rank_again(
        &mut self,
        now: Nanos,
        queue: QueueIx,
        at: usize,
        actions: &mut Actions<T>,
    ) -> bool {
        let Some(of) = self.queues.known(queue) else {
            return false;
        };
        if now <= of.seats[at].latest {
            return false;
        }
        let pool = of.seats[at].pool;
        self.place_seat(now, queue, at, (Cause::Promotion, NEVER), actions);
        let first = self.ranks[pool].ready.first();
        first.is_none_or(|(_, first)| first != queue)
    }

    /// Ends an event: dispatches on the pools that the event has unblocked, and sets the timers.
    fn finish_event(&mut self, now: Nanos, actions: &mut Actions<T>) {
        while let Some(pool) = self.unblocked.pop() {
            self.dispatch(now, pool, actions);
        }
        self.set_timers();
    }

    fn seat_of(&self, queue: QueueIx, pool: PoolIx) -> Option<(usize, u16)> {
        let of = self.queues.known(queue)?;
        let at = of.seats.iter().position(|seat| seat.pool == pool)?;
        Some((at, of.seats[at].spec.slots))
    }

    fn pool_changed(&mut self, pool: PoolIx) {
        if let Some(of) = self.fleet.pool(pool) {
            self.ranks[pool].eager = self.rule.eagerness(of);
            self.mark(pool);
        }
    }

    fn count_work(&mut self, queue: QueueIx) {
        let Some(of) = self.queues.known_mut(queue) else {
            return;
        };
        let work = of.estimate_work() / of.seats.len().max(1) as Nanos;
        let before = std::mem::replace(&mut of.work, work);
        for seat in &of.seats {
            let ranks = &mut self.ranks[seat.pool];
            ranks.shares.count(seat.spec.tenant, before, work);
            ranks.bring_forward();
        }
    }
}
