//! Which batch runs on which device, and when.
//!
//! A [`Scheduler`] owns the requests that wait, knows which devices are up and what they run, and
//! answers every event with [`Action`]s. It does no I/O and keeps no clock: the live dispatcher and
//! the simulator call the same methods, one on tokio's time, one on a virtual clock. Requests
//! travel through it as an opaque payload, so each leaves exactly once: in a batch or dropped.
//!
//! Words: a *queue* holds the requests of one variant (of one tenant, where tenants are kept
//! apart); a *pool* is a set of identical devices with the same variants loaded; a *slot* runs one
//! batch at a time: a device with one executor has one slot, a processor one per core.
//!
//! [`Candidates`] is the machinery of the policies with one growing batch per queue, [`Sextant`] our rule
//! in it, [`Options`] its parameters. [`Schedulers`] is what makes schedulers; the published policies, by their
//! names, are in `sextant-baselines`, which experiments use.
//!
//! **Invariant:** no clock, no async, no lock, no I/O, no logging. Time is an argument, order never
//! depends on a hash, and the same inputs give the same actions and reasons.

use sextant_types::index::{DeviceIx, QueueIx, TenantIx};

mod candidates;
mod heap;
mod latency;
mod numbers;
mod pool;
mod queue;
mod rule;
mod shares;
mod spec;

pub use candidates::Candidates;
pub use heap::IndexedHeap;
pub use latency::{InvalidLatency, LatencyTable};
pub use pool::{BatchId, Fleet, Place, Pool, RunningBatch};
pub use queue::{RateMeter, RequestQueue};
pub use rule::{Cause, Eagerness, NextBatch, Rule, Surroundings, View};
pub use shares::{Backlog, News, ahead};

mod options;
mod sextant;

pub use options::{Delay, Options, Schedulers};
pub use sextant::Sextant;
pub use sextant_types::{
    index::PoolIx,
    time::{NEVER, Nanos},
};

/// What a queue needs to know of its variant.
#[derive(Debug, Clone, PartialEq)]
pub struct QueueSpec {
    /// Most rows in a batch, at least 1.
    pub max_rows: u32,
    /// Most rows of a batch that several requests share, as a plan has it; `u32::MAX` without one. A request of more
    /// rows runs alone.
    pub planned_rows: u32,
    /// Whether rows of several requests may share a batch.
    pub batched: bool,
    /// Slots that a running batch occupies, at least 1.
    pub slots: u16,
    /// Expected run time by rows on the pool's devices.
    pub latency: LatencyTable,
    /// Most rows waiting.
    pub max_waiting_rows: u32,
    /// Whose it is: what tenants get of a pool that cannot serve all is by their weights. The same
    /// priority and weight for all queues of a tenant.
    pub tenant: TenantIx,
    /// Higher goes first, whatever the deadlines.
    pub priority: u8,
    /// Share of what is served when not everything can be; 1 is normal.
    pub weight: f32,
    /// Price of a slot's time on the pool's devices, in any unit; the same on all where it does not
    /// matter. What a cheaper pool can still run in time is left to it.
    pub price: f32,
}

/// What a device offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceSpec {
    /// The pool it belongs to: devices of the same kind with the same variants loaded.
    pub pool: PoolIx,
    /// Batches it runs side by side, at least 1.
    pub slots: u16,
}

/// A request on its way through the scheduler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request<T> {
    /// The caller's own data.
    pub payload: T,
    /// Rows, at least 1.
    pub rows: u32,
    /// When the answer must be ready; [`NEVER`] without a target.
    pub deadline: Nanos,
}

/// Why a request was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DropReason {
    /// Even started at once it would be late.
    Infeasible,
    /// Its deadline became impossible while it waited.
    Expired,
    /// It was given up, while it could still be met, so that others are met.
    Shed,
    /// The queue is full.
    QueueFull,
    /// The variant is not loaded on any device any more.
    Gone,
}

/// What the caller has to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action<T> {
    /// Run a batch.
    Infer {
        /// Of which queue.
        queue: QueueIx,
        /// On which device.
        device: DeviceIx,
        /// Its requests, earliest deadline first.
        requests: Vec<Request<T>>,
        /// Not to be started before this: the device is busy until then, or the inputs are not
        /// there; at most now when it can start at once.
        earliest: Nanos,
        /// Not to be started after this; [`NEVER`] without a target.
        latest: Nanos,
        /// Expected run time, ns.
        expected: Nanos,
        /// To be handed to [`Scheduler::on_result`] when the batch has left the device.
        id: BatchId,
    },
    /// Answer with a refusal.
    Drop {
        /// The request.
        request: Request<T>,
        /// Why.
        reason: DropReason,
    },
}

/// Where the actions of an event are collected.
pub type Actions<T> = Vec<Action<T>>;

/// What selection wants to know of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolLoad {
    /// Slots of devices that are up.
    pub slots: u32,
    /// Slots on which nothing runs.
    pub idle: u32,
    /// Expected end of the first running batch when no slot is free, else 0.
    pub busy_until: Nanos,
    /// Estimated device time of what waits for this pool, ns, divided by its slots.
    pub queued: Nanos,
}

/// A scheduling policy as a state machine. `now` never decreases.
///
/// Contract: a request handed to [`Self::on_request`] leaves in exactly one action, at once or with
/// a later event; after [`Self::on_unloaded`] of its last pool nothing of a queue is left behind.
/// No slot runs two batches at once, and a batch is never started when it would be late by its
/// profile. The caller calls [`Self::on_timer`] no earlier than [`Self::next_timer`] says and as
/// soon after as it can; calling it too early or twice does no harm.
pub trait Scheduler<T>: std::fmt::Debug + Send {
    /// A device is up, with everything of its pool loaded and nothing running. Of a device that was
    /// up already everything under way is forgotten first, as by [`Self::on_device_down`].
    fn on_device_up(
        &mut self,
        now: Nanos,
        device: DeviceIx,
        spec: DeviceSpec,
        actions: &mut Actions<T>,
    ) -> Vec<BatchId>;

    /// A device is gone; tells the batches that were under way on it. Their requests are with the
    /// caller, who may hand them in again. Late results of these batches are ignored.
    fn on_device_down(
        &mut self,
        now: Nanos,
        device: DeviceIx,
        actions: &mut Actions<T>,
    ) -> Vec<BatchId>;

    /// A device that is up belongs to another pool from now on, with what runs on it: what is loaded
    /// on it has changed. Changes nothing for one that is not up or is there already.
    fn on_device_moved(
        &mut self,
        now: Nanos,
        device: DeviceIx,
        pool: PoolIx,
        actions: &mut Actions<T>,
    );

    /// A queue may use a pool from now on. Replaces the spec of a known pair.
    fn on_loaded(
        &mut self,
        now: Nanos,
        pool: PoolIx,
        queue: QueueIx,
        spec: QueueSpec,
        actions: &mut Actions<T>,
    );

    /// A queue may not use a pool any more; without any pool left its requests are handed back.
    fn on_unloaded(&mut self, now: Nanos, pool: PoolIx, queue: QueueIx, actions: &mut Actions<T>);

    /// A request arrives.
    fn on_request(
        &mut self,
        now: Nanos,
        queue: QueueIx,
        request: Request<T>,
        actions: &mut Actions<T>,
    );

    /// Several requests of one queue arrive together: the first batch is not the first of them
    /// alone.
    fn on_requests(
        &mut self,
        now: Nanos,
        queue: QueueIx,
        requests: Vec<Request<T>>,
        actions: &mut Actions<T>,
    ) {
        for request in requests {
            self.on_request(now, queue, request, actions);
        }
    }

    /// A batch has left its device, whatever became of it.
    fn on_result(&mut self, now: Nanos, batch: BatchId, actions: &mut Actions<T>);

    /// Time has passed.
    fn on_timer(&mut self, now: Nanos, actions: &mut Actions<T>);

    /// When [`Self::on_timer`] is next worth calling. O(1).
    fn next_timer(&self) -> Option<Nanos>;

    /// Requests waiting over all queues.
    fn waiting(&self) -> usize;

    /// The state of a pool for selection and scaling.
    fn load(&self, pool: PoolIx) -> PoolLoad;

    /// What waits for a pool by tenant, where the policy shares devices out among several.
    fn backlogs(&self, _pool: PoolIx, _each: &mut dyn FnMut(Backlog)) {}

    /// How much device time goes before a query that a tenant adds on a pool, as [`ahead`]; `None` where
    /// nothing is known of it there.
    fn ahead(&self, _pool: PoolIx, _tenant: TenantIx) -> Option<Nanos> {
        None
    }

    /// What of [`Self::backlogs`] is different from what this told before, for those who keep a copy:
    /// an event costs them what it changes, however many tenants there are.
    fn take_news(&mut self, _pool: PoolIx, _each: &mut dyn FnMut(News)) {}
}
