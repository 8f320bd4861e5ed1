//! What queries need to know about applications, in memory: the hot path asks no store.

use std::collections::HashMap;

use sextant_registry::{Error, Registry};
use sextant_rpc::Route;
use sextant_types::{ApplicationId, Metric, ModelId, Targets};

use crate::{problem::Problem, targets::TargetsBody};

/// Metric and default targets of applications, and by model.
#[derive(Debug, Default)]
pub struct Directory {
    applications: HashMap<ApplicationId, Known>,
    models: HashMap<ModelId, Known>,
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
            .filter_map(|model| Some((model.id, *applications.get(&model.application)?)))
            .collect();
        Ok(Self {
            applications,
            models,
        })
    }

    /// Reads the targets of a query and fills what they leave open from the application's
    /// defaults. A query that names its variant has no defaults: it has chosen already.
    pub fn targets(&self, route: &Route, body: TargetsBody) -> Result<Targets, Problem> {
        let known = match route {
            Route::Application(id) => self.applications.get(id),
            Route::Model(id) => self.models.get(id),
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
