//! What is known of one variant, and of the variant on each kind of device.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use sextant_controller::{OnKind, VariantSpec};
use sextant_metadata::{DesiredState, InstanceState};
use sextant_placement::Shared;
use sextant_profile::Surface;
use sextant_schedule::{LatencyTable, Nanos, QueueSpec};
use sextant_selection::{Entry, Readiness};
use sextant_types::{
    DeviceTypeName, Profile, Quality, Variant,
    index::{ApplicationIx, DeviceIx, KindIx, VariantIx},
};

use super::{Surroundings, Usable};
use crate::{feasible::Terms, input_size::InputSize};

/// Price of a slot of a device that does not report its type: the price of a processor core that cloud providers rent
/// out, as in the default prices.
pub const DEFAULT_SLOT_HOUR_USD: f64 = 0.036;

/// How queries of a variant wait if nothing else is set for its application.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Queueing {
    /// Most rows that may wait.
    pub max_waiting_rows: u32,
    /// Queries of a higher priority go first, whatever the deadlines.
    pub priority: u8,
    /// The share of what is served if not everything can be served; 1 is normal.
    pub weight: f32,
}

/// One published variant.
pub struct IndexedVariant {
    /// Its number.
    pub ordinal: VariantIx,
    /// The number of its application.
    pub application: ApplicationIx,
    /// The variant as it was published.
    pub variant: Arc<Variant>,
    /// Its quality, as targets are compared with it.
    pub quality: Quality,
    /// How soon it could start on any device.
    pub readiness: Readiness,
    /// The states of its instances, by position.
    pub(super) instances: Vec<(DeviceIx, InstanceState)>,
    /// Positions of the workers that serve it.
    pub workers: Vec<DeviceIx>,
    /// 99th percentile of a batch's run time by rows, where it was registered.
    pub(super) latency: LatencyTable,
    /// The same by rows and size, if queries come in several sizes.
    pub(super) surface: Option<Surface>,
    /// The size at which `latency` and costs were measured.
    pub(super) size: u64,
    /// The largest size that its engine takes, if it is known.
    pub(super) limit: Option<u64>,
    /// The variant on each kind of device that has its engine. If no worker has it, one kind that is like the device
    /// where it was registered. Never empty.
    pub hosts: Vec<Host>,
    /// The time that messages add to a query on its way to a worker and back, ns.
    pub round_trip: Nanos,
}

/// A variant on a kind of device.
pub struct Host {
    /// The kind; `NOWHERE` if no worker has one.
    pub kind: KindIx,
    /// The type of its devices, if they report it.
    pub device_type: Option<DeviceTypeName>,
    /// Positions of the workers that serve it.
    pub workers: Vec<DeviceIx>,
    /// How soon it could start there.
    pub readiness: Readiness,
    /// 99th percentile of a batch's run time by rows.
    latency: LatencyTable,
    /// The same by rows and size, if queries come in several sizes.
    surface: Option<Surface>,
    /// Time of the next LOAD, ms. While no worker of the kind has had the variant, it is the time of a first LOAD.
    pub load_ms: f64,
    /// Time of a LOAD on a worker that had the variant before, ms.
    again_ms: f64,
    /// Price of a thousand rows at saturation there, US dollars.
    pub cost_per_1k_usd: f64,
    /// Price of a slot of such a device, US dollars an hour.
    pub slot_hour_usd: f64,
    /// Whether the variant was measured on this type of device.
    measured_here: bool,
}

/// Stands for a kind of device that no worker has.
const NOWHERE: KindIx = KindIx::new(u32::MAX);

/// The factor by which runs take longer on a worker that is slowed down, until they are measured there. At about this
/// factor instances begin to count as interfered.
const SLOWED: f64 = 2.0;

// === impl IndexedVariant ===

impl IndexedVariant {
    /// Made from the states of its instances by position, and from the workers that have its engine.
    pub(super) fn new(
        ordinal: VariantIx,
        variant: &Arc<Variant>,
        (instances, able): (&[(DeviceIx, InstanceState)], &[Usable<'_>]),
        around: &Surroundings<'_>,
    ) -> Self {
        let serving = instances.iter().filter(|(_, state)| state.is_serving());
        let workers: Vec<DeviceIx> = serving.map(|(at, _)| *at).collect();
        let positions: Vec<DeviceIx> = able.iter().map(|worker| worker.at).collect();
        Self {
            ordinal,
            application: ApplicationIx::new(0),
            variant: Arc::clone(variant),
            quality: variant.quality(variant.accuracy.quality_bound()),
            readiness: readiness(instances, &positions),
            instances: instances.to_vec(),
            workers,
            latency: latency_table(variant, &variant.profile),
            surface: surface(variant, &variant.profile),
            size: variant.signature.row_elements(&variant.profile.sizes.dims),
            limit: limit(variant),
            hosts: hosts(variant, instances, able, around),
            round_trip: around.round_trip,
        }
    }

    /// Whether it was made from these.
    pub(super) fn is_of(
        &self,
        variant: &Arc<Variant>,
        instances: &[(DeviceIx, InstanceState)],
        quality: Quality,
    ) -> bool {
        Arc::ptr_eq(&self.variant, variant)
            && self.instances == instances
            && self.quality == quality
    }

    /// The entries for selection, one for each kind of device. A variant that is loaded somewhere has entries only for
    /// the kinds where it is loaded, because a query must not cause a load on more devices, even of another kind.
    pub fn entries(&self, extent: InputSize) -> impl Iterator<Item = Entry> {
        let is_loaded = self.hosts.iter().any(Host::is_loaded);
        let hosts = match self.takes(extent) {
            true => self.hosts.iter(),
            false => [].iter(),
        };
        hosts
            .filter(move |host| !is_loaded || host.is_loaded())
            .map(move |host| self.entry_on(host, extent))
    }

    /// The number of devices on which it answers now.
    pub fn serving(&self) -> usize {
        let states = self.instances.iter();
        states.filter(|(_, state)| state.is_serving()).count()
    }

    /// The entry of the kind of device that is ready first. Among several, the cheapest.
    pub fn entry(&self, extent: InputSize) -> Entry {
        let best = self.hosts.iter().min_by(|a, b| {
            let by_cost = || a.cost_per_1k_usd.total_cmp(&b.cost_per_1k_usd);
            a.readiness.cmp(&b.readiness).then_with(by_cost)
        });
        self.entry_on(best.expect("a variant has at least one host"), extent)
    }

    /// The profile that was measured on the type of device where it runs, else where it was registered.
    pub fn measured(&self) -> &Profile {
        let names = self
            .hosts
            .iter()
            .filter_map(|host| host.device_type.as_ref());
        let mut measured = names.filter_map(|name| self.variant.measured(name));
        measured.next().unwrap_or(&self.variant.profile)
    }

    /// How many rows of the size at which it was measured one row of this size is worth.
    pub fn rows_worth(&self, extent: InputSize) -> f64 {
        self.hosts
            .first()
            .map_or(1.0, |host| host.share(extent, self.size))
    }

    /// Time of its next LOAD on the kind where that is shortest, ms.
    pub fn load_ms(&self) -> f64 {
        let times = self.hosts.iter().map(|host| host.load_ms);
        times.fold(f64::INFINITY, f64::min)
    }

    /// Whether its engine takes a query of this size, as far as is known.
    pub fn takes(&self, extent: InputSize) -> bool {
        self.limit.is_none_or(|limit| extent.size() <= limit)
    }

    /// The lowest price of a thousand rows of queries of this size over all kinds, US dollars.
    pub fn least_cost_per_1k_usd(&self, extent: InputSize) -> f64 {
        let costs = self.entries(extent).map(|entry| entry.cost_per_1k_usd);
        costs.fold(f64::INFINITY, f64::min)
    }

    /// Time of a lone query of this size by the profile from the registration, ms.
    pub fn run_ms(&self, extent: InputSize) -> f64 {
        let sized = self.surface.as_ref().filter(|_| extent.size() > 0);
        let run = sized.map(|surface| surface.of(1, extent.size()));
        run.unwrap_or_else(|| self.latency.of(1)) as f64 / 1e6
    }

    /// Time of a batch of a query's size on a kind of device, ns. If the kind is not known, the time where it was
    /// registered.
    pub fn run_on(&self, kind: KindIx, rows: u32, extent: InputSize) -> Nanos {
        let host = self.hosts.iter().find(|host| host.kind == kind);
        host.map_or_else(|| self.latency.of(rows), |host| host.run(rows, extent))
    }

    /// The type of a kind of device, if its workers report it.
    pub fn type_of(&self, kind: KindIx) -> Option<&DeviceTypeName> {
        let host = self.hosts.iter().find(|host| host.kind == kind);
        host?.device_type.as_ref()
    }

    /// Whether the expected time of a query of this size on a kind of device is estimated, not measured.
    pub fn is_estimated(&self, kind: KindIx, extent: InputSize) -> bool {
        let host = self.hosts.iter().find(|host| host.kind == kind);
        host.is_some_and(|host| {
            let name = host.device_type.as_ref();
            let elsewhere = name.is_some_and(|name| self.variant.measured(name).is_none());
            let surface = host.surface.as_ref().filter(|_| extent.size() > 0);
            elsewhere || surface.is_some_and(|surface| surface.is_beyond(extent.size()))
        })
    }

    fn entry_on(&self, host: &Host, extent: InputSize) -> Entry {
        let terms = Terms {
            variant: &self.variant,
            quality: self.quality,
            run_ms: host.run(1, extent) as f64 / 1e6,
            round_trip: self.round_trip,
            load_ms: host.load_ms,
            cost_per_1k_usd: host.cost_per_1k_usd * host.share(extent, self.size),
        };
        terms.entry((self.ordinal, host.kind), host.readiness)
    }

    /// A kind of device that has its engine, for the controller. A kind that is not known runs it as the device where
    /// it was registered. `desired` may limit its batches there.
    pub fn on_kind(&self, kind: KindIx, desired: Option<&DesiredState>) -> OnKind {
        let host = self.hosts.iter().find(|host| host.kind == kind);
        let elsewhere = host.filter(|host| !host.measured_here);
        let planned = desired.zip(self.type_of(kind));
        let planned = planned.and_then(|(of, name)| of.planned_rows(&self.variant.id, name));
        OnKind {
            kind,
            latency: elsewhere.map(|host| host.latency.clone()),
            surface: elsewhere.and_then(|host| host.surface.clone()),
            load: host.map_or(0, |host| nanos(host.again_ms)),
            price: host.map_or(DEFAULT_SLOT_HOUR_USD, |host| host.slot_hour_usd) as f32,
            planned_rows: planned.unwrap_or(u32::MAX),
        }
    }

    /// The most rows of a batch.
    pub fn max_rows(&self) -> u32 {
        u32::from(self.variant.spec.max_batch.max(1))
    }

    /// The specification of the variant for the controller, for pages of `page_bytes` and these kinds of devices that
    /// can run it. Variants with the same `weights` hold them once.
    pub fn spec(
        &self,
        queueing: Queueing,
        page_bytes: u64,
        weights: u32,
        kinds: Vec<OnKind>,
    ) -> VariantSpec {
        let profile = &self.variant.profile;
        let pages =
            |bytes: u64| u32::try_from(bytes.div_ceil(page_bytes.max(1))).unwrap_or(u32::MAX);
        let session = profile
            .peak_memory_bytes
            .saturating_sub(profile.weights_bytes);
        VariantSpec {
            pages: pages(session),
            shared: Some(Shared {
                group: weights,
                pages: pages(profile.weights_bytes),
            }),
            load: nanos(profile.load_ms),
            first_load: nanos(profile.first_load_ms.unwrap_or(0.0)),
            queue: self.queue_spec(queueing),
            surface: self.surface.clone(),
            kinds,
        }
    }

    /// Its queue, with the settings of its application, or else those of `queueing`.
    pub fn queue_spec(&self, queueing: Queueing) -> QueueSpec {
        let set = &self.variant.resources;
        QueueSpec {
            max_rows: self.max_rows(),
            planned_rows: u32::MAX,
            batched: self.variant.shares_batches(),
            slots: self.variant.spec.threads.max(1),
            latency: self.latency.clone(),
            max_waiting_rows: queueing.max_waiting_rows,
            tenant: self.application.into(),
            priority: set.priority.unwrap_or(queueing.priority),
            weight: set.weight.map_or(queueing.weight, |weight| weight as f32),
            price: 1.0,
        }
    }
}

/// The readiness from the best state of the instances. If nothing is loaded, it depends on whether one of the workers
/// `hosts` may still load the variant.
fn readiness(instances: &[(DeviceIx, InstanceState)], hosts: &[DeviceIx]) -> Readiness {
    let of = |state: InstanceState| match state {
        // The run times there are already known to be longer, and another variant is slowed down just as much.
        InstanceState::Active | InstanceState::Interfered => Readiness::Active,
        InstanceState::Overloaded => Readiness::Degraded,
        InstanceState::Loading => Readiness::Loading,
        InstanceState::Failed => Readiness::Failed,
        InstanceState::Inactive | InstanceState::Draining => Readiness::Inactive,
    };
    let best = instances.iter().map(|(_, state)| of(*state)).min();
    let best = best.unwrap_or(Readiness::Failed);
    let has_failed = |at: &DeviceIx| instances.contains(&(*at, InstanceState::Failed));
    match best {
        Readiness::Failed if !hosts.iter().all(has_failed) => Readiness::Inactive,
        best => best,
    }
}

/// Whether one of the instances was loaded in this life of its worker, whatever happened to it later. An instance that
/// was refused for lack of room counts as loaded.
fn was_loaded(instances: &[(DeviceIx, InstanceState)]) -> bool {
    let mut states = instances.iter().map(|(_, state)| *state);
    states.any(|state| !matches!(state, InstanceState::Loading | InstanceState::Failed))
}

/// The variant on each kind of the workers that have its engine, sorted by kind.
fn hosts(
    variant: &Variant,
    instances: &[(DeviceIx, InstanceState)],
    able: &[Usable<'_>],
    around: &Surroundings<'_>,
) -> Vec<Host> {
    let mut by_kind: BTreeMap<KindIx, Vec<Usable<'_>>> = BTreeMap::new();
    for worker in able {
        by_kind.entry(worker.kind).or_default().push(*worker);
    }
    let hosts = by_kind.iter().filter_map(|(kind, workers)| {
        let name = workers.first()?.device_type;
        let positions: Vec<DeviceIx> = workers.iter().map(|worker| worker.at).collect();
        let here = instances.iter().filter(|(at, _)| positions.contains(at));
        let here: Vec<_> = here.copied().collect();
        let slowed = workers.first()?.slowed;
        let at = (*kind, readiness(&here, &positions), was_loaded(&here));
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
        let (at, nobody) = ((NOWHERE, readiness, false), (None, false));
        hosts.push(Host::new(at, variant, nobody, around));
    }
    hosts
}

// === impl Host ===

impl Host {
    /// A worker that does not report its type is taken for one of the type where the variant was registered.
    fn new(
        (kind, readiness, had): (KindIx, Readiness, bool),
        variant: &Variant,
        (name, slowed): (Option<&DeviceTypeName>, bool),
        around: &Surroundings<'_>,
    ) -> Self {
        let expected = name.map(|name| around.slowdowns.expected(variant, name));
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
            load_ms: match had {
                true => profile.load_ms,
                false => profile.first_ms(),
            },
            again_ms: profile.load_ms,
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

    /// Run time of this many rows of the largest size of a query's class, ns.
    pub fn run(&self, rows: u32, extent: InputSize) -> Nanos {
        match self.surface.as_ref().filter(|_| extent.size() > 0) {
            Some(surface) => surface.of(rows, extent.class_end()),
            None => self.latency.of(rows),
        }
    }

    /// The cost of a row relative to that of a row of the measured size.
    fn share(&self, extent: InputSize, measured: u64) -> f64 {
        let surface = self.surface.as_ref().filter(|_| extent.size() > 0);
        surface.map_or(1.0, |surface| surface.share(extent.class_end(), measured))
    }
}

/// The largest size of a query that a variant takes.
fn limit(variant: &Variant) -> Option<u64> {
    let dims = vec![variant.profile.sizes.longest?; variant.signature.dynamic_axes().count()];
    Some(variant.signature.row_elements(&dims))
}

/// Run times by rows and size, for a model whose queries come in several sizes.
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
        let table = LatencyTable::rising(rows, |rows| nanos(shape.tail_latency_ms(rows)));
        (signature.row_elements(&shape.dims), table)
    });
    Surface::new(std::iter::once(measured).chain(others).collect(), rows)
}

/// A profile's 99th percentiles as a table that never decreases.
fn latency_table(variant: &Variant, profile: &Profile) -> LatencyTable {
    let rows = u32::from(variant.spec.max_batch.max(1));
    LatencyTable::rising(rows, |rows| nanos(profile.tail_latency_ms(rows)))
}

fn nanos(ms: f64) -> Nanos {
    (ms.clamp(0.0, 1e12) * 1e6) as Nanos
}
