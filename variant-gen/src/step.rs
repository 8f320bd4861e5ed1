//! The steps of a registration, by name and by result.
//!
//! `inspect`, then `generate:{precision}` for each precision any engine wants, then
//! `measure:{configuration}`, then `publish`, which is the end of the job and needs no record of
//! its own. A result once stored is what later steps build on, whoever computed it.

use serde::{Deserialize, Serialize};
use sextant_types::{Code, Digest, Precision, Signature};

use crate::{configuration::Configuration, measure::Measurement};

/// Name of the first step.
pub const INSPECT: &str = "inspect";
/// Name of the last step.
pub const PUBLISH: &str = "publish";

/// Name of the step that makes a precision's artefact.
pub fn generate(precision: Precision) -> String {
    format!("generate:{}", precision.name())
}

/// Name of the step that measures a configuration.
pub fn measure(configuration: &Configuration) -> String {
    format!("measure:{}", configuration.name())
}

/// What a model is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Inspected {
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
    /// Engines that read the file; all where none is recorded.
    #[serde(default)]
    pub engines: Vec<String>,
}

/// What became of a precision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Generated {
    /// There is an artefact.
    Made {
        /// Its name in the artefact store.
        artefact: Digest,
        /// Its size.
        size_bytes: u64,
        /// Nodes that compute in this precision, for quantised models.
        nodes: Vec<String>,
    },
    /// It does not apply to the model.
    Skipped {
        /// Why not.
        reason: String,
    },
}

/// What became of a configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Measured {
    /// It was begun; nothing is known yet.
    Begun {
        /// In how many claims of the job.
        starts: u32,
        /// The latest of them: the job's count of claims.
        claim: u32,
    },
    /// It runs.
    Done {
        /// What was measured.
        measurement: Measurement,
    },
    /// It does not run.
    Skipped {
        /// Stable code of why, as clients see it.
        code: String,
        /// Why.
        reason: String,
    },
}

impl Measured {
    /// A configuration that does not run.
    pub fn skipped(code: Code, reason: impl Into<String>) -> Self {
        Self::Skipped {
            code: code.as_str().to_owned(),
            reason: reason.into(),
        }
    }
}
