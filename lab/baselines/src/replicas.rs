//! The common code of policies in which every slot has its own queue.
//!
//! Nexus and Clipper decide at arrival where a request runs: the request goes to the *lane* of one slot, and the slot
//! batches its lanes on its own, in turn. Afterwards nothing moves between slots, except when the plan changes or a
//! slot goes away. A [`Sharing`] says which queues a slot serves, and how a lane batches.
//!
//! A request costs O(log slots of its queue), a batch O(log slots).

use sextant_schedule::{
    Action, Actions, Delay, DropReason, IndexedHeap, NEVER, Nanos, PoolIx, QueueSpec, Request,
    RequestQueue,
};
use sextant_types::index::{IndexVec, QueueIx, SlotIx};

use super::{
    pool_queues::PoolQueues,
    slots::{Batch, Slots},
};

mod events;
mod planning;
mod routes;

use routes::Routes;

/// What a lane needs to form a batch.
#[derive(Debug)]
pub(super) struct View<'a, T> {
    pub now: Nanos,
    /// When the slot is free; 0 for at once.
    pub free_at: Nanos,
    pub requests: &'a RequestQueue<T>,
    pub spec: &'a QueueSpec,
    pub delay: Delay,
    /// Time in which the queue's requests must be answered, ns; [`NEVER`] while it is unknown.
    pub target: Nanos,
    /// Rows of a batch by the plan.
    pub planned: u32,
}

/// The next batch of a lane.
#[derive(Debug, Clone, Copy)]
pub(super) struct LaneBatch {
    /// Number of first requests that are dropped.
    pub passed: usize,
    /// Most rows of the requests after them; 0 for no batch.
    pub rows: u32,
    /// Earliest start; in the past for at once.
    pub ready_at: Nanos,
}

/// The demand of one queue on a pool's slots.
#[derive(Debug, Clone, Copy)]
pub(super) struct Demand<'a> {
    pub queue: QueueIx,
    /// Rows per ns; `None` while nothing is measured.
    pub rate: Option<f64>,
    /// Time in which the queue's requests must be answered, ns.
    pub target: Nanos,
    pub spec: &'a QueueSpec,
    pub delay: Delay,
}

/// A queue on a slot.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Share {
    pub queue: QueueIx,
    /// Rows of a batch by the plan.
    pub rows: u32,
    /// Its part of the queue's requests, relative to the queue's other slots.
    pub weight: f64,
}

/// Which slots serve which queues, and in which batches.
pub(super) trait Sharing: std::fmt::Debug + Send {
    /// The state of a lane.
    type Memory: std::fmt::Debug + Default + Send;

    /// Senders that spread requests over slots, each on its own; at least 1.
    fn frontends(&self) -> u32;

    /// Time between two plans; `None` if only a change of slots or queues makes a new plan.
    fn epoch(&self) -> Option<Nanos>;

    /// The queues of each of `slots` slots.
    fn plan(&self, demands: &[Demand<'_>], slots: u32) -> Vec<Vec<Share>>;

    /// The next batch of a lane that is not empty.
    fn form<T>(&self, view: &View<'_, T>, memory: &Self::Memory) -> LaneBatch;

    /// A batch of `rows` rows ran for `ran` ns.
    fn learn(&self, _memory: &mut Self::Memory, _rows: u32, _ran: Nanos, _target: Nanos) {}
}

#[derive(Debug)]
struct Lane<T, M> {
    queue: QueueIx,
    requests: RequestQueue<T>,
    planned: u32,
    memory: M,
}

#[derive(Debug)]
struct Station<T, M> {
    lanes: Vec<Lane<T, M>>,
    /// Lanes with waiting requests; the next one first.
    turn: std::collections::VecDeque<u32>,
}

#[derive(Debug)]
struct Queue<T> {
    by_pool: PoolQueues,
    routes: Routes,
    /// Requests that came while no slot served the queue.
    stranded: RequestQueue<T>,
    rows: u32,
    target: Nanos,
    /// Rows that came since rates were last computed.
    arrived: u64,
    rate: Option<f64>,
}

/// A scheduler with a given [`Sharing`].
#[derive(Debug)]
pub(super) struct Replicas<T, S: Sharing> {
    sharing: S,
    delay: Delay,
    slots: Slots,
    queues: IndexVec<QueueIx, Option<Queue<T>>>,
    /// For each slot.
    stations: IndexVec<SlotIx, Station<T, S::Memory>>,
    queued: IndexVec<PoolIx, Nanos>,
    /// Slots that must be looked at even without an answer.
    timers: IndexedHeap<SlotIx>,
    /// When the first stranded request of a queue is late.
    expiries: IndexedHeap<QueueIx>,
    /// Whether slots or queues have changed since the plan was made.
    stale: bool,
    plan_at: Nanos,
    /// Start of the counting of arrivals; [`NEVER`] before the first arrival.
    counted_from: Nanos,
    /// Whether arrivals were counted for a whole epoch.
    measured: bool,
    requests: u64,
    waiting: usize,
    /// Rows of the largest batch so far; they decide how early the next batch must be sent.
    largest: u32,
    now: Nanos,
}

impl<T, S: Sharing> Replicas<T, S> {
    /// A scheduler without devices or queues.
    pub fn new(sharing: S, delay: Delay) -> Self {
        Self {
            sharing,
            delay,
            slots: Slots::default(),
            queues: IndexVec::default(),
            stations: IndexVec::default(),
            queued: IndexVec::default(),
            timers: IndexedHeap::default(),
            expiries: IndexedHeap::default(),
            stale: false,
            plan_at: NEVER,
            counted_from: NEVER,
            measured: false,
            requests: 0,
            waiting: 0,
            largest: 1,
            now: 0,
        }
    }

    fn know(&mut self, pool: PoolIx) {
        self.queued.grown(pool);
        self.slots.know(pool);
    }

    fn queue_mut(&mut self, queue: QueueIx) -> Option<&mut Queue<T>> {
        self.queues.known_mut(queue)
    }

    /// Puts a request into the lane of the next slot; returns the slot.
    fn route(&mut self, now: Nanos, queue: QueueIx, request: Request<T>) -> Option<SlotIx> {
        let frontend = match self.sharing.frontends() {
            0 | 1 => 0,
            frontends => (scattered(self.requests) % u64::from(frontends)) as usize,
        };
        let of = self.queues.known_mut(queue)?;
        let Some((slot, lane)) = of.routes.next(frontend) else {
            of.stranded.push(now, request);
            self.expiries
                .set(queue, of.stranded.deadline(0).saturating_add(1));
            return None;
        };
        let station = &mut self.stations[slot];
        let requests = &mut station.lanes[lane as usize].requests;
        if requests.is_empty() {
            station.turn.push_back(lane);
        }
        requests.push(now, request);
        Some(slot)
    }

    /// Lets a slot take batches from its lanes as long as it may have one more.
    fn serve(&mut self, now: Nanos, slot: SlotIx, actions: &mut Actions<T>) {
        self.timers.remove(slot);
        let ahead = self.delay.before_start(self.largest);
        while !self.stations[slot].turn.is_empty() {
            let ready_at = self.slots.ready_at(slot, ahead);
            if ready_at > now {
                self.wake(slot, ready_at);
                return;
            }
            if !self.serve_lane(now, slot, actions) {
                return;
            }
        }
    }

    fn wake(&mut self, slot: SlotIx, at: Nanos) {
        if at < NEVER {
            self.timers.set(slot, at);
        }
    }

    /// Starts a batch of the next lane that has one; returns `false` if none has.
    fn serve_lane(&mut self, now: Nanos, slot: SlotIx, actions: &mut Actions<T>) -> bool {
        let mut wake = NEVER;
        for _ in 0..self.stations[slot].turn.len() {
            let station = &mut self.stations[slot];
            let Some(lane) = station.turn.pop_front() else {
                break;
            };
            let formed = self.form(now, slot, lane, actions);
            let started = formed.rows > 0 && formed.ready_at <= now;
            if started {
                self.start(now, slot, lane, formed.rows, actions);
            } else if formed.rows > 0 {
                wake = wake.min(formed.ready_at);
            }
            let station = &mut self.stations[slot];
            if !station.lanes[lane as usize].requests.is_empty() {
                station.turn.push_back(lane);
            }
            if started {
                return true;
            }
        }
        self.wake(slot, wake);
        false
    }

    /// Forms the batch of a lane, and drops the requests that it gives up.
    fn form(&mut self, now: Nanos, slot: SlotIx, lane: u32, actions: &mut Actions<T>) -> LaneBatch {
        let none = LaneBatch {
            passed: 0,
            rows: 0,
            ready_at: NEVER,
        };
        let of = &self.stations[slot].lanes[lane as usize];
        let Some(queue) = self.queues.known(of.queue) else {
            return none;
        };
        let Some(on_pool) = queue.by_pool.on(self.slots.pool_of(slot)) else {
            return none;
        };
        let view = View {
            now,
            free_at: self.slots.free_at(slot, now),
            requests: &of.requests,
            spec: &on_pool.spec,
            delay: self.delay,
            target: queue.target,
            planned: of.planned,
        };
        let formed = self.sharing.form(&view, &of.memory);
        if formed.passed == 0 {
            return formed;
        }
        let possible = |at: usize| view.ends(of.requests.rows_of(at)) <= of.requests.deadline(at);
        let possible: Vec<bool> = (0..formed.passed).map(possible).collect();
        let dropped = self.take(slot, lane, formed.passed);
        for (request, possible) in dropped.into_iter().zip(possible) {
            let reason = match possible {
                true => DropReason::Shed,
                false => DropReason::Expired,
            };
            actions.push(Action::Drop { request, reason });
        }
        formed
    }

    fn start(&mut self, now: Nanos, slot: SlotIx, lane: u32, most: u32, actions: &mut Actions<T>) {
        let pool = self.slots.pool_of(slot);
        let of = &self.stations[slot].lanes[lane as usize];
        let queue = of.queue;
        let on_pool = self.queues.known(queue).and_then(|of| of.by_pool.on(pool));
        let Some(spec) = on_pool.map(|on_pool| &on_pool.spec) else {
            return;
        };
        let (count, rows) = match of.requests.fit(0, most) {
            // A request of more rows runs alone.
            (0, _) => (1, of.requests.rows_of(0)),
            _ if !spec.batched => (1, of.requests.rows_of(0)),
            fitting => fitting,
        };
        let expected = spec.latency.of(rows);
        self.largest = self.largest.max(rows);
        let requests = self.take(slot, lane, count);
        let ready = now.saturating_add(self.delay.before_start(rows));
        let batch = Batch {
            queue,
            rows,
            expected,
        };
        actions.push(Action::Infer {
            queue,
            device: self.slots.device(slot),
            requests,
            earliest: ready,
            latest: NEVER,
            expected,
            id: self.slots.send(now, slot, ready, batch),
        });
    }

    /// Takes the first requests of a lane and updates every sum.
    fn take(&mut self, slot: SlotIx, lane: u32, count: usize) -> Vec<Request<T>> {
        let of = &mut self.stations[slot].lanes[lane as usize];
        let queue = of.queue;
        let requests = of.requests.take(0, count);
        self.left(queue, requests)
    }

    /// Requests leave the scheduler.
    fn left(&mut self, queue: QueueIx, mut requests: Vec<Request<T>>) -> Vec<Request<T>> {
        let mut rows = 0;
        for request in &mut requests {
            request.deadline = self.delay.outward(request.deadline);
            rows += request.rows;
        }
        self.waiting -= requests.len();
        if let Some(of) = self.queues.known_mut(queue) {
            of.rows -= rows;
            of.by_pool.count(of.rows, &mut self.queued);
        }
        requests
    }

    /// Drops requests that have waited for a slot until their deadline.
    fn expire(&mut self, now: Nanos, actions: &mut Actions<T>) {
        while let Some((at, queue)) = self.expiries.first()
            && at <= now
        {
            let Some(of) = self.queue_mut(queue) else {
                self.expiries.remove(queue);
                continue;
            };
            let late = of.stranded.due_before(now);
            let requests = of.stranded.take(0, late);
            let next = of.stranded.deadline(0);
            let reason = DropReason::Expired;
            for request in self.left(queue, requests) {
                actions.push(Action::Drop { request, reason });
            }
            if next == NEVER {
                self.expiries.remove(queue);
            } else {
                self.expiries.set(queue, next.saturating_add(1));
            }
        }
    }
}

impl<T> View<'_, T> {
    /// When a batch of `rows` rows would end.
    pub fn ends(&self, rows: u32) -> Nanos {
        self.now
            .saturating_add(self.delay.before_start(rows))
            .max(self.free_at)
            .saturating_add(self.spec.latency.of(rows))
    }

    /// Requests and rows of a batch of at most `most` rows after the first `passed`.
    pub fn fit(&self, passed: usize, most: u32) -> (usize, u32) {
        if !self.spec.batched {
            return (1, self.requests.rows_of(passed));
        }
        match self.requests.fit(passed, most) {
            (0, _) => (1, self.requests.rows_of(passed)),
            fitting => fitting,
        }
    }
}

/// A pseudo-random number that depends only on the count.
fn scattered(count: u64) -> u64 {
    let mixed = count.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
