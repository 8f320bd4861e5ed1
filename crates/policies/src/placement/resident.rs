//! A scheduler and a placement as one machine.
//!
//! A [`Resident`] takes requests for any model. Those of models that are loaded somewhere go to the
//! scheduler; those of others wait here, by deadline, until a LOAD has made their model ready, or
//! until no LOAD could help them. What the scheduler hands back because a model was unloaded waits
//! again. Each device is a worker and a pool of its own.

use smallvec::SmallVec;

use super::{
    Action as Move, Actions as Moves, ModelSpec, Nanos, Options, Placement, Presence, Shared,
};
use crate::schedule::{
    self, Action, Actions, BatchId, Delay, DropReason, IndexedHeap, NEVER, PoolLoad, QueueSpec,
    Request, RequestQueue, Scheduler, WorkerSpec,
};

mod abandon;
mod cold;
mod events;
mod exchange;

use cold::Cold;

/// A request's payload with its model, which a scheduler does not tell of what it drops.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tagged<T> {
    model: u32,
    payload: T,
}

/// What the caller has to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResidentAction<T> {
    /// Run a batch; as [`schedule::Action::Infer`]. To be answered by [`Resident::on_result`].
    Infer {
        /// On which device.
        device: u32,
        /// Of which model.
        model: u32,
        /// Its requests, earliest deadline first.
        requests: Vec<Request<T>>,
        /// Not to be started before this.
        earliest: Nanos,
        /// Not to be started after this; [`NEVER`] without a target.
        latest: Nanos,
        /// Expected run time, ns.
        expected: Nanos,
        /// Names the batch.
        id: BatchId,
    },
    /// Answer with a refusal.
    Drop {
        /// Of which model.
        model: u32,
        /// The request.
        request: Request<T>,
        /// Why.
        reason: DropReason,
    },
    /// Load a model; as [`super::Action::Load`]. To be answered by [`Resident::on_load_result`].
    Load {
        /// On which device.
        device: u32,
        /// Which model.
        model: u32,
        /// Not to be started before this.
        earliest: Nanos,
        /// Not to be started after this; [`NEVER`] when nobody waits for it.
        latest: Nanos,
        /// Expected time, ns.
        expected: Nanos,
    },
    /// Give a model's pages back; as [`super::Action::Unload`]. To be answered by
    /// [`Resident::on_unloaded`].
    Unload {
        /// On which device.
        device: u32,
        /// Which model.
        model: u32,
    },
}

/// Where the actions of an event are collected.
pub type ResidentActions<T> = Vec<ResidentAction<T>>;

/// What a device offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResidentDevice {
    /// Pages for models.
    pub pages: u32,
    /// Batches that it runs side by side, at least 1.
    pub slots: u16,
}

/// What there is to know of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct ResidentModel {
    /// Pages that it takes for itself.
    pub pages: u32,
    /// Pages that it takes together with others.
    pub shared: Option<Shared>,
    /// Estimated time of its LOAD, ns.
    pub load: Nanos,
    /// Never unloaded once it is loaded.
    pub pinned: bool,
    /// Its queue, with the run times on a device of which nothing else is known.
    pub queue: QueueSpec,
}

#[derive(Debug)]
struct Model {
    spec: ResidentModel,
    /// By device: queues that differ from the spec's.
    queues: Vec<(u32, QueueSpec)>,
    /// Devices on which the scheduler may use it.
    active: SmallVec<[u32; 2]>,
}

/// Requests, models and devices together.
///
/// Contract: that of [`Scheduler`] and of [`Placement`]; every request leaves once, in a batch or
/// dropped, whatever is loaded and lost meanwhile.
#[derive(Debug)]
pub struct Resident<T> {
    scheduler: Box<dyn Scheduler<Tagged<T>>>,
    placement: Box<dyn Placement>,
    delay: Delay,
    models: Vec<Option<Model>>,
    cold: Cold<Tagged<T>>,
    /// By device: models that are active there, in order; `None` for a device that is not up.
    devices: Vec<Option<std::collections::BTreeSet<u32>>>,
    /// By [`BatchId`]'s position: number, device and model of the batch under way.
    batches: Vec<(u64, u32, u32)>,
    /// What the scheduler and the placement have said and nobody has carried out yet.
    actions: Actions<Tagged<T>>,
    moves: Moves,
    deadlines: Vec<Nanos>,
}

impl<T: std::fmt::Debug + Send + 'static> Resident<T> {
    /// Makes the scheduler and the placement that the options name.
    pub fn of(scheduling: &schedule::Options, placing: &Options) -> Self {
        let (scheduler, placement) = (schedule::build(scheduling), super::build(placing));
        Self::new(scheduler, placement, scheduling.delay)
    }
}

impl<T> Resident<T> {
    /// Joins a scheduler and a placement, both without workers and models; `delay` is the one that
    /// the scheduler makes room for.
    pub fn new(
        scheduler: Box<dyn Scheduler<Tagged<T>>>,
        placement: Box<dyn Placement>,
        delay: Delay,
    ) -> Self {
        Self {
            scheduler,
            placement,
            delay,
            models: Vec::new(),
            cold: Cold::default(),
            devices: Vec::new(),
            batches: Vec::new(),
            actions: Actions::new(),
            moves: Moves::new(),
            deadlines: Vec::new(),
        }
    }

    /// Requests that wait, for a LOAD or for a device.
    pub fn waiting(&self) -> usize {
        self.cold.len() + self.scheduler.waiting()
    }

    /// Requests that wait for a LOAD.
    pub fn cold(&self) -> usize {
        self.cold.len()
    }

    /// The devices on which batches of a model may run now.
    pub fn loaded_on(&self, model: u32) -> &[u32] {
        self.model(model).map_or(&[], |of| &of.active)
    }

    /// The scheduler's view of a device.
    pub fn load(&self, device: u32) -> PoolLoad {
        self.scheduler.load(pool(device))
    }

    /// The placement: presence of models, free pages, demand.
    pub fn placement(&self) -> &dyn Placement {
        self.placement.as_ref()
    }

    /// When [`Self::on_timer`] is next worth calling.
    pub fn next_timer(&self) -> Option<Nanos> {
        let next = [
            self.scheduler.next_timer(),
            self.placement.next_timer(),
            self.cold.next_expiry(),
        ];
        next.into_iter().flatten().min()
    }

    fn model(&self, model: u32) -> Option<&Model> {
        self.models.get(model as usize)?.as_ref()
    }

    fn model_mut(&mut self, model: u32) -> Option<&mut Model> {
        self.models.get_mut(model as usize)?.as_mut()
    }
}

// === impl Model ===

impl Model {
    fn queue_on(&self, device: u32) -> &QueueSpec {
        let other = self.queues.iter().find(|(on, _)| *on == device);
        other.map_or(&self.spec.queue, |(_, queue)| queue)
    }
}

impl ResidentModel {
    /// What a placement needs to know of it.
    pub fn placed(&self) -> ModelSpec {
        ModelSpec {
            pages: self.pages,
            shared: self.shared,
            load: self.load,
            run: self.queue.latency.of(1),
            pinned: self.pinned,
        }
    }
}

/// The pool in which requests gather for a moment before they are given to a device: it has none.
const GATHERING: u32 = 0;

/// The pool of a device.
const fn pool(device: u32) -> u32 {
    device + 1
}
