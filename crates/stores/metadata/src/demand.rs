//! What is asked for, and what comes of it.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};
use sextant_types::{ApplicationId, Code, ModelId, StepOf, TargetClass, VariantId, WholeAccuracy};

use crate::{Costs, Error};

/// Most rows of each list of a [`Demand`]. A store refuses more: whoever writes adds up before.
pub const MOST_DEMAND_ROWS: usize = 4096;

/// What the leading dispatcher counted over a time that has just ended.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Demand {
    /// The fencing token under which this content was first written.
    pub token: u64,
    /// Length of the time, ms.
    pub window_ms: u64,
    /// What was asked for, each combination of application, class, variant and step once; at most
    /// [`MOST_DEMAND_ROWS`].
    pub applications: Vec<ApplicationDemand>,
    /// How busy devices were, each kind once; at most [`MOST_DEMAND_ROWS`].
    pub devices: Vec<DeviceDemand>,
    /// What device time has cost since this dispatcher began to lead, not over the window alone.
    #[serde(default)]
    pub costs: Costs,
    /// How often answers agreed with the uploaded file's since this dispatcher began, each variant once; at
    /// most [`MOST_DEMAND_ROWS`].
    #[serde(default)]
    pub agreement: Vec<AgreementRow>,
    /// What versions that are tried have done since this dispatcher began, and the current ones beside them, each model
    /// once; at most [`MOST_DEMAND_ROWS`].
    #[serde(default)]
    pub trials: Vec<TrialRow>,
}

/// What a version has done while it, or another of its name, is tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrialRow {
    /// Which model.
    pub model: ModelId,
    /// Queries that it was to answer, or to run once more.
    pub queries: u64,
    /// Of these, those that it failed.
    pub errors: u64,
    /// Of these, those that it answered too late, or that were refused because there was no time for them.
    pub late: u64,
    /// Rows of a shadow that were compared with the current version's.
    pub rows: u64,
    /// Of these, those that agree.
    pub agreeing: u64,
    /// Queries that no worker had time for to run once more.
    pub passed_over: u64,
    /// What the answers took to compute, microseconds in all; what was refused for want of time counts as the mean.
    pub compute_us: u64,
}

impl TrialRow {
    /// Of a model that has done nothing yet.
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

/// Answers of a variant that were compared with those of the file that was uploaded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgreementRow {
    /// Which variant.
    pub variant: VariantId,
    /// Rows compared.
    pub rows: u64,
    /// Of these, those that agree.
    pub agreeing: u64,
}

/// Queries of an application with like targets that went to one variant, or to none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ApplicationDemand {
    /// For which application.
    pub application: ApplicationId,
    /// What they asked for.
    pub class: TargetClass,
    /// Which variant they were queued for; `None` when they were refused before that: demand that
    /// nothing serves. Where there are more combinations than rows, it is `None` for the others, too.
    pub variant: Option<VariantId>,
    /// All of them. Those that wait yet are counted when they end; those that nobody waits for any
    /// more are counted here and below in nothing.
    pub offered: u64,
    /// Rows of the inputs of those that needed a device.
    #[serde(default)]
    pub input_rows: u64,
    /// The same in rows of the size at which their variant was measured: a text of twice the tokens counts as much as
    /// it takes longer. 0 from dispatchers of an earlier version.
    #[serde(default)]
    pub sized_rows: f64,
    /// The strictest and the loosest of their latency targets, ms; `None` without any.
    #[serde(default)]
    pub latency_ms: Option<(f64, f64)>,
    /// Answered in time.
    pub answered: u64,
    /// Answered, and too late.
    pub late: u64,
    /// Of those that were answered in time, those that needed no device: the answer had been kept.
    #[serde(default)]
    pub kept: u64,
    /// Refused or failed, by the code that the client was given.
    pub refused: BTreeMap<Code, u64>,
    /// Time that all of them together have waited in queues, ms.
    pub queueing_ms: u64,
    /// The step of a pipeline that asked them; `None` of those that clients asked. Rows of different steps are not added up.
    #[serde(default)]
    pub step: Option<StepDemand>,
}

/// What a step of a pipeline asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepDemand {
    /// The step.
    pub of: StepOf,
    /// How often it ran: a run may ask for each row of a tensor.
    pub runs: f64,
    /// The strictest and the loosest latency target of the wholes, ms; `None` without any.
    pub whole_ms: Option<(f64, f64)>,
    /// The highest least accuracy of the wholes, and what was measured of them; `None` without any, and of dispatchers of an
    /// earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<WholeAccuracy>,
}

/// Devices of one kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceDemand {
    /// The kind: `cpu`, `cuda`, `emulated` or the name of a runtime.
    pub device: Arc<str>,
    /// Share of their slots' time in which nothing ran, 0 to 1.
    pub idle_share: f64,
    /// Batches that all of them together can run at once.
    pub slots: u32,
}

impl Demand {
    /// Whether both count the same, whoever wrote it.
    pub fn says_the_same(&self, other: &Self) -> bool {
        self.window_ms == other.window_ms
            && self.devices == other.devices
            && self.applications == other.applications
            && self.costs == other.costs
            && self.agreement == other.agreement
            && self.trials == other.trials
    }

    /// Whether a store takes it: not too many rows, shares from 0 to 1, and amounts that are some.
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
