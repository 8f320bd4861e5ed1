//! One controller decides which batch runs where and when, what is loaded where, and what both cost.
//!
//! A [`Controller`] joins a scheduler and a placement with the estimates that they use, with what may run where, and
//! with what is desired to be loaded. It takes requests for any variant. Requests for variants that are loaded
//! somewhere go to the scheduler. Requests for other variants wait here, by deadline, until a LOAD has made their
//! variant ready or until no LOAD could help them. Requests that the scheduler hands back because a variant was
//! unloaded wait again. Only the controller orders LOADs and UNLOADs.
//!
//! **Pools.** All devices of one kind on which the same variants are ready form one pool of the scheduler. What is true
//! of one of them is true of all, so a request looks at its pools and not at devices. When the variants on a device
//! change, the device changes its pool and takes along what runs on it. The caller names the kinds: devices of a kind
//! must run and load a variant alike, and what is learnt on one counts for all.
//!
//! **Queues.** A variant whose queries come in several sizes has one queue of the scheduler for each size that shares
//! batches. The first request of the size opens it.
//!
//! Two programs drive the controller: the dispatcher, with a lock, a clock and messages, and the simulator, with a
//! virtual clock.
//!
//! **Invariant:** no clock, no async, no lock, no I/O, no logging. Time is an argument, order never depends on a hash,
//! and the same inputs give the same answer.

use std::collections::{BTreeMap, VecDeque};

use smallvec::SmallVec;

use sextant_placement as placement;
use sextant_placement::{Placement, Shared};
use sextant_profile::{Estimates, Estimation, Rolling10, Surface};
use sextant_schedule as schedule;
use sextant_schedule::{
    BatchId, Delay, DropReason, LatencyTable, NEVER, Nanos, News, PoolIx, PoolLoad, QueueSpec,
    Request, Scheduler, Schedulers,
};
use sextant_types::index::{DeviceIx, IndexVec, KindIx, QueueIx, TenantIx, VariantIx};

mod cold;
mod devices;
mod events;
mod exchange;
mod learning;
mod marks;
mod pools;
mod queues;
mod residence;
mod retired;
mod variants;

use cold::ColdQueue;
use marks::Marks;
use pools::Pools;
use queues::{Key, Queue};

pub use learning::LoadResult;
pub use queues::{Shape, Sharing, Slowdown};

/// The policies of a controller.
#[derive(Debug, Clone)]
pub struct Options<S = schedule::Options> {
    /// Which batch runs when.
    pub scheduling: S,
    /// Which variant is loaded where.
    pub placing: placement::Options,
    /// How run times and LOAD times are estimated.
    pub estimation: Estimation,
}

/// A request's payload with its queue, because a scheduler does not say from which queue it drops a request.
#[derive(Debug, Clone, PartialEq, Eq)]
struct TaggedPayload<T> {
    queue: QueueIx,
    payload: T,
}

/// An action that the caller must carry out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action<T> {
    /// Run a batch, as [`schedule::Action::Infer`]. The caller answers with [`Controller::on_result`].
    Infer {
        /// The device.
        device: DeviceIx,
        /// The variant.
        variant: VariantIx,
        /// The requests, earliest deadline first.
        requests: Vec<Request<T>>,
        /// The batch must not start before this.
        earliest: Nanos,
        /// The batch must not start after this; [`NEVER`] without a target.
        latest: Nanos,
        /// Expected run time, ns.
        expected: Nanos,
        /// Identifies the batch.
        id: BatchId,
    },
    /// Refuse a request.
    Drop {
        /// The variant.
        variant: VariantIx,
        /// The request.
        request: Request<T>,
        /// The reason.
        reason: DropReason,
    },
    /// Load a variant, which the caller answers with [`Controller::on_load_result`], or unload one, which it answers
    /// with [`Controller::on_unload_result`], or with [`Controller::on_unloaded`] if no time was measured.
    Move(placement::Action),
}

/// The list in which the actions of an event are collected.
pub type Actions<T> = Vec<Action<T>>;

/// What a device offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceSpec {
    /// The kind of the device.
    pub kind: KindIx,
    /// Pages for variants.
    pub pages: u32,
    /// Batches that it runs side by side, at least 1. It is the same for all devices of a kind.
    pub slots: u16,
}

/// The facts about a variant.
#[derive(Debug, Clone, PartialEq)]
pub struct VariantSpec {
    /// Pages that it takes for itself.
    pub pages: u32,
    /// Pages that it shares with other variants.
    pub shared: Option<Shared>,
    /// Its queue, with the run times for kinds of which nothing else is known.
    pub queue: QueueSpec,
    /// If its queries come in several sizes: their run times, for kinds of which nothing else is known.
    pub surface: Option<Surface>,
    /// Time of a LOAD by the profile, ns, if nothing else is known.
    pub load: Nanos,
    /// The least time of its first LOAD on a device, ns, if later LOADs reuse what the first prepared; 0 if all take
    /// the same time.
    pub first_load: Nanos,
    /// The kinds of devices that can run it.
    pub kinds: Vec<OnKind>,
}

/// A variant on a kind of device.
#[derive(Debug, Clone, PartialEq)]
pub struct OnKind {
    /// The kind.
    pub kind: KindIx,
    /// Run times by the profile; `None` for the run times of the variant's queue.
    pub latency: Option<LatencyTable>,
    /// Run times by rows and size; `None` for the variant's surface.
    pub surface: Option<Surface>,
    /// Time of a LOAD by the profile, ns; 0 for the variant's time.
    pub load: Nanos,
    /// Price of a slot's time on such a device. The unit is arbitrary and the same for all kinds.
    pub price: f32,
    /// The most rows of a batch that several requests share there, as a plan says; `u32::MAX` without a plan.
    pub planned_rows: u32,
}

#[derive(Debug)]
struct Variant {
    spec: VariantSpec,
    /// Pools in which the scheduler may use it.
    pools: SmallVec<[PoolIx; 2]>,
    /// Its queues. The first takes all requests if there is no surface.
    queues: SmallVec<[QueueIx; 1]>,
    /// Rows of requests that are neither in a batch nor dropped.
    waiting_rows: u64,
    /// Whether it takes no more requests.
    retired: bool,
}

/// A device that is up.
#[derive(Debug, Clone, Copy)]
struct Device {
    spec: DeviceSpec,
    pool: PoolIx,
}

/// A batch under way; number 0 for none.
#[derive(Debug, Clone, Copy, Default)]
struct Batch {
    number: u64,
    device: DeviceIx,
    queue: QueueIx,
}

/// Requests, variants and devices together.
///
/// Contract: that of [`Scheduler`] and of [`Placement`]. Every request leaves once, in a batch or dropped, whatever is
/// loaded and lost in the meantime. `now` never decreases.
#[derive(Debug)]
pub struct Controller<T> {
    scheduler: Box<dyn Scheduler<TaggedPayload<T>>>,
    placement: Box<dyn Placement>,
    delay: Delay,
    variants: IndexVec<VariantIx, Option<Box<Variant>>>,
    /// Retired variants of which everything is still known, in the order in which they were retired.
    retired: VecDeque<VariantIx>,
    devices: IndexVec<DeviceIx, Option<Device>>,
    queues: IndexVec<QueueIx, Queue>,
    vacant_queues: Vec<QueueIx>,
    /// The queues of variants with a surface.
    shaped: BTreeMap<(VariantIx, Key), QueueIx>,
    pools: Pools,
    cold: ColdQueue<TaggedPayload<T>>,
    /// Run times by kind and queue.
    estimates: Estimates,
    /// LOAD times by kind and variant, if they are estimated.
    loads: Option<Rolling10<VariantIx>>,
    /// UNLOAD times by kind, if they are estimated.
    unloads: Option<Rolling10<KindIx>>,
    /// When estimates that nothing confirms are next examined.
    refresh_at: Nanos,
    /// By [`BatchId`]'s position.
    batches: Vec<Batch>,
    /// Decisions of the scheduler and the placement that have not been carried out yet.
    actions: schedule::Actions<TaggedPayload<T>>,
    moves: placement::Actions,
    deadlines: Vec<Nanos>,
    /// Pools whose load has changed, and variants whose pools or run times have changed, since they were last taken.
    changed_pools: Marks<PoolIx>,
    changed_variants: Marks<VariantIx>,
}

// Implemented for our policy alone, so that the type of a default is known.
impl Default for Options {
    fn default() -> Self {
        Self {
            scheduling: schedule::Options::default(),
            placing: placement::Options::default(),
            estimation: Estimation::default(),
        }
    }
}

impl<T: std::fmt::Debug + Send + 'static> Controller<T> {
    /// A controller without devices and variants, with the policies that the options name.
    pub fn new<S: Schedulers>(options: &Options<S>) -> Self {
        Self {
            scheduler: options.scheduling.build(),
            placement: placement::build(&options.placing),
            delay: options.scheduling.delay(),
            variants: IndexVec::default(),
            retired: VecDeque::new(),
            devices: IndexVec::default(),
            queues: IndexVec::default(),
            vacant_queues: Vec::new(),
            shaped: BTreeMap::new(),
            pools: Pools::default(),
            cold: ColdQueue::default(),
            estimates: Estimates::new(options.estimation),
            loads: (options.estimation != Estimation::Profile).then(Rolling10::default),
            unloads: (options.estimation != Estimation::Profile).then(Rolling10::default),
            refresh_at: NEVER,
            batches: Vec::new(),
            actions: schedule::Actions::new(),
            moves: placement::Actions::new(),
            deadlines: Vec::new(),
            changed_pools: Marks::default(),
            changed_variants: Marks::default(),
        }
    }
}

impl<T> Controller<T> {
    /// Requests that wait for a LOAD or for a device.
    pub fn waiting(&self) -> usize {
        self.cold.len() + self.scheduler.waiting()
    }

    /// Requests that wait for a LOAD.
    pub fn cold(&self) -> usize {
        self.cold.len()
    }

    /// Whether batches of a variant may run somewhere now.
    pub fn is_loaded(&self, variant: VariantIx) -> bool {
        !self.pools_of(variant).is_empty()
    }

    /// The pools in which batches of a variant may run now.
    pub fn pools_of(&self, variant: VariantIx) -> &[PoolIx] {
        self.variant(variant).map_or(&[], |of| &of.pools)
    }

    /// The pool of a device that is up.
    pub fn pool_of(&self, device: DeviceIx) -> Option<PoolIx> {
        self.device(device).map(|of| of.pool)
    }

    /// The scheduler's view of a pool.
    pub fn load(&self, pool: PoolIx) -> PoolLoad {
        self.scheduler.load(pool)
    }

    /// Passes to `each` what has changed in the backlogs of a pool by tenant since the last call.
    pub fn take_news(&mut self, pool: PoolIx, each: &mut dyn FnMut(News)) {
        self.scheduler.take_news(pool, each);
    }

    /// The tenant of a variant; `None` if the variant is not known.
    pub fn tenant(&self, variant: VariantIx) -> Option<TenantIx> {
        Some(self.variant(variant)?.spec.queue.tenant)
    }

    /// Device time that goes before a request of a variant that arrives now, on a slot of a pool, ns.
    pub fn ahead(&self, pool: PoolIx, variant: VariantIx) -> Nanos {
        let load = self.load(pool);
        if load.queued == 0 {
            return 0;
        }
        let tenant = self.tenant(variant);
        let fair = tenant.and_then(|tenant| self.scheduler.ahead(pool, tenant));
        let slots = Nanos::from(load.slots.max(1));
        fair.map_or(load.queued, |work| load.queued.min(work / slots))
    }

    /// Replaces the contents of `pools` with the pools whose load has changed since the last call.
    pub fn take_changed_pools(&mut self, pools: &mut Vec<PoolIx>) {
        self.changed_pools.take(pools);
    }

    /// Replaces the contents of `variants` with the variants whose pools or run times have changed since the last call.
    pub fn take_changed_variants(&mut self, variants: &mut Vec<VariantIx>) {
        self.changed_variants.take(variants);
    }

    /// The devices that are up.
    pub fn devices(&self) -> impl Iterator<Item = (DeviceIx, &DeviceSpec)> {
        let numbered = self.devices.numbered();
        numbered.filter_map(|(at, device)| Some((at, &device.as_ref()?.spec)))
    }

    /// The placement: the presence of variants, free pages and demand.
    pub fn placement(&self) -> &dyn Placement {
        self.placement.as_ref()
    }

    /// When [`Self::on_timer`] should next be called. O(1).
    pub fn next_timer(&self) -> Option<Nanos> {
        let scheduled = self.scheduler.next_timer().unwrap_or(NEVER);
        let placed = self.placement.next_timer().unwrap_or(NEVER);
        let expired = self.cold.next_expiry().unwrap_or(NEVER);
        let next = scheduled.min(placed).min(expired).min(self.refresh_at);
        (next < NEVER).then_some(next)
    }

    fn variant(&self, variant: VariantIx) -> Option<&Variant> {
        self.variants.known(variant).map(Box::as_ref)
    }

    fn device(&self, device: DeviceIx) -> Option<&Device> {
        self.devices.known(device)
    }
}

// === impl Variant ===

impl Variant {
    /// What its profile says for a kind of device, if it can run there.
    fn on(&self, kind: KindIx) -> Option<&OnKind> {
        self.spec.kinds.iter().find(|on| on.kind == kind)
    }

    /// Run times of a queue on a kind of device, by the profile.
    fn profile(&self, kind: KindIx, queue: &Queue) -> LatencyTable {
        let on = self.on(kind);
        match &self.spec.surface {
            None => {
                let here = on.and_then(|on| on.latency.clone());
                here.unwrap_or_else(|| queue.latency.clone())
            }
            Some(_) => {
                let here = on.and_then(|on| on.surface.as_ref());
                here.map_or_else(|| queue.latency.clone(), |it| it.table(queue.sizes.1))
            }
        }
    }
}

impl VariantSpec {
    fn placed(&self) -> placement::VariantSpec {
        placement::VariantSpec {
            pages: self.pages,
            shared: self.shared,
            load: self.load,
            first_load: self.first_load,
            run: self.queue.latency.of(1),
        }
    }
}
