//! The report of a run with limited memory: figures by interval and class of models, failures by reason, and the errors
//! of predicted run times.

use std::collections::BTreeMap;

use sextant_schedule::{DropReason, Nanos};
use sextant_types::index::{DeviceIx, VariantIx};

use sextant_simulator::Histogram;

/// Why a worker did not carry out an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Failure {
    /// It could not start inside its window: an earlier action took longer than predicted.
    TooLate,
    /// The model was not loaded when the batch should have started.
    NotLoaded,
    /// The model was unloaded while the action ran.
    WeightsChanged,
    /// The LOAD needs more pages than are free, or the model has its pages already.
    NoMemory,
    /// The device was lost.
    Lost,
}

/// Why a request was not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// The policy gave it up.
    Dropped(DropReason),
    /// A worker failed to run it.
    Failed(Failure),
}

/// A run's result.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Report {
    /// Intervals of equal length, by the time at which requests arrived and actions started; the last one may be
    /// shorter.
    pub intervals: Vec<Interval>,
    /// Latencies of all answers, in time or late.
    pub latencies: Histogram,
    /// Batches: measured against predicted run times.
    pub infer: Predictions,
    /// LOADs: the same.
    pub load: Predictions,
    /// Devices.
    pub devices: u32,
    /// Length of the span that counts, s.
    pub seconds: f64,
    /// Requests simulated, the warm-up included.
    pub simulated: u64,
    /// The actions that devices carried out, in the order in which they ended; empty unless asked for.
    pub log: Vec<Step>,
}

/// An action that a device carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// The kind of action.
    pub what: ActionKind,
    /// The device.
    pub device: DeviceIx,
    /// The model.
    pub model: VariantIx,
    /// Start, ns.
    pub start: Nanos,
    /// End, ns.
    pub end: Nanos,
}

/// A kind of action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActionKind {
    /// A batch.
    Infer,
    /// A LOAD.
    Load,
    /// An UNLOAD.
    Unload,
}

/// Figures of a span of time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Interval {
    /// Its length, s.
    pub seconds: f64,
    /// By class of models.
    pub classes: Vec<Class>,
    /// Models with a request that came while they were loaded nowhere; over several intervals the mean.
    pub cold_models: f64,
    /// LOADs that succeeded.
    pub loads: u64,
    /// LOADs that failed, by reason.
    pub failed_loads: BTreeMap<Failure, u64>,
    /// Time in which LOADs ran, over all devices, ns.
    pub load_busy: Nanos,
    /// Time in which batches ran, over all devices, ns.
    pub exec_busy: Nanos,
    /// Batches that ran.
    pub batches: u64,
    /// Rows in them.
    pub rows: u64,
}

/// Outcomes of the requests of a class of models.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Class {
    /// Requests that arrived.
    pub sent: u64,
    /// Of these, requests that came while the model was loaded nowhere.
    pub cold: u64,
    /// Requests that were answered in time.
    pub good: u64,
    /// Of these, requests that came while the model was loaded nowhere.
    pub cold_good: u64,
    /// Requests that were answered too late.
    pub late: u64,
    /// Requests that were not answered, by reason.
    pub missed: BTreeMap<Reason, u64>,
    /// Sum of the latencies of answers, ns.
    pub latency_sum: u128,
    /// Longest latency of an answer, in time or late, ns.
    pub latency_max: Nanos,
}

/// Errors of predicted run times, ns.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Predictions {
    /// By how much runs were shorter than predicted, over these runs.
    pub over: Histogram,
    /// By how much runs were longer than predicted, over these runs.
    pub under: Histogram,
}

// === impl Reason ===

impl Reason {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dropped(DropReason::Infeasible) => "infeasible",
            Self::Dropped(DropReason::Expired) => "expired",
            Self::Dropped(DropReason::Shed) => "shed",
            Self::Dropped(DropReason::QueueFull) => "queue_full",
            Self::Dropped(DropReason::Gone) => "gone",
            Self::Failed(Failure::TooLate) => "too_late",
            Self::Failed(Failure::NotLoaded) => "not_loaded",
            Self::Failed(Failure::WeightsChanged) => "weights_changed",
            Self::Failed(Failure::NoMemory) => "no_memory",
            Self::Failed(Failure::Lost) => "lost",
        }
    }

    /// Whether a worker failed, because of a misprediction, and not the policy gave up.
    pub fn is_failure(self) -> bool {
        matches!(self, Self::Failed(_))
    }
}

// === impl Report ===

impl Report {
    /// All intervals together; [`Interval::cold_models`] is the mean over them.
    pub fn total(&self) -> Interval {
        let mut total = Interval::default();
        for interval in &self.intervals {
            total.add(interval);
        }
        total.cold_models /= self.intervals.len().max(1) as f64;
        total
    }

    /// The intervals, joined `count` at a time.
    pub fn grouped(&self, count: usize) -> Vec<Interval> {
        let sum = |intervals: &[Interval]| {
            let mut total = Interval::default();
            for interval in intervals {
                total.add(interval);
            }
            total.cold_models /= intervals.len() as f64;
            total
        };
        self.intervals.chunks(count.max(1)).map(sum).collect()
    }
}

// === impl Interval ===

impl Interval {
    /// All classes together.
    pub fn class_total(&self) -> Class {
        let mut total = Class::default();
        for class in &self.classes {
            total.add(class);
        }
        total
    }

    /// Share of time in which a device's LOADs ran, 0 to 1.
    pub fn load_busy_share(&self, devices: u32) -> f64 {
        self.load_busy as f64 / (self.seconds * 1e9 * f64::from(devices)).max(1.0)
    }

    /// Share of time in which a device's batches ran, 0 to 1.
    pub fn exec_busy_share(&self, devices: u32) -> f64 {
        self.exec_busy as f64 / (self.seconds * 1e9 * f64::from(devices)).max(1.0)
    }

    /// Adds another span.
    fn add(&mut self, other: &Self) {
        self.seconds += other.seconds;
        self.classes.resize(
            self.classes.len().max(other.classes.len()),
            Class::default(),
        );
        for (class, more) in self.classes.iter_mut().zip(&other.classes) {
            class.add(more);
        }
        self.cold_models += other.cold_models;
        self.loads += other.loads;
        for (failure, count) in &other.failed_loads {
            *self.failed_loads.entry(*failure).or_default() += count;
        }
        self.load_busy += other.load_busy;
        self.exec_busy += other.exec_busy;
        self.batches += other.batches;
        self.rows += other.rows;
    }
}

// === impl Class ===

impl Class {
    /// Requests that were not answered or answered too late.
    pub fn misses(&self) -> u64 {
        self.late + self.missed.values().sum::<u64>()
    }

    /// Requests with which a worker failed: mispredictions.
    pub fn failures(&self) -> u64 {
        let failed = self.missed.iter().filter(|(reason, _)| reason.is_failure());
        failed.map(|(_, count)| count).sum()
    }

    /// Mean latency of answers, ns; 0 without any.
    pub fn latency_mean(&self) -> f64 {
        self.latency_sum as f64 / (self.good + self.late).max(1) as f64
    }

    fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.cold += other.cold;
        self.good += other.good;
        self.cold_good += other.cold_good;
        self.late += other.late;
        for (reason, count) in &other.missed {
            *self.missed.entry(*reason).or_default() += count;
        }
        self.latency_sum += other.latency_sum;
        self.latency_max = self.latency_max.max(other.latency_max);
    }
}

// === impl Predictions ===

impl Predictions {
    pub(super) fn add(&mut self, predicted: Nanos, measured: Nanos) {
        if measured > predicted {
            self.under.add(measured - predicted);
        } else {
            self.over.add(predicted - measured);
        }
    }
}
