//! Our policy: it uses every processor where it saves the most late answers.
//!
//! At each tick, for each application, the policy takes three steps:
//! 1. *Forecast* the requests of the current minute and of the next ones ([`super::forecast`]).
//! 2. *Expect* the share of late answers for each number of replicas, over the uncertainty of the forecast
//!    ([`super::Service::late_share`]).
//! 3. *Give* free processors where they save the most, and *move* a replica where that saves more than it costs. The
//!    application that loses the replica loses it at once. The one that gets it waits until the processor is free and a
//!    replica has started.

use super::{
    Autoscaler, Change, Observation, Setting,
    forecast::{AHEAD, Forecaster, RateForecast},
};

/// The late answers that a move must save beyond its cost, as a share of the requests of one application.
const WORTH: f64 = 0.05;

/// Smaller shares of late answers count as zero.
const NONE: f64 = 1e-5;

/// Points of a distribution, in deviations from its middle: the middles of ninths.
const POINTS: [f64; 9] = [
    -1.593, -0.967, -0.589, -0.282, 0.0, 0.282, 0.589, 0.967, 1.593,
];

/// The probability that a repetition comes a minute earlier or later.
const SHIFTED: f64 = 0.4;

/// Our autoscaler; see the module.
#[derive(Debug, Clone)]
pub struct Sextant {
    setting: Setting,
    jobs: Vec<Forecaster>,
    /// The number of ticks that the forecasters have seen.
    ticks: usize,
}

/// Late answers of one application by the number of its replicas, starting at zero, as convex curves.
///
/// If a load is far beyond what the replicas can do, one more saves nothing and two more may save everything. What each
/// replica saves is therefore taken from the curve's convex hull.
struct Curve {
    /// From the next minute on, when a replica that is given now serves.
    later: Vec<f64>,
    /// From now on.
    now: Vec<f64>,
}

impl Sextant {
    /// Makes an autoscaler without history.
    pub fn new(setting: &Setting) -> Self {
        Self {
            setting: *setting,
            jobs: Vec::new(),
            ticks: 0,
        }
    }
}

impl Autoscaler for Sextant {
    fn decide(&mut self, _now_s: u32, jobs: &[Observation<'_>]) -> Vec<Change> {
        self.jobs.resize_with(jobs.len(), Forecaster::default);
        let setting = &self.setting;
        let curves: Vec<Curve> = self
            .jobs
            .iter_mut()
            .zip(jobs)
            .map(|(job, seen)| {
                let new = seen.arrivals.iter().skip(self.ticks);
                new.for_each(|requests| job.push(f64::from(*requests)));
                Curve::new(setting, &job.look())
            })
            .collect();
        self.ticks = jobs.first().map_or(0, |seen| seen.arrivals.len());
        let mut desired: Vec<u32> = jobs.iter().map(|seen| seen.desired).collect();
        let taken: u32 = desired.iter().sum();
        let mut free = self.setting.processors.saturating_sub(taken);
        while free > 0
            && let Some((gain, job)) = most(&curves, &desired, jobs)
            // Processors that nobody needs stay free: a replica starts sooner on a free processor than on one taken
            // from another job.
            && gain > NONE
        {
            desired[job] += 1;
            free -= 1;
        }
        for _ in 0..self.setting.processors {
            let Some((gain, to)) = most(&curves, &desired, jobs) else {
                break;
            };
            let Some((loss, from)) = least(&curves, &desired, jobs, to) else {
                break;
            };
            if gain <= loss + WORTH {
                break;
            }
            desired[from] -= 1;
            desired[to] += 1;
        }
        let changed = desired.iter().zip(jobs).enumerate();
        changed
            .filter(|(_, (desired, seen))| **desired != seen.desired)
            .map(|(job, (desired, _))| Change {
                job,
                target: *desired,
                trials: 1,
            })
            .collect()
    }
}

/// What one more replica saves, for the application where that is most.
fn most(curves: &[Curve], desired: &[u32], jobs: &[Observation<'_>]) -> Option<(f64, usize)> {
    let mut best: Option<(f64, usize)> = None;
    for (job, curve) in curves.iter().enumerate() {
        let gain = curve.gain(desired[job]);
        if !jobs[job].busy && best.is_none_or(|(most, _)| gain > most) {
            best = Some((gain, job));
        }
    }
    best
}

/// What one fewer replica costs, for the application where that is least, other than `to`.
fn least(
    curves: &[Curve],
    desired: &[u32],
    jobs: &[Observation<'_>],
    to: usize,
) -> Option<(f64, usize)> {
    let mut best: Option<(f64, usize)> = None;
    for (job, curve) in curves.iter().enumerate() {
        if job == to || jobs[job].busy || desired[job] <= 1 {
            continue;
        }
        let loss = curve.loss(desired[job]);
        if best.is_none_or(|(least, _)| loss < least) {
            best = Some((loss, job));
        }
    }
    best
}

// === impl Curve ===

impl Curve {
    fn new(setting: &Setting, expected: &[RateForecast; AHEAD]) -> Self {
        let all = [1.0; AHEAD];
        let mut by_replicas = vec![all];
        for replicas in 1..=setting.processors {
            let late = expected.map(|of| late(setting, &of, replicas));
            by_replicas.push(late);
            if late.iter().all(|late| *late < NONE) {
                break;
            }
        }
        let mean = |skip: usize| {
            let mean = |late: &[f64; AHEAD]| late[skip..].iter().sum::<f64>() / (AHEAD - 1) as f64;
            hull(&by_replicas.iter().map(mean).collect::<Vec<f64>>())
        };
        Self {
            later: mean(1),
            now: mean(0),
        }
    }

    /// What one more replica saves.
    fn gain(&self, replicas: u32) -> f64 {
        step(&self.later, replicas)
    }

    /// What one fewer replica costs.
    fn loss(&self, replicas: u32) -> f64 {
        step(&self.now, replicas.saturating_sub(1))
    }
}

/// The share of late answers in a minute with this many replicas.
fn late(setting: &Setting, of: &RateForecast, replicas: u32) -> f64 {
    let target_s = setting.target_ms / 1e3;
    let around = |middle: f64| {
        let late = POINTS.iter().map(|point| {
            let rps = middle * (point * of.deviation).exp();
            setting.service.late_share(rps, replicas, target_s)
        });
        late.sum::<f64>() / POINTS.len() as f64
    };
    let [sooner, later] = of.shifted;
    if sooner == of.rps && later == of.rps {
        return around(of.rps);
    }
    let shifted = around(sooner) + around(later);
    (1.0 - SHIFTED) * around(of.rps) + SHIFTED / 2.0 * shifted
}

/// By how much a curve falls from a number of replicas to the next; zero beyond its end.
fn step(curve: &[f64], replicas: u32) -> f64 {
    let at = replicas as usize;
    match (curve.get(at), curve.get(at + 1)) {
        (Some(before), Some(after)) => before - after,
        _ => 0.0,
    }
}

/// The largest convex curve that is nowhere above the values.
fn hull(values: &[f64]) -> Vec<f64> {
    let mut corners: Vec<usize> = Vec::new();
    for at in 0..values.len() {
        while let [.., before, last] = corners.as_slice() {
            let slope = |from: usize, to: usize| (values[to] - values[from]) / (to - from) as f64;
            if slope(*before, *last) < slope(*last, at) {
                break;
            }
            corners.pop();
        }
        corners.push(at);
    }
    let mut curve = values.to_vec();
    for pair in corners.windows(2) {
        let (from, to) = (pair[0], pair[1]);
        let slope = (values[to] - values[from]) / (to - from) as f64;
        for (step, at) in curve[from..to].iter_mut().enumerate() {
            *at = values[from] + slope * step as f64;
        }
    }
    curve
}
