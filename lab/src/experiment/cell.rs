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
    /// Its name in reports.
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
    /// Models and what is asked of them.
    #[serde(default)]
    pub group: Vec<Group>,
    /// What messages cost.
    #[serde(default)]
    pub network: NetworkSpec,
    /// Run times scatter by this share of the profile, both ways.
    #[serde(default)]
    pub jitter_share: f64,
    /// Time before arrivals count, s.
    #[serde(default = "two")]
    pub warm_up_s: f64,
    /// Time in which arrivals count, s.
    #[serde(default)]
    pub measured_s: f64,
    /// Instead of [`Self::measured_s`]: until a model has had so many requests, on average, at the
    /// fluid bound.
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
    /// Whose share of misses decides.
    #[serde(default)]
    pub criterion: Criterion,
    /// Share of misses that is still good.
    #[serde(default = "one_percent")]
    pub most_missed_share: f64,
    /// Whether to print what analysis says of one model (Symphony, section 3).
    #[serde(default)]
    pub analytic: bool,
    /// `sextant`: share of spare devices that is kept idle, 0 to 1.
    #[serde(default)]
    pub hold: f64,
    /// `nexus`: frontends that batch on their own.
    #[serde(default = "one")]
    pub frontends: u32,
    /// Length of a window, ms (`spread`).
    #[serde(default)]
    pub window_ms: f64,
    /// What a device's memory holds (`timeline`).
    #[serde(default)]
    pub memory: Option<MemorySpec>,
}

/// Devices of a type.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceType {
    /// What it is called.
    pub name: String,
    /// How many there are, at least 1.
    pub devices: u32,
    /// Price of one, US dollars an hour.
    pub hour_usd: f64,
    /// Run times over those of the profile.
    #[serde(default = "unit")]
    pub slowdown: f64,
}

/// Models of the same kind.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// Its name where there are several.
    #[serde(default)]
    pub name: String,
    /// A shipped profile file or a path.
    #[serde(default)]
    pub profile: String,
    /// Only these models of it; empty for all.
    #[serde(default)]
    pub models: Vec<String>,
    /// Only models whose beta / alpha is more than this.
    #[serde(default)]
    pub ratio_above: Option<f64>,
    /// Only models whose beta / alpha is less than this.
    #[serde(default)]
    pub ratio_below: Option<f64>,
    /// Make so many model types of those, by interpolation over the size of their weights; 0 for
    /// none but the measured ones.
    #[serde(default)]
    pub family: u32,
    /// How often each model occurs.
    #[serde(default = "one")]
    pub copies: u32,
    /// The target, ms, instead of the profile's; 0 for none.
    #[serde(default)]
    pub target_ms: Option<f64>,
    /// Largest batch of a profile that is a line.
    #[serde(default = "most_rows")]
    pub max_rows: u32,
    /// How requests come.
    #[serde(default)]
    pub arrivals: Arrivals,
    /// Shape of the gaps where they are `gamma`.
    #[serde(default = "unit")]
    pub shape: f64,
    /// How often each model is asked for.
    #[serde(default)]
    pub popularity: Popularity,
    /// The exponent where popularity is `zipf`.
    #[serde(default = "zipf")]
    pub zipf_exponent: f64,
    /// How the rate changes over time, again and again; its mean stays what it is.
    #[serde(default)]
    pub pattern: Vec<Segment>,
    /// A day of the Azure Functions 2019 data set for `azure` arrivals; invented when empty.
    #[serde(default)]
    pub counts: String,
    /// How its functions are dealt out to the models.
    #[serde(default)]
    pub mapping: Mapping,
    /// Whether they are dealt out in a random order, the same in every run.
    #[serde(default)]
    pub shuffled: bool,
    /// Whether invented timers of the same period fire together.
    #[serde(default)]
    pub aligned_timers: bool,
    /// Minutes of invented rates; then the first comes again.
    #[serde(default = "hour")]
    pub minutes: usize,
    /// How long a minute of the `azure` rates lasts, s.
    #[serde(default = "minute")]
    pub minute_s: f64,
    /// Requests per second of this group, beside the cell's rate.
    #[serde(default)]
    pub rate_rps: f64,
    /// When the first request of `spreading` arrivals comes, s.
    #[serde(default)]
    pub begin_s: f64,
    /// Time after which `spreading` arrivals are for one more model, s.
    #[serde(default = "unit")]
    pub step_s: f64,
    /// Clients of each model where arrivals are `closed`.
    #[serde(default)]
    pub clients: u32,
    /// Higher goes first.
    #[serde(default)]
    pub priority: u8,
}

/// A part of a group's pattern: the rate goes in a straight line, relative to the others.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Segment {
    /// How long, s.
    pub seconds: f64,
    /// At its beginning.
    pub from: f64,
    /// At its end.
    pub to: f64,
}

/// How requests come.
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
    /// Clients that send when they have been answered.
    Closed,
    /// Piecewise Poisson with the rates of many small functions.
    Azure,
    /// Poisson, at first for one model, then for more and more of them.
    Spreading,
}

/// How often each model is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Popularity {
    /// All the same.
    #[default]
    Equal,
    /// The i-th in proportion to 1 / i^s.
    Zipf,
}

/// Whose share of misses decides whether a rate is still good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Criterion {
    /// That of each model.
    #[default]
    EachModel,
    /// That of all requests together.
    Total,
}

/// Delays of messages, microseconds: the least, and what may be added. Schedulers make room for
/// the sum.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NetworkSpec {
    /// Scheduler to worker.
    pub control_us: f64,
    /// Gathering inputs, for each row.
    pub data_us: f64,
    /// Worker to client.
    pub response_us: f64,
    /// Added to the first at most.
    pub control_spread_us: f64,
    /// Added to the second at most.
    pub data_spread_us: f64,
    /// Added to the third at most.
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

/// Keys of [`Cell`] that a cell's table may hold beside those of its groups.
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
