//! What queries need to know about applications, in memory: the hot path reads no store.
//!
//! A handler that changes an application or a model reads it again. All of them are read at the start and from time to
//! time, because other processes make changes.

use std::collections::{BTreeMap, HashMap};

use parking_lot::{Mutex, RwLock};
use sextant_registry::{Application, Error, Model, ModelStatus, Registry};
use sextant_types::{
    ApplicationId, Code, Digest, Metric, ModelId, Release, Releases, Route, Stage, Targets,
    VariantId,
};

use crate::{codec::short, problem::Problem, targets::TargetsBody};

/// Digits of a file's digest that distinguish it from others.
const DIGITS: usize = 16;

/// Most letters in which a misspelt name differs.
const MOST_EDITS: usize = 2;

/// Metric, default targets and presets of applications, also by model, and the owners of models and variants.
#[derive(Debug, Default)]
pub struct Directory {
    entries: RwLock<Entries>,
    /// Owners that were looked up since the last reading.
    owners: Mutex<Owners>,
}

#[derive(Debug, Default)]
struct Entries {
    applications: HashMap<ApplicationId, ApplicationEntry>,
    models: BTreeMap<ModelId, ModelEntry>,
    /// Resolves references to the models.
    releases: Releases,
    /// Number of an application's models whose registration has succeeded. The application can be asked if there is
    /// one.
    ready: HashMap<ApplicationId, usize>,
    /// Number of applications that accept feedback.
    taking: usize,
}

/// A model.
#[derive(Debug)]
struct ModelEntry {
    application: ApplicationId,
    release: Release,
    /// The digest of its file.
    digest: Digest,
    is_ready: bool,
}

#[derive(Debug, Default)]
struct Owners {
    models: HashMap<ModelId, ApplicationId>,
    variants: HashMap<VariantId, ApplicationId>,
}

#[derive(Debug)]
struct ApplicationEntry {
    metric: Metric,
    defaults: Targets,
    presets: BTreeMap<String, Targets>,
    takes_feedback: bool,
}

/// What was looked up, or `None` if it does not exist.
fn found<T>(result: Result<T, Error>, missing: Code) -> Result<Option<T>, Error> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.code() == missing => Ok(None),
        Err(error) => Err(error),
    }
}

/// Targets, completed by those of `others` where they demand nothing.
fn fill(targets: Targets, others: &Targets) -> Targets {
    // A query that demands accuracy in one form does not get the default of the other form.
    let (min_quality, min_relative_accuracy) =
        match (targets.min_quality, targets.min_relative_accuracy) {
            (None, None) => (others.min_quality, others.min_relative_accuracy),
            own => own,
        };
    Targets {
        latency_ms: targets.latency_ms.or(others.latency_ms),
        min_quality,
        min_relative_accuracy,
        min_agreement: None,
        max_cost_per_1k_usd: targets.max_cost_per_1k_usd.or(others.max_cost_per_1k_usd),
        prefer: targets.prefer.or(others.prefer),
    }
}

/// The nearest known name, if it is near; the first of equally near ones.
fn near<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let edits = |other: &str| strsim::damerau_levenshtein(name, other);
    let nearest = known
        .filter(|other| *other != name)
        .map(|other| (edits(other), other))
        .min()
        .filter(|(edits, other)| *edits <= MOST_EDITS && *edits < other.len());
    nearest.map(|(_, other)| other)
}

fn no_preset(name: &str, known: &BTreeMap<String, Targets>) -> Problem {
    let name = short(name);
    let names: Vec<&str> = known.keys().map(String::as_str).collect();
    let detail = match names.is_empty() {
        true => format!(
            "there is no preset `{name}`: what the query names has none, and a variant never has"
        ),
        false => format!("there is no preset `{name}`: use `{}`", names.join("`, `")),
    };
    Problem::new(Code::InvalidTarget, detail).field("preset")
}

// === impl Entries ===

impl Entries {
    fn new(applications: Vec<Application>, models: Vec<Model>) -> Self {
        let applications = applications.into_iter();
        let mut entries = Self {
            applications: applications
                .map(|application| (application.id.clone(), ApplicationEntry::from(application)))
                .collect(),
            ..Self::default()
        };
        for model in models {
            entries.set_model(&model.id, Some(ModelEntry::from(&model)));
        }
        entries.name_models();
        entries.count_taking();
        entries
    }

    /// Updates what references resolve to, after a change of models.
    fn name_models(&mut self) {
        let models = self.models.iter();
        let named = models.map(|(id, it)| (&it.application, id, &it.release));
        self.releases = Releases::of(named);
    }

    /// The model that a reference resolves to.
    fn model(&self, reference: &ModelId) -> Option<&ModelEntry> {
        self.models.get(self.releases.model(reference)?)
    }

    fn count_taking(&mut self) {
        let all = self.applications.values();
        self.taking = all.filter(|known| known.takes_feedback).count();
    }

    /// The models that answer for an application now.
    fn answering<'e>(
        &'e self,
        application: &'e ApplicationId,
    ) -> impl Iterator<Item = (&'e ModelId, &'e ModelEntry)> {
        self.models.iter().filter(move |(_, it)| {
            it.is_ready && it.application == *application && it.release.stage == Stage::Current
        })
    }

    /// Replaces the entry of a model, or removes it if `now` is `None`.
    fn set_model(&mut self, id: &ModelId, now: Option<ModelEntry>) {
        if let Some(before) = self.models.remove(id)
            && before.is_ready
            && let Some(ready) = self.ready.get_mut(&before.application)
        {
            *ready -= 1;
            if *ready == 0 {
                self.ready.remove(&before.application);
            }
        }
        if let Some(now) = now {
            if now.is_ready {
                *self.ready.entry(now.application.clone()).or_default() += 1;
            }
            self.models.insert(id.clone(), now);
        }
    }

    /// The entry of the application that a route leads to; a route to a variant leads to none.
    fn of(&self, route: &Route) -> Option<(&ApplicationId, &ApplicationEntry)> {
        match route {
            Route::Application(id) => self.applications.get_key_value(id),
            Route::Model(id) => {
                let model = self.model(id)?;
                self.applications.get_key_value(&model.application)
            }
            Route::Variant(_) => None,
        }
    }
}

impl From<Application> for ApplicationEntry {
    fn from(application: Application) -> Self {
        Self {
            metric: application.metric,
            defaults: application.default_targets,
            presets: application.presets,
            takes_feedback: application.feedback.is_some(),
        }
    }
}

impl From<&Model> for ModelEntry {
    fn from(model: &Model) -> Self {
        Self {
            application: model.application.clone(),
            release: model.released(),
            digest: model.digest,
            is_ready: model.status == ModelStatus::Ready,
        }
    }
}

// === impl Directory ===

impl Directory {
    /// Reads everything from the registry; returns the applications that no longer exist.
    pub async fn read(&self, registry: &Registry) -> Result<Vec<ApplicationId>, Error> {
        let applications = registry.applications().await?;
        let now = Entries::new(applications, registry.models(None).await?);
        let before = std::mem::replace(&mut *self.entries.write(), now);
        *self.owners.lock() = Owners::default();
        let now = self.entries.read();
        let gone = before.applications.into_keys();
        Ok(gone
            .filter(|id| !now.applications.contains_key(id))
            .collect())
    }

    /// Reads one application again; returns whether it exists.
    pub async fn read_application(
        &self,
        registry: &Registry,
        id: &ApplicationId,
    ) -> Result<bool, Error> {
        let known = found(registry.application(id).await, Code::ApplicationNotFound)?;
        let is_there = known.is_some();
        let mut entries = self.entries.write();
        match known {
            Some(known) => drop(entries.applications.insert(id.clone(), known.into())),
            None => drop(entries.applications.remove(id)),
        }
        entries.count_taking();
        Ok(is_there)
    }

    /// Reads one model again, and its application if that is not known; returns whether the model exists.
    pub async fn read_model(&self, registry: &Registry, id: &ModelId) -> Result<bool, Error> {
        let model = found(registry.model(id).await, Code::ModelNotFound)?;
        if let Some(model) = &model
            && self.metric(&model.application).is_none()
        {
            self.read_application(registry, &model.application).await?;
        }
        let now = model.as_ref().map(ModelEntry::from);
        let mut entries = self.entries.write();
        entries.set_model(id, now);
        entries.name_models();
        drop(entries);
        *self.owners.lock() = Owners::default();
        Ok(model.is_some())
    }

    /// The application that a route belongs to; an unknown one is looked up once.
    pub async fn owner(&self, route: &Route, registry: &Registry) -> Result<ApplicationId, Error> {
        if let Some(owner) = self.known_owner(route) {
            return Ok(owner);
        }
        // Boxed, as everything large and rare on the way of a query: a query's future is moved as a whole.
        match route {
            Route::Application(id) => Ok(id.clone()),
            Route::Model(id) => {
                let model = Box::pin(registry.resolve(id)).await?;
                let owner = Box::pin(registry.model(&model)).await?.application;
                self.owners.lock().models.insert(id.clone(), owner.clone());
                Ok(owner)
            }
            Route::Variant(id) => {
                let owner = Box::pin(registry.variant(id)).await?.application;
                self.owners
                    .lock()
                    .variants
                    .insert(id.clone(), owner.clone());
                Ok(owner)
            }
        }
    }

    /// The application that a route belongs to, if it is known. It is for labels, which must not have names that
    /// clients made up.
    pub fn found(&self, route: &Route) -> Option<ApplicationId> {
        let entries = self.entries.read();
        entries.of(route).map(|(id, _)| id.clone())
    }

    /// Whether a model has that id.
    pub fn has_model(&self, name: &str) -> bool {
        let id = ModelId::new(name);
        id.is_ok_and(|id| self.entries.read().models.contains_key(&id))
    }

    /// Whether the registry says that the route's target can be asked. Always false for variants.
    pub fn is_registered(&self, route: &Route) -> bool {
        let entries = self.entries.read();
        match route {
            Route::Application(id) => entries.ready.contains_key(id),
            Route::Model(id) => entries.model(id).is_some_and(|it| it.is_ready),
            Route::Variant(_) => false,
        }
    }

    /// The number of the version that a reference names; `None` if the reference names all versions, or nothing.
    pub fn numbered(&self, reference: &ModelId) -> Option<u32> {
        let entries = self.entries.read();
        if entries.releases.whole(reference).is_some() {
            return None;
        }
        let model = entries.releases.model(reference)?;
        entries.models.get(model).map(|it| it.release.version)
    }

    /// The models that may answer a route at present, each with its file; for a variant, its name.
    pub fn followed(&self, route: &Route) -> Vec<String> {
        let entries = self.entries.read();
        let text = |(id, it): (&ModelId, &ModelEntry)| {
            let mut digest = it.digest.to_string();
            digest.truncate(DIGITS);
            format!("{id}#{digest}")
        };
        match route {
            Route::Application(application) => entries.answering(application).map(text).collect(),
            Route::Model(reference) => {
                let id = entries.releases.model(reference);
                let found = id.and_then(|id| entries.models.get_key_value(id));
                found.map(text).into_iter().collect()
            }
            Route::Variant(id) => vec![id.to_string()],
        }
    }

    /// The model whose classes name those of an answer to a route: the model that gave the answer. If a composite variant
    /// of the application answered, it is one of the application's models, which all have the same classes.
    pub fn classes_of(&self, route: &Route, answered: &ModelId) -> ModelId {
        let entries = self.entries.read();
        let other = match route {
            Route::Application(application) if !entries.models.contains_key(answered) => {
                entries.answering(application).next()
            }
            _ => None,
        };
        other.map_or(answered, |(id, _)| id).clone()
    }

    /// The number of a model's version, by the model's id.
    pub fn version(&self, model: &ModelId) -> Option<u32> {
        let entries = self.entries.read();
        entries.models.get(model).map(|it| it.release.version)
    }

    /// The probability that a model answers a query to a route.
    pub fn propensity(&self, route: &Route, model: &ModelId) -> f64 {
        let entries = self.entries.read();
        let line = match route {
            Route::Application(_) => entries.releases.line(model),
            Route::Model(reference) => entries.releases.whole(reference),
            Route::Variant(_) => None,
        };
        line.map_or(1.0, |line| line.propensity(model))
    }

    /// The names to use in place of a name that several applications have; `None` for any other name.
    pub fn ambiguity(&self, name: &ModelId) -> Option<String> {
        let entries = self.entries.read();
        if entries.releases.model(name).is_some() {
            return None;
        }
        let forms = entries.releases.applications_with(name);
        let forms: Vec<String> = forms.map(|of| format!("`{of}:{name}`")).collect();
        (forms.len() > 1).then(|| forms.join(" or "))
    }

    /// All applications, unordered.
    pub fn applications(&self) -> Vec<ApplicationId> {
        self.entries.read().applications.keys().cloned().collect()
    }

    /// The name that a route to nothing may have meant: one that differs from the route's in a letter or two.
    pub fn meant(&self, route: &Route) -> Option<String> {
        let entries = self.entries.read();
        let near = match route {
            Route::Application(id) => near(
                id.as_str(),
                entries.applications.keys().map(ApplicationId::as_str),
            ),
            Route::Model(id) => near(id.as_str(), entries.models.keys().map(ModelId::as_str)),
            Route::Variant(_) => None,
        };
        near.map(str::to_owned)
    }

    /// Whether any application accepts feedback.
    pub fn anybody_takes_feedback(&self) -> bool {
        self.entries.read().taking > 0
    }

    /// The models of applications that accept feedback, unordered.
    pub fn models_with_feedback(&self) -> Vec<ModelId> {
        let entries = self.entries.read();
        let takes = |id: &ApplicationId| {
            let known = entries.applications.get(id);
            known.is_some_and(|known| known.takes_feedback)
        };
        let models = entries
            .models
            .iter()
            .filter(|(_, model)| takes(&model.application));
        models.map(|(id, _)| id.clone()).collect()
    }

    /// Whether an application accepts feedback.
    pub fn takes_feedback(&self, application: &ApplicationId) -> bool {
        let entries = self.entries.read();
        let known = entries.applications.get(application);
        known.is_some_and(|known| known.takes_feedback)
    }

    /// The application that feedback on a model's answer to `route` belongs to, and its metric, if it accepts feedback.
    pub fn feedback_of(&self, route: &Route, model: &ModelId) -> Option<(ApplicationId, Metric)> {
        let entries = self.entries.read();
        if entries.taking == 0 {
            return None;
        }
        let id = match route {
            Route::Application(id) => id,
            Route::Model(_) | Route::Variant(_) => &entries.models.get(model)?.application,
        };
        let known = entries.applications.get(id)?;
        known.takes_feedback.then(|| (id.clone(), known.metric))
    }

    /// The metric of an application.
    pub fn metric(&self, application: &ApplicationId) -> Option<Metric> {
        let entries = self.entries.read();
        let known = entries.applications.get(application);
        known.map(|known| known.metric)
    }

    fn known_owner(&self, route: &Route) -> Option<ApplicationId> {
        match route {
            Route::Application(id) => Some(id.clone()),
            Route::Model(id) => self
                .found(route)
                .or_else(|| self.owners.lock().models.get(id).cloned()),
            Route::Variant(id) => self.owners.lock().variants.get(id).cloned(),
        }
    }

    /// Reads the targets of a query. Targets that it leaves open come from the preset that it names, and then from the
    /// application's defaults. A query that names its variant has neither preset nor defaults: it has chosen its
    /// variant already.
    pub fn targets(
        &self,
        route: &Route,
        preset: Option<&str>,
        body: TargetsBody,
    ) -> Result<Targets, Problem> {
        let entries = self.entries.read();
        let Some((_, known)) = entries.of(route) else {
            return match preset {
                None => body.read(),
                Some(name) => Err(no_preset(name, &BTreeMap::new())),
            };
        };
        body.suits(known.metric)?;
        let targets = body.read()?;
        Ok(match preset {
            None => fill(targets, &known.defaults),
            Some(name) => {
                let preset = known.presets.get(name);
                let preset = preset.ok_or_else(|| no_preset(name, &known.presets))?;
                fill(fill(targets, preset), &known.defaults)
            }
        })
    }
}
