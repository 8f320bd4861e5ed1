//! The in-memory index: everything that a selection needs. It is rebuilt when the metadata changes. Parts that a change
//! does not concern are taken from the previous index.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, OnceLock},
};

use sextant_metadata::{DeviceTypes, InstanceState, View};
use sextant_schedule::Nanos;
use sextant_selection::{Entry, Index, Readiness, mark_dominated};
use sextant_types::{
    ApplicationId, DeviceTypeName, Digest, EngineName, ModelId, Precision, Quality, Releases,
    Route, Signature, Slowdowns, Variant, VariantId, WorkerId,
    index::{ApplicationIx, DeviceIx, IndexVec, KindIx, VariantIx},
    uploaded_qualities,
};

pub use self::known::{DEFAULT_SLOT_HOUR_USD, Host, IndexedVariant, Queueing};
use self::{basis::Basis, versions::Versions};
use crate::input_size::{CLASSES, InputSize};

mod basis;
mod known;
#[cfg(test)]
mod tests;
mod usual;
mod versions;

/// Numbers for variants, applications, weights and types of devices. They never change while the interner lives. Every
/// [`VariantIx`] of its owner is one of these.
#[derive(Debug, Default)]
pub struct Interner {
    ordinals: HashMap<VariantId, VariantIx>,
    names: IndexVec<VariantIx, VariantId>,
    applications: HashMap<ApplicationId, ApplicationIx>,
    weights: HashMap<(EngineName, Digest, Precision), u32>,
    types: HashMap<DeviceTypeName, u32>,
}

/// The inputs of a snapshot beside the store's view.
pub struct Surroundings<'a> {
    /// The workers that may be used.
    pub workers: BTreeMap<&'a WorkerId, Usable<'a>>,
    /// The device types of the fleet.
    pub types: &'a DeviceTypes,
    /// The time that messages add to a query, ns.
    pub round_trip: Nanos,
    /// The factors by which a variant takes longer on another type of device than on the one where it was measured,
    /// until it is measured there.
    pub slowdowns: Slowdowns,
}

/// A worker that may be used.
#[derive(Clone, Copy)]
pub struct Usable<'a> {
    /// Its position.
    pub at: DeviceIx,
    /// Its kind.
    pub kind: KindIx,
    /// The type of its device, if the worker reports it.
    pub device_type: Option<&'a DeviceTypeName>,
    /// Engines whose variants the worker runs.
    pub engines: &'a [EngineName],
    /// Whether something else slows it down but not the other workers of its kind.
    pub slowed: bool,
}

/// The variants that may answer an application or a model.
pub struct Scope {
    /// The application, by number and by name.
    application: (ApplicationIx, ApplicationId),
    members: Vec<Arc<IndexedVariant>>,
    index: Index,
    /// If queries come in several sizes: indices by class of size. The first query of a class makes its index.
    sized: Option<SizeClasses>,
    /// The least quality of answers to queries of a model that ask for none.
    usual_quality: Option<Quality>,
    /// The quality of the most accurate of its files as they were uploaded; `None` if no accuracy is known.
    uploaded_quality: Option<f64>,
    /// Inputs and outputs.
    pub signature: Signature,
}

/// Indices of one scope by class of size.
struct SizeClasses {
    /// The entries that are treated as dominated.
    dominated: BTreeSet<(VariantIx, KindIx)>,
    classes: Box<[OnceLock<Box<Index>>]>,
}

/// The index at one moment.
#[derive(Default)]
pub struct Snapshot {
    /// By ordinal; `None` if a variant was retired.
    known: IndexVec<VariantIx, Option<Arc<IndexedVariant>>>,
    by_variant: HashMap<VariantId, VariantIx>,
    applications: HashMap<ApplicationId, Arc<Scope>>,
    models: HashMap<ModelId, Arc<Scope>>,
    versions: Versions,
    /// The facts by which its variants were judged.
    basis: Basis,
}

impl Interner {
    /// The number of a variant. A variant that is new gets a new number.
    pub fn ordinal(&mut self, variant: &VariantId) -> VariantIx {
        if let Some(known) = self.ordinals.get(variant) {
            return *known;
        }
        let next = self.names.push(variant.clone());
        self.ordinals.insert(variant.clone(), next);
        next
    }

    /// The number of a variant, if it has one.
    pub fn number(&self, variant: &VariantId) -> Option<VariantIx> {
        self.ordinals.get(variant).copied()
    }

    /// The variant that has this number.
    pub fn name(&self, variant: VariantIx) -> Option<&VariantId> {
        self.names.get(variant)
    }

    /// The number of an application. An application that is new gets a new number.
    pub fn application(&mut self, application: &ApplicationId) -> ApplicationIx {
        let next = ApplicationIx::new(self.applications.len() as u32);
        *self.applications.entry(application.clone()).or_insert(next)
    }

    /// The number of a type of device. A type that is new gets a new number.
    pub fn device_type(&mut self, name: &DeviceTypeName) -> u32 {
        let next = self.types.len() as u32;
        *self.types.entry(name.clone()).or_insert(next)
    }

    /// The number of a variant's weights. Other variants may have the same weights.
    pub fn weights(&mut self, variant: &Variant) -> u32 {
        let next = self.weights.len() as u32;
        let spec = &variant.spec;
        let key = (spec.engine.clone(), variant.artefact, spec.precision);
        *self.weights.entry(key).or_insert(next)
    }
}

impl Snapshot {
    /// Builds the index from the store's view. Takes what has not changed from `before`.
    pub fn build(
        view: &View,
        around: &Surroundings<'_>,
        interner: &mut Interner,
        before: &Self,
    ) -> Self {
        let states = states(view, around);
        let able = able(&around.workers);
        let uploaded = uploaded_qualities(view.variants.values().map(|it| &**it));
        let variants = view.variants.values();
        let released = variants.map(|it| (&it.application, &it.model, &it.release));
        let mut snapshot = Self {
            basis: Basis::new(around, &able),
            versions: Versions::new(Releases::of(released)),
            ..Self::default()
        };
        let kept = snapshot.basis.same_engines(&before.basis);
        for variant in view.variants.values() {
            let instances = states.get(&variant.id).map_or(&[][..], Vec::as_slice);
            let able = able.get(&variant.spec.engine);
            let able = able.map_or(&[][..], Vec::as_slice);
            let ordinal = interner.ordinal(&variant.id);
            let of_file = uploaded.get(&variant.model).copied();
            let of_file = of_file.unwrap_or_else(|| variant.accuracy.quality_bound());
            let quality = variant.quality(of_file);
            let known = before.known(ordinal).filter(|known| {
                kept.contains(&variant.spec.engine) && known.is_of(variant, instances, quality)
            });
            snapshot.insert(known.cloned().unwrap_or_else(|| {
                Arc::new(IndexedVariant {
                    quality,
                    application: interner.application(&variant.application),
                    ..IndexedVariant::new(ordinal, variant, (instances, able), around)
                })
            }));
        }
        snapshot.index_scopes(before);
        snapshot
    }

    /// A published variant by its number.
    pub fn known(&self, ordinal: VariantIx) -> Option<&Arc<IndexedVariant>> {
        self.known.known(ordinal)
    }

    /// A published variant.
    pub fn variant(&self, id: &VariantId) -> Option<&Arc<IndexedVariant>> {
        self.known(*self.by_variant.get(id)?)
    }

    /// The scope of an application.
    pub fn application(&self, id: &ApplicationId) -> Option<&Scope> {
        self.applications.get(id).map(Arc::as_ref)
    }

    /// The scope of a model.
    pub fn model(&self, reference: &ModelId) -> Option<&Scope> {
        self.model_exactly(self.versions.model(reference)?)
    }

    /// The application that a route belongs to, by number and by name.
    pub fn application_of(&self, route: &Route) -> Option<(ApplicationIx, &ApplicationId)> {
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

    /// How many rows of the measured size one row of a query is worth.
    pub fn rows_worth(&self, route: &Route, extent: InputSize) -> f64 {
        let worth = match route {
            Route::Application(id) => self.application(id).map(|it| it.rows_worth(extent)),
            Route::Model(id) => self.model(id).map(|it| it.rows_worth(extent)),
            Route::Variant(id) => self.variant(id).map(|it| it.rows_worth(extent)),
        };
        worth.unwrap_or(1.0)
    }

    /// Every published variant, by ordinal.
    pub fn all(&self) -> impl Iterator<Item = &Arc<IndexedVariant>> {
        self.known.iter().flatten()
    }

    /// Whether `route` can be answered: a variant of it is loaded, or a worker can load one.
    pub fn is_ready(&self, route: &Route) -> bool {
        self.any(route, |readiness| readiness != Readiness::Failed)
    }

    /// Whether an instance answers for `route` now.
    pub fn is_loaded(&self, route: &Route) -> bool {
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

    fn insert(&mut self, known: Arc<IndexedVariant>) {
        self.by_variant
            .insert(known.variant.id.clone(), known.ordinal);
        let ordinal = known.ordinal;
        *self.known.grown(ordinal) = Some(known);
    }

    fn index_scopes(&mut self, before: &Self) {
        let mut groups: IndexVec<ApplicationIx, Vec<Arc<IndexedVariant>>> = IndexVec::default();
        for known in self.known.iter().flatten() {
            groups.grown(known.application).push(Arc::clone(known));
        }
        for members in groups.iter().filter(|members| !members.is_empty()) {
            self.index_application(members, before);
        }
    }

    /// Indexes an application with all its variants, and its models.
    fn index_application(&mut self, members: &[Arc<IndexedVariant>], before: &Self) {
        let application = &members[0].variant.application;
        let answering = self.versions.answering(members);
        let known = before.applications.get(application);
        let known = known.filter(|known| known.is_of(&answering)).cloned();
        let answers = |known: &IndexedVariant| self.versions.answers(&known.variant.model);
        let scope = known.or_else(|| self.scope(answering, answers).map(Arc::new));
        self.applications
            .extend(scope.map(|scope| (application.clone(), scope)));
        let mut models: BTreeMap<&ModelId, Vec<Arc<IndexedVariant>>> = BTreeMap::new();
        for known in members {
            let of_model = models.entry(&known.variant.model).or_default();
            of_model.push(Arc::clone(known));
        }
        for (model, members) in models {
            let known = before.models.get(model);
            let known = known.filter(|known| known.is_of(&members)).cloned();
            let scope = known.or_else(|| self.model_scope(model, members).map(Arc::new));
            self.models
                .extend(scope.map(|scope| (model.clone(), scope)));
        }
    }

    fn model_scope(&self, model: &ModelId, members: Vec<Arc<IndexedVariant>>) -> Option<Scope> {
        let usual_quality = usual::usual_quality(&members);
        let scope = self.scope(members, |known| known.variant.model == *model)?;
        Some(Scope {
            usual_quality,
            ..scope
        })
    }

    /// The index of `members`, which include all variants of their application for which `within` is true. The
    /// registration says which variants are dominated, among all variants of the application. If the dominator of a
    /// variant is not a member or cannot be loaded, the variant is judged again among these.
    fn scope(
        &self,
        members: Vec<Arc<IndexedVariant>>,
        within: impl Fn(&IndexedVariant) -> bool,
    ) -> Option<Scope> {
        let first = members.first()?;
        let signature = first.variant.signature.clone();
        let holds = |id: &VariantId| {
            let known = self.variant(id);
            known.is_some_and(|known| known.readiness != Readiness::Failed && within(known))
        };
        let (mut unsure, mut entries) = (Vec::new(), Vec::with_capacity(members.len()));
        for known in &members {
            let dominator = known.variant.dominated_by.as_ref();
            let first = entries.len();
            entries.extend(known.entries(InputSize::default()));
            if dominator.is_some_and(|dominator| !holds(dominator)) {
                unsure.extend(first..entries.len());
            }
        }
        if !unsure.is_empty() {
            mark_dominated(&mut entries, &unsure);
        }
        let sized = signature.is_dynamic().then(|| SizeClasses::new(&entries));
        Some(Scope {
            application: (first.application, first.variant.application.clone()),
            index: Index::new(entries),
            sized,
            usual_quality: None,
            uploaded_quality: usual::reference(&members),
            signature,
            members,
        })
    }
}

// === impl Scope ===

impl Scope {
    /// The number of the application.
    pub fn number(&self) -> ApplicationIx {
        self.application.0
    }

    /// Whether it was made from these variants.
    fn is_of(&self, members: &[Arc<IndexedVariant>]) -> bool {
        let mut pairs = self.members.iter().zip(members);
        self.members.len() == members.len() && pairs.all(|(one, other)| Arc::ptr_eq(one, other))
    }

    /// The length above which no variant takes a query of this size; `None` if one does.
    pub fn limit(&self, extent: InputSize) -> Option<u64> {
        self.sized.as_ref()?;
        let longest = self.members.iter().map(|known| match known.takes(extent) {
            true => None,
            false => known.variant.profile.sizes.longest,
        });
        longest.collect::<Option<Vec<u64>>>()?.into_iter().max()
    }

    /// How many rows of the measured size one row of this size is worth.
    pub fn rows_worth(&self, extent: InputSize) -> f64 {
        let first = self.members.first();
        first.map_or(1.0, |known| known.rows_worth(extent))
    }

    /// The index of the variants that may answer a query of this size.
    pub fn index_at(&self, extent: InputSize) -> &Index {
        let sized = self.sized.as_ref().zip(extent.class());
        let cell = sized.and_then(|(sized, class)| Some((sized, sized.classes.get(class)?)));
        match cell {
            Some((sized, cell)) => {
                cell.get_or_init(|| Box::new(sized.index(&self.members, extent)))
            }
            None => &self.index,
        }
    }
}

// === impl SizeClasses ===

impl SizeClasses {
    fn new(entries: &[Entry]) -> Self {
        let dominated = entries.iter().filter(|entry| entry.dominated);
        Self {
            dominated: dominated.map(|of| (of.ordinal, of.kind)).collect(),
            classes: (0..CLASSES).map(|_| OnceLock::new()).collect(),
        }
    }

    fn index(&self, members: &[Arc<IndexedVariant>], extent: InputSize) -> Index {
        let entries = members.iter().flat_map(|known| known.entries(extent));
        let entries = entries.map(|entry| Entry {
            dominated: self.dominated.contains(&(entry.ordinal, entry.kind)),
            ..entry
        });
        Index::new(entries.collect())
    }
}

/// The instances of each variant on workers that may be used. If one of them is overloaded, its device is full, so all
/// instances that serve on it count as overloaded.
fn states<'a>(
    view: &'a View,
    around: &Surroundings<'_>,
) -> BTreeMap<&'a VariantId, Vec<(DeviceIx, InstanceState)>> {
    let instances = || {
        let all = view.instances.values();
        all.filter_map(|of| Some((of, around.workers.get(&of.key.worker)?.at)))
    };
    let overloaded = instances().filter(|(of, _)| of.state == InstanceState::Overloaded);
    let full: BTreeSet<DeviceIx> = overloaded.map(|(_, at)| at).collect();
    let mut states: BTreeMap<&VariantId, Vec<(DeviceIx, InstanceState)>> = BTreeMap::new();
    for (instance, at) in instances() {
        let state = match instance.state.is_serving() && full.contains(&at) {
            true => InstanceState::Overloaded,
            false => instance.state,
        };
        let of = states.entry(&instance.key.variant).or_default();
        of.push((at, state));
    }
    states
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
