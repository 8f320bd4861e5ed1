//! Tuners: how many replicas each step has while traffic changes.
//!
//! A tuner sees only the arrivals, at the front of the queue, and says from time to time how many replicas of the
//! planned kind each step should have. Replicas serve some seconds after they were asked for.
//!
//! | tuner | rule |
//! |---|---|
//! | [`Rule::Printed`] | InferLine's (section 4.5.2): if the rate of any window exceeds that of the sample, the highest such rate over the sample's mean; down after 15 s by the last 30 s |
//! | [`Rule::Ratio`] | ours: by how much each window exceeds the same window of the sample, if it does for a while; down in the same way |
//! | [`Rule::Estimate`] | ours: the same rule decides when; the number is what the estimator needs for the traffic of the last minute |
//! | [`Rule::Coarse`] | the pipeline as one box, by the mean rate of the last seconds, down after two minutes (AutoScale, as InferLine's baseline) |
//!
//! The printed rule divides the highest rate of any window by the *mean* of the sample. A short window always has a
//! higher rate than the mean, so each false alarm multiplies all replicas. Here each window is compared with the same
//! window of the sample.

mod envelope;
mod live;

pub use envelope::{Envelope, Watch};
pub use live::{Timeline, timeline};

use crate::{
    Nanos,
    plan::{Plan, Problem},
};

const SECOND: Nanos = 1_000_000_000;

/// Time between two looks at the traffic, ns.
pub const EVERY: Nanos = SECOND;

/// The time from when a replica is asked for until it serves, ns (InferLine, section 4.6).
pub const ACTIVATION: Nanos = 5 * SECOND;

/// The rule of a tuner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// InferLine's rule, as printed.
    Printed,
    /// The ratio of equal windows, with persistence.
    Ratio,
    /// The estimator on live traffic.
    Estimate,
    /// The pipeline as one box.
    Coarse {
        /// The queries a second that a unit of the plan carries, times 1000.
        unit_millirate: u64,
    },
}

/// An excess over the sample that may be noise: two samples of the same traffic differ by as much.
const MARGIN: f64 = 1.10;

/// An excess that is not noise: one look is enough.
const CERTAIN: f64 = 1.35;

/// The number of looks for which a smaller excess must last.
const LASTING: u32 = 4;

/// Only windows up to this length may call for more replicas at once, ns.
const SHORTEST: Nanos = SECOND;

/// The time after the last change in which no replica is removed (InferLine, section 4.5.2), ns.
const CALM: Nanos = 15 * SECOND;

/// The length of the traffic by which replicas are removed, ns, and of the windows in it.
const BEFORE_LESS: Nanos = 30 * SECOND;
const LESS_WINDOW: Nanos = 5 * SECOND;

/// Below this share of the sample's highest rate, traffic counts as having decreased.
const QUIET: f64 = 0.8;

/// The same time for the baseline: AutoScale waits for two minutes.
const COARSE_CALM: Nanos = 120 * SECOND;

/// The length of the traffic by which the baseline scales, ns.
const COARSE_WINDOW: Nanos = 10 * SECOND;

/// A tuner of one pipeline.
#[derive(Debug, Clone)]
pub struct Tuner<'a> {
    rule: Rule,
    /// The problem that the plan was made for.
    problem: Problem<'a>,
    plan: Plan,
    sample: Envelope,
    watch: Watch,
    /// Replicas by step, as they were asked for.
    now: Vec<u32>,
    changed: Nanos,
    exceeded: u32,
    /// The multiple of the sample's traffic for which there are replicas.
    factor: f64,
    /// By how much windows exceeded those of the sample at the last look; 0 if none did.
    excess: f64,
}

// === impl Tuner ===

impl<'a> Tuner<'a> {
    /// A tuner for a plan and the sample with which it was made. `service` is the time that a query takes without
    /// waiting, ns.
    pub fn new(rule: Rule, problem: Problem<'a>, plan: &Plan, service: Nanos) -> Self {
        let sample = Envelope::of(problem.load.arrivals, service);
        Self {
            rule,
            problem,
            plan: plan.clone(),
            watch: Watch::new(service),
            sample,
            now: planned(plan),
            changed: 0,
            exceeded: 0,
            factor: 1.0,
            excess: 0.0,
        }
    }

    /// Replicas by step.
    pub fn replicas(&self) -> &[u32] {
        &self.now
    }

    /// A query has arrived.
    pub fn arrived(&mut self, at: Nanos) {
        self.watch.arrived(at);
    }

    /// Looks at the traffic. Returns `true` if the replicas have changed.
    pub fn look(&mut self, now: Nanos) -> bool {
        let desired = match self.rule {
            Rule::Coarse { unit_millirate } => self.coarse(now, unit_millirate),
            _ => self.more(now).or_else(|| self.less(now)),
        };
        let Some(desired) = desired.filter(|desired| *desired != self.now) else {
            return false;
        };
        self.now = desired;
        self.changed = now;
        true
    }

    /// The replicas for a burst or a higher rate.
    fn more(&mut self, now: Nanos) -> Option<Vec<u32>> {
        let current = self.watch.envelope(now);
        let desired = match self.rule {
            Rule::Printed => self.scaled(self.printed(&current)),
            _ => self.by_ratio(now, &current)?,
        };
        let desired: Vec<u32> = desired
            .iter()
            .zip(&self.now)
            .map(|(desired, now)| *desired.max(now))
            .collect();
        (desired != self.now).then_some(desired)
    }

    /// The highest rate that exceeds that of its window in the sample, over the sample's mean; 0 if none does.
    fn printed(&self, current: &Envelope) -> f64 {
        let exceeding = self.pairs(current).filter(|(_, now, sample)| now > sample);
        exceeding.map(|(_, now, _)| now).fold(0.0, f64::max) / self.problem.rate()
    }

    /// The windows for which the sample is long enough: their length, their rate now, and their rate in the sample.
    fn pairs(&self, current: &Envelope) -> impl Iterator<Item = (Nanos, f64, f64)> {
        let longest = (self.problem.seconds() * 1e9) as Nanos;
        let rates = current.rates().iter().zip(self.sample.rates());
        let windows = self.sample.windows().iter().zip(rates);
        let pairs = windows.map(|(window, (now, sample))| (*window, *now, *sample));
        pairs.filter(move |(window, ..)| *window <= longest)
    }

    /// The replicas by how much windows exceed those of the sample, if the excess is certain or lasts.
    fn by_ratio(&mut self, now: Nanos, current: &Envelope) -> Option<Vec<u32>> {
        let ratios = self.pairs(current).map(|(window, now, sample)| {
            let margin = if window <= SHORTEST { CERTAIN } else { MARGIN };
            let ratio = now / sample.max(1e-9);
            if ratio > margin { ratio } else { 0.0 }
        });
        let ratio = ratios.fold(0.0, f64::max);
        self.excess = ratio;
        self.exceeded = if ratio > 0.0 { self.exceeded + 1 } else { 0 };
        if ratio > CERTAIN * self.factor {
            // Queries pile up until the new replicas serve. The additional replicas give room to work them off in the
            // same time.
            let more = ratio - self.factor;
            self.factor = ratio;
            return Some(self.scaled(ratio + more));
        }
        if self.exceeded < LASTING {
            return None;
        }
        self.factor = self.factor.max(ratio);
        let scaled = self.scaled(ratio);
        Some(match self.rule {
            Rule::Estimate => self.estimated(now, &scaled),
            _ => scaled,
        })
    }

    /// The planned replicas times a factor.
    fn scaled(&self, factor: f64) -> Vec<u32> {
        let planned = planned(&self.plan);
        planned
            .iter()
            .map(|replicas| (f64::from(*replicas) * factor).ceil().max(1.0) as u32)
            .collect()
    }

    /// The fewest replicas that serve the traffic of the last minute, between the present number and `most`.
    fn estimated(&self, now: Nanos, most: &[u32]) -> Vec<u32> {
        let live = self.watch.recent(now);
        let mut desired: Vec<u32> = most
            .iter()
            .zip(&self.now)
            .map(|(most, now)| *most.max(now))
            .collect();
        let problem = Problem {
            load: crate::estimate::Load {
                arrivals: &live,
                ..self.problem.load
            },
            ..self.problem
        };
        for step in 0..desired.len() {
            let (mut few, mut many) = (self.now[step].saturating_sub(1), desired[step]);
            while many - few > 1 {
                let middle = u32::midpoint(few, many);
                desired[step] = middle;
                let is_enough = problem.is_met(&with(&self.plan, &desired));
                if is_enough {
                    many = middle;
                } else {
                    few = middle;
                }
            }
            desired[step] = many;
        }
        desired
    }

    /// The replicas for a lower rate.
    fn less(&mut self, now: Nanos) -> Option<Vec<u32>> {
        if now < self.changed + CALM {
            return None;
        }
        let rate = self.watch.highest(now, BEFORE_LESS, LESS_WINDOW);
        let factor = match self.rule {
            // The published rule divides by the step with the most room.
            Rule::Printed => rate / self.problem.rate(),
            _ => {
                let ratio = rate / self.sample.at(LESS_WINDOW).max(1e-9);
                // The sample's highest rate is that of a longer time, so a slightly lower rate is the same traffic.
                let ratio = if ratio > QUIET {
                    ratio.max(1.0)
                } else {
                    ratio / QUIET
                };
                // An excess that calls for more replicas prevents their removal.
                ratio.max(self.excess)
            }
        };
        self.factor = self.factor.min(factor.max(1.0));
        let scaled = self.scaled(factor);
        let desired: Vec<u32> = scaled
            .iter()
            .zip(&self.now)
            .map(|(desired, now)| *desired.min(now))
            .collect();
        (desired != self.now).then_some(desired)
    }

    fn coarse(&mut self, now: Nanos, unit_millirate: u64) -> Option<Vec<u32>> {
        let rate = self.watch.highest(now, COARSE_WINDOW, COARSE_WINDOW);
        let units = (rate * 1e3 / unit_millirate.max(1) as f64).ceil().max(1.0) as u32;
        let have = self.now.iter().copied().max().unwrap_or(1);
        if units > have || (units < have && now >= self.changed + COARSE_CALM) {
            return Some(vec![units; self.now.len()]);
        }
        if units == have {
            self.changed = now;
        }
        None
    }
}

fn planned(plan: &Plan) -> Vec<u32> {
    plan.steps.iter().map(|step| step.main().replicas).collect()
}

/// The plan with other numbers of replicas of the main kinds.
fn with(plan: &Plan, replicas: &[u32]) -> Plan {
    let mut plan = plan.clone();
    for (step, replicas) in plan.steps.iter_mut().zip(replicas) {
        step.groups[0].replicas = *replicas;
    }
    plan
}
