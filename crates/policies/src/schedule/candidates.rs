//! The machinery that the policies with one growing batch per queue share.
//!
//! Each (pool, queue) pair is a *seat* with at most one *candidate*: the batch that would run next
//! there. A [`Rule`] says how the candidate looks and from when it may start; this module keeps
//! every candidate in an order, wakes it when its time comes, matches it with a free slot, and
//! takes its requests out of the queue. A request touches its queue and one entry of an indexed
//! heap per seat; a grant touches the heaps and the set of free slots: O(log queues + log slots).

use smallvec::SmallVec;

use super::{
    Action, Actions, BatchId, Delay, DropReason, Fleet, IndexedHeap, LatencyTable, NEVER, Nanos,
    Place, Pool, PoolLoad, QueueSpec, Request, RequestQueue, Scheduler, WorkerSpec,
};

/// Why a candidate is formed anew.
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
}

/// The next batch of a seat.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Formed {
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
    /// When it has to be formed anew if nothing happens before.
    pub until: Nanos,
    /// What waiting is worth, per row that it has: compared with [`Eagerness::worth`]; infinite
    /// for a candidate that only starts when its time has come.
    pub worth: f32,
}

/// How much before its time a candidate may start on a pool as it is now.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Eagerness {
    /// This long before [`Formed::ready_at`].
    pub early: Nanos,
    /// At any time, when its [`Formed::worth`] is at most this.
    pub worth: f32,
}

/// How candidates are formed.
pub trait Rule: std::fmt::Debug + Send {
    /// What the rule remembers of a seat.
    type Memory: Default + std::fmt::Debug + Send;

    /// The candidate of a seat whose queue is not empty.
    fn form<T>(&mut self, view: &View<'_, T>, memory: &mut Self::Memory) -> Formed;

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

#[derive(Debug)]
struct Seat<M> {
    pool: u32,
    spec: QueueSpec,
    memory: M,
    /// Until when the candidate's place among the ready ones is true.
    latest: Nanos,
    entries: Entries,
}

/// Where a seat's candidate is found in its pool's heaps, so that they are touched only where
/// something changes: with thousands of queues each look is a cache miss.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Entries {
    ready: bool,
    deferred: Option<Nanos>,
    worth: Option<f32>,
    expiry: Option<Nanos>,
}

#[derive(Debug)]
struct Queue<T, M> {
    requests: RequestQueue<T>,
    /// The fastest first: only what cannot be met there is lost.
    seats: SmallVec<[Seat<M>; 1]>,
    work: Nanos,
    rate_changed: bool,
}

#[derive(Debug, Default)]
struct Ranks {
    /// By the time from which they may start: candidates that wait for it.
    deferred: IndexedHeap,
    /// By what waiting is worth: those of them that may start before when it is worth little.
    worth: IndexedHeap,
    /// By rank: the candidates that are ready and wait for a slot.
    ready: IndexedHeap,
    /// By the time at which they have to be formed anew: every candidate.
    expiry: IndexedHeap,
    queued: Nanos,
    /// How eager the pool is in its present state.
    eager: Eagerness,
}

/// A scheduler after a [`Rule`].
#[derive(Debug)]
pub struct Candidates<T, R: Rule> {
    rule: R,
    delay: Delay,
    fleet: Fleet,
    ranks: Vec<Ranks>,
    queues: Vec<Option<Queue<T, R::Memory>>>,
    waiting: usize,
    /// Pools whose first candidate left without taking the free slots that it waited for.
    unblocked: Vec<u32>,
}

/// What became of the attempt to start a candidate on a slot.
#[derive(Debug, Clone, Copy)]
enum Start {
    Started,
    /// Requests were given up first: its place among the others has to be looked at again.
    Shed,
    /// It may start there from this time, because a slot that is free soon can be too early for a
    /// small batch, which needs less time to be sent than a large one; or [`NEVER`].
    Later(Nanos),
}

/// A request without a deadline ranks as if it had to start within this time, and has a place in
/// its queue's next batch then, so that those with deadlines cannot keep it waiting for ever.
const PATIENCE: Nanos = 5_000_000_000;

impl<T, R: Rule> Candidates<T, R> {
    /// A scheduler without workers or queues.
    pub fn new(rule: R, delay: Delay) -> Self {
        Self {
            rule,
            delay,
            fleet: Fleet::default(),
            ranks: Vec::new(),
            queues: Vec::new(),
            waiting: 0,
            unblocked: Vec::new(),
        }
    }

    fn queue(&mut self, queue: u32) -> Option<&mut Queue<T, R::Memory>> {
        self.queues.get_mut(queue as usize)?.as_mut()
    }

    fn ranks_mut(&mut self, pool: u32) -> &mut Ranks {
        let at = pool as usize;
        if self.ranks.len() <= at {
            self.ranks.resize_with(at + 1, Ranks::default);
        }
        self.fleet.pool_mut(pool);
        &mut self.ranks[at]
    }

    /// Forms the candidates of a queue anew and starts what is ready and finds a slot.
    fn refresh(&mut self, now: Nanos, queue: u32, mut cause: Cause, actions: &mut Actions<T>) {
        let seats = self
            .queues
            .get(queue as usize)
            .and_then(Option::as_ref)
            .map_or(0, |queue| queue.seats.len());
        let mut at = 0;
        while at < seats {
            let started = self.refresh_seat(now, queue, at, cause, actions);
            // What a batch leaves behind is formed anew on every seat.
            at = if started { 0 } else { at + 1 };
            if started {
                cause = Cause::Queue;
            }
        }
        if let Some(of) = self.queue(queue) {
            of.rate_changed = false;
        }
    }

    /// Tells whether a batch was started.
    fn refresh_seat(
        &mut self,
        now: Nanos,
        queue: u32,
        at: usize,
        cause: Cause,
        actions: &mut Actions<T>,
    ) -> bool {
        let seat = self.queue(queue).and_then(|of| of.seats.get(at));
        let Some(pool) = seat.map(|seat| seat.pool) else {
            return false;
        };
        let first = |ranks: &Ranks| ranks.ready.first().map(|(_, first)| first);
        let was_first = first(&self.ranks[pool as usize]) == Some(queue);
        let started = self.place_seat(now, queue, at, cause, actions);
        // Either the first has left the order, or slots were taken: others may follow, and with
        // fewer idle slots the deferred ones are more eager.
        let ranks = &self.ranks[pool as usize];
        let others = first(ranks).is_some_and(|other| other != queue) || !ranks.deferred.is_empty();
        if (was_first || started) && others && self.fleet.pool(pool).is_some_and(Pool::has_free) {
            self.unblocked.push(pool);
        }
        started
    }

    /// Forms the candidate and puts it where it belongs: on a slot, or into the heaps.
    fn place_seat(
        &mut self,
        now: Nanos,
        queue: u32,
        at: usize,
        mut cause: Cause,
        actions: &mut Actions<T>,
    ) -> bool {
        let mut wake = NEVER;
        loop {
            let Some((pool, formed)) = self.form(now, queue, at, cause, 0, actions) else {
                return false;
            };
            let may_start = formed.is_some_and(|formed| self.may_start(now, pool, &formed));
            let of = self.queues[queue as usize].as_mut().expect("formed above");
            let seat = &mut of.seats[at];
            let Some(formed) = formed else {
                self.ranks[pool as usize].remove(queue, &mut seat.entries);
                return false;
            };
            if !may_start {
                let wake = formed.until.max(now + 1);
                let ranks = &mut self.ranks[pool as usize];
                let worth = ranks.eager.may_allow(&formed);
                ranks.defer(queue, &mut seat.entries, formed.ready_at, worth, wake);
                return false;
            }
            seat.latest = formed.latest;
            let slots = seat.spec.slots;
            let rank = formed.key(seat.spec.priority, &of.requests);
            let ranks = &mut self.ranks[pool as usize];
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

    /// The common case of a request that joins a candidate: nothing starts and nothing is dropped,
    /// so only the candidate's keys change. `false` when there is more to do.
    fn joined(&mut self, now: Nanos, queue: u32) -> bool {
        let of = self.queues[queue as usize].as_mut().expect("just pushed");
        let [seat] = &mut of.seats[..] else {
            return false;
        };
        let ranks = &mut self.ranks[seat.pool as usize];
        let Some(pool) = self.fleet.pool(seat.pool) else {
            return false;
        };
        let free = pool.has_free();
        if free && seat.entries.deferred.is_none() {
            return false;
        }
        let view = View {
            now,
            cause: Cause::Queue,
            free_at: 0,
            queue: &of.requests,
            spec: &seat.spec,
            pool,
            delay: self.delay,
            rate_changed: of.rate_changed,
        };
        let formed = self.rule.form(&view, &mut seat.memory);
        if formed.passed > 0 || formed.rows == 0 {
            return false;
        }
        let wake = formed.until.max(now + 1);
        if free && ranks.eager.allows(now, &formed) {
            return false;
        }
        of.rate_changed = false;
        if formed.ready_at <= now {
            seat.latest = formed.latest;
            let rank = formed.key(seat.spec.priority, &of.requests);
            ranks.make_ready(queue, &mut seat.entries, rank, wake);
        } else {
            let worth = ranks.eager.may_allow(&formed);
            ranks.defer(queue, &mut seat.entries, formed.ready_at, worth, wake);
        }
        true
    }

    /// Whether the time of a candidate has come. Without a free slot there is no haste.
    fn may_start(&self, now: Nanos, pool: u32, formed: &Formed) -> bool {
        if formed.ready_at <= now {
            return true;
        }
        let eager = self.ranks[pool as usize].eager;
        eager.allows(now, formed) && self.fleet.pool(pool).is_some_and(Pool::has_free)
    }

    /// Moves the deferred candidates to the ready ones whose time has come.
    fn promote(&mut self, now: Nanos, pool: u32, actions: &mut Actions<T>) {
        loop {
            let ranks = &self.ranks[pool as usize];
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
            self.place_seat(now, queue, at, Cause::Promotion, actions);
        }
    }

    /// Asks the rule, drops what it gives up; `None` for an unknown seat.
    fn form(
        &mut self,
        now: Nanos,
        queue: u32,
        at: usize,
        cause: Cause,
        free_at: Nanos,
        actions: &mut Actions<T>,
    ) -> Option<(u32, Option<Formed>)> {
        let of = self.queues.get_mut(queue as usize)?.as_mut()?;
        let seat = of.seats.get_mut(at)?;
        let pool = seat.pool;
        if of.requests.is_empty() {
            return Some((pool, None));
        }
        let view = View {
            now,
            cause,
            free_at,
            queue: &of.requests,
            spec: &seat.spec,
            pool: self.fleet.pool(pool)?,
            delay: self.delay,
            rate_changed: of.rate_changed,
        };
        let mut formed = self.rule.form(&view, &mut seat.memory);
        // A slot that is not free yet may be too late for requests that another one is in time for:
        // it passes them over, as a slower device does.
        if at == 0 && free_at <= now && formed.passed > 0 {
            self.give_up(queue, formed.passed, formed.reason, actions);
            formed.passed = 0;
        }
        Some((pool, (formed.rows > 0).then_some(formed)))
    }

    fn give_up(&mut self, queue: u32, count: usize, reason: DropReason, actions: &mut Actions<T>) {
        for request in self.take(queue, 0, count, false) {
            actions.push(Action::Drop { request, reason });
        }
    }

    /// Takes requests out of a queue and keeps every sum true.
    fn take(&mut self, queue: u32, from: usize, count: usize, served: bool) -> Vec<Request<T>> {
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

    /// Gives the candidate to a slot, if it is still one for it.
    fn start(
        &mut self,
        now: Nanos,
        queue: u32,
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
        let expected = of.seats[at].spec.latency.of(rows);
        let requests = self.take(queue, formed.passed, count, true);
        let start = earliest(self.delay, now, place.free_at, rows);
        let until = start.saturating_add(expected);
        let worker = place.worker;
        let lead = self.delay.before_start(rows);
        let of = self.fleet.pool_mut(pool);
        of.observe(now);
        of.raise_lead(lead);
        if formed.latest == NEVER {
            of.share(start, until);
        }
        let id = self.fleet.occupy(pool, place, queue, rows, (start, until));
        self.pool_changed(pool);
        actions.push(Action::Infer {
            queue,
            worker,
            requests,
            earliest: start,
            latest: formed.latest.max(start),
            expected,
            id,
        });
        Start::Started
    }

    /// Matches ready candidates with free slots.
    fn dispatch(&mut self, now: Nanos, pool: u32, actions: &mut Actions<T>) {
        loop {
            self.promote(now, pool, actions);
            if !self.fleet.pool(pool).is_some_and(Pool::has_free) {
                return;
            }
            let Some((_, queue)) = self.ranks[pool as usize].ready.first() else {
                return;
            };
            let Some((at, slots)) = self.seat_of(queue, pool) else {
                return;
            };
            if self.rank_anew(now, queue, at, actions) {
                continue;
            }
            // Nothing overtakes the first, even if it waits for slots: one with many threads would
            // starve.
            let Some(place) = self.fleet.pool(pool).and_then(|of| of.find(slots)) else {
                return;
            };
            let started = match self.start(now, queue, at, place, actions) {
                Start::Started => true,
                // What is left may start later than others, who then go first.
                Start::Shed => {
                    self.place_seat(now, queue, at, Cause::Promotion, actions);
                    continue;
                }
                Start::Later(_) => false,
            };
            if !started && let Some(of) = self.queue(queue) {
                let mut entries = of.seats[at].entries;
                self.ranks[pool as usize].remove(queue, &mut entries);
                if let Some(of) = self.queue(queue) {
                    of.seats[at].entries = entries;
                }
            }
            self.refresh(now, queue, Cause::Queue, actions);
            if !started
                && self.ranks[pool as usize]
                    .ready
                    .first()
                    .is_some_and(|(_, first)| first == queue)
            {
                return;
            }
        }
    }

    /// Corrects the place of a candidate whose latest start has passed while it was ready: what is
    /// left of it may start later than others. Its old place was never too far back. Tells whether
    /// it lost the first place.
    fn rank_anew(&mut self, now: Nanos, queue: u32, at: usize, actions: &mut Actions<T>) -> bool {
        let Some(of) = self.queues.get(queue as usize).and_then(Option::as_ref) else {
            return false;
        };
        if now <= of.seats[at].latest {
            return false;
        }
        let pool = of.seats[at].pool;
        self.place_seat(now, queue, at, Cause::Promotion, actions);
        let first = self.ranks[pool as usize].ready.first();
        first.is_none_or(|(_, first)| first != queue)
    }

    /// Ends an event: uses what was unblocked beside what the event was about.
    fn settle(&mut self, now: Nanos, actions: &mut Actions<T>) {
        while let Some(pool) = self.unblocked.pop() {
            self.dispatch(now, pool, actions);
        }
    }

    fn seat_of(&self, queue: u32, pool: u32) -> Option<(usize, u16)> {
        let of = self.queues.get(queue as usize)?.as_ref()?;
        let at = of.seats.iter().position(|seat| seat.pool == pool)?;
        Some((at, of.seats[at].spec.slots))
    }

    fn pool_changed(&mut self, pool: u32) {
        if let Some(of) = self.fleet.pool(pool) {
            self.ranks[pool as usize].eager = self.rule.eagerness(of);
        }
    }

    fn count_work(&mut self, queue: u32) {
        let Some(of) = self.queues.get_mut(queue as usize).and_then(Option::as_mut) else {
            return;
        };
        let work = of.estimate_work() / of.seats.len().max(1) as Nanos;
        let before = std::mem::replace(&mut of.work, work);
        for seat in &of.seats {
            let queued = &mut self.ranks[seat.pool as usize].queued;
            *queued = queued.saturating_sub(before).saturating_add(work);
        }
    }
}

impl<T: std::fmt::Debug + Send, R: Rule> Scheduler<T> for Candidates<T, R> {
    fn on_worker_up(
        &mut self,
        now: Nanos,
        worker: u32,
        spec: WorkerSpec,
        actions: &mut Actions<T>,
    ) -> Vec<BatchId> {
        self.ranks_mut(spec.pool);
        let lost = self.fleet.up(worker, spec);
        self.pool_changed(spec.pool);
        self.dispatch(now, spec.pool, actions);
        self.settle(now, actions);
        lost
    }

    fn on_worker_down(
        &mut self,
        now: Nanos,
        worker: u32,
        actions: &mut Actions<T>,
    ) -> Vec<BatchId> {
        let pool = self.fleet.pool_of(worker);
        let lost = self.fleet.down(worker);
        // What asked for more slots than any other worker has now asks for fewer.
        if let Some(pool) = pool {
            self.pool_changed(pool);
            self.dispatch(now, pool, actions);
            self.settle(now, actions);
        }
        lost
    }

    fn on_loaded(
        &mut self,
        now: Nanos,
        pool: u32,
        queue: u32,
        spec: QueueSpec,
        actions: &mut Actions<T>,
    ) {
        self.ranks_mut(pool);
        let at = queue as usize;
        if self.queues.len() <= at {
            self.queues.resize_with(at + 1, || None);
        }
        let of = self.queues[at].get_or_insert_with(Queue::new);
        let work = std::mem::take(&mut of.work);
        for seat in &of.seats {
            let queued = &mut self.ranks[seat.pool as usize].queued;
            *queued = queued.saturating_sub(work);
        }
        match of.seats.iter_mut().find(|seat| seat.pool == pool) {
            Some(seat) => seat.spec = spec,
            None => of.seats.push(Seat::new(pool, spec)),
        }
        of.seats
            .sort_by_key(|seat| (seat.spec.latency.of(1), seat.pool));
        self.count_work(queue);
        self.refresh(now, queue, Cause::Queue, actions);
        self.settle(now, actions);
    }

    fn on_unloaded(&mut self, now: Nanos, pool: u32, queue: u32, actions: &mut Actions<T>) {
        let Some((at, _)) = self.seat_of(queue, pool) else {
            return;
        };
        let Some(of) = self.queue(queue) else { return };
        let mut seat = of.seats.remove(at);
        let (work, empty) = (of.work, of.seats.is_empty());
        let ranks = &mut self.ranks[pool as usize];
        ranks.queued = ranks.queued.saturating_sub(work);
        ranks.remove(queue, &mut seat.entries);
        if empty {
            self.give_up(queue, usize::MAX - 1, DropReason::Gone, actions);
            self.queues[queue as usize] = None;
        } else {
            self.count_work(queue);
            self.refresh(now, queue, Cause::Queue, actions);
        }
        self.dispatch(now, pool, actions);
        self.settle(now, actions);
    }

    fn on_request(
        &mut self,
        now: Nanos,
        queue: u32,
        mut request: Request<T>,
        actions: &mut Actions<T>,
    ) {
        let delay = self.delay;
        let Some(of) = self.queues.get_mut(queue as usize).and_then(Option::as_mut) else {
            let reason = DropReason::Gone;
            return actions.push(Action::Drop { request, reason });
        };
        if let Some(reason) = of.refusal(now, delay, &request) {
            return actions.push(Action::Drop { request, reason });
        }
        request.deadline = delay.inward(request.deadline);
        let (at, rate_changed) = of.requests.push(now, request);
        of.rate_changed |= rate_changed;
        if at + 1 < of.requests.len() {
            for seat in &mut of.seats {
                R::inserted(&mut seat.memory, at);
            }
        }
        for seat in &mut of.seats {
            R::arrived(&mut seat.memory);
        }
        self.waiting += 1;
        self.count_work(queue);
        if !self.joined(now, queue) {
            self.refresh(now, queue, Cause::Queue, actions);
            self.settle(now, actions);
        }
    }

    fn on_result(&mut self, now: Nanos, batch: BatchId, actions: &mut Actions<T>) {
        if let Some((pool, _)) = self.fleet.release(now, batch) {
            self.pool_changed(pool);
            self.dispatch(now, pool, actions);
            self.settle(now, actions);
        }
    }

    fn on_timer(&mut self, now: Nanos, actions: &mut Actions<T>) {
        for pool in 0..self.ranks.len() as u32 {
            self.fleet.pool_mut(pool).advance(now);
            while let Some((at, queue)) = self.ranks[pool as usize].expiry.first()
                && at <= now
            {
                self.refresh(now, queue, Cause::Timer, actions);
            }
            self.dispatch(now, pool, actions);
        }
        self.settle(now, actions);
    }

    fn next_timer(&self) -> Option<Nanos> {
        let pools = self.ranks.iter().zip(0..);
        let next = pools.filter_map(|(ranks, pool)| ranks.next(self.fleet.pool(pool)?));
        next.min().filter(|at| *at < NEVER)
    }

    fn waiting(&self) -> usize {
        self.waiting
    }

    fn load(&self, pool: u32) -> PoolLoad {
        let Some(of) = self.fleet.pool(pool) else {
            return PoolLoad::default();
        };
        let queued = self.ranks.get(pool as usize).map_or(0, |r| r.queued);
        PoolLoad {
            slots: of.slots(),
            idle: of.idle(),
            busy_until: match of.has_free() {
                true => 0,
                false => of.next_free().unwrap_or(0),
            },
            queued: queued / Nanos::from(of.slots().max(1)),
        }
    }
}

// === impl Ranks ===

impl Ranks {
    fn remove(&mut self, queue: u32, entries: &mut Entries) {
        if entries.ready {
            self.ready.remove(queue);
        }
        if entries.deferred.is_some() {
            self.deferred.remove(queue);
        }
        if entries.worth.is_some() {
            self.worth.remove(queue);
        }
        if entries.expiry.is_some() {
            self.expiry.remove(queue);
        }
        *entries = Entries::default();
    }

    fn defer(
        &mut self,
        queue: u32,
        entries: &mut Entries,
        ready_at: Nanos,
        worth: Option<f32>,
        wake: Nanos,
    ) {
        if std::mem::take(&mut entries.ready) {
            self.ready.remove(queue);
        }
        if entries.deferred.replace(ready_at) != Some(ready_at) {
            self.deferred.set(queue, ready_at);
        }
        match (worth, std::mem::replace(&mut entries.worth, worth)) {
            (Some(worth), _) => self.worth.set(queue, u64::from(worth.max(0.0).to_bits())),
            (None, Some(_)) => drop(self.worth.remove(queue)),
            (None, None) => {}
        }
        self.expire(queue, entries, wake);
    }

    fn make_ready(&mut self, queue: u32, entries: &mut Entries, rank: u64, wake: Nanos) {
        if entries.deferred.take().is_some() {
            self.deferred.remove(queue);
        }
        if entries.worth.take().is_some() {
            self.worth.remove(queue);
        }
        entries.ready = true;
        self.ready.set(queue, rank);
        self.expire(queue, entries, wake);
    }

    fn expire(&mut self, queue: u32, entries: &mut Entries, wake: Nanos) {
        if entries.expiry.replace(wake) != Some(wake) {
            self.expiry.set(queue, wake);
        }
    }

    /// When something has to be looked at: a candidate that expires, and while a slot is free one
    /// whose time comes, or else a slot that may take its next batch soon.
    fn next(&self, pool: &Pool) -> Option<Nanos> {
        let expiry = self.expiry.first().map(|(at, _)| at);
        let first = self.deferred.first().map(|(at, _)| at);
        let (due, waits) = if pool.has_free() {
            let due = first.map(|at| at.saturating_sub(self.eager.early));
            // Those that are ready all the same wait for several slots.
            (due, !self.ready.is_empty())
        } else {
            (None, !self.ready.is_empty() || first.is_some())
        };
        let grant = pool.next_grant().filter(|_| waits);
        expiry.into_iter().chain(due).chain(grant).min()
    }
}

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
    fn may_allow(&self, formed: &Formed) -> Option<f32> {
        (formed.worth <= self.worth + 0.05).then_some(formed.worth)
    }

    #[inline]
    fn allows(&self, now: Nanos, formed: &Formed) -> bool {
        formed.ready_at <= now.saturating_add(self.early) || formed.worth <= self.worth
    }
}

// === impl Queue ===

impl<T, M> Queue<T, M> {
    fn new() -> Self {
        Self {
            requests: RequestQueue::default(),
            seats: SmallVec::new(),
            work: 0,
            rate_changed: true,
        }
    }

    fn refusal(&self, now: Nanos, delay: Delay, request: &Request<T>) -> Option<DropReason> {
        let Some(fastest) = self.seats.first() else {
            return Some(DropReason::Gone);
        };
        fastest
            .spec
            .refusal(now, delay, self.requests.rows(), request)
    }

    /// Requests with deadlines can fill every batch of a busy queue. One without that has waited
    /// too long takes the place of the last of the batch, which is `count` requests of `rows` rows
    /// after the first `passed`, or runs alone where it does not fit into `most` rows. Tells the
    /// requests and rows of the batch then.
    fn admit_patient<R: Rule<Memory = M>>(
        &mut self,
        now: Nanos,
        passed: usize,
        (count, rows): (usize, u32),
        most: u32,
    ) -> (usize, u32) {
        let overdue = now.saturating_sub(PATIENCE);
        let patient = self.requests.patient_before(overdue);
        let Some(patient) = patient.filter(|at| *at >= passed + count) else {
            return (count, rows);
        };
        let more = self.requests.rows_of(patient);
        let (mut keep, mut kept) = (count, rows);
        while keep > 0 && kept + more > most {
            keep -= 1;
            kept -= self.requests.rows_of(passed + keep);
        }
        self.requests.bring_forward(patient, passed + keep);
        for seat in &mut self.seats {
            R::inserted(&mut seat.memory, passed + keep);
        }
        (keep + 1, kept + more)
    }

    /// Device time that the waiting rows will take, times the slots they occupy.
    fn estimate_work(&self) -> Nanos {
        self.seats.first().map_or(0, |seat| {
            let spec = &seat.spec;
            spec.work(self.requests.rows()) * Nanos::from(spec.slots)
        })
    }
}

// === impl Seat ===

impl<M: Default> Seat<M> {
    fn new(pool: u32, spec: QueueSpec) -> Self {
        Self {
            pool,
            spec,
            memory: M::default(),
            latest: 0,
            entries: Entries::default(),
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
        let most = most.min(self.spec.max_rows);
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

// === impl Formed ===

impl Formed {
    /// Its place among the ready candidates of all queues, least first.
    #[inline]
    pub fn key<T>(&self, priority: u8, queue: &RequestQueue<T>) -> u64 {
        let by_rank = match self.rank {
            NEVER => queue.arrived(self.passed).saturating_add(PATIENCE),
            rank => rank,
        };
        rank(priority, by_rank)
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

#[inline]
fn earliest(delay: Delay, now: Nanos, free_at: Nanos, rows: u32) -> Nanos {
    now.saturating_add(delay.before_start(rows)).max(free_at)
}

/// Priority above rank in one key: 8 bits and 56 bits, two years of nanoseconds.
#[inline]
fn rank(priority: u8, rank: Nanos) -> u64 {
    const MOST: u64 = (1 << 56) - 1;
    (u64::from(u8::MAX - priority) << 56) | rank.min(MOST)
}
