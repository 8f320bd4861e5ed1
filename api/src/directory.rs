//! What queries need to know about applications, in memory: the hot path asks no store.

use std::collections::HashMap;

use parking_lot::Mutex;
use sextant_registry::{Error, Registry};
use sextant_rpc::Route;
use sextant_types::{ApplicationId, Metric, ModelId, Targets, VariantId};

use crate::{problem::Problem, targets::TargetsBody};

/// Metric and default targets of applications, and by model; and what belongs to whom.
#[derive(Debug, Default)]
pub struct Directory {
    applications: HashMap<ApplicationId, Known>,
    models: HashMap<ModelId, (ApplicationId, Known)>,
    /// Owners that were looked up since this was read.
    owners: Mutex<Owners>,
}

#[derive(Debug, Default)]
struct Owners {
    models: HashMap<ModelId, ApplicationId>,
    variants: HashMap<VariantId, ApplicationId>,
}

#[derive(Debug, Clone, Copy)]
struct Known {
    metric: Metric,
    defaults: Targets,
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
                let (metric, defaults) = (application.metric, application.default_targets);
                (application.id, Known { metric, defaults })
            })
            .collect();
        let models = registry.models(None).await?.into_iter();
        let models = models
            .filter_map(|model| {
                let known = *applications.get(&model.application)?;
                Some((model.id, (model.application, known)))
            })
            .collect();
        Ok(Self {
            applications,
            models,
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

    /// Applications that a later directory does not have.
    pub fn applications_not_in<'a>(
        &'a self,
        later: &'a Self,
    ) -> impl Iterator<Item = &'a ApplicationId> {
        let known = self.applications.keys();
        known.filter(|id| !later.applications.contains_key(id))
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

    /// Reads the targets of a query and fills what they leave open from the application's
    /// defaults. A query that names its variant has no defaults: it has chosen already.
    pub fn targets(&self, route: &Route, body: TargetsBody) -> Result<Targets, Problem> {
        let known = match route {
            Route::Application(id) => self.applications.get(id),
            Route::Model(id) => self.models.get(id).map(|(_, known)| known),
            Route::Variant(_) => None,
        };
        let Some(Known { metric, defaults }) = known else {
            return body.read();
        };
        body.suits(*metric)?;
        let targets = body.read()?;
        Ok(Targets {
            latency_ms: targets.latency_ms.or(defaults.latency_ms),
            min_quality: targets.min_quality.or(defaults.min_quality),
            max_cost_per_1k_usd: targets.max_cost_per_1k_usd.or(defaults.max_cost_per_1k_usd),
        })
    }
}
