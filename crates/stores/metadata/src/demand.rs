//! The demand: what clients asked for, and the results.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};
use sextant_types::{ApplicationId, Code, ModelId, StepOf, TargetClass, VariantId, WholeAccuracy};

use crate::{Costs, Error};

/// Largest number of rows of each list of a [`Demand`]. A store refuses more: the writer must add rows up.
pub const MOST_DEMAND_ROWS: usize = 4096;

/// The counts of the leading dispatcher over a window that has just ended.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Demand {
    /// The fencing token under which this content was first written.
    pub token: u64,
    /// Length of the window, ms.
    pub window_ms: u64,
    /// What was asked for, one row for each combination of application, class, variant and step; at most
    /// [`MOST_DEMAND_ROWS`].
    pub applications: Vec<ApplicationDemand>,
    /// How busy devices were, one row for each kind; at most [`MOST_DEMAND_ROWS`].
    pub devices: Vec<DeviceDemand>,
    /// The costs of device time since this dispatcher began to lead, not over the window alone.
    #[serde(default)]
    pub costs: Costs,
    /// How often answers agreed with the uploaded file's since this dispatcher began to lead, one row for each variant;
    /// at most [`MOST_DEMAND_ROWS`].
    #[serde(default)]
    pub agreement: Vec<AgreementRow>,
    /// The results of versions that are tried, and of the current versions beside them, since this dispatcher began to
    /// lead. One row for each model; at most [`MOST_DEMAND_ROWS`].
    #[serde(default)]
    pub trials: Vec<TrialRow>,
}

/// The results of a version while it, or another version of its name, is tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrialRow {
    /// The model.
    pub model: ModelId,
    /// Queries that the version was to answer, or to run once more.
    pub queries: u64,
    /// The part of `queries` that the version failed.
    pub errors: u64,
    /// The part of `queries` that it answered too late, or that were refused for want of time.
    pub late: u64,
    /// Rows of a shadow that were compared with the current version's rows.
    pub rows: u64,
    /// The part of `rows` that agree.
    pub agreeing: u64,
    /// Queries that were not run once more because no worker had time.
    pub passed_over: u64,
    /// Total time to compute the answers, microseconds. A query that was refused for want of time counts with the mean
    /// time.
    pub compute_us: u64,
}

impl TrialRow {
    /// The row of a model without results.
    pub fn of(model: ModelId) -> Self {
        Self {
            model,
            queries: 0,
            errors: 0,
            late: 0,
            rows: 0,
            agreeing: 0,
            passed_over: 0,
            compute_us: 0,
        }
    }
}

/// Answers of a variant that were compared with those of the uploaded file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgreementRow {
    /// The variant.
    pub variant: VariantId,
    /// Rows compared.
    pub rows: u64,
    /// The part of `rows` that agree.
    pub agreeing: u64,
}

/// Queries of an application with targets of one class that went to one variant, or to none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ApplicationDemand {
    /// The application.
    pub application: ApplicationId,
    /// The class of their targets.
    pub class: TargetClass,
    /// The variant for which they were queued; `None` if they were refused before that, as nothing could serve them. If
    /// there are more combinations than rows, `None` also adds up the others.
    pub variant: Option<VariantId>,
    /// All queries. A query that waits is counted when it ends. A query whose client has gone is not counted here or
    /// below.
    pub offered: u64,
    /// Input rows of the queries that needed a device.
    #[serde(default)]
    pub input_rows: u64,
    /// The same in rows of the size at which the variant was measured: a row of a longer text counts in proportion to
    /// its longer run time. 0 from dispatchers of an earlier version.
    #[serde(default)]
    pub sized_rows: f64,
    /// The strictest and the loosest of their latency targets, ms; `None` without targets.
    #[serde(default)]
    pub latency_ms: Option<(f64, f64)>,
    /// Queries that were answered in time.
    pub answered: u64,
    /// Queries that were answered too late.
    pub late: u64,
    /// The part of `answered` that needed no device: the answer was cached.
    #[serde(default)]
    pub kept: u64,
    /// Queries that were refused or failed, by the code that the client was given.
    pub refused: BTreeMap<Code, u64>,
    /// Total time that the queries have waited in queues, ms.
    pub queueing_ms: u64,
    /// The step of a pipeline that asked them; `None` for queries of clients. Rows of different steps are not added up.
    #[serde(default)]
    pub step: Option<StepDemand>,
}

/// The demand of a step of a pipeline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepDemand {
    /// The step.
    pub of: StepOf,
    /// Number of its runs. A run may ask once for each row of a tensor.
    pub runs: f64,
    /// The strictest and the loosest latency target of the pipeline queries, ms; `None` without targets.
    pub whole_ms: Option<(f64, f64)>,
    /// The highest accuracy that the pipeline queries demanded, and the pipeline's measured accuracy; `None` without
    /// such a demand, and from dispatchers of an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<WholeAccuracy>,
}

/// The use of devices of one kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceDemand {
    /// The kind: `cpu`, `cuda`, `emulated` or the name of a runtime.
    pub device: Arc<str>,
    /// Share of their slots' time in which nothing ran, 0 to 1.
    pub idle_share: f64,
    /// Number of batches that all of them together can run at once.
    pub slots: u32,
}

impl Demand {
    /// Whether both have the same counts. Tokens are ignored.
    pub fn says_the_same(&self, other: &Self) -> bool {
        self.window_ms == other.window_ms
            && self.devices == other.devices
            && self.applications == other.applications
            && self.costs == other.costs
            && self.agreement == other.agreement
            && self.trials == other.trials
    }

    /// Checks what a store requires: not too many rows, shares from 0 to 1, and finite amounts that are not negative.
    pub fn check(&self) -> Result<(), Error> {
        let rows = self.applications.len().max(self.devices.len());
        let rows = rows.max(self.costs.rows.len()).max(self.agreement.len());
        let rows = rows.max(self.trials.len());
        if rows > MOST_DEMAND_ROWS {
            return Err(Error::TooManyRows { rows });
        }
        let share = |device: &&DeviceDemand| !(0.0..=1.0).contains(&device.idle_share);
        match self.devices.iter().find(share) {
            Some(wrong) => Err(Error::IdleShare {
                device: Arc::clone(&wrong.device),
                share: wrong.idle_share,
            }),
            None => self.costs.check(),
        }
    }
}
