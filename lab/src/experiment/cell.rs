//! A cell: one setting of an experiment, as its file describes it.

use serde::Deserialize;

use super::{build::PreparedCell, memory::MemorySpec};
use crate::Setting;
use crate::azure::Mapping;
use sextant_simulator::Error;

/// One setting.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cell {
    /// Name of the cell in reports.
    pub name: String,
    /// Devices; or [`Self::devices_per_model`].
    #[serde(default)]
    pub devices: u32,
    /// Devices for each model, rounded up.
    #[serde(default)]
    pub devices_per_model: f64,
    /// Devices of several types instead of [`Self::devices`], the one with the cheapest runs first
    /// (`prices`).
    #[serde(default)]
    pub fleet: Vec<DeviceType>,
    /// The models and their load.
    #[serde(default)]
    pub group: Vec<Group>,
    /// Delays of messages.
    #[serde(default)]
    pub network: NetworkSpec,
    /// Run times vary by this share of the profile in both directions.
    #[serde(default)]
    pub jitter_share: f64,
    /// Time before arrivals count (warm-up), s.
    #[serde(default = "two")]
    pub warm_up_s: f64,
    /// Time in which arrivals count, s.
    #[serde(default)]
    pub measured_s: f64,
    /// Instead of [`Self::measured_s`]: the time in which a model gets this many requests, on average, at the fluid
    /// bound.
    #[serde(default)]
    pub requests_per_model: u64,
    /// Requests per second of all open groups (`sweep`, `ladder`).
    #[serde(default)]
    pub rate_rps: f64,
    /// Rates as multiples of the peak (`flat-top`), or of what the first type carries alone
    /// (`prices`).
    #[serde(default)]
    pub loads: Vec<f64>,
    /// Targets of the first group, ms, increasing (`ladder`).
    #[serde(default)]
    pub targets_ms: Vec<f64>,
    /// Whose share of misses decides whether a rate is good.
    #[serde(default)]
    pub criterion: Criterion,
    /// Largest share of misses that is still good.
    #[serde(default = "one_percent")]
    pub most_missed_share: f64,
    /// Whether to print the analytical results for one model (Symphony, section 3).
    #[serde(default)]
    pub analytic: bool,
    /// `sextant`: share of spare devices that is kept idle, 0 to 1.
    #[serde(default)]
    pub hold: f64,
    /// `nexus`: frontends that each batch on their own.
    #[serde(default = "one")]
    pub frontends: u32,
    /// Length of a window, ms (`spread`).
    #[serde(default)]
    pub window_ms: f64,
    /// The memory of a device (`timeline`).
    #[serde(default)]
    pub memory: Option<MemorySpec>,
}

/// Devices of a type.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceType {
    /// Name of the type.
    pub name: String,
    /// Number of devices, at least 1.
    pub devices: u32,
    /// Price of one device, US dollars an hour.
    pub hour_usd: f64,
    /// Factor of run times relative to the profile.
    #[serde(default = "unit")]
    pub slowdown: f64,
}

/// Models of the same kind.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// Name of the group, if there are several.
    #[serde(default)]
    pub name: String,
    /// A shipped profile file, or a path.
    #[serde(default)]
    pub profile: String,
    /// Only these models of the profile; empty for all.
    #[serde(default)]
    pub models: Vec<String>,
    /// Only models whose beta / alpha is more than this.
    #[serde(default)]
    pub ratio_above: Option<f64>,
    /// Only models whose beta / alpha is less than this.
    #[serde(default)]
    pub ratio_below: Option<f64>,
    /// Make this many model types from the measured ones, by interpolation over the size of their weights; 0 for only
    /// the measured ones.
    #[serde(default)]
    pub family: u32,
    /// Number of copies of each model.
    #[serde(default = "one")]
    pub copies: u32,
    /// The target, ms, instead of the profile's; 0 for none.
    #[serde(default)]
    pub target_ms: Option<f64>,
    /// Largest batch, if the profile is a straight line.
    #[serde(default = "most_rows")]
    pub max_rows: u32,
    /// The arrival process.
    #[serde(default)]
    pub arrivals: Arrivals,
    /// Shape parameter of the gaps of `gamma` arrivals.
    #[serde(default = "unit")]
    pub shape: f64,
    /// The popularity of each model.
    #[serde(default)]
    pub popularity: Popularity,
    /// The exponent of `zipf` popularity.
    #[serde(default = "zipf")]
    pub zipf_exponent: f64,
    /// How the rate changes over time; the pattern repeats. The mean rate stays the same.
    #[serde(default)]
    pub pattern: Vec<Segment>,
    /// A day of the Azure Functions 2019 data set for `azure` arrivals; generated if empty.
    #[serde(default)]
    pub counts: String,
    /// How the functions of the data set are assigned to the models.
    #[serde(default)]
    pub mapping: Mapping,
    /// Whether functions are assigned in a random order, which is the same in every run.
    #[serde(default)]
    pub shuffled: bool,
    /// Whether generated timers of the same period fire together.
    #[serde(default)]
    pub aligned_timers: bool,
    /// Minutes of generated rates; after the last minute the first one follows again.
    #[serde(default = "hour")]
    pub minutes: usize,
    /// Duration of a minute of the `azure` rates, s.
    #[serde(default = "minute")]
    pub minute_s: f64,
    /// Requests per second of this group, in addition to the cell's rate.
    #[serde(default)]
    pub rate_rps: f64,
    /// Time of the first request of `spreading` arrivals, s.
    #[serde(default)]
    pub begin_s: f64,
    /// Time after which `spreading` arrivals go to one more model, s.
    #[serde(default = "unit")]
    pub step_s: f64,
    /// Clients of each model with `closed` arrivals.
    #[serde(default)]
    pub clients: u32,
    /// Priority; a higher one goes first.
    #[serde(default)]
    pub priority: u8,
}

/// A part of a group's pattern, in which the rate changes linearly; the rates are relative to the other parts.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Segment {
    /// Duration, s.
    pub seconds: f64,
    /// Rate at the beginning.
    pub from: f64,
    /// Rate at the end.
    pub to: f64,
}

/// The arrival process of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arrivals {
    /// Exponential gaps.
    #[default]
    Poisson,
    /// Gaps of a Gamma distribution.
    Gamma,
    /// Equal gaps.
    Constant,
    /// Clients that send the next request after they have been answered.
    Closed,
    /// Piecewise Poisson arrivals with the rates of many small functions.
    Azure,
    /// Poisson arrivals, at first for one model, then for more and more models.
    Spreading,
}

/// The popularity of each model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Popularity {
    /// All models are equally popular.
    #[default]
    Equal,
    /// The popularity of the i-th model is proportional to 1 / i^s.
    Zipf,
}

/// Whose share of misses decides whether a rate is still good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Criterion {
    /// The share of each model.
    #[default]
    EachModel,
    /// The share of all requests together.
    Total,
}

/// Delays of messages, microseconds: the least delay, and the most that is added at random. Schedulers make room for
/// the sum.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NetworkSpec {
    /// Scheduler to worker.
    pub control_us: f64,
    /// Gathering the inputs, for each row.
    pub data_us: f64,
    /// Worker to client.
    pub response_us: f64,
    /// Most that is added to `control_us`.
    pub control_spread_us: f64,
    /// Most that is added to `data_us`.
    pub data_spread_us: f64,
    /// Most that is added to `response_us`.
    pub response_spread_us: f64,
}

// === impl Cell ===

impl Cell {
    /// The world of the cell's runs, with the default policy.
    ///
    /// # Errors
    /// When a profile or a model of it cannot be found.
    pub fn setting(&self) -> Result<Setting, Error> {
        Ok(PreparedCell::new(self)?.into_setting())
    }
}

/// Keys of [`Cell`] that a cell's table may hold besides those of its groups.
pub(super) const CELL_KEYS: &[&str] = &[
    "name",
    "devices",
    "devices_per_model",
    "fleet",
    "network",
    "jitter_share",
    "warm_up_s",
    "measured_s",
    "requests_per_model",
    "rate_rps",
    "loads",
    "targets_ms",
    "criterion",
    "most_missed_share",
    "analytic",
    "hold",
    "frontends",
    "window_ms",
    "memory",
];

fn one() -> u32 {
    1
}

fn two() -> f64 {
    2.0
}

fn unit() -> f64 {
    1.0
}

fn hour() -> usize {
    60
}

fn minute() -> f64 {
    60.0
}

fn zipf() -> f64 {
    0.9
}

fn one_percent() -> f64 {
    0.01
}

fn most_rows() -> u32 {
    256
}
