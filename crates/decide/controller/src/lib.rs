//! One controller: which batch runs where and when, what is loaded where, and what both cost.
//!
//! A [`Controller`] joins a scheduler and a placement with the estimates that they work with, with
//! what may run where, and with what is desired loaded. It takes requests for any variant. Those of
//! variants that are loaded somewhere go to the scheduler; those of others wait here, by deadline,
//! until a LOAD has made their variant ready, or until no LOAD could help them. What the scheduler
//! hands back because a variant was unloaded waits again. It alone orders LOADs and UNLOADs.
//!
//! **Pools.** Devices of one kind on which the same variants are ready form a pool of the scheduler,
//! however many they are: what is true of one is true of all, so a request looks at its pools and at
//! no device. When what is loaded on a device changes, the device changes its pool, with what runs
//! on it. A kind is named by the caller: devices of a kind are to run and load a variant alike, and
//! what is learnt on one counts for all.
//!
//! **Queues.** A variant whose queries come in several sizes has a queue of the scheduler for each size
//! that shares batches, opened by its first request.
//!
//! Two shells drive it: the dispatcher, with a lock, a clock and messages, and the simulator, with a
//! virtual clock.
//!
//! **Invariant:** no clock, no async, no lock, no I/O, no logging. Time is an argument, order never
//! depends on a hash, and the same inputs give the same answer.

use std::collections::BTreeMap;

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

/// A request's payload with its queue, which a scheduler does not tell of what it drops.
#[derive(Debug, Clone, PartialEq, Eq)]
struct TaggedPayload<T> {
    queue: QueueIx,
    payload: T,
}

/// What the caller has to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action<T> {
    /// Run a batch; as [`schedule::Action::Infer`]. To be answered by [`Controller::on_result`].
    Infer {
        /// On which device.
        device: DeviceIx,
        /// Of which variant.
        variant: VariantIx,
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
        /// Of which variant.
        variant: VariantIx,
        /// The request.
        request: Request<T>,
        /// Why.
        reason: DropReason,
    },
    /// Load a variant, to be answered by [`Controller::on_load_result`], or unload one, to be answered
    /// by [`Controller::on_unloaded`].
    Move(placement::Action),
}

/// Where the actions of an event are collected.
pub type Actions<T> = Vec<Action<T>>;

/// What a device offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceSpec {
    /// Which kind it is of.
    pub kind: KindIx,
    /// Pages for variants.
    pub pages: u32,
    /// Batches that it runs side by side, at least 1; the same for all of a kind.
    pub slots: u16,
}

/// What there is to know of a variant.
#[derive(Debug, Clone, PartialEq)]
pub struct VariantSpec {
    /// Pages that it takes for itself.
    pub pages: u32,
    /// Pages that it takes together with others.
    pub shared: Option<Shared>,
    /// Its queue, with the run times of a kind of which nothing else is known.
    pub queue: QueueSpec,
    /// Where its queries come in several sizes: their run times, of a kind of which nothing else is
    /// known.
    pub surface: Option<Surface>,
    /// Time of a LOAD by the profile, ns, where nothing else is known.
    pub load: Nanos,
    /// The least that its first LOAD on a device takes, ns, where later ones find what that prepared; 0 where all are alike.
    pub first_load: Nanos,
    /// The kinds of devices that can run it.
    pub kinds: Vec<OnKind>,
}

/// A variant on a kind of device.
#[derive(Debug, Clone, PartialEq)]
pub struct OnKind {
    /// Which kind.
    pub kind: KindIx,
    /// Run times by the profile; `None` for those of the variant's queue.
    pub latency: Option<LatencyTable>,
    /// Run times by rows and size; `None` for the variant's.
    pub surface: Option<Surface>,
    /// Time of a LOAD by the profile, ns; 0 for the variant's.
    pub load: Nanos,
    /// Price of a slot's time on such a device, in any unit, the same for all kinds.
    pub price: f32,
    /// Most rows of a batch that several requests share there, as a plan has it; `u32::MAX` without one.
    pub planned_rows: u32,
}

#[derive(Debug)]
struct Variant {
    spec: VariantSpec,
    /// Pools on which the scheduler may use it.
    pools: SmallVec<[PoolIx; 2]>,
    /// Its queues; the first is that of all requests where there is no surface.
    queues: SmallVec<[QueueIx; 1]>,
    /// Rows of requests that are neither in a batch nor dropped.
    waiting_rows: u64,
    /// Asked for no more.
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
/// Contract: that of [`Scheduler`] and of [`Placement`]; every request leaves once, in a batch or
/// dropped, whatever is loaded and lost meanwhile. `now` never decreases.
#[derive(Debug)]
pub struct Controller<T> {
    scheduler: Box<dyn Scheduler<TaggedPayload<T>>>,
    placement: Box<dyn Placement>,
    delay: Delay,
    variants: IndexVec<VariantIx, Option<Variant>>,
    devices: IndexVec<DeviceIx, Option<Device>>,
    queues: IndexVec<QueueIx, Queue>,
    vacant_queues: Vec<QueueIx>,
    /// The queues of variants with a surface.
    shaped: BTreeMap<(VariantIx, Key), QueueIx>,
    pools: Pools,
    cold: ColdQueue<TaggedPayload<T>>,
    /// Run times by kind and queue.
    estimates: Estimates,
    /// LOAD times by kind and variant, where they are estimated.
    loads: Option<Rolling10<VariantIx>>,
    /// When estimates that nothing confirms are looked at next.
    refresh_at: Nanos,
    /// By [`BatchId`]'s position.
    batches: Vec<Batch>,
    /// What the scheduler and the placement have said and nobody has carried out yet.
    actions: schedule::Actions<TaggedPayload<T>>,
    moves: placement::Actions,
    deadlines: Vec<Nanos>,
    /// Pools whose load is another one, and variants that have other pools or run times, since that
    /// was last asked for.
    changed_pools: Marks<PoolIx>,
    changed_variants: Marks<VariantIx>,
}

// Of ours alone, so that a default's type is known.
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
    /// A controller without devices and variants, after the policies that the options name.
    pub fn new<S: Schedulers>(options: &Options<S>) -> Self {
        Self {
            scheduler: options.scheduling.build(),
            placement: placement::build(&options.placing),
            delay: options.scheduling.delay(),
            variants: IndexVec::default(),
            devices: IndexVec::default(),
            queues: IndexVec::default(),
            vacant_queues: Vec::new(),
            shaped: BTreeMap::new(),
            pools: Pools::default(),
            cold: ColdQueue::default(),
            estimates: Estimates::new(options.estimation),
            loads: (options.estimation != Estimation::Profile).then(Rolling10::default),
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
    /// Requests that wait, for a LOAD or for a device.
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

    /// The pools on which batches of a variant may run now.
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

    /// What has changed of what waits for a pool by tenant, since that was last asked for.
    pub fn take_news(&mut self, pool: PoolIx, each: &mut dyn FnMut(News)) {
        self.scheduler.take_news(pool, each);
    }

    /// Whose a variant is; `None` for one that is not known.
    pub fn tenant(&self, variant: VariantIx) -> Option<TenantIx> {
        Some(self.variant(variant)?.spec.queue.tenant)
    }

    /// Device time that goes before a request of a variant that comes now, on a slot of a pool, ns.
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

    /// The pools whose load is another one than at the last call, in place of what is in `pools`.
    pub fn take_changed_pools(&mut self, pools: &mut Vec<PoolIx>) {
        self.changed_pools.take(pools);
    }

    /// The variants that have other pools, or other run times there, than at the last call.
    pub fn take_changed_variants(&mut self, variants: &mut Vec<VariantIx>) {
        self.changed_variants.take(variants);
    }

    /// The devices that are up.
    pub fn devices(&self) -> impl Iterator<Item = (DeviceIx, &DeviceSpec)> {
        let numbered = self.devices.numbered();
        numbered.filter_map(|(at, device)| Some((at, &device.as_ref()?.spec)))
    }

    /// The placement: presence of variants, free pages, demand.
    pub fn placement(&self) -> &dyn Placement {
        self.placement.as_ref()
    }

    /// When [`Self::on_timer`] is next worth calling. O(1).
    pub fn next_timer(&self) -> Option<Nanos> {
        let scheduled = self.scheduler.next_timer().unwrap_or(NEVER);
        let placed = self.placement.next_timer().unwrap_or(NEVER);
        let expired = self.cold.next_expiry().unwrap_or(NEVER);
        let next = scheduled.min(placed).min(expired).min(self.refresh_at);
        (next < NEVER).then_some(next)
    }

    fn variant(&self, variant: VariantIx) -> Option<&Variant> {
        self.variants.known(variant)
    }

    fn device(&self, device: DeviceIx) -> Option<&Device> {
        self.devices.known(device)
    }
}

// === impl Variant ===

impl Variant {
    /// What its profile says of a kind of device, if it can run there.
    fn on(&self, kind: KindIx) -> Option<&OnKind> {
        self.spec.kinds.iter().find(|on| on.kind == kind)
    }

    /// Run times of a queue on a kind of device by the profile.
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
