//! The in-memory index: everything a selection needs, rebuilt when the metadata changes.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use sextant_metadata::{InstanceState, View};
use sextant_policies::{
    placement::{ResidentModel, Shared},
    schedule::{LatencyTable, Nanos, QueueSpec},
    select::{Entry, Index, Load, Readiness},
};
use sextant_rpc::Route;
use sextant_types::{
    ApplicationId, Digest, EngineName, ModelId, Precision, Signature, Variant, VariantId, WorkerId,
};

use crate::{Config, driver::Driver, families::Families};

/// Numbers for variants that never change while the dispatcher lives.
#[derive(Default)]
pub(crate) struct Interner {
    ordinals: HashMap<VariantId, u32>,
    weights: HashMap<(EngineName, Digest, Precision), u32>,
}

/// One published variant.
pub(crate) struct Known {
    pub(crate) ordinal: u32,
    pub(crate) variant: Arc<Variant>,
    pub(crate) readiness: Readiness,
    /// Positions of the workers that serve it.
    pub(crate) workers: Vec<usize>,
    /// 99th percentile of a batch by rows.
    pub(crate) latency: LatencyTable,
    /// What messages cost a query on its way to a worker and back, ns.
    pub(crate) round_trip: Nanos,
}

/// What may answer an application or a model.
pub(crate) struct Scope {
    pub(crate) index: Index,
    pub(crate) signature: Signature,
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
    fn ordinal(&mut self, variant: &VariantId) -> u32 {
        let next = self.ordinals.len() as u32;
        *self.ordinals.entry(variant.clone()).or_insert(next)
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
    /// Builds the index from the store's view. `positions` has the workers that may be used,
    /// `round_trip` is what messages cost a query, ns.
    pub(crate) fn build(
        view: &View,
        positions: &BTreeMap<&WorkerId, usize>,
        round_trip: Nanos,
        interner: &mut Interner,
    ) -> Self {
        let mut states: BTreeMap<&VariantId, Vec<(usize, InstanceState)>> = BTreeMap::new();
        for instance in view.instances.values() {
            if let Some(at) = positions.get(&instance.key.worker) {
                states
                    .entry(&instance.key.variant)
                    .or_default()
                    .push((*at, instance.state));
            }
        }
        let mut snapshot = Self::default();
        for variant in view.variants.values() {
            let instances = states.get(&variant.id).map_or(&[][..], Vec::as_slice);
            let known = Known::new(interner.ordinal(&variant.id), variant, instances);
            snapshot.insert(Known {
                round_trip,
                ..known
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

    /// Every published variant, by ordinal.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Known>> {
        self.known.iter().flatten()
    }

    /// Whether an instance answers for `route` now.
    pub(crate) fn is_ready(&self, route: &Route) -> bool {
        let serving = |scope: Option<&Scope>| {
            scope.is_some_and(|scope| {
                scope
                    .index
                    .entries()
                    .iter()
                    .any(|entry| is_serving(entry.readiness))
            })
        };
        match route {
            Route::Application(id) => serving(self.application(id)),
            Route::Model(id) => serving(self.model(id)),
            Route::Variant(id) => self
                .variant(id)
                .is_some_and(|known| is_serving(known.readiness)),
        }
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
        self.applications = applications.into_iter().filter_map(scope).collect();
        self.models = models.into_iter().filter_map(scope).collect();
    }
}

fn scope<K>((key, members): (K, Vec<Arc<Known>>)) -> Option<(K, Scope)> {
    let signature = members.first()?.variant.signature.clone();
    let entries = members.iter().map(|known| known.entry()).collect();
    Some((
        key,
        Scope {
            index: Index::new(entries),
            signature,
        },
    ))
}

fn is_serving(readiness: Readiness) -> bool {
    matches!(readiness, Readiness::Active | Readiness::Degraded)
}

// === impl Known ===

impl Known {
    fn new(ordinal: u32, variant: &Arc<Variant>, instances: &[(usize, InstanceState)]) -> Self {
        let workers = instances
            .iter()
            .filter(|(_, state)| state.is_serving())
            .map(|(at, _)| *at)
            .collect();
        Self {
            ordinal,
            variant: Arc::clone(variant),
            readiness: readiness(instances),
            workers,
            latency: latency_table(variant),
            round_trip: 0,
        }
    }

    pub(crate) fn entry(&self) -> Entry {
        let variant = &self.variant;
        Entry {
            ordinal: self.ordinal,
            quality_bound: variant.accuracy.quality_bound(),
            latency_ms: self.latency.of(1).saturating_add(self.round_trip) as f64 / 1e6,
            load_ms: variant.profile.load_ms,
            cost_per_1k_usd: variant.cost_per_1k_usd,
            max_rows: self.max_rows(),
            dominated: variant.dominated_by.is_some(),
            readiness: self.readiness,
        }
    }

    pub(crate) fn max_rows(&self) -> u32 {
        u32::from(self.variant.spec.max_batch.max(1))
    }

    /// What the placement needs to know of it, for pages of `page_bytes`.
    /// Variants with the same `weights` hold them once.
    pub(crate) fn resident_model(
        &self,
        config: &Config,
        page_bytes: u64,
        weights: u32,
    ) -> ResidentModel {
        let profile = &self.variant.profile;
        let pages =
            |bytes: u64| u32::try_from(bytes.div_ceil(page_bytes.max(1))).unwrap_or(u32::MAX);
        let session = profile
            .peak_memory_bytes
            .saturating_sub(profile.weights_bytes);
        ResidentModel {
            pages: pages(session),
            shared: Some(Shared {
                group: weights,
                pages: pages(profile.weights_bytes),
            }),
            load: (profile.load_ms.clamp(0.0, 1e12) * 1e6) as Nanos,
            pinned: false,
            queue: self.queue_spec(config),
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
        }
    }
}

/// The best state of the instances decides.
fn readiness(instances: &[(usize, InstanceState)]) -> Readiness {
    let of = |state: InstanceState| match state {
        InstanceState::Active => Readiness::Active,
        InstanceState::Overloaded | InstanceState::Interfered => Readiness::Degraded,
        InstanceState::Loading => Readiness::Loading,
        InstanceState::Failed => Readiness::Failed,
        InstanceState::Inactive | InstanceState::Draining => Readiness::Inactive,
    };
    instances
        .iter()
        .map(|(_, state)| of(*state))
        .min()
        .unwrap_or(Readiness::Inactive)
}

/// The profile's 99th percentiles as a table that never decreases.
fn latency_table(variant: &Variant) -> LatencyTable {
    let mut longest = 1;
    let nanos = (1..=u32::from(variant.spec.max_batch.max(1)))
        .map(|rows| {
            let ms = variant.profile.tail_latency_ms(rows).clamp(0.0, 1e12);
            longest = longest.max((ms * 1e6) as Nanos);
            longest
        })
        .collect();
    LatencyTable::new(nanos).expect("positive and never decreasing by the lines above")
}

// === LiveLoad ===

/// The state that selection reads while it chooses.
pub(crate) struct LiveLoad<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) driver: &'a Driver,
    pub(crate) now: Nanos,
}

impl Load for LiveLoad<'_> {
    /// The wait at the worker on which the variant would start first, and by how much its run now
    /// takes longer than profiled.
    fn wait_ms(&self, ordinal: u32) -> f64 {
        let Some(known) = self.snapshot.known(ordinal) else {
            return f64::INFINITY;
        };
        let gauges = self.driver.gauges();
        let waits = known.workers.iter().map(|at| gauges.wait(*at, self.now));
        let excess = gauges.excess(ordinal);
        waits.min().map_or(f64::INFINITY, |wait| {
            wait.saturating_add(excess) as f64 / 1e6
        })
    }

    fn extra_ms(&self, ordinal: u32, rows: u32) -> f64 {
        if rows <= 1 {
            return 0.0;
        }
        let Some(known) = self.snapshot.known(ordinal) else {
            return f64::INFINITY;
        };
        let rows = rows.min(known.max_rows());
        (known.latency.of(rows) - known.latency.of(1)) as f64 / 1e6
    }
}
