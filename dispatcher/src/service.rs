//! Keeps the index current: follows the metadata store's change feed and the workers that come and go.

mod emptying;
mod present;

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    sync::Arc,
};

use sextant_controller::OnKind;
use sextant_fleet::{Follower, News, Token};
use sextant_metadata::{
    DesiredState, DeviceTypes, HardwareWarning, InstanceState, MetadataStore, PlannedBatch, View,
};
use sextant_picture::{IndexedVariant, Interner, Surroundings};
use sextant_placement as placement;
use sextant_schedule::{NEVER, Nanos};
use sextant_types::{
    Slowdowns, VariantId, WorkerId,
    index::{DeviceIx, IndexVec, KindIx, VariantIx},
};
use tokio::sync::mpsc::{self, Receiver};

use self::{
    emptying::Leavers,
    present::{Kinds, Present, places},
};
use crate::{
    Dispatcher,
    agreement::Sample,
    costs::Tariff,
    demand::Ticks,
    driver::Driver,
    families::Families,
    relief::Reliever,
    snapshot::{Accounts, Snapshot},
};

/// The dispatcher's background work.
pub struct Service {
    follower: Follower,
    updater: Updater,
    metadata: Arc<dyn MetadataStore>,
    samples: Receiver<Sample>,
    token: Token,
}

/// Reports to the driver and the queries what the metadata store says, and remembers what it has reported.
struct Updater {
    dispatcher: Arc<Dispatcher>,
    interner: Interner,
    kinds: Kinds,
    /// By position: the life in which the controller believes that the worker is up, and its kind.
    up: IndexVec<DeviceIx, Option<(u64, KindIx)>>,
    /// The (worker, variant) pairs that were reported to the driver.
    loaded: BTreeSet<(DeviceIx, VariantIx)>,
    /// By variant: what was reported to the driver.
    published: BTreeMap<VariantIx, PublishedVariant>,
    beside: PublicationContext,
    /// What is desired to be loaded, as it was reported to the driver.
    desired: Option<(Vec<(VariantIx, placement::DesiredPlacement)>, Nanos)>,
    /// Variants that are no longer published and were found loaded.
    strays: Strays,
    /// The last warnings about device types.
    warnings: Vec<HardwareWarning>,
    reliever: Reliever,
    leavers: Leavers,
}

/// Variants that are loaded but no longer published, by position and variant.
type Strays = BTreeSet<(DeviceIx, VariantId)>;

/// What a publication depends on beside the variants: the position, life and kind of each worker that is present, the
/// workers that are up, and the planned batches.
#[derive(Default, PartialEq)]
struct PublicationContext {
    present: Vec<(DeviceIx, u64, KindIx)>,
    up: IndexVec<DeviceIx, Option<(u64, KindIx)>>,
    batches: Vec<PlannedBatch>,
}

/// A variant as the driver knows it.
struct PublishedVariant {
    known: Arc<IndexedVariant>,
    page_bytes: u64,
    /// Kinds of workers that have its engine.
    kinds: Vec<OnKind>,
}

impl Service {
    pub(crate) fn new(
        dispatcher: Arc<Dispatcher>,
        metadata: Arc<dyn MetadataStore>,
        samples: Receiver<Sample>,
    ) -> Self {
        Self {
            samples,
            follower: Follower::new(Arc::clone(&metadata)),
            metadata,
            token: sextant_fleet::always(),
            updater: Updater {
                dispatcher,
                interner: Interner::default(),
                kinds: Kinds::default(),
                up: IndexVec::default(),
                loaded: BTreeSet::new(),
                published: BTreeMap::new(),
                beside: PublicationContext::default(),
                desired: None,
                strays: Strays::new(),
                warnings: Vec::new(),
                reliever: Reliever::new(),
                leavers: Leavers::default(),
            },
        }
    }

    /// Publishes the demand under this token, as [`sextant_fleet::Leadership`] gives it, and only while there is one.
    pub fn led_by(self, token: Token) -> Self {
        Self { token, ..self }
    }

    /// Runs until `shutdown`. While the store is away the last index stays in use.
    pub async fn run(mut self, shutdown: impl Future<Output = ()> + Send) {
        let driver = Arc::clone(&self.updater.dispatcher.driver);
        let _ticking = driver.tick();
        let ticks = Ticks::new();
        let dispatcher = Arc::clone(&self.updater.dispatcher);
        let metadata = Arc::clone(&self.metadata);
        let store = Arc::clone(&metadata);
        let publisher = ticks.publisher(Arc::clone(&dispatcher), metadata, self.token.clone());
        let (unused, samples) = (mpsc::channel(1).1, &mut self.samples);
        let samples = std::mem::replace(samples, unused);
        tokio::select! {
            () = shutdown => {}
            () = self.follow(ticks) => {}
            () = publisher.run() => {}
            () = dispatcher.compare_samples(samples, store.as_ref()) => {}
        }
    }

    async fn follow(&mut self, mut ticks: Ticks) {
        let driver = Arc::clone(&self.updater.dispatcher.driver);
        let mut workers = driver.workers().subscribe();
        self.follower.changed().await;
        loop {
            workers.mark_unchanged();
            self.updater.publish(self.follower.view());
            loop {
                tokio::select! {
                    news = self.follower.changed() => if news == News::Structure { break },
                    // The sender lives as long as the driver.
                    _ = workers.changed() => break,
                    () = ticks.tick() => {
                        let view = self.follower.view();
                        self.updater.dispatcher.count_idle_time(view);
                        self.updater.relieve(view);
                        self.updater.empty(view);
                        ticks.look(view);
                    }
                }
            }
        }
    }
}

impl Updater {
    /// Builds the new index, tells the scheduler what has changed, then shows the index to queries.
    fn publish(&mut self, view: &View) {
        let driver = Arc::clone(&self.dispatcher.driver);
        let leads = driver.leads();
        let present = self.kinds.present(&driver, view);
        let usable: Vec<&Present> = present.iter().filter(|one| one.is_usable(view)).collect();
        let types = DeviceTypes::of(view.workers.values());
        self.warn(&types);
        let around = Surroundings {
            workers: usable.iter().map(|one| (&one.id, one.usable())).collect(),
            types: &types,
            round_trip: driver.round_trip(),
            slowdowns: Slowdowns::of(
                view.variants.values().map(|it| &**it),
                self.dispatcher.config.estimate_factor,
            ),
        };
        let before = self.dispatcher.snapshot.load_full();
        let clock = self.dispatcher.clock;
        let mut snapshot = Snapshot {
            picture: sextant_picture::Snapshot::build(
                view,
                &around,
                &mut self.interner,
                &before.picture,
            ),
            accounts: Accounts::of(view, &before.accounts, &mut self.interner, clock),
            ..Snapshot::default()
        };
        snapshot.families = self.families(&snapshot, &present);
        let most_bytes = self.dispatcher.config.max_cache_bytes;
        let variants = view.variants.values().map(|it| &**it);
        self.dispatcher.caches.follow(variants, most_bytes);
        let desired = view.desired.as_deref();
        self.tell_of_publications(&driver, &snapshot, (&present, desired));
        release_slots(&driver, &snapshot);
        driver.set_tariffs(tariffs(&present, &types));
        let nothing = Snapshot::default();
        match leads {
            true => {
                let strays = strays(view, &usable);
                self.tell_of_workers(&driver, &usable);
                self.tell_of_instances(&driver, &snapshot, &strays);
                self.tell_of_strays(&driver, strays);
                self.tell_of_desired(&driver, view, &snapshot);
            }
            false => {
                self.tell_of_workers(&driver, &[]);
                self.tell_of_instances(&driver, &nothing, &Strays::new());
            }
        }
        snapshot.has_workers =
            view.has_pools() || view.workers.values().any(|it| !it.record.draining);
        let staying = view.workers.values().filter(|it| !it.record.draining);
        let missing = staying.filter(|worker| !around.workers.contains_key(&worker.id));
        let missing: BTreeSet<WorkerId> = missing.map(|worker| worker.id.clone()).collect();
        snapshot.unreached = missing.len();
        snapshot.is_read = true;
        self.dispatcher.snapshot.store(Arc::new(snapshot));
        self.dispatcher
            .revision
            .send_modify(|revision| *revision += 1);
        if leads {
            self.dispatcher.gathering.missing(missing);
        }
    }

    /// Relieves workers that something else slows down.
    fn relieve(&mut self, view: &View) {
        let driver = Arc::clone(&self.dispatcher.driver);
        let mut states = view.instances.values().map(|instance| instance.state);
        if !driver.leads() || !states.any(|state| state == InstanceState::Interfered) {
            return;
        }
        let present = self.kinds.present(&driver, view);
        let lives = present.iter().map(|one| (one.at, one.life)).collect();
        let number = |variant: &VariantId| self.interner.ordinal(variant);
        let places = places(view, &present, number);
        self.reliever.look(&driver, &places, lives);
    }

    /// Logs once each warning about device types that contradict each other.
    fn warn(&mut self, types: &DeviceTypes) {
        for warning in &types.warnings {
            if !self.warnings.contains(warning) {
                tracing::warn!(code = warning.code(), "{warning}");
            }
        }
        self.warnings.clone_from(&types.warnings);
    }

    /// The families of the variants. They keep what they have learnt.
    fn families(&self, snapshot: &Snapshot, present: &[Present]) -> Families {
        let Some(choice) = self.dispatcher.config.parallelism else {
            return Families::default();
        };
        let before = self.dispatcher.snapshot.load();
        before.families.build(choice, snapshot.all(), |known| {
            let engine = &known.variant.spec.engine;
            let first = present.iter().find(|one| one.runs(engine));
            first.map_or(1, |one| one.info.cores)
        })
    }

    fn tell_of_workers(&mut self, driver: &Driver, usable: &[&Present]) {
        let mut lives: IndexVec<DeviceIx, _> = self.up.iter().map(|_| None).collect();
        for one in usable {
            *lives.grown(one.at) = Some((one.life, one.kind));
        }
        for (at, life) in lives.numbered() {
            let (before, life) = (self.up.grown(at), *life);
            if *before == life {
                continue;
            }
            match (std::mem::replace(before, life), life) {
                (Some((before, _)), Some((life, kind))) if before == life => {
                    driver.on_worker_kind(at, kind);
                }
                (_, life) => {
                    // A worker that comes back has nothing loaded until it is reported again.
                    self.loaded.retain(|(on, _)| *on != at);
                    self.strays.retain(|(on, _)| *on != at);
                    match life {
                        Some((life, kind)) => driver.on_worker_up(at, life, kind),
                        None => driver.on_worker_down(at),
                    }
                }
            }
        }
    }

    /// Reports which variants are loaded where. A retired variant counts as loaded until the controller has had it
    /// unloaded, once none of its queries waits or runs.
    fn tell_of_instances(&mut self, driver: &Driver, snapshot: &Snapshot, strays: &Strays) {
        let mut loaded = BTreeSet::new();
        for known in snapshot.all() {
            for at in &known.workers {
                loaded.insert((*at, known.ordinal));
            }
        }
        for (at, variant) in strays {
            loaded.extend(self.told(driver, variant).map(|number| (*at, number)));
        }
        for (at, ordinal) in loaded.difference(&self.loaded) {
            driver.on_found(*at, *ordinal);
        }
        for (at, ordinal) in self.loaded.difference(&loaded) {
            driver.on_unloaded(*at, *ordinal);
        }
        driver.renew(loaded.iter().copied());
        self.loaded = loaded;
    }

    /// Has variants unloaded that are no longer published and that the dispatcher did not know while they were.
    fn tell_of_strays(&mut self, driver: &Driver, strays: Strays) {
        for (at, variant) in strays.difference(&self.strays) {
            if self.told(driver, variant).is_none() {
                let number = self.interner.ordinal(variant);
                driver.unload_stray(*at, number, variant.clone());
            }
        }
        self.strays = strays;
    }

    /// The number of a variant that was reported to the driver.
    fn told(&self, driver: &Driver, variant: &VariantId) -> Option<VariantIx> {
        let number = self.interner.number(variant);
        number.filter(|number| driver.knows(*number))
    }

    /// Reports what the autoscaler wants loaded. If there is not room for all, needed variants go first, and smaller
    /// ones before larger ones.
    fn tell_of_desired(&mut self, driver: &Driver, view: &View, snapshot: &Snapshot) {
        let Some(desired) = &view.desired else { return };
        let list = sextant_picture::in_order(&desired.variants, snapshot);
        let idle = desired.idle_unload_ms.checked_mul(1_000_000);
        let told = (list, idle.unwrap_or(NEVER));
        if self.desired.as_ref() != Some(&told) {
            driver.on_desired(&told.0, told.1);
            self.desired = Some(told);
        }
    }

    /// Reports variants that are new, changed or retired, the kinds of workers that can load them, and the largest
    /// batches.
    fn tell_of_publications(
        &mut self,
        driver: &Driver,
        snapshot: &Snapshot,
        (present, desired): (&[Present], Option<&DesiredState>),
    ) {
        let beside = PublicationContext {
            present: present
                .iter()
                .map(|one| (one.at, one.life, one.kind))
                .collect(),
            up: self.up.clone(),
            batches: desired.map_or_else(Vec::new, |it| it.batches.clone()),
        };
        let is_same = beside == self.beside;
        self.beside = beside;
        let mut published = BTreeMap::new();
        for known in snapshot.all() {
            let before = self.published.remove(&known.ordinal);
            let is_told = |before: &PublishedVariant| is_same && Arc::ptr_eq(&before.known, known);
            let before = match before {
                Some(before) if is_told(&before) => {
                    published.insert(known.ordinal, before);
                    continue;
                }
                before => before,
            };
            let now = PublishedVariant::of(known, (present, desired), &self.up);
            match before.filter(|before| before.is_same(&now)) {
                Some(before) if before.kinds == now.kinds => {}
                Some(_) => driver.on_kinds(known.ordinal, now.kinds.clone()),
                None => {
                    let variant = &known.variant;
                    let weights = self.interner.weights(variant);
                    let queueing = self.dispatcher.config.queueing(&variant.application);
                    let kinds = now.kinds.clone();
                    let spec = known.spec(queueing, now.page_bytes, weights, kinds);
                    driver.on_variant(known.ordinal, variant, spec);
                }
            }
            published.insert(known.ordinal, now);
        }
        for retired in std::mem::replace(&mut self.published, published).into_keys() {
            driver.on_retired(retired);
        }
    }
}

/// A batch of a variant that no longer belongs to a family occupies as many slots as the variant has threads.
fn release_slots(driver: &Driver, snapshot: &Snapshot) {
    for known in snapshot.all() {
        let threads = known.variant.spec.threads.max(1);
        let chosen = driver.gauges().slots(known.ordinal);
        let is_other = chosen.is_some_and(|slots| slots != threads);
        if is_other && snapshot.families.of(known.ordinal).is_none() {
            driver.set_slots(known.ordinal, threads);
        }
    }
}

/// What usable workers serve although it is no longer published.
fn strays(view: &View, usable: &[&Present]) -> Strays {
    let positions: BTreeMap<&WorkerId, DeviceIx> =
        usable.iter().map(|one| (&one.id, one.at)).collect();
    let mut strays = Strays::new();
    for instance in view.instances.values().filter(|of| of.state.is_serving()) {
        let (variant, at) = (&instance.key.variant, positions.get(&instance.key.worker));
        if let (false, Some(at)) = (view.variants.contains_key(variant), at) {
            strays.insert((*at, variant.clone()));
        }
    }
    strays
}

/// The prices of the workers' devices, by position.
fn tariffs(present: &[Present], types: &DeviceTypes) -> IndexVec<DeviceIx, Option<Arc<Tariff>>> {
    let mut tariffs = IndexVec::default();
    for one in present {
        let facts = one.device_type.as_ref().and_then(|name| types.get(name));
        let tariff = Tariff::new(one.id.clone(), facts.map(|it| &**it), one.info.cores);
        *tariffs.grown(one.at) = Some(Arc::new(tariff));
    }
    tariffs
}

// === impl PublishedVariant ===

impl PublishedVariant {
    /// `up` gives the kinds of the workers, as the driver was last told.
    fn of(
        known: &Arc<IndexedVariant>,
        (present, desired): (&[Present], Option<&DesiredState>),
        up: &IndexVec<DeviceIx, Option<(u64, KindIx)>>,
    ) -> Self {
        let engine = &known.variant.spec.engine;
        let first = present.iter().find(|one| one.runs(engine));
        let able = present.iter().filter(|one| one.runs(engine));
        let until_now = |one: &Present| Some(up.known(one.at)?.1);
        let kinds = able.flat_map(|one| std::iter::once(one.kind).chain(until_now(one)));
        let kinds: BTreeSet<KindIx> = kinds.collect();
        Self {
            known: Arc::clone(known),
            page_bytes: first.map_or(1, |one| one.info.pages.page_bytes),
            kinds: kinds
                .into_iter()
                .map(|kind| known.on_kind(kind, desired))
                .collect(),
        }
    }

    /// Whether the queue and the pages are the same as in another report.
    fn is_same(&self, other: &Self) -> bool {
        let (one, other_one) = (&self.known.variant, &other.known.variant);
        Arc::ptr_eq(one, other_one) && self.page_bytes == other.page_bytes
    }
}
