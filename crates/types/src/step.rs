//! Steps of pipelines, as everybody names them who is asked by one.

use serde::{Deserialize, Serialize};

use crate::{ApplicationId, Route, VariantId};

/// A step of a pipeline that asks something.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StepOf {
    /// The pipeline; of pipelines that are steps of others the outermost.
    pub pipeline: ApplicationId,
    /// Its name; of a step of a pipeline that is a step, after that one's: `read.decode`.
    pub step: String,
    /// The names of the steps that ask something and that it waits for; without any it begins with the query. What
    /// transforms do between them counts for nobody else.
    pub after: Vec<String>,
    /// Whom it asks.
    pub asks: Route,
}

/// What is asked of the accuracy of a pipeline as a whole and what was measured of it, as one of its steps tells of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WholeAccuracy {
    /// The least accuracy of the whole that is asked for, 0 to 1.
    pub least: f64,
    /// The lower end of what was measured of the whole, 0 to 1.
    pub measured: f64,
    /// The variants that answered the step while the whole was measured, those that did most often first.
    pub answered: Vec<VariantId>,
}
