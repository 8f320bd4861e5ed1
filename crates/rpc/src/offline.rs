//! What an offline job is asked to do: stored with the job, written by `api`, read by the
//! dispatcher's job runner.

use serde::{Deserialize, Serialize};
use sextant_types::Targets;

use crate::Route;

/// Records of a file in the artefact store, answered into another file of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OfflineSpec {
    /// Whom the records address.
    pub route: Route,
    /// Accuracy and cost targets; latency is ignored, the job runs on spare resources.
    pub targets: Targets,
    /// Path of the records: JSONL, one record per line.
    pub input: String,
    /// Path of the answers: JSONL, one line per record, in the order of the records.
    pub output: String,
    /// Records that are answered and committed together, at least 1.
    pub chunk: u32,
}
