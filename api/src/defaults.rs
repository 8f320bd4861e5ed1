//! The default targets of applications, in memory: the hot path asks no store.

use std::collections::HashMap;

use sextant_registry::{Error, Registry};
use sextant_rpc::Route;
use sextant_types::{ApplicationId, ModelId, Targets};

/// What applications and their models ask for by default; those without defaults are left out.
#[derive(Debug, Default)]
pub struct Defaults {
    applications: HashMap<ApplicationId, Targets>,
    models: HashMap<ModelId, Targets>,
}

// === impl Defaults ===

impl Defaults {
    /// Reads them from the registry.
    pub async fn load(registry: &Registry) -> Result<Self, Error> {
        let applications: HashMap<_, _> = registry
            .applications()
            .await?
            .into_iter()
            .map(|application| (application.id, application.default_targets))
            .filter(|(_, targets)| *targets != Targets::default())
            .collect();
        let mut models = HashMap::new();
        for (application, targets) in &applications {
            for model in registry.models(Some(application)).await? {
                models.insert(model.id, *targets);
            }
        }
        Ok(Self {
            applications,
            models,
        })
    }

    /// Fills what `targets` leave open. A query that names its variant has no defaults.
    pub fn fill(&self, route: &Route, targets: Targets) -> Targets {
        let defaults = match route {
            Route::Application(id) => self.applications.get(id),
            Route::Model(id) => self.models.get(id),
            Route::Variant(_) => None,
        };
        defaults.map_or(targets, |defaults| Targets {
            latency_ms: targets.latency_ms.or(defaults.latency_ms),
            min_quality: targets.min_quality.or(defaults.min_quality),
            max_cost_per_1k_usd: targets.max_cost_per_1k_usd.or(defaults.max_cost_per_1k_usd),
        })
    }
}
