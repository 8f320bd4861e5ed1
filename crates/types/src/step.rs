//! Steps of pipelines, as they are named to everything that a step asks.

use serde::{Deserialize, Serialize};

use crate::{ApplicationId, Route, VariantId};

/// A step of a pipeline that asks something.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StepOf {
    /// The pipeline. For pipelines that are steps of others, the outermost.
    pub pipeline: ApplicationId,
    /// Its name. For a step of a pipeline that is itself a step, it follows that step's name: `read.decode`.
    pub step: String,
    /// The names of the steps that ask something and for which it waits. If there are none, it begins with the query.
    /// Transforms between them are not included.
    pub after: Vec<String>,
    /// What it asks.
    pub asks: Route,
}

/// The accuracy that is demanded of a pipeline as a whole and the measured one, as a step of the pipeline reports them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WholeAccuracy {
    /// The least accuracy of the whole that is asked for, 0 to 1.
    pub least: f64,
    /// The lower end of the measured accuracy of the whole, 0 to 1.
    pub measured: f64,
    /// The variants that answered the step while the whole was measured, the most frequent first.
    pub answered: Vec<VariantId>,
}
