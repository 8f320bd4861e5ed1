//! One trial: the requests, a policy, a number of devices.

use sextant_schedule::Schedulers;

use super::{Candidate, Kind, Question, SERVED};
use crate::{Device, Jitter, Model, Network, Report, Setting, Shape, Span, Tally, World};

/// The outcome of the requests with this many devices.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// The number of devices.
    pub devices: u32,
    /// The share of all requests that were answered in time, 0 to 1.
    pub served_share: f64,
    /// The model that was served worst, and its share.
    pub worst: (String, f64),
    /// Requests answered in time, per second of the trace.
    pub good_rps: f64,
    /// The highest rate at which every model is still served, with the trace played faster or
    /// slower, requests per second; 0 if it is not found.
    pub goodput_rps: f64,
    /// Median latency of the answers, ms.
    pub p50_ms: f64,
    /// 99th percentile, ms.
    pub p99_ms: f64,
    /// Longest, ms.
    pub max_ms: f64,
    /// Device time spent over device time available, 0 to 1.
    pub busy_share: f64,
}

/// The relative precision at which the search for the highest speed ends.
const PRECISION: f64 = 0.02;
/// The search goes no further than a factor of 2 to this power, faster or slower.
const DOUBLINGS: i32 = 12;

impl Question {
    /// Runs the trace as it is and, for the goodput, at other speeds.
    pub(super) fn outcome<S: Schedulers>(&self, policy: &S, devices: u32) -> Outcome {
        let setting = self.setting(policy, devices);
        let report = self.run(&setting, 1.0, false);
        let longest = longest(&report);
        let ms = |nanos: u64| nanos.min(longest) as f64 / 1e6;
        let good: u64 = report.models.iter().map(|tally| tally.good).sum();
        let worst = (report.models.iter().map(served))
            .enumerate()
            .min_by(|a, b| a.1.total_cmp(&b.1))
            .unwrap_or((0, 1.0));
        let name = self.models.get(worst.0).map(|model| model.name.clone());
        Outcome {
            devices,
            served_share: good as f64 / self.trace.requests.len().max(1) as f64,
            worst: (name.unwrap_or_default(), worst.1),
            good_rps: report.good_per_s(),
            goodput_rps: self.goodput(&setting, is_served(&report)),
            p50_ms: ms(report.latencies.quantile(0.5)),
            p99_ms: ms(report.latencies.quantile(0.99)),
            max_ms: ms(longest),
            busy_share: report.busy_share,
        }
    }

    /// Whether every model is served with so many devices.
    pub(super) fn is_enough<S: Schedulers>(&self, policy: &S, devices: u32) -> bool {
        self.is_served_at(&self.setting(policy, devices), 1.0)
    }

    fn is_served_at<S: Schedulers>(&self, setting: &Setting<S>, speed: f64) -> bool {
        let report = self.run(setting, speed, true);
        !report.stopped && is_served(&report)
    }

    /// Doubles or halves the speed until the result changes, then searches between the two.
    fn goodput<S: Schedulers>(&self, setting: &Setting<S>, served: bool) -> f64 {
        let step = if served { 2.0 } else { 0.5 };
        let mut speed = 1.0;
        for _ in 0..DOUBLINGS {
            let next = speed * step;
            if self.is_served_at(setting, next) != served {
                let (low, high) = if served { (speed, next) } else { (next, speed) };
                return self.rate() * self.between(setting, low, high);
            }
            speed = next;
        }
        if served { self.rate() * speed } else { 0.0 }
    }

    fn between<S: Schedulers>(&self, setting: &Setting<S>, mut low: f64, mut high: f64) -> f64 {
        while high / low > 1.0 + PRECISION {
            let middle = (low * high).sqrt();
            if self.is_served_at(setting, middle) {
                low = middle;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Requests per second of the trace as it is.
    fn rate(&self) -> f64 {
        self.trace.requests.len() as f64 / self.length(1.0) as f64 * 1e9
    }

    /// The length of time in which requests come, ns. A trace of a single moment lasts a
    /// millisecond.
    fn length(&self, speed: f64) -> u64 {
        let last = self.trace.requests.last().map_or(0, |(at, _)| *at);
        ((last as f64 / speed) as u64 + 1).max(1_000_000)
    }

    /// `early`: ends the run as soon as some model is not served.
    fn run<S: Schedulers>(&self, setting: &Setting<S>, speed: f64, early: bool) -> Report {
        let most_missed = if early {
            self.most_missed()
        } else {
            Vec::new()
        };
        let span = Span {
            from: 0,
            until: self.length(speed),
            most_missed,
        };
        World::new(setting).run(&mut self.trace.replay(speed), span)
    }

    fn most_missed(&self) -> Vec<u64> {
        let mut sent = vec![0_u64; self.models.len()];
        for (_, model) in &self.trace.requests {
            sent[*model as usize] += 1;
        }
        let most = |sent: u64| sent - (SERVED * sent as f64).ceil() as u64;
        sent.into_iter().map(most).collect()
    }

    fn setting<S: Schedulers>(&self, policy: &S, devices: u32) -> Setting<S> {
        Setting {
            models: self.models.iter().map(model).collect(),
            devices: apportion(&self.kinds, devices),
            options: policy.clone(),
            network: Network::default(),
            jitter: Jitter::None,
            shape: Shape::default(),
            failures: Vec::new(),
            seed: 0,
            prices: Vec::new(),
            histograms: false,
        }
    }
}

fn model(candidate: &Candidate) -> Model {
    Model {
        name: candidate.name.clone(),
        target: candidate.target(),
        latency: candidate.latency.clone(),
        priority: 0,
        weight: 1.0,
    }
}

/// Devices in the given proportion. Each additional one is of the kind that is furthest below its
/// share, so that more devices never take one away.
fn apportion(kinds: &[Kind], devices: u32) -> Vec<Device> {
    let mut given = vec![0_u32; kinds.len()];
    (0..devices)
        .map(|_| {
            let filled = |at: usize| (f64::from(given[at]) + 0.5) / f64::from(kinds[at].count);
            let shortest = (0..kinds.len()).min_by(|a, b| filled(*a).total_cmp(&filled(*b)));
            let kind = shortest.unwrap_or(0);
            given[kind] += 1;
            Device { kind: kind as u32 }
        })
        .collect()
}

/// Exact unless an answer was late. Late answers are only in the histogram, to 3 %.
fn longest(report: &Report) -> u64 {
    if report.models.iter().any(|tally| tally.late > 0) {
        return report.latencies.quantile(1.0);
    }
    let models = report.models.iter().map(|tally| tally.max_latency);
    models.max().unwrap_or(0)
}

fn served(tally: &Tally) -> f64 {
    1.0 - tally.missed_share()
}

fn is_served(report: &Report) -> bool {
    report
        .models
        .iter()
        .all(|tally| tally.good as f64 >= SERVED * tally.sent as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_come_in_their_proportion_and_none_is_taken_away() {
        let kind = |name: &str, count| Kind {
            name: name.to_owned(),
            count,
        };
        let kinds = [kind("a", 3), kind("b", 1)];
        let all = apportion(&kinds, 12);
        assert_eq!(all.iter().filter(|device| device.kind == 1).count(), 3);
        for count in 0..12 {
            assert_eq!(apportion(&kinds, count), all[..count as usize]);
        }
        assert_eq!(all[0], Device { kind: 0 });
    }
}
