//! Steps of pipelines, as everybody names them who is asked by one.

use serde::{Deserialize, Serialize};

use crate::{ApplicationId, Route};

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
