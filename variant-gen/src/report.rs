//! What became of each step of a model's registration, for people.

use serde::{Deserialize, Serialize};
use sextant_registry::Registry;
use sextant_types::ModelId;

use crate::{
    Error,
    step::{Generated, INSPECT, Inspected, Measured},
};

/// A model's registration so far, or as it was.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// What the model is; `None` before the first step is done.
    pub inspected: Option<Inspected>,
    /// Precisions and configurations in the order of their names.
    pub attempts: Vec<Attempt>,
}

/// One precision or configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// `int8s`, `ort-fp32-all-t1`.
    pub name: String,
    /// `generated`, `measured`, `measuring`, `pruned`, `skipped`.
    pub outcome: String,
    /// Why it was skipped or left out, or why larger batches were.
    pub reason: Option<String>,
}

/// Reads the report of a model from its stored steps.
pub async fn report(registry: &Registry, model: &ModelId) -> Result<Report, Error> {
    let mut report = Report {
        inspected: None,
        attempts: Vec::new(),
    };
    registry.model(model).await?;
    for step in registry.steps(model).await? {
        if step.name == INSPECT {
            report.inspected = serde_json::from_value(step.result).ok();
        } else if let Some(name) = step.name.strip_prefix("generate:") {
            let generated = serde_json::from_value(step.result).ok();
            report
                .attempts
                .extend(generated.map(|it| of_precision(name, it)));
        } else if let Some(name) = step.name.strip_prefix("measure:") {
            let measured = serde_json::from_value(step.result).ok();
            report
                .attempts
                .extend(measured.map(|it| of_configuration(name, it)));
        }
    }
    Ok(report)
}

fn attempt(name: &str, outcome: &str, reason: Option<String>) -> Attempt {
    Attempt {
        name: name.to_owned(),
        outcome: outcome.to_owned(),
        reason,
    }
}

fn of_precision(name: &str, generated: Generated) -> Attempt {
    match generated {
        Generated::Made { .. } => attempt(name, "generated", None),
        Generated::Skipped { reason } => attempt(name, "skipped", Some(reason)),
    }
}

fn of_configuration(name: &str, measured: Measured) -> Attempt {
    match measured {
        Measured::Begun { .. } => attempt(name, "measuring", None),
        Measured::Done { measurement } => attempt(name, "measured", measurement.stopped),
        Measured::Pruned { reason } => attempt(name, "pruned", Some(reason)),
        Measured::Skipped { reason, .. } => attempt(name, "skipped", Some(reason)),
    }
}
