//! The steps of a registration, by name and by result.
//!
//! `inspect`, then `generate:{precision}` for each precision any engine wants, then
//! `measure:{configuration}`, then `publish`, which is the end of the job and needs no record of
//! its own. Jobs that extend the model by an engine add steps of the same names; what will not
//! change any more about an engine stands in `extend:{engine}`. A result once stored is what later steps build on, whoever computed it.

use serde::{Deserialize, Serialize};
use sextant_registry::Model;
use sextant_types::{AccuracyKind, Code, Digest, EngineName, Precision, Signature};

use crate::{
    configuration::Configuration, guess::Guess, measure::Measurement, validation::ScoringTarget,
};

/// Name of the first step.
pub const INSPECT: &str = "inspect";
/// Name of the last step.
pub const PUBLISH: &str = "publish";

/// Name of the entry that counts how often a step was begun; it is no step itself.
pub fn begun(step: &str) -> String {
    format!("begun:{step}")
}

/// Name of the step that makes a precision's artefact.
pub fn generate(precision: Precision) -> String {
    format!("generate:{}", precision.name())
}

/// Name of the step that measures a configuration.
pub fn measure(configuration: &Configuration) -> String {
    format!("measure:{}", configuration.name())
}

/// Name of the step that records that nothing more is to be done about an engine.
pub fn extend(engine: &EngineName) -> String {
    format!("extend:{engine}")
}

/// The engine of a step that measures a configuration.
pub fn measured_engine(step: &str) -> Option<&str> {
    // An engine's name may have hyphens; the rest of the configuration has three.
    let configuration = step.strip_prefix("measure:")?;
    configuration.rsplitn(4, '-').nth(3)
}

/// The result of the first step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Inspection {
    /// Inputs and outputs.
    pub signature: Signature,
    /// Records of the validation set.
    pub records: u64,
    /// Bytes of all constants.
    pub weights_bytes: u64,
    /// Elements of all floating-point constants.
    pub parameters: u64,
    /// Nodes.
    pub nodes: u64,
    /// Version of the standard operator set.
    pub opset: i64,
    /// Operators in use.
    pub operators: Vec<String>,
    /// Engines that read the file, of those of the process that inspected it.
    #[serde(default)]
    pub engines: Vec<String>,
    /// Which output is scored.
    #[serde(default)]
    pub scored: ScoringTarget,
    /// The file that variants are made from, if it is not the uploaded one: its digest and its size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapted: Option<(Digest, u64)>,
    /// The validation set with the answers of the uploaded file, if it has no labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labelled: Option<Digest>,
    /// The best score of an answer that ignores the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guess: Option<Guess>,
    /// What was changed in the file, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<String>,
    /// Why queries share no batches, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apart: Option<String>,
    /// Whether most of its weights have 16 bits.
    #[serde(default)]
    pub is_half: bool,
}

/// Message if records have no labels.
pub const UNLABELLED: &str = "the validation set has no labels: what is measured is how far a variant agrees with the uploaded file";

/// How that message begins, in earlier versions too.
const BEGINS: &str = "the validation set has no labels";

/// The kind of the figures, by the messages about the model.
pub fn kind_of<'a>(mut changes: impl Iterator<Item = &'a str>) -> AccuracyKind {
    match changes.any(|it| it.starts_with(BEGINS)) {
        true => AccuracyKind::Agreement,
        false => AccuracyKind::Accuracy,
    }
}

impl Inspection {
    /// The kind of the figures on its validation set.
    pub fn kind(&self) -> AccuracyKind {
        kind_of(self.changes.iter().map(String::as_str))
    }

    /// The file that variants are made from: its digest and its size.
    pub fn base(&self, model: &Model) -> (Digest, u64) {
        self.adapted.unwrap_or((model.digest, model.size_bytes))
    }
}

/// The outcome of a precision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Generation {
    /// There is an artefact.
    Made {
        /// Its name in the artefact store.
        artefact: Digest,
        /// Its size.
        size_bytes: u64,
        /// Nodes that compute in this precision, for quantised models.
        nodes: Vec<String>,
        /// A note about how it was made.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
    },
    /// It does not apply to the model.
    Skipped {
        /// Why not.
        reason: String,
    },
}

/// The outcome of a configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum MeasureOutcome {
    /// It was begun; nothing is known yet.
    Begun {
        /// Number of claims of the job that began it.
        starts: u32,
        /// The latest of them, by its number among all claims.
        claim: u32,
    },
    /// It runs.
    Done {
        /// What was measured.
        measurement: Box<Measurement>,
    },
    /// It runs, and another is better in every way, or there was no time for it.
    Pruned {
        /// Why it was not measured in full.
        reason: String,
    },
    /// It does not run.
    Skipped {
        /// Stable code of why, as clients see it.
        code: String,
        /// Why.
        reason: String,
    },
}

/// Why nothing more is to be done about a model and an engine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum ExtensionResult {
    /// The process that registered the model had the engine.
    Registered,
    /// The model was measured with the engine later; it may not run there.
    Done,
    /// The engine does not read the file.
    NotRead,
    /// A user cancelled it.
    Cancelled,
    /// It cannot be done.
    Unable {
        /// Stable code of why, as clients see it.
        code: String,
        /// Why.
        reason: String,
    },
}

impl MeasureOutcome {
    /// A configuration that does not run.
    pub fn skipped(code: Code, reason: impl Into<String>) -> Self {
        Self::Skipped {
            code: code.as_str().to_owned(),
            reason: reason.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use sextant_types::Optimization;

    use super::*;

    #[test]
    fn the_engine_of_a_step_is_all_of_its_name() {
        for engine in ["ort", "triton", "triton-2", "a-b-c-d"] {
            let configuration = Configuration {
                engine: EngineName(engine.to_owned()),
                precision: Precision::Int8Dynamic,
                optimization: Optimization::All,
                threads: 16,
            };
            assert_eq!(measured_engine(&measure(&configuration)), Some(engine));
        }
        assert_eq!(measured_engine("measure:x"), None);
        assert_eq!(measured_engine(INSPECT), None);
    }
}
