//! How many workers there should be, and why: the part of the desired state beside the desired variants.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sextant_types::{ApplicationId, DeviceType, DeviceTypeName, TargetClass, VariantId};

/// Largest number of decisions that are kept; older ones are dropped.
pub const MOST_DECISIONS: usize = 64;

/// Largest number of rows of a list of a [`Decision`].
pub const MOST_DECISION_ROWS: usize = 8;

/// A group of like workers and their desired number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pool {
    /// The type of their devices. It names the pool.
    pub device_type: DeviceTypeName,
    /// The desired number of workers. The workers themselves report how many there are.
    #[serde(rename = "wanted")] // as processes of the version before write and read it
    pub desired: u32,
    /// Least number of workers.
    pub least: u32,
    /// Largest number of workers.
    pub most: u32,
    /// The provider that starts and ends them; `None` if no provider does, so that the number does not change.
    #[serde(default)]
    pub provider: Option<Arc<str>>,
    /// What is known of the devices, also while there are none; `None` before one was seen.
    #[serde(default)]
    pub facts: Option<Arc<DeviceType>>,
    /// The problem when the provider was last called, and what to do about it.
    #[serde(default)]
    pub trouble: Option<Arc<str>>,
}

/// An application for which less is planned than is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cutback {
    /// The application.
    pub application: ApplicationId,
    /// What limits it.
    pub limit: Limit,
    /// The reason, in a sentence.
    pub reason: Arc<str>,
}

/// What holds an application back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// Its own budget.
    Budget,
    /// The largest number of workers that it may have.
    MostWorkers,
    /// There is not enough for all applications, and others have precedence or their share.
    Others,
}

/// A change of the desired state, with its reason.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// Grows by one with each decision, also when another process leads.
    pub number: u64,
    /// When it was made, ms since the Unix epoch.
    pub at_ms: u64,
    /// What the decision is about.
    pub subject: Subject,
    /// The kind of change.
    pub action: Action,
    /// The number desired before.
    pub from: u32,
    /// The number desired now.
    pub to: u32,
    /// The reason, in a sentence.
    pub reason: Arc<str>,
    /// The loads on which the decision rests, the largest first; at most [`MOST_DECISION_ROWS`].
    #[serde(default)]
    pub inputs: Vec<Input>,
    /// What could have been done instead, and why it was not; at most [`MOST_DECISION_ROWS`].
    #[serde(default)]
    pub alternatives: Vec<Alternative>,
}

/// What a decision is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// Workers of a type: their desired number.
    Pool(DeviceTypeName),
    /// A variant: the number of workers on which it should be loaded.
    Variant(VariantId),
}

/// The kind of change of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// More workers.
    AddWorkers,
    /// Fewer workers.
    RemoveWorkers,
    /// More instances of a variant that was desired before.
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

/// A load on which a decision rests: queries of an application with targets of one class.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Input {
    /// The application.
    pub application: ApplicationId,
    /// The class of their targets.
    pub class: TargetClass,
    /// Rate of the last minute, including refused queries, 1/s.
    pub offered_rps: f64,
    /// Planned rate, which adds bursts and the forecast, 1/s.
    pub planned_rps: f64,
}

/// An alternative that was not chosen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Alternative {
    /// The alternative, in words.
    pub what: Arc<str>,
    /// What all workers would cost with it, US dollars an hour, if it is possible.
    #[serde(default)]
    pub cost_per_hour_usd: Option<f64>,
    /// Why it was not chosen.
    pub why_not: Arc<str>,
}

// === impl Limit ===

impl Limit {
    /// The name in JSON: `budget`, `most_workers`, `others`.
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
    /// The name in JSON: `add_workers`, ..
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
