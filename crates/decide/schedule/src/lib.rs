//! Which batch runs on which device, and when.
//!
//! A [`Scheduler`] owns the requests that wait, knows which devices are up and what they run, and answers every event
//! with [`Action`]s. It does no I/O and keeps no clock. The live dispatcher and the simulator call the same methods,
//! one on tokio's time, the other on a virtual clock. Requests travel through it as an opaque payload. Each leaves
//! exactly once: in a batch or dropped.
//!
//! Words: a *queue* holds the requests of one variant (of one tenant, if tenants are kept apart). A *pool* is a set of
//! identical devices with the same variants loaded. A *slot* runs one batch at a time: a device with one executor has
//! one slot, a processor has one per core.
//!
//! [`Candidates`] is the machinery shared by the policies that have one growing batch per queue, [`Sextant`] is our
//! rule in it, and [`Options`] are its parameters. [`Schedulers`] makes schedulers. The published policies, under their
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

/// What a queue must know of its variant.
#[derive(Debug, Clone, PartialEq)]
pub struct QueueSpec {
    /// The most rows in a batch, at least 1.
    pub max_rows: u32,
    /// The most rows of a batch that several requests share, as a plan says; `u32::MAX` without a plan. A request with
    /// more rows runs alone.
    pub planned_rows: u32,
    /// Whether rows of several requests may share a batch.
    pub batched: bool,
    /// Slots that a running batch occupies, at least 1.
    pub slots: u16,
    /// Expected run time by rows on the pool's devices.
    pub latency: LatencyTable,
    /// The most rows that may wait.
    pub max_waiting_rows: u32,
    /// The tenant. If a pool cannot serve all tenants, their weights determine what each gets. All queues of a tenant
    /// have the same priority and weight.
    pub tenant: TenantIx,
    /// Queues of a higher priority go first, whatever the deadlines.
    pub priority: u8,
    /// The share of what is served if not everything can be served; 1 is normal.
    pub weight: f32,
    /// Price of a slot's time on the pool's devices. The unit is arbitrary; the price is the same on all pools if it
    /// does not matter. What a cheaper pool can still run in time is left to that pool.
    pub price: f32,
}

/// What a device offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceSpec {
    /// The pool to which it belongs: devices of the same kind with the same variants loaded.
    pub pool: PoolIx,
    /// Batches that it runs side by side, at least 1.
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
    /// It would be late even if it started at once.
    Infeasible,
    /// It became impossible to meet its deadline while it waited.
    Expired,
    /// It could still be met, but was given up so that others are met.
    Shed,
    /// The queue is full.
    QueueFull,
    /// The variant is no longer loaded on any device.
    Gone,
}

/// An action that the caller must carry out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action<T> {
    /// Run a batch.
    Infer {
        /// The queue.
        queue: QueueIx,
        /// The device.
        device: DeviceIx,
        /// The requests, earliest deadline first.
        requests: Vec<Request<T>>,
        /// The batch must not start before this: the device is busy until then, or the inputs are not there yet. It is
        /// at most now if the batch can start at once.
        earliest: Nanos,
        /// The batch must not start after this; [`NEVER`] without a target.
        latest: Nanos,
        /// Expected run time, ns.
        expected: Nanos,
        /// To be handed to [`Scheduler::on_result`] when the batch has left the device.
        id: BatchId,
    },
    /// Refuse a request.
    Drop {
        /// The request.
        request: Request<T>,
        /// The reason.
        reason: DropReason,
    },
}

/// The list in which the actions of an event are collected.
pub type Actions<T> = Vec<Action<T>>;

/// The load of a pool, as selection needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolLoad {
    /// Slots of devices that are up.
    pub slots: u32,
    /// Slots on which nothing runs.
    pub idle: u32,
    /// Expected end of the running batch that ends first if no slot is free, else 0.
    pub busy_until: Nanos,
    /// Estimated device time of the requests that wait for this pool, ns, divided by its slots.
    pub queued: Nanos,
}

/// A scheduling policy as a state machine. `now` never decreases.
///
/// Contract: a request handed to [`Self::on_request`] leaves in exactly one action, at once or with a later event.
/// After [`Self::on_unloaded`] for the last pool of a queue nothing of the queue remains. No slot runs two batches at
/// once, and a batch is never started if it would be late by its profile. The caller calls [`Self::on_timer`] no
/// earlier than [`Self::next_timer`] says and as soon after that as it can. Calling it too early or twice does no harm.
pub trait Scheduler<T>: std::fmt::Debug + Send {
    /// A device is up, with everything of its pool loaded and nothing running. If the device was up already, everything
    /// under way on it is forgotten first, as by [`Self::on_device_down`].
    fn on_device_up(
        &mut self,
        now: Nanos,
        device: DeviceIx,
        spec: DeviceSpec,
        actions: &mut Actions<T>,
    ) -> Vec<BatchId>;

    /// A device is gone. Returns the batches that were under way on it. The caller has their requests and may hand them
    /// in again. Late results of these batches are ignored.
    fn on_device_down(
        &mut self,
        now: Nanos,
        device: DeviceIx,
        actions: &mut Actions<T>,
    ) -> Vec<BatchId>;

    /// A device that is up belongs to another pool from now on, with what runs on it, because what is loaded on it has
    /// changed. This changes nothing for a device that is not up or that is in the pool already.
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

    /// A queue may no longer use a pool. If no pool is left, its requests are handed back.
    fn on_unloaded(&mut self, now: Nanos, pool: PoolIx, queue: QueueIx, actions: &mut Actions<T>);

    /// A request arrives.
    fn on_request(
        &mut self,
        now: Nanos,
        queue: QueueIx,
        request: Request<T>,
        actions: &mut Actions<T>,
    );

    /// Several requests of one queue arrive together, so that the first batch is not the first of them alone.
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

    /// A batch has left its device, whatever its outcome.
    fn on_result(&mut self, now: Nanos, batch: BatchId, actions: &mut Actions<T>);

    /// Time has passed.
    fn on_timer(&mut self, now: Nanos, actions: &mut Actions<T>);

    /// When [`Self::on_timer`] should next be called. O(1).
    fn next_timer(&self) -> Option<Nanos>;

    /// Requests that wait, over all queues.
    fn waiting(&self) -> usize;

    /// The state of a pool for selection and scaling.
    fn load(&self, pool: PoolIx) -> PoolLoad;

    /// The backlogs of a pool by tenant, if the policy shares devices out among several.
    fn backlogs(&self, _pool: PoolIx, _each: &mut dyn FnMut(Backlog)) {}

    /// How much device time goes before a query that a tenant adds in a pool, as [`ahead`]; `None` if the tenant is not
    /// known there.
    fn ahead(&self, _pool: PoolIx, _tenant: TenantIx) -> Option<Nanos> {
        None
    }

    /// Passes to `each` what has changed in [`Self::backlogs`] since the last call, for callers that keep a copy. An
    /// event costs them only what it changes, however many tenants there are.
    fn take_news(&mut self, _pool: PoolIx, _each: &mut dyn FnMut(News)) {}
}
