//! Which queries of a pipeline are given up, and before which step, if there are more than its replicas can serve.
//!
//! The work of a step on a query that fails later is lost. A query should therefore be given up before the first step
//! that it need not have had. [`Dropping`] is told of the queries, and says by when each request of a step must be
//! answered. A scheduler drops what it cannot answer by then.
//!
//! | policy | queries that are given up |
//! |---|---|
//! | [`Policy::None`] | none |
//! | [`Policy::Clipper`] | queries that the present step cannot answer within the target of the whole pipeline, as in Clipper, with the deadline of the whole (PARD's Clipper++) |
//! | [`Policy::Nexus`] | queries that the present step cannot answer within that step's share of the target, in proportion to the run times of full batches (Nexus) |
//! | [`Policy::Pard`] | queries that cannot finish after this step, by the recent waits of queries there and the run times of its batches (PARD, 2602.08747) |
//! | [`Policy::Sextant`] | before the first step, queries that cannot finish given the rows on their way to each step; at each step as with PARD, without the waits |
//!
//! **Our policy.** Past waits show late what is full now. What lies before a query is known when it comes: the rows of
//! all earlier queries that a step has not answered yet. A step answers them as fast as its replicas run full batches.
//! The query therefore leaves the step no sooner than that takes, and no sooner than it leaves the steps before, plus a
//! batch. The margin that this estimate must keep from the target is learnt: it grows with each admitted query that is
//! not answered in time and shrinks with each that is, so that few miss.

mod watch;

use serde::{Deserialize, Serialize};
use sextant_schedule::NEVER;

use crate::Nanos;

pub use watch::{StepRun, Watch};

/// A rule by which queries are given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// No query is given up for being late.
    None,
    /// At the present step, by the target of the whole pipeline.
    #[serde(rename = "clipper++")]
    Clipper,
    /// At the present step, by a share of the target.
    Nexus,
    /// By the recent waits after the step.
    Pard,
    /// By the rows on their way to each step.
    #[default]
    Sextant,
}

/// When the answer to a query is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Goal {
    /// When the query arrived, ns.
    pub arrived: Nanos,
    /// Its target, ns; [`NEVER`] if it has none.
    pub target: Nanos,
}

/// A query is not admitted, because its time does not suffice for the rows on their way to the steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Overload {
    /// The step to which most is on its way, by the time that it takes.
    pub step: usize,
    /// Rows on their way to that step.
    pub pending: f64,
    /// The time from now until the query would leave its last step, including the margin, ns.
    pub takes: Nanos,
}

/// A step as its replicas run it.
#[derive(Debug, Clone, PartialEq)]
pub struct Stage {
    /// Positions of the steps that it waits for.
    pub after: Vec<usize>,
    /// Probability that it runs if a step before it ran.
    pub probability: f64,
    /// The share of all queries that visit it. The probabilities do not say whether branches exclude each other or go
    /// together.
    pub visits: f64,
    /// Mean rows of a query that visits it.
    pub rows: f64,
    /// Run time by rows, from one row to the largest batch, ns.
    pub runs: Vec<Nanos>,
    /// Replicas.
    pub replicas: f64,
}

/// The facts about a step and the rows on their way to it.
#[derive(Debug, Clone)]
struct Step {
    stage: Stage,
    /// Expected rows of a query of which nothing else is known.
    expected: f64,
    /// Rows on their way to it or in it.
    pending: f64,
    /// The longest likely path after it, in full batches, ns.
    tail: Nanos,
    /// By when it must have answered, from the query's arrival, as a share of the target.
    share: f64,
    /// The recent time of queries there, waiting and running, ns.
    took: f64,
}

/// Decides which queries are given up; see the module.
#[derive(Debug, Clone)]
pub struct Dropping {
    policy: Policy,
    steps: Vec<Step>,
    /// The margin before the target that the estimate for a query must keep, as a share of the target.
    margin: f64,
}

/// A branch that is taken less often than this is not on a query's path until the query takes it.
const LIKELY: f64 = 0.25;

/// The share of the admitted queries that must be answered in time.
const SURE: f64 = 0.98;

/// The quantile of recent waits that PARD uses.
const PARD_SHARE: f64 = 0.5;

/// The largest move of a quantile, as a share of the target.
const PACE: f64 = 1.0 / 200.0;

/// The largest margin, as a share of the target.
const MOST_MARGIN: f64 = 0.5;

/// A quantile estimate `at` after the observation `value`. It moves by at most `pace`, and settles where the share
/// `share` of the observations is less.
fn toward(at: f64, value: f64, share: f64, pace: f64) -> f64 {
    match value > at {
        true => at + pace * share,
        false => at - pace * (1.0 - share),
    }
}

// === impl Policy ===

impl Policy {
    /// Every one of them.
    pub const ALL: [Self; 5] = [
        Self::None,
        Self::Clipper,
        Self::Nexus,
        Self::Pard,
        Self::Sextant,
    ];

    /// `none`, `clipper++`, `nexus`, `pard`, `sextant`.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Clipper => "clipper++",
            Self::Nexus => "nexus",
            Self::Pard => "pard",
            Self::Sextant => "sextant",
        }
    }

    /// The inverse of [`Self::name`].
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.name() == name)
    }
}

// === impl Stage ===

impl Stage {
    /// Run time of a batch, at most that of the largest.
    fn run(&self, rows: f64) -> Nanos {
        let at = (rows.ceil().max(1.0) as usize).min(self.runs.len());
        self.runs.get(at.wrapping_sub(1)).copied().unwrap_or(0)
    }

    fn full(&self) -> Nanos {
        self.runs.last().copied().unwrap_or(0)
    }

    /// The most rows that it answers per nanosecond.
    fn rate(&self) -> f64 {
        self.replicas * self.runs.len() as f64 / self.full().max(1) as f64
    }
}

// === impl Goal ===

impl Goal {
    /// By when the query must be answered, ns.
    pub fn until(self) -> Nanos {
        self.arrived.saturating_add(self.target)
    }
}

// === impl Dropping ===

impl Dropping {
    /// Makes an instance for a pipeline in which each step comes after those that it waits for.
    pub fn new(policy: Policy, stages: Vec<Stage>) -> Self {
        let steps = stages.into_iter().map(|stage| Step {
            stage,
            expected: 0.0,
            pending: 0.0,
            tail: 0,
            share: 1.0,
            took: 0.0,
        });
        let mut dropping = Self {
            policy,
            steps: steps.collect(),
            margin: 0.0,
        };
        dropping.weigh();
        dropping
    }

    /// The steps run differently from now on. Their number stays the same.
    pub fn renew(&mut self, stages: Vec<Stage>) {
        for (step, stage) in self.steps.iter_mut().zip(stages) {
            step.stage = stage;
        }
        self.weigh();
    }

    /// Computes the rows that each step expects of a query, the path after it, and its share of the target.
    fn weigh(&mut self) {
        for step in &mut self.steps {
            step.expected = step.stage.visits * step.stage.rows;
        }
        let tails = self.behind(|step| step.stage.full() as f64);
        let mut until: Vec<Nanos> = Vec::with_capacity(self.steps.len());
        for (at, tail) in tails.into_iter().enumerate() {
            let stage = &self.steps[at].stage;
            let before = stage.after.iter().map(|it| until[*it]).max().unwrap_or(0);
            until.push(before + stage.full());
            let step = &mut self.steps[at];
            step.tail = tail as Nanos;
            // If nothing is known of a step, its share is not known either.
            step.share = match step.stage.full() {
                0 => 1.0,
                _ => until[at] as f64 / (until[at] + step.tail) as f64,
            };
        }
    }

    /// The longest likely path after each step, by the time that each step takes.
    fn behind(&self, takes: impl Fn(&Step) -> f64) -> Vec<f64> {
        let mut behind = vec![0f64; self.steps.len()];
        for (at, step) in self.steps.iter().enumerate().rev() {
            if step.stage.probability >= LIKELY {
                let whole = behind[at] + takes(step);
                for before in &step.stage.after {
                    behind[*before] = behind[*before].max(whole);
                }
            }
        }
        behind
    }

    /// A query arrives at `now`. It is admitted or given up at once. If nothing is on its way to the steps, the margin
    /// does not count; otherwise a pipeline whose steps take most of the target would never admit a query again.
    ///
    /// # Errors
    /// If the rows on their way to the steps do not leave the query enough time.
    pub fn arrive(&mut self, now: Nanos, goal: Goal) -> Result<(), Overload> {
        if self.policy == Policy::Sextant && goal.target != NEVER {
            let is_idle = self.steps.iter().all(|step| step.pending <= 0.0);
            let margin = match is_idle {
                true => 0.0,
                false => self.margin * goal.target as f64,
            };
            let (finish, step) = self.finish(now);
            let finish = finish.saturating_add(margin as Nanos);
            if finish > goal.until() {
                let takes = finish.saturating_sub(now);
                let pending = self.steps[step].pending;
                return Err(Overload {
                    step,
                    pending,
                    takes,
                });
            }
        }
        for step in &mut self.steps {
            step.pending += step.expected;
        }
        Ok(())
    }

    /// When a query that arrives at `now` leaves the last step that it is likely to visit, and the step that has most
    /// to do before it.
    fn finish(&self, now: Nanos) -> (Nanos, usize) {
        let mut ends: Vec<f64> = Vec::with_capacity(self.steps.len());
        let mut last = now as f64;
        let mut fullest = (0.0, 0);
        for (at, step) in self.steps.iter().enumerate() {
            let stage = &step.stage;
            let before = stage.after.iter().map(|at| ends[*at]);
            let comes = before.fold(now as f64, f64::max);
            if stage.probability < LIKELY {
                ends.push(comes);
                continue;
            }
            let drained = now as f64 + step.pending / stage.rate().max(1e-18);
            let batch = (step.pending / stage.replicas.max(1.0)).max(stage.rows);
            let end = comes.max(drained) + stage.run(batch) as f64;
            ends.push(end);
            last = last.max(end);
            if drained > fullest.0 {
                fullest = (drained, at);
            }
        }
        (last as Nanos, fullest.1)
    }

    /// The rows of a query for which a step waits turn out to be more or fewer by `rows`.
    pub fn adjust(&mut self, step: usize, rows: f64) {
        let pending = &mut self.steps[step].pending;
        *pending = (*pending + rows).max(0.0);
    }

    /// The rows that a step is expected to get of a query of which nothing else is known.
    pub fn expected(&self, step: usize) -> f64 {
        self.steps[step].expected
    }

    /// Rows on their way to a step or in it.
    pub fn pending(&self, step: usize) -> f64 {
        self.steps[step].pending
    }

    /// By when a step must have answered the rows of a query, ns; `None` for no limit.
    pub fn due(&self, step: usize, goal: Goal) -> Option<Nanos> {
        let whole = goal.until();
        let of = &self.steps[step];
        match self.policy {
            _ if goal.target == NEVER => None,
            Policy::None => None,
            Policy::Clipper => Some(whole),
            Policy::Nexus => {
                let share = (goal.target as f64 * of.share) as Nanos;
                Some(goal.arrived.saturating_add(share))
            }
            Policy::Pard => {
                let takes = |step: &Step| step.took.max(step.stage.run(1.0) as f64);
                let behind = self.behind(takes)[step];
                Some(whole.saturating_sub(behind as Nanos).max(goal.arrived))
            }
            Policy::Sextant => Some(whole.saturating_sub(of.tail)),
        }
    }

    /// The least time of a step for the rows of a query, ns.
    pub fn least(&self, step: usize, rows: f64) -> Nanos {
        self.steps[step].stage.run(rows)
    }

    /// A step has answered the rows of a query with this target, `took` ns after it got them.
    pub fn answered(&mut self, step: usize, took: Nanos, target: Nanos) {
        let pace = target as f64 * PACE;
        let before = &mut self.steps[step].took;
        *before = toward(*before, took as f64, PARD_SHARE, pace);
    }

    /// An admitted query has ended, in time or not.
    pub fn ended(&mut self, in_time: bool) {
        self.margin = match in_time {
            true => (self.margin - PACE * (1.0 - SURE)).max(0.0),
            false => (self.margin + PACE * SURE).min(MOST_MARGIN),
        };
    }
}
