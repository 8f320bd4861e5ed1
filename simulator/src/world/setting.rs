//! What a run is made of: models, devices, delays, and where requests come from.

use std::sync::Arc;

use sextant_policies::schedule::{Delay, LatencyTable, Nanos, Options};

/// A model under test.
#[derive(Debug, Clone)]
pub struct Model {
    /// Its name in reports.
    pub name: String,
    /// Time within which an answer counts, ns; [`NEVER`](sextant_policies::schedule::NEVER) for none.
    pub target: Nanos,
    /// Run times by kind of device; `None` where it cannot run. The table's length is the largest
    /// batch.
    pub latency: Vec<Option<Arc<LatencyTable>>>,
    /// Higher goes first.
    pub priority: u8,
    /// Share under overload; 1 is normal.
    pub weight: f32,
}

/// An emulated device: one batch at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Device {
    /// Position in [`Model::latency`]; devices of a kind form a pool.
    pub kind: u32,
}

/// How measured run times scatter around the profile.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Jitter {
    /// Not at all.
    None,
    /// By a factor that is uniform in `1 - spread ..= 1 + spread`.
    Uniform {
        /// Half the width, 0 to 1.
        spread: f64,
    },
    /// Longer by `factor` with probability `share`.
    Spikes {
        /// Probability, 0 to 1.
        share: f64,
        /// At least 1.
        factor: f64,
    },
}

/// A device goes away and comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// Position of the device.
    pub device: u32,
    /// When it goes, ns.
    pub from: Nanos,
    /// When it is back, ns.
    pub until: Nanos,
}

/// Everything about a run but its arrivals.
#[derive(Debug, Clone)]
pub struct Setting {
    /// By position: the models.
    pub models: Vec<Model>,
    /// By position: the devices.
    pub devices: Vec<Device>,
    /// The policy, with the delays for which it makes room.
    pub options: Options,
    /// What the network really takes; at most what `options` allow for, or batches are late.
    pub network: Network,
    /// Scatter of run times.
    pub jitter: Jitter,
    /// Devices that fail.
    pub failures: Vec<Failure>,
    /// Of the scatter and the network.
    pub seed: u64,
    /// Keep a histogram of latencies for each model.
    pub histograms: bool,
}

/// Delays of messages: a constant part, and a uniform part on top.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Network {
    /// Least delays.
    pub base: Delay,
    /// Most that is added to each.
    pub spread: Delay,
}

/// A request as a source makes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// When, ns.
    pub at: Nanos,
    /// Which model.
    pub model: u32,
    /// Who, for a source that waits for answers.
    pub client: u32,
}

/// Where requests come from, in order of time.
pub trait Source {
    /// When the next request comes, as far as is known.
    fn peek(&mut self) -> Option<Nanos>;

    /// The next request. Only called after [`Self::peek`] said there is one.
    fn next(&mut self) -> Arrival;

    /// A request was answered or dropped.
    fn on_answer(&mut self, _now: Nanos, _model: u32, _client: u32) {}
}

/// The measured part of a run.
#[derive(Debug, Clone, Default)]
pub struct Span {
    /// From when arrivals count, ns.
    pub from: Nanos,
    /// Until when, ns.
    pub until: Nanos,
    /// By model: more misses than this end the run early; empty for never.
    pub most_missed: Vec<u64>,
}
