//! Which queries of a pipeline are given up, and before which step, where there are more than its replicas can serve.
//!
//! What a step serves of a query that fails further on is lost. So a query should be given up before the first step
//! that it need not have had. [`Dropping`] is told of the queries, and says of each request of a step by when it must be
//! answered: a scheduler drops what it cannot answer by then.
//!
//! | policy | who is given up |
//! |---|---|
//! | [`Policy::None`] | nobody |
//! | [`Policy::Clipper`] | who cannot be answered by the step at hand within the target of the whole, as Clipper does, with the deadline of the whole (PARD's Clipper++) |
//! | [`Policy::Nexus`] | who cannot be answered by the step at hand within that step's share of the target, in proportion to the run times of full batches (Nexus) |
//! | [`Policy::Pard`] | who cannot finish behind this step, by what queries waited there of late and the run times of its batches (PARD, 2602.08747) |
//! | [`Policy::Sextant`] | who cannot finish by what is on its way to each step, before its first step; and at each step as with PARD, less the waits |
//!
//! **Ours.** Waits of the past say late what is full now. What will be in the way of a query is known when it comes: the rows
//! of all queries before it that a step has not answered yet. A step answers them as fast as its replicas run full
//! batches, so the query leaves it no sooner than that takes, and no sooner than it leaves the steps before, plus a
//! batch. How much that must be kept clear of the target is learnt: it grows with each query that was let in and not
//! answered in time, and shrinks with each that was, so that few are.

mod watch;

use serde::{Deserialize, Serialize};
use sextant_schedule::NEVER;

use crate::Nanos;

pub use watch::{StepRun, Watch};

/// A rule by which queries are given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// Late answers are answers.
    None,
    /// At the step at hand, by the target of the whole.
    #[serde(rename = "clipper++")]
    Clipper,
    /// At the step at hand, by a share of the target.
    Nexus,
    /// By what waits were behind the step.
    Pard,
    /// By what is on its way to each step.
    #[default]
    Sextant,
}

/// When the answer to a query is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Goal {
    /// When the query came, ns.
    pub arrived: Nanos,
    /// Its target, ns; [`NEVER`] for none.
    pub target: Nanos,
}

/// A query is not let in: its time does not suffice for what is on its way to the steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Overload {
    /// The step to which most is on its way, by the time that it takes.
    pub step: usize,
    /// Rows that are on their way to it.
    pub pending: f64,
    /// From now until the query would leave its last step, with the margin, ns.
    pub takes: Nanos,
}

/// A step as its replicas run it.
#[derive(Debug, Clone, PartialEq)]
pub struct Stage {
    /// Positions of the steps that it waits for.
    pub after: Vec<usize>,
    /// Probability that it runs where one before it ran.
    pub probability: f64,
    /// Share of all queries that visit it. Whether branches exclude each other or go together, their probabilities do not say.
    pub visits: f64,
    /// Mean rows of a query that visits it.
    pub rows: f64,
    /// Run time by rows, from one row to the largest batch, ns.
    pub runs: Vec<Nanos>,
    /// Replicas.
    pub replicas: f64,
}

/// Of a step: what was given, and what is on its way.
#[derive(Debug, Clone)]
struct Step {
    stage: Stage,
    /// Rows of a query of which nothing more is known.
    expected: f64,
    /// Rows on their way to it and in it.
    pending: f64,
    /// The longest way behind it that is likely, in full batches, ns.
    tail: Nanos,
    /// By when it must have answered, from the query's arrival, as a share of the target.
    share: f64,
    /// What queries waited and ran there of late, ns.
    took: f64,
}

/// See the module.
#[derive(Debug, Clone)]
pub struct Dropping {
    policy: Policy,
    steps: Vec<Step>,
    /// By how much what is expected of a query must be before its target, as a share of that.
    margin: f64,
}

/// Branches that are taken less often are not in the way of a query before it takes them.
const LIKELY: f64 = 0.25;

/// The share of the queries that are let in which are to be answered in time.
const SURE: f64 = 0.98;

/// PARD's share of what was waited lately that counts.
const PARD_SHARE: f64 = 0.5;

/// The largest move of a quantile, as a share of the target.
const PACE: f64 = 1.0 / 200.0;

/// The largest margin, as a share of the target.
const MOST_MARGIN: f64 = 0.5;

/// A quantile that was thought to be `at`, once `value` was observed: it moves by at most `pace`, so that it comes to rest
/// where the share `share` of what is observed is less.
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
    /// Run time of a batch, at most the largest.
    fn run(&self, rows: f64) -> Nanos {
        let at = (rows.ceil().max(1.0) as usize).min(self.runs.len());
        self.runs.get(at.wrapping_sub(1)).copied().unwrap_or(0)
    }

    fn full(&self) -> Nanos {
        self.runs.last().copied().unwrap_or(0)
    }

    /// Rows that it answers at most, in a nanosecond.
    fn rate(&self) -> f64 {
        self.replicas * self.runs.len() as f64 / self.full().max(1) as f64
    }
}

// === impl Goal ===

impl Goal {
    /// By when it must be answered, ns.
    pub fn until(self) -> Nanos {
        self.arrived.saturating_add(self.target)
    }
}

// === impl Dropping ===

impl Dropping {
    /// Of a pipeline whose steps come after those that they wait for.
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

    /// The steps are run otherwise from now on. There are as many as before.
    pub fn renew(&mut self, stages: Vec<Stage>) {
        for (step, stage) in self.steps.iter_mut().zip(stages) {
            step.stage = stage;
        }
        self.weigh();
    }

    /// What each step expects of a query, what is behind it, and its share of the target.
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
            // Of a step of which nothing is known its share is not either.
            step.share = match step.stage.full() {
                0 => 1.0,
                _ => until[at] as f64 / (until[at] + step.tail) as f64,
            };
        }
    }

    /// The longest way behind each step that is likely to be taken, by what each step takes.
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

    /// A query comes at `now`: it is let in, or given up at once. Where nothing is on its way, the margin does not count:
    /// else a pipeline whose steps take most of the target would let nobody in for ever.
    ///
    /// # Errors
    /// What is on its way to the steps does not leave it time enough.
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

    /// When a query that comes at `now` leaves the last step that it is likely to visit, and the step that has most before
    /// it by then.
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

    /// Rows of a query that a step waits for are known to be so many more, or fewer, than was thought.
    pub fn adjust(&mut self, step: usize, rows: f64) {
        let pending = &mut self.steps[step].pending;
        *pending = (*pending + rows).max(0.0);
    }

    /// Rows that a step is expected to get of a query of which nothing more is known.
    pub fn expected(&self, step: usize) -> f64 {
        self.steps[step].expected
    }

    /// Rows that are on their way to a step and in it.
    pub fn pending(&self, step: usize) -> f64 {
        self.steps[step].pending
    }

    /// By when a step must have answered the rows of a query, ns; `None`: whenever it does.
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

    /// What a step takes at least for the rows of a query, ns.
    pub fn least(&self, step: usize, rows: f64) -> Nanos {
        self.steps[step].stage.run(rows)
    }

    /// A step has answered the rows of a query with this target, which it got `took` ns ago.
    pub fn answered(&mut self, step: usize, took: Nanos, target: Nanos) {
        let pace = target as f64 * PACE;
        let before = &mut self.steps[step].took;
        *before = toward(*before, took as f64, PARD_SHARE, pace);
    }

    /// A query that was let in was answered in time, or was not.
    pub fn ended(&mut self, in_time: bool) {
        self.margin = match in_time {
            true => (self.margin - PACE * (1.0 - SURE)).max(0.0),
            false => (self.margin + PACE * SURE).min(MOST_MARGIN),
        };
    }
}
