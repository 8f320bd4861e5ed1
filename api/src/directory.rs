//! What queries need to know about applications, in memory: the hot path asks no store.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use parking_lot::Mutex;
use sextant_registry::{Error, ModelStatus, Registry};
use sextant_rpc::Route;
use sextant_types::{ApplicationId, Code, Metric, ModelId, Targets, VariantId};

use crate::{codec::short, problem::Problem, targets::TargetsBody};

/// Letters in which a misspelt name differs at most.
const MOST_EDITS: usize = 2;

/// Metric, default targets and presets of applications, and by model; and what belongs to whom.
#[derive(Debug, Default)]
pub struct Directory {
    applications: HashMap<ApplicationId, Known>,
    models: HashMap<ModelId, (ApplicationId, Known)>,
    /// Models whose registration is done, and their applications: these can be asked.
    ready: HashSet<ModelId>,
    served: HashSet<ApplicationId>,
    /// Owners that were looked up since this was read.
    owners: Mutex<Owners>,
}

#[derive(Debug, Default)]
struct Owners {
    models: HashMap<ModelId, ApplicationId>,
    variants: HashMap<VariantId, ApplicationId>,
}

#[derive(Debug, Clone)]
struct Known {
    metric: Metric,
    defaults: Targets,
    presets: Arc<BTreeMap<String, Targets>>,
}

/// Targets, and where they demand nothing those of others.
fn fill(targets: Targets, others: &Targets) -> Targets {
    // Whoever asks for an accuracy of either kind has no use for that which others get.
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
    }
}

/// The nearest of several other names, where it is near; the first of equals.
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

// === impl Directory ===

impl Directory {
    /// Reads it from the registry.
    pub async fn load(registry: &Registry) -> Result<Self, Error> {
        let applications: HashMap<_, _> = registry
            .applications()
            .await?
            .into_iter()
            .map(|application| {
                let known = Known {
                    metric: application.metric,
                    defaults: application.default_targets,
                    presets: Arc::new(application.presets),
                };
                (application.id, known)
            })
            .collect();
        let models = registry.models(None).await?;
        let done = models.iter().filter(|it| it.status == ModelStatus::Ready);
        let (ready, served) = done
            .map(|model| (model.id.clone(), model.application.clone()))
            .unzip();
        let models = models
            .into_iter()
            .filter_map(|model| {
                let known = applications.get(&model.application)?.clone();
                Some((model.id, (model.application, known)))
            })
            .collect();
        Ok(Self {
            applications,
            models,
            ready,
            served,
            owners: Mutex::default(),
        })
    }

    /// The application that a route belongs to; what is not known here is looked up once.
    pub async fn owner(&self, route: &Route, registry: &Registry) -> Result<ApplicationId, Error> {
        if let Some(owner) = self.known_owner(route) {
            return Ok(owner);
        }
        // Boxed, as all that is large and rare on the way of a query: its future is moved as a whole.
        match route {
            Route::Application(id) => Ok(id.clone()),
            Route::Model(id) => {
                let owner = Box::pin(registry.model(id)).await?.application;
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

    /// The application that a route belongs to, if it is one that is known: for labels, which must not
    /// carry names that clients made up.
    pub fn found(&self, route: &Route) -> Option<ApplicationId> {
        match route {
            Route::Application(id) => self.applications.contains_key(id).then(|| id.clone()),
            Route::Model(id) => self.models.get(id).map(|(owner, _)| owner.clone()),
            Route::Variant(_) => None,
        }
    }

    /// Whether there is a model of that name.
    pub fn has_model(&self, name: &str) -> bool {
        let id = ModelId::new(name);
        id.is_ok_and(|id| self.models.contains_key(&id))
    }

    /// Whether the registry says that what the route addresses can be asked. Of variants nothing is said.
    pub fn is_registered(&self, route: &Route) -> bool {
        match route {
            Route::Application(id) => self.served.contains(id),
            Route::Model(id) => self.ready.contains(id),
            Route::Variant(_) => false,
        }
    }

    /// All applications, in no order.
    pub fn applications(&self) -> impl Iterator<Item = &ApplicationId> {
        self.applications.keys()
    }

    /// Applications that a later directory does not have.
    pub fn applications_not_in<'a>(
        &'a self,
        later: &'a Self,
    ) -> impl Iterator<Item = &'a ApplicationId> {
        let known = self.applications.keys();
        known.filter(|id| !later.applications.contains_key(id))
    }

    /// What a route that leads nowhere may have meant: a name that differs from its own in a letter or two.
    pub fn meant(&self, route: &Route) -> Option<&str> {
        match route {
            Route::Application(id) => near(
                id.as_str(),
                self.applications.keys().map(ApplicationId::as_str),
            ),
            Route::Model(id) => near(id.as_str(), self.models.keys().map(ModelId::as_str)),
            Route::Variant(_) => None,
        }
    }

    /// How accuracy is measured for an application.
    pub fn metric(&self, application: &ApplicationId) -> Option<Metric> {
        let known = self.applications.get(application);
        known.map(|known| known.metric)
    }

    fn known_owner(&self, route: &Route) -> Option<ApplicationId> {
        match route {
            Route::Application(id) => Some(id.clone()),
            Route::Model(id) => match self.models.get(id) {
                Some((owner, _)) => Some(owner.clone()),
                None => self.owners.lock().models.get(id).cloned(),
            },
            Route::Variant(id) => self.owners.lock().variants.get(id).cloned(),
        }
    }

    /// Reads the targets of a query and fills what they leave open from the preset that it names, and what
    /// that leaves open from the application's defaults. A query that names its variant has neither: it has
    /// chosen already.
    pub fn targets(
        &self,
        route: &Route,
        preset: Option<&str>,
        body: TargetsBody,
    ) -> Result<Targets, Problem> {
        let known = match route {
            Route::Application(id) => self.applications.get(id),
            Route::Model(id) => self.models.get(id).map(|(_, known)| known),
            Route::Variant(_) => None,
        };
        let Some(known) = known else {
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
