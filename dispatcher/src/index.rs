//! The in-memory index: everything a selection needs, rebuilt when the metadata changes.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, OnceLock},
};

use sextant_metadata::{DeviceTypes, InstanceState, View};
use sextant_policies::{
    controller::{ModelSpec, OnKind},
    placement::Shared,
    profile::Surface,
    schedule::{LatencyTable, NEVER, Nanos, QueueSpec},
    select::{Entry, Index, Load, Readiness, mark_dominated},
};
use sextant_rpc::Route;
use sextant_types::{
    ApplicationId, DeviceTypeName, Digest, EngineName, ModelId, Precision, Profile, Signature,
    Variant, VariantId, WorkerId,
};

use crate::{
    Config,
    costs::DEFAULT_SLOT_HOUR_USD,
    driver::Driver,
    extent::{CLASSES, Extent},
    families::Families,
};

/// Numbers for variants that never change while the dispatcher lives.
#[derive(Default)]
pub(crate) struct Interner {
    ordinals: HashMap<VariantId, u32>,
    applications: HashMap<ApplicationId, u32>,
    weights: HashMap<(EngineName, Digest, Precision), u32>,
}

/// One published variant.
pub(crate) struct Known {
    pub(crate) ordinal: u32,
    /// The number of its application.
    pub(crate) application: u32,
    pub(crate) variant: Arc<Variant>,
    pub(crate) readiness: Readiness,
    /// Positions of the workers that serve it.
    pub(crate) workers: Vec<usize>,
    /// 99th percentile of a batch by rows, where it was registered.
    latency: LatencyTable,
    /// The same by rows and size, where queries come in several sizes.
    surface: Option<Surface>,
    /// The size at which `latency` and costs were measured.
    size: u64,
    /// The largest size that its engine takes, where that is known.
    limit: Option<u64>,
    /// By kind of device, for those that have its engine; one that is like where it was registered
    /// where no worker has. Never empty.
    pub(crate) hosts: Vec<Host>,
    /// What messages cost a query on its way to a worker and back, ns.
    pub(crate) round_trip: Nanos,
}

/// A variant on a kind of device.
pub(crate) struct Host {
    /// Which kind; [`NOWHERE`] for none.
    pub(crate) kind: u32,
    /// The type of its devices, where they say so.
    pub(crate) device_type: Option<DeviceTypeName>,
    /// Positions of the workers that serve it.
    pub(crate) workers: Vec<usize>,
    pub(crate) readiness: Readiness,
    /// 99th percentile of a batch by rows.
    latency: LatencyTable,
    /// The same by rows and size, where queries come in several sizes.
    surface: Option<Surface>,
    /// Time of a LOAD, ms.
    pub(crate) load_ms: f64,
    pub(crate) cost_per_1k_usd: f64,
    /// Price of a slot of such a device, US dollars an hour.
    pub(crate) slot_hour_usd: f64,
    /// Whether it was measured on this type of device.
    measured_here: bool,
}

/// The kind of a device that no worker has.
const NOWHERE: u32 = u32::MAX;

/// What a snapshot is built with beside the store's view.
pub(crate) struct Surroundings<'a> {
    /// The workers that may be used.
    pub(crate) workers: BTreeMap<&'a WorkerId, Usable<'a>>,
    /// The device types of the fleet.
    pub(crate) types: &'a DeviceTypes,
    /// What messages cost a query, ns.
    pub(crate) round_trip: Nanos,
    /// How many times as long as where it was measured a variant takes on another type of device,
    /// until it was measured there.
    pub(crate) estimate_factor: f64,
}

/// A worker that may be used.
#[derive(Clone, Copy)]
pub(crate) struct Usable<'a> {
    /// Its position.
    pub(crate) at: usize,
    /// Its kind.
    pub(crate) kind: u32,
    /// The type of its device, where it says so.
    pub(crate) device_type: Option<&'a DeviceTypeName>,
    /// Engines whose variants it runs.
    pub(crate) engines: &'a [EngineName],
    /// Whether something else slows it down, and not those that are like it.
    pub(crate) slowed: bool,
}

/// How many times as long runs take on a worker that is slowed down, until they are measured there:
/// about where instances begin to count as interfered.
const SLOWED: f64 = 2.0;

/// What may answer an application or a model.
pub(crate) struct Scope {
    /// The application, by number and by name.
    application: (u32, ApplicationId),
    index: Index,
    /// Where queries come in several sizes: by class of size, made by the first query of a class.
    sized: Option<Sized>,
    pub(crate) signature: Signature,
}

/// Indices of one scope by class of size.
struct Sized {
    members: Vec<Arc<Known>>,
    /// Those that are taken for dominated.
    dominated: BTreeSet<(u32, u32)>,
    classes: Box<[OnceLock<Box<Index>>]>,
}

/// The index at one moment.
#[derive(Default)]
pub(crate) struct Snapshot {
    /// By ordinal; `None` where a variant was retired.
    known: Vec<Option<Arc<Known>>>,
    by_variant: HashMap<VariantId, u32>,
    applications: HashMap<ApplicationId, Scope>,
    models: HashMap<ModelId, Scope>,
    /// Variants among which the number of threads is chosen by load.
    pub(crate) families: Families,
}

impl Interner {
    /// Whether a variant has a number.
    pub(crate) fn knows(&self, variant: &VariantId) -> bool {
        self.ordinals.contains_key(variant)
    }

    pub(crate) fn ordinal(&mut self, variant: &VariantId) -> u32 {
        let next = self.ordinals.len() as u32;
        *self.ordinals.entry(variant.clone()).or_insert(next)
    }

    /// A number for an application.
    fn application(&mut self, application: &ApplicationId) -> u32 {
        let next = self.applications.len() as u32;
        *self.applications.entry(application.clone()).or_insert(next)
    }

    /// A number for the weights of a variant, which others may have too.
    pub(crate) fn weights(&mut self, variant: &Variant) -> u32 {
        let next = self.weights.len() as u32;
        let spec = &variant.spec;
        let key = (spec.engine.clone(), variant.artefact, spec.precision);
        *self.weights.entry(key).or_insert(next)
    }
}

impl Snapshot {
    /// Builds the index from the store's view.
    pub(crate) fn build(view: &View, around: &Surroundings<'_>, interner: &mut Interner) -> Self {
        let mut states: BTreeMap<&VariantId, Vec<(usize, InstanceState)>> = BTreeMap::new();
        for instance in view.instances.values() {
            if let Some(worker) = around.workers.get(&instance.key.worker) {
                states
                    .entry(&instance.key.variant)
                    .or_default()
                    .push((worker.at, instance.state));
            }
        }
        let able = able(&around.workers);
        let mut snapshot = Self::default();
        for variant in view.variants.values() {
            let instances = states.get(&variant.id).map_or(&[][..], Vec::as_slice);
            let able = able.get(&variant.spec.engine);
            let able = able.map_or(&[][..], Vec::as_slice);
            let ordinal = interner.ordinal(&variant.id);
            snapshot.insert(Known {
                application: interner.application(&variant.application),
                ..Known::new(ordinal, variant, (instances, able), around)
            });
        }
        snapshot.index_scopes();
        snapshot
    }

    pub(crate) fn known(&self, ordinal: u32) -> Option<&Arc<Known>> {
        self.known.get(ordinal as usize)?.as_ref()
    }

    pub(crate) fn variant(&self, id: &VariantId) -> Option<&Arc<Known>> {
        self.known(*self.by_variant.get(id)?)
    }

    pub(crate) fn application(&self, id: &ApplicationId) -> Option<&Scope> {
        self.applications.get(id)
    }

    pub(crate) fn model(&self, id: &ModelId) -> Option<&Scope> {
        self.models.get(id)
    }

    /// The application that a route belongs to, by number and by name.
    pub(crate) fn application_of(&self, route: &Route) -> Option<(u32, &ApplicationId)> {
        let scope = match route {
            Route::Application(id) => self.application(id),
            Route::Model(id) => self.model(id),
            Route::Variant(id) => {
                let known = self.variant(id)?;
                return Some((known.application, &known.variant.application));
            }
        };
        let (number, name) = &scope?.application;
        Some((*number, name))
    }

    /// Every published variant, by ordinal.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Known>> {
        self.known.iter().flatten()
    }

    /// Whether `route` can be answered: something of it is loaded, or a worker can load it.
    pub(crate) fn is_ready(&self, route: &Route) -> bool {
        self.any(route, |readiness| readiness != Readiness::Failed)
    }

    /// Whether an instance answers for `route` now.
    pub(crate) fn is_loaded(&self, route: &Route) -> bool {
        self.any(route, |readiness| {
            matches!(readiness, Readiness::Active | Readiness::Degraded)
        })
    }

    fn any(&self, route: &Route, is: impl Fn(Readiness) -> bool) -> bool {
        let scope = match route {
            Route::Application(id) => self.application(id),
            Route::Model(id) => self.model(id),
            Route::Variant(id) => return self.variant(id).is_some_and(|it| is(it.readiness)),
        };
        let entries = scope.map_or(&[][..], |scope| scope.index.entries());
        entries.iter().any(|entry| is(entry.readiness))
    }

    fn insert(&mut self, known: Known) {
        let at = known.ordinal as usize;
        if self.known.len() <= at {
            self.known.resize_with(at + 1, || None);
        }
        self.by_variant
            .insert(known.variant.id.clone(), known.ordinal);
        self.known[at] = Some(Arc::new(known));
    }

    fn index_scopes(&mut self) {
        let mut applications: BTreeMap<ApplicationId, Vec<Arc<Known>>> = BTreeMap::new();
        let mut models: BTreeMap<ModelId, Vec<Arc<Known>>> = BTreeMap::new();
        for known in self.known.iter().flatten() {
            let variant = &known.variant;
            applications
                .entry(variant.application.clone())
                .or_default()
                .push(Arc::clone(known));
            models
                .entry(variant.model.clone())
                .or_default()
                .push(Arc::clone(known));
        }
        let scopes = applications.into_iter();
        self.applications = scopes
            .filter_map(|(id, members)| Some((id, self.scope(&members, |_| true)?)))
            .collect();
        let scopes = models.into_iter();
        self.models = scopes
            .filter_map(|(id, members)| {
                let scope = self.scope(&members, |known| known.variant.model == id)?;
                Some((id, scope))
            })
            .collect();
    }

    /// The index of `members`, among which are all of their application that `within` says so of.
    /// Who is dominated is known from the registration, among all variants of the application: where
    /// the one that dominates is not a member or cannot be loaded, it is judged anew among these.
    fn scope(&self, members: &[Arc<Known>], within: impl Fn(&Known) -> bool) -> Option<Scope> {
        let first = members.first()?;
        let signature = first.variant.signature.clone();
        let holds = |id: &VariantId| {
            let known = self.variant(id);
            known.is_some_and(|known| known.readiness != Readiness::Failed && within(known))
        };
        let (mut unsure, mut entries) = (Vec::new(), Vec::with_capacity(members.len()));
        for known in members {
            let dominator = known.variant.dominated_by.as_ref();
            let first = entries.len();
            entries.extend(known.entries(Extent::default()));
            if dominator.is_some_and(|dominator| !holds(dominator)) {
                unsure.extend(first..entries.len());
            }
        }
        if !unsure.is_empty() {
            mark_dominated(&mut entries, &unsure);
        }
        let sized = signature
            .is_dynamic()
            .then(|| Sized::new(members, &entries));
        Some(Scope {
            application: (first.application, first.variant.application.clone()),
            index: Index::new(entries),
            sized,
            signature,
        })
    }
}

// === impl Scope ===

impl Scope {
    /// The length above which nothing takes a query of this size; `None` where something does.
    pub(crate) fn limit(&self, extent: Extent) -> Option<u64> {
        let members = &self.sized.as_ref()?.members;
        let longest = members.iter().map(|known| match known.takes(extent) {
            true => None,
            false => known.variant.profile.sizes.longest,
        });
        longest.collect::<Option<Vec<u64>>>()?.into_iter().max()
    }

    /// What may answer a query of this size.
    pub(crate) fn index(&self, extent: Extent) -> &Index {
        let sized = self.sized.as_ref().zip(extent.class());
        let cell = sized.and_then(|(sized, class)| Some((sized, sized.classes.get(class)?)));
        match cell {
            Some((sized, cell)) => cell.get_or_init(|| Box::new(sized.index(extent))),
            None => &self.index,
        }
    }
}

// === impl Sized ===

impl Sized {
    fn new(members: &[Arc<Known>], entries: &[Entry]) -> Self {
        let dominated = entries.iter().filter(|entry| entry.dominated);
        Self {
            members: members.to_vec(),
            dominated: dominated.map(|of| (of.ordinal, of.kind)).collect(),
            classes: (0..CLASSES).map(|_| OnceLock::new()).collect(),
        }
    }

    fn index(&self, extent: Extent) -> Index {
        let entries = self.members.iter().flat_map(|known| known.entries(extent));
        let entries = entries.map(|entry| Entry {
            dominated: self.dominated.contains(&(entry.ordinal, entry.kind)),
            ..entry
        });
        Index::new(entries.collect())
    }
}

/// The workers that have an engine, by engine.
fn able<'a>(
    workers: &BTreeMap<&WorkerId, Usable<'a>>,
) -> BTreeMap<&'a EngineName, Vec<Usable<'a>>> {
    let mut able: BTreeMap<&EngineName, Vec<Usable<'_>>> = BTreeMap::new();
    for worker in workers.values() {
        for engine in worker.engines {
            able.entry(engine).or_default().push(*worker);
        }
    }
    able
}

// === impl Known ===

impl Known {
    /// From the states of its instances by position, and the workers that have its engine.
    fn new(
        ordinal: u32,
        variant: &Arc<Variant>,
        (instances, able): (&[(usize, InstanceState)], &[Usable<'_>]),
        around: &Surroundings<'_>,
    ) -> Self {
        let serving = instances.iter().filter(|(_, state)| state.is_serving());
        let workers: Vec<usize> = serving.map(|(at, _)| *at).collect();
        let positions: Vec<usize> = able.iter().map(|worker| worker.at).collect();
        Self {
            ordinal,
            application: 0,
            variant: Arc::clone(variant),
            readiness: readiness(instances, &positions),
            workers,
            latency: latency_table(variant, &variant.profile),
            surface: surface(variant, &variant.profile),
            size: variant.signature.row_elements(&variant.profile.sizes.dims),
            limit: limit(variant),
            hosts: hosts(variant, instances, able, around),
            round_trip: around.round_trip,
        }
    }

    /// What selection knows of it: an entry for each kind of device. Where it is loaded somewhere it
    /// has entries there alone: that more devices load it, be they of another kind, is not for a
    /// query to bring about.
    pub(crate) fn entries(&self, extent: Extent) -> impl Iterator<Item = Entry> {
        let is_loaded = self.hosts.iter().any(Host::is_loaded);
        let hosts = match self.takes(extent) {
            true => self.hosts.iter(),
            false => [].iter(),
        };
        hosts
            .filter(move |host| !is_loaded || host.is_loaded())
            .map(move |host| self.entry_on(host, extent))
    }

    /// The entry of the kind of device that is ready first, and of those the cheapest.
    pub(crate) fn entry(&self, extent: Extent) -> Entry {
        let best = self.hosts.iter().min_by(|a, b| {
            let by_cost = || a.cost_per_1k_usd.total_cmp(&b.cost_per_1k_usd);
            a.readiness.cmp(&b.readiness).then_with(by_cost)
        });
        self.entry_on(best.expect("a variant has at least one host"), extent)
    }

    /// What was measured on the type of device where it runs, or else where it was registered.
    pub(crate) fn measured(&self) -> &Profile {
        let names = self
            .hosts
            .iter()
            .filter_map(|host| host.device_type.as_ref());
        let mut measured = names.filter_map(|name| self.variant.measured(name));
        measured.next().unwrap_or(&self.variant.profile)
    }

    /// Whether its engine takes a query of this size, as far as is known.
    pub(crate) fn takes(&self, extent: Extent) -> bool {
        self.limit.is_none_or(|limit| extent.size() <= limit)
    }

    /// Price of a thousand rows of queries of a size where that is least, US dollars.
    pub(crate) fn least_cost_per_1k_usd(&self, extent: Extent) -> f64 {
        let costs = self.entries(extent).map(|entry| entry.cost_per_1k_usd);
        costs.fold(f64::INFINITY, f64::min)
    }

    /// Time of a lone query of a size by the profile of where it was registered, ms.
    pub(crate) fn run_ms(&self, extent: Extent) -> f64 {
        let sized = self.surface.as_ref().filter(|_| extent.size() > 0);
        let run = sized.map(|surface| surface.of(1, extent.size()));
        run.unwrap_or_else(|| self.latency.of(1)) as f64 / 1e6
    }

    /// The type of a kind of device, where its workers say so.
    pub(crate) fn type_of(&self, kind: u32) -> Option<&DeviceTypeName> {
        let host = self.hosts.iter().find(|host| host.kind == kind);
        host?.device_type.as_ref()
    }

    /// Whether what is expected of a query of this size on a kind of device was not measured.
    pub(crate) fn is_estimated(&self, kind: u32, extent: Extent) -> bool {
        let host = self.hosts.iter().find(|host| host.kind == kind);
        host.is_some_and(|host| {
            let name = host.device_type.as_ref();
            let elsewhere = name.is_some_and(|name| self.variant.measured(name).is_none());
            let surface = host.surface.as_ref().filter(|_| extent.size() > 0);
            elsewhere || surface.is_some_and(|surface| surface.is_beyond(extent.size()))
        })
    }

    fn entry_on(&self, host: &Host, extent: Extent) -> Entry {
        let variant = &self.variant;
        Entry {
            ordinal: self.ordinal,
            kind: host.kind,
            quality_bound: variant.accuracy.quality_bound(),
            latency_ms: host.run(1, extent).saturating_add(self.round_trip) as f64 / 1e6,
            load_ms: host.load_ms,
            cost_per_1k_usd: host.cost_per_1k_usd * host.share(extent, self.size),
            max_rows: self.max_rows(),
            dominated: variant.dominated_by.is_some(),
            readiness: host.readiness,
        }
    }

    /// A kind of device that has its engine, for the controller. One of which nothing is known runs it
    /// as it ran where it was registered.
    pub(crate) fn on_kind(&self, kind: u32) -> OnKind {
        let host = self.hosts.iter().find(|host| host.kind == kind);
        let elsewhere = host.filter(|host| !host.measured_here);
        OnKind {
            kind,
            latency: elsewhere.map(|host| host.latency.clone()),
            surface: elsewhere.and_then(|host| host.surface.clone()),
            load: host.map_or(0, |host| nanos(host.load_ms)),
            price: host.map_or(DEFAULT_SLOT_HOUR_USD, |host| host.slot_hour_usd) as f32,
        }
    }

    pub(crate) fn max_rows(&self) -> u32 {
        u32::from(self.variant.spec.max_batch.max(1))
    }

    /// What the controller needs to know of it, for pages of `page_bytes` and these kinds of devices
    /// that can run it. Variants with the same `weights` hold them once.
    pub(crate) fn model_spec(
        &self,
        config: &Config,
        page_bytes: u64,
        weights: u32,
        kinds: Vec<OnKind>,
    ) -> ModelSpec {
        let profile = &self.variant.profile;
        let pages =
            |bytes: u64| u32::try_from(bytes.div_ceil(page_bytes.max(1))).unwrap_or(u32::MAX);
        let session = profile
            .peak_memory_bytes
            .saturating_sub(profile.weights_bytes);
        ModelSpec {
            pages: pages(session),
            shared: Some(Shared {
                group: weights,
                pages: pages(profile.weights_bytes),
            }),
            load: nanos(profile.load_ms),
            queue: self.queue_spec(config),
            surface: self.surface.clone(),
            kinds,
        }
    }

    /// Its queue, with what the configuration says of its application.
    pub(crate) fn queue_spec(&self, config: &Config) -> QueueSpec {
        let tenant = config.tenants.get(&self.variant.application);
        let tenant = tenant.copied().unwrap_or_default();
        QueueSpec {
            max_rows: self.max_rows(),
            batched: self.variant.signature.batched,
            slots: self.variant.spec.threads.max(1),
            latency: self.latency.clone(),
            max_waiting_rows: config.max_waiting_rows,
            priority: tenant.priority,
            weight: tenant.weight,
            price: 1.0,
        }
    }
}

/// The best state of the instances decides, and where nothing is loaded whether a worker of `hosts`
/// may still do so.
fn readiness(instances: &[(usize, InstanceState)], hosts: &[usize]) -> Readiness {
    let of = |state: InstanceState| match state {
        // How long runs take there now is known; another variant is slowed down as much.
        InstanceState::Active | InstanceState::Interfered => Readiness::Active,
        InstanceState::Overloaded => Readiness::Degraded,
        InstanceState::Loading => Readiness::Loading,
        InstanceState::Failed => Readiness::Failed,
        InstanceState::Inactive | InstanceState::Draining => Readiness::Inactive,
    };
    let best = instances.iter().map(|(_, state)| of(*state)).min();
    let best = best.unwrap_or(Readiness::Failed);
    let has_failed = |at: &usize| instances.contains(&(*at, InstanceState::Failed));
    match best {
        Readiness::Failed if !hosts.iter().all(has_failed) => Readiness::Inactive,
        best => best,
    }
}

/// A variant on each kind of the workers that have its engine, sorted by kind.
fn hosts(
    variant: &Variant,
    instances: &[(usize, InstanceState)],
    able: &[Usable<'_>],
    around: &Surroundings<'_>,
) -> Vec<Host> {
    let mut by_kind: BTreeMap<u32, Vec<Usable<'_>>> = BTreeMap::new();
    for worker in able {
        by_kind.entry(worker.kind).or_default().push(*worker);
    }
    let hosts = by_kind.iter().filter_map(|(kind, workers)| {
        let name = workers.first()?.device_type;
        let positions: Vec<usize> = workers.iter().map(|worker| worker.at).collect();
        let here = instances.iter().filter(|(at, _)| positions.contains(at));
        let here: Vec<_> = here.copied().collect();
        let slowed = workers.first()?.slowed;
        let at = (*kind, readiness(&here, &positions));
        let host = Host::new(at, variant, (name, slowed), around);
        let serving = here.iter().filter(|(_, state)| state.is_serving());
        Some(Host {
            workers: serving.map(|(at, _)| *at).collect(),
            ..host
        })
    });
    let mut hosts: Vec<Host> = hosts.collect();
    if hosts.is_empty() {
        let readiness = readiness(instances, &[]);
        let (at, nobody) = ((NOWHERE, readiness), (None, false));
        hosts.push(Host::new(at, variant, nobody, around));
    }
    hosts
}

// === impl Host ===

impl Host {
    /// A worker that does not say its type is taken for one of where the variant was registered.
    fn new(
        (kind, readiness): (u32, Readiness),
        variant: &Variant,
        (name, slowed): (Option<&DeviceTypeName>, bool),
        around: &Surroundings<'_>,
    ) -> Self {
        let expected = name.map(|name| variant.expected(name, around.estimate_factor));
        let profile = expected.as_ref().map_or(&variant.profile, |it| &it.profile);
        let now = match slowed {
            true => profile.slowed(SLOWED),
            false => Cow::Borrowed(profile),
        };
        let facts = name.and_then(|name| around.types.get(name));
        let (threads, rps) = (variant.spec.threads, profile.saturation_rps);
        let cost = facts.map(|facts| facts.cost(threads, rps).per_1k_usd);
        Self {
            kind,
            device_type: name.cloned(),
            workers: Vec::new(),
            readiness,
            latency: latency_table(variant, &now),
            surface: surface(variant, &now),
            load_ms: profile.load_ms,
            cost_per_1k_usd: cost.unwrap_or(variant.cost_per_1k_usd),
            slot_hour_usd: facts.map_or(DEFAULT_SLOT_HOUR_USD, |facts| {
                facts.price_per_hour_usd / f64::from(facts.slots.max(1))
            }),
            measured_here: *now == variant.profile,
        }
    }

    fn is_loaded(&self) -> bool {
        matches!(self.readiness, Readiness::Active | Readiness::Degraded)
    }

    /// Run time of so many rows of the largest size of a query's class, ns.
    fn run(&self, rows: u32, extent: Extent) -> Nanos {
        match self.surface.as_ref().filter(|_| extent.size() > 0) {
            Some(surface) => surface.of(rows, extent.class_end()),
            None => self.latency.of(rows),
        }
    }

    /// How many times as much as at the measured size a row costs.
    fn share(&self, extent: Extent, measured: u64) -> f64 {
        let surface = self.surface.as_ref().filter(|_| extent.size() > 0);
        surface.map_or(1.0, |surface| surface.share(extent.class_end(), measured))
    }
}

/// The size of the longest query that a variant takes.
fn limit(variant: &Variant) -> Option<u64> {
    let dims = vec![variant.profile.sizes.longest?; variant.signature.dynamic_axes().count()];
    Some(variant.signature.row_elements(&dims))
}

/// Run times by rows and size, for a model whose queries come in several.
fn surface(variant: &Variant, profile: &Profile) -> Option<Surface> {
    let signature = &variant.signature;
    if profile.sizes.dims.is_empty() || !signature.is_dynamic() {
        return None;
    }
    let rows = u32::from(variant.spec.max_batch.max(1));
    let measured = (
        signature.row_elements(&profile.sizes.dims),
        latency_table(variant, profile),
    );
    let others = profile.sizes.shapes.iter().map(|shape| {
        let table = table(rows, |rows| shape.tail_latency_ms(rows));
        (signature.row_elements(&shape.dims), table)
    });
    Surface::new(std::iter::once(measured).chain(others).collect(), rows)
}

/// A profile's 99th percentiles as a table that never decreases.
fn latency_table(variant: &Variant, profile: &Profile) -> LatencyTable {
    let rows = u32::from(variant.spec.max_batch.max(1));
    table(rows, |rows| profile.tail_latency_ms(rows))
}

fn table(rows: u32, of: impl Fn(u32) -> f64) -> LatencyTable {
    let mut longest = 1;
    let table = (1..=rows).map(|rows| {
        longest = longest.max(nanos(of(rows)));
        longest
    });
    LatencyTable::new(table.collect()).expect("positive and never decreasing by the lines above")
}

fn nanos(ms: f64) -> Nanos {
    (ms.clamp(0.0, 1e12) * 1e6) as Nanos
}

// === LiveLoad ===

/// The state that selection reads while it chooses.
pub(crate) struct LiveLoad<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) driver: &'a Driver,
    /// The size of the query.
    pub(crate) extent: Extent,
    pub(crate) now: Nanos,
}

impl Load for LiveLoad<'_> {
    /// The wait where the variant would start first, and by how much its run now takes longer than
    /// profiled.
    fn wait_ms(&self, ordinal: u32, kind: u32) -> f64 {
        let of = (kind, self.extent.size());
        match self.driver.gauges().wait(ordinal, of, self.now) {
            NEVER => f64::INFINITY,
            wait => wait as f64 / 1e6,
        }
    }

    fn extra_ms(&self, ordinal: u32, kind: u32, rows: u32) -> f64 {
        if rows <= 1 {
            return 0.0;
        }
        let Some(known) = self.snapshot.known(ordinal) else {
            return f64::INFINITY;
        };
        let host = known.hosts.iter().find(|host| host.kind == kind);
        let rows = rows.min(known.max_rows());
        let run = |rows| match host {
            Some(host) => host.run(rows, self.extent),
            None => known.latency.of(rows),
        };
        run(rows).saturating_sub(run(1)) as f64 / 1e6
    }
}
