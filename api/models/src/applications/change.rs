//! What is to change of an application: what is left out stays, `null` takes back (RFC 7396).

use std::collections::BTreeMap;

use serde::Deserialize;
use sextant_registry::Application;
use utoipa::ToSchema;

use super::presets;
use crate::{
    feedback::settings::SettingsBody,
    problem::Problem,
    resources::{ResourcesChangeBody, given},
    targets::{PreferBody, TargetsBody},
};

/// The changes to an application. A member that is left out stays as it is.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ApplicationChange, example = json!({
    "default_targets": {"latency_ms": 20.0, "min_accuracy": null},
    "presets": {"fast": {"latency_ms": 5.0}, "old": null}
}))]
pub struct ApplicationChangeBody {
    /// How accuracy is measured. It can change only while no model is registered or being registered.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<String>)]
    metric: Option<Option<String>>,
    /// A description, for people; `null` removes it.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<String>)]
    description: Option<Option<String>>,
    /// Targets of queries that state none: members that are left out stay as they are; `null` removes one, or
    /// all of them.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<TargetsChangeBody>)]
    default_targets: Option<Option<TargetsChangeBody>>,
    /// Targets by name: each preset that is named is replaced as a whole; `null` removes it, or all of them.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<BTreeMap<String, TargetsBody>>)]
    presets: Option<Option<BTreeMap<String, Option<TargetsBody>>>>,
    /// What it may use of the fleet; changing it needs the scope `admin`. Members that are left out stay as
    /// they are; `null` removes one, or all of them.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<ResourcesChangeBody>)]
    resources: Option<Option<ResourcesChangeBody>>,
    /// Its settings of feedback, as a whole; with `null` it takes no feedback from now on.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<SettingsBody>)]
    feedback: Option<Option<SettingsBody>>,
}

/// Default targets to change: members that are left out stay as they are, `null` removes a target.
#[derive(Debug, Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = TargetsChange)]
pub struct TargetsChangeBody {
    /// Deadline in milliseconds.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<f64>, minimum = 0, example = 20.0)]
    latency_ms: Option<Option<f64>>,
    /// Lowest accuracy, 0 to 1.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<f64>, minimum = 0, maximum = 1, example = 0.95)]
    min_accuracy: Option<Option<f64>>,
    /// Greatest error.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<f64>, minimum = 0)]
    max_error: Option<Option<f64>>,
    /// The same as a share of the accuracy of the file as it was uploaded, such as 0.99.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<f64>, minimum = 0, maximum = 1)]
    min_relative_accuracy: Option<Option<f64>>,
    /// Greatest cost of a thousand queries, US dollars.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<f64>, minimum = 0)]
    max_cost_per_1k_usd: Option<Option<f64>>,
    /// Which of the variants that meet all targets answers.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<PreferBody>)]
    prefer: Option<Option<PreferBody>>,
}

// === impl ApplicationChangeBody ===

impl ApplicationChangeBody {
    /// Whether the change concerns what the application may use of the fleet.
    pub fn moves_resources(&self) -> bool {
        self.resources.is_some()
    }

    /// Whether it is about how accuracy is measured.
    pub fn moves_metric(&self) -> bool {
        self.metric.is_some()
    }

    /// The application after the change.
    pub fn apply(self, mut to: Application) -> Result<Application, Problem> {
        let was = to.metric;
        if let Some(metric) = &self.metric {
            to.metric = super::metric(metric.as_deref().unwrap_or("null"))?;
        }
        let metric = to.metric;
        if let Some(description) = self.description {
            to.description = description.unwrap_or_default();
        }
        let known = TargetsBody::show(&to.default_targets, was);
        let wanted = match self.default_targets {
            None => known,
            Some(None) => TargetsBody::default(),
            Some(Some(change)) => change.apply(known),
        };
        wanted.suits(metric)?;
        to.default_targets = wanted.read()?;
        let mut kept = to.presets.clone();
        match self.presets {
            Some(Some(changes)) => {
                kept.retain(|name, _| !changes.contains_key(name));
                for (name, targets) in changes {
                    match targets {
                        Some(targets) => {
                            let targets = presets::one(&name, targets, metric)?;
                            to.presets.insert(name, targets);
                        }
                        None => drop(to.presets.remove(&name)),
                    }
                }
                presets::check(to.presets.len())?;
            }
            Some(None) => {
                kept.clear();
                to.presets.clear();
            }
            None => {}
        }
        presets::suit(&kept, was, metric)?;
        if let Some(feedback) = self.feedback {
            to.feedback = feedback.map(SettingsBody::read).transpose()?;
        }
        if let Some(resources) = self.resources {
            to.resources =
                resources.map_or_else(Default::default, |change| change.apply(to.resources));
            to.resources.validate()?;
        }
        Ok(to)
    }
}

// === impl TargetsChangeBody ===

impl TargetsChangeBody {
    fn apply(self, to: TargetsBody) -> TargetsBody {
        TargetsBody {
            latency_ms: self.latency_ms.unwrap_or(to.latency_ms),
            min_accuracy: self.min_accuracy.unwrap_or(to.min_accuracy),
            max_error: self.max_error.unwrap_or(to.max_error),
            min_relative_accuracy: self
                .min_relative_accuracy
                .unwrap_or(to.min_relative_accuracy),
            max_cost_per_1k_usd: self.max_cost_per_1k_usd.unwrap_or(to.max_cost_per_1k_usd),
            prefer: self.prefer.unwrap_or(to.prefer),
        }
    }
}
