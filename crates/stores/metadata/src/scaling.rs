//! How many workers there should be, and why: what the autoscaler says beside which variants should be
//! loaded.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sextant_types::{ApplicationId, DeviceType, DeviceTypeName, TargetClass, VariantId};

/// Most decisions that are kept; older ones are forgotten.
pub const MOST_DECISIONS: usize = 64;

/// Most rows of a list of a [`Decision`].
pub const MOST_DECISION_ROWS: usize = 8;

/// Workers that are alike, as many as there should be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pool {
    /// The type of their devices; names the pool.
    pub device_type: DeviceTypeName,
    /// How many there should be. How many there are, workers say themselves.
    #[serde(rename = "wanted")] // as processes of the version before write and read it
    pub desired: u32,
    /// Fewest.
    pub least: u32,
    /// Most.
    pub most: u32,
    /// Who starts and ends them; `None` where nobody does and there are as many as there are.
    #[serde(default)]
    pub provider: Option<Arc<str>>,
    /// What is known of the devices, also while there are none; `None` before one was seen.
    #[serde(default)]
    pub facts: Option<Arc<DeviceType>>,
    /// What went wrong when the provider was last asked, and what to do.
    #[serde(default)]
    pub trouble: Option<Arc<str>>,
}

/// An application of which less is planned for than is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cutback {
    /// Which one.
    pub application: ApplicationId,
    /// By what.
    pub limit: Limit,
    /// Why, in a sentence.
    pub reason: Arc<str>,
}

/// What holds an application back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// Its budget.
    Budget,
    /// The most workers that it may have.
    MostWorkers,
    /// There is not enough for all, and others go first or have their share.
    Others,
}

/// A change of what is desired, and why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// Grows by one with each, also over a change of who leads.
    pub number: u64,
    /// When it was made, ms since the Unix epoch.
    pub at_ms: u64,
    /// Of what.
    pub subject: Subject,
    /// What was done to it.
    pub action: Action,
    /// How many were desired before.
    pub from: u32,
    /// How many are desired now.
    pub to: u32,
    /// Why, in a sentence.
    pub reason: Arc<str>,
    /// What it rests on, the largest loads first; at most [`MOST_DECISION_ROWS`].
    #[serde(default)]
    pub inputs: Vec<Input>,
    /// What was not done, and why not; at most [`MOST_DECISION_ROWS`].
    #[serde(default)]
    pub alternatives: Vec<Alternative>,
}

/// What a decision is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// Workers of a type: how many there should be.
    Pool(DeviceTypeName),
    /// A variant: on how many workers it should be loaded.
    Variant(VariantId),
}

/// What a decision does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// More workers.
    AddWorkers,
    /// Fewer workers.
    RemoveWorkers,
    /// More instances of a variant that is desired already.
    Replicate,
    /// A variant that answers more, in place of or beside another one of its application.
    Upgrade,
    /// A variant that costs less, in place of another one of its application.
    Downgrade,
    /// A variant of an application that had none.
    Add,
    /// Fewer instances, or none.
    Remove,
}

/// What a decision rests on: queries of an application with like targets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Input {
    /// For which application.
    pub application: ApplicationId,
    /// What they ask for.
    pub class: TargetClass,
    /// Rate of the last minute, those included that were refused, 1/s.
    pub offered_rps: f64,
    /// Rate that was planned for: what bursts and the forecast add to it, 1/s.
    pub planned_rps: f64,
}

/// What was not done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Alternative {
    /// What, in words.
    pub what: Arc<str>,
    /// What all workers would cost then, US dollars an hour, where it could be done.
    #[serde(default)]
    pub cost_per_hour_usd: Option<f64>,
    /// Why not.
    pub why_not: Arc<str>,
}

// === impl Limit ===

impl Limit {
    /// As in JSON: `budget`, `most_workers`, `others`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Budget => "budget",
            Self::MostWorkers => "most_workers",
            Self::Others => "others",
        }
    }
}

// === impl Action ===

impl Action {
    /// As in JSON: `add_workers`, ..
    pub fn name(self) -> &'static str {
        match self {
            Self::AddWorkers => "add_workers",
            Self::RemoveWorkers => "remove_workers",
            Self::Replicate => "replicate",
            Self::Upgrade => "upgrade",
            Self::Downgrade => "downgrade",
            Self::Add => "add",
            Self::Remove => "remove",
        }
    }
}
