//! Orders to a measuring process, and its answers.
//!
//! An order is a frame ([`sextant_isolation::frame`]): a head and the files that it announces. An answer is a line of
//! JSON.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use sextant_types::{Accuracy, Digest, Metric, Optimization, Padding, Precision, Signature};

use crate::{
    guess::{self, Guess},
    measure::{Batches, Effort, Measurement, Refusal, Rival},
    rewriting::{RewriteReply, Rewriting},
    validation::{Labels, Limits, RecordShapes, ScoringTarget, ValidationSet},
};

/// An order, without its files.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Order {
    /// What to do.
    pub action: Action,
    /// The artefact's name.
    pub artefact: Digest,
    /// Inputs and outputs of the model.
    pub signature: Signature,
    /// How outputs are scored.
    pub metric: Metric,
    /// Which output is scored.
    pub scored: ScoringTarget,
    /// How large the validation set may be.
    pub limits: Limits,
}

/// What to do with an artefact.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Measure one configuration.
    Measure {
        /// The engine's name.
        engine: String,
        /// Number format.
        precision: Precision,
        /// Graph optimisation.
        optimization: Optimization,
        /// Intra-op threads.
        threads: u16,
        /// How inputs are padded.
        padding: Option<Padding>,
        /// How thoroughly to measure.
        effort: Box<Effort>,
        /// Measurements of other configurations.
        rivals: Vec<Rival>,
        /// The accuracy, if it was measured with another number of threads.
        accuracy: Option<Accuracy>,
        /// Whether most of the file's weights have 16 bits.
        is_half: bool,
    },
    /// Find out how much memory it takes to read a model; the set is not read.
    Weigh,
    /// Read the validation set for a model.
    Check,
    /// Find out the shapes of the set's records, without a model.
    RecordShapes,
    /// Rewrite the model without running it; the set is not read.
    Rewrite(Rewriting),
    /// Find the ranges of values for static quantisation, and quantise with them.
    Calibrate(Calibrate),
    /// Find out whether batches are answered as their records are one by one.
    Batches {
        /// The engine's name.
        engine: String,
        /// Which batches.
        batches: Batches,
    },
    /// Run the model that outputs shapes, and return its output shapes.
    Shapes {
        /// The engine's name.
        engine: String,
    },
    /// Find out the model's answers to the records.
    Answers {
        /// The engine's name.
        engine: String,
        /// Records at a time.
        batch: usize,
    },
}

impl Action {
    /// The action's name in messages about its failure.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Weigh => "reading the model",
            Self::Rewrite(Rewriting::Quantize(_)) => "quantising the model",
            Self::Rewrite(_) => "adapting the model",
            Self::Check | Self::RecordShapes => "reading the validation set",
            _ => "a load or a run",
        }
    }

    /// Whether the action needs a validation set.
    pub fn takes_set(&self) -> bool {
        !matches!(self, Self::Weigh | Self::Rewrite(_))
    }
}

/// Summary of a validation set that fits its model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SetSummary {
    /// Number of records.
    pub records: u64,
    /// Whether they have labels.
    pub is_labelled: bool,
    /// The best score of an answer that ignores the record.
    pub guess: Option<Guess>,
}

impl SetSummary {
    /// The summary of a set that was read.
    pub fn of(set: &ValidationSet, metric: Metric) -> Self {
        let is_labelled = set.is_labelled();
        Self {
            records: set.records() as u64,
            is_labelled,
            guess: is_labelled.then(|| guess::best(metric, set)).flatten(),
        }
    }
}

/// Where a model's batch dimension comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// The file declares it: only clear evidence counts against it.
    Declared,
    /// It is not declared; the registration tries whether there is one.
    Tried,
}

/// How to find ranges.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Calibrate {
    /// Engines by name, in the order in which they are tried.
    pub engines: Vec<String>,
    /// Most records used.
    pub records: usize,
    /// Records at a time.
    pub batch: usize,
}

/// An order and the files that follow it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Head {
    /// The order.
    pub order: Order,
    /// Length of the validation set's file; `None` if the process has the set already.
    pub validation_bytes: Option<u64>,
    /// Length of the artefact; `None` if it is that of the order before.
    pub artefact_bytes: Option<u64>,
    /// Path of the artefact's weights, if the artefact is an outline.
    pub weights: Option<PathBuf>,
    /// Lengths of the files beside the model, which come last.
    #[serde(default)]
    pub beside_bytes: Vec<u64>,
}

/// An answer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// A sign of life: a load or a run has ended since the last line.
    Progress,
    /// The result of a measurement.
    Measured(Box<Measurement>),
    /// The result of a rewriting or a calibration. Its files follow the line.
    Rewritten(RewriteReply),
    /// The positions of the outputs by which batches differ from their records.
    Batches(Vec<usize>),
    /// The shape of each output, for each batch.
    Shapes(Vec<Vec<Vec<u64>>>),
    /// The answers to the records of each group, as labels.
    Answers(Vec<Labels>),
    /// The configuration is not worth measuring to the end, and why.
    Pruned(String),
    /// Bytes that the process grew by when it read the model; 0 if that is not known.
    Weighed(u64),
    /// The set fits.
    Checked(SetSummary),
    /// The shape of a record of each input.
    RecordShapes(RecordShapes),
    /// The validation set cannot be read or does not fit.
    Unfit {
        /// Why not.
        message: String,
        /// Whether the shapes do not fit.
        of_shapes: bool,
    },
    /// The order could not be carried out.
    Refused(Refusal),
}
