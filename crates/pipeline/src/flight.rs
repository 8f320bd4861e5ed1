//! The queries of one pipeline that are in progress, and the rule by which they are given up.
//!
//! The rule is [`Dropping`], which the simulator uses too. Before its first step, a query is given up for what is on
//! its way to the steps; before each later step, for what is behind that step. [`Watch`] learns from the answers of a
//! step what runs it. So each front end judges by its own queries and by the share of the devices that they get.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sextant_planning::{
    Nanos,
    dropping::{Dropping, Goal, Stage, StepRun, Watch},
};
use sextant_rpc::StepRecord;

use crate::{Graph, counts::Counts};

/// Time between two reads of what was learnt of the steps, ns.
const LOOK: Nanos = 50_000_000;

/// Queries that came at most this long before their pipeline was read keep their own arrival time.
const BEFORE: Duration = Duration::from_secs(3600);

/// The target of a query without a target.
const NEVER: Nanos = Nanos::MAX;

/// What the queries of one pipeline share.
#[derive(Debug)]
pub(crate) struct Traffic {
    began: Instant,
    /// For each step: the steps that it waits for.
    after: Box<[Vec<usize>]>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    dropping: Dropping,
    steps: Vec<Watch>,
    /// When the steps were last read.
    looked: Nanos,
}

/// A query that was let in. Its rows are no longer counted once it is dropped.
#[derive(Debug)]
pub(crate) struct Flight<'a> {
    traffic: &'a Traffic,
    goal: Goal,
    /// For each step: the query's rows that are counted as on their way to it.
    counted: Vec<f64>,
    in_time: Option<bool>,
}

/// Why a query is not let in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Congestion {
    /// The step with the most rows on their way to it.
    pub step: usize,
    /// The number of these rows.
    pub pending: f64,
    /// Time that the query would take from now on.
    pub takes: Duration,
}

// === impl Traffic ===

impl Traffic {
    /// Traffic of a graph none of whose steps has run.
    pub fn new(graph: &Graph) -> Self {
        let after = graph.nodes.iter();
        let after: Box<[Vec<usize>]> = after
            .map(|node| node.after.iter().copied().collect())
            .collect();
        let steps = vec![Watch::default(); after.len()];
        let stages = after.iter().zip(&steps).map(|(after, step)| Stage {
            after: after.clone(),
            ..step.stage(0, 0.0)
        });
        let now = Instant::now();
        Self {
            began: now.checked_sub(BEFORE).unwrap_or(now),
            state: Mutex::new(State {
                dropping: Dropping::new(graph.definition.dropping, stages.collect()),
                steps,
                looked: 0,
            }),
            after,
        }
    }

    fn nanos(&self, at: Instant) -> Nanos {
        let since = at.saturating_duration_since(self.began).as_nanos();
        // The result is at least 1 and grows for some centuries.
        Nanos::try_from(since).unwrap_or(NEVER - 1).max(1)
    }

    /// Lets a query in. `latency` is its target; `None` if it is answered however long it takes.
    pub fn enter(
        &self,
        counts: &Counts,
        (arrived, latency): (Instant, Option<Duration>),
    ) -> Result<Flight<'_>, Congestion> {
        let now = self.nanos(Instant::now());
        let target = latency.map_or(NEVER, |it| Nanos::try_from(it.as_nanos()).unwrap_or(NEVER));
        let goal = Goal {
            arrived: self.nanos(arrived),
            target,
        };
        let mut state = self.state.lock();
        if now.saturating_sub(state.looked) >= LOOK {
            self.look(&mut state, counts, now);
        }
        // A query whose time is already over is let in here and given up at its first step.
        let judged = match goal.until() > now {
            true => goal,
            false => Goal {
                target: NEVER,
                ..goal
            },
        };
        state
            .dropping
            .arrive(now, judged)
            .map_err(|full| Congestion {
                step: full.step,
                pending: full.pending,
                takes: Duration::from_nanos(full.takes),
            })?;
        let counted = (0..self.after.len()).map(|step| state.dropping.expected(step));
        Ok(Flight {
            counted: counted.collect(),
            traffic: self,
            goal,
            in_time: None,
        })
    }

    /// Updates the stages with what was learnt of the steps.
    fn look(&self, state: &mut State, counts: &Counts, now: Nanos) {
        state.looked = now;
        let pending = |step| state.dropping.pending(step);
        let steps = state.steps.iter().zip(&self.after).enumerate();
        let stages = steps.map(|(at, (watch, after))| {
            let scale = counts.scale(at);
            Stage {
                after: after.clone(),
                probability: scale.probability.value,
                visits: scale.visits.value,
                rows: scale.rows.value.max(1.0),
                ..watch.stage(now, pending(at))
            }
        });
        let stages = stages.collect();
        state.dropping.renew(stages);
    }
}

// === impl Flight ===

impl Flight<'_> {
    /// A query asks a step for `rows` rows. Returns when the step must have ended and its least duration; `None` if the
    /// step may take any time.
    pub fn ask(&mut self, step: usize, rows: f64) -> Option<(Instant, Duration)> {
        let mut state = self.traffic.state.lock();
        count(&mut self.counted, &mut state.dropping, (step, rows));
        let due = state.dropping.due(step, self.goal)?;
        let least = Duration::from_nanos(state.dropping.least(step, 1.0));
        let due = self.traffic.began.checked_add(Duration::from_nanos(due))?;
        Some((due, least))
    }

    /// The step has ended.
    pub fn ended(&mut self, step: usize, taken: Option<&StepRecord>) {
        let now = self.traffic.nanos(Instant::now());
        let mut state = self.traffic.state.lock();
        let rows = self.counted[step];
        count(&mut self.counted, &mut state.dropping, (step, 0.0));
        let Some(taken) = taken else { return };
        let ns = |us: f64| (us * 1e3) as Nanos;
        if taken.compute_us > 0.0 {
            let ran = StepRun {
                rows,
                batch: taken.batch_rows.max(1),
                run: ns(taken.compute_us),
                waited: ns((taken.queue_us - taken.load_us).max(0.0)),
            };
            state.steps[step].answered(now, ran);
        }
        if self.goal.target != NEVER {
            let took = ns(taken.total_us);
            state.dropping.answered(step, took, self.goal.target);
        }
    }

    /// The query was answered.
    pub fn answered(&mut self) {
        let now = self.traffic.nanos(Instant::now());
        self.in_time = Some(now <= self.goal.until());
    }

    /// The query is given up because time is missing.
    pub fn given_up(&mut self) {
        self.in_time = Some(false);
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        let mut state = self.traffic.state.lock();
        for step in 0..self.counted.len() {
            count(&mut self.counted, &mut state.dropping, (step, 0.0));
        }
        if let (Some(in_time), true) = (self.in_time, self.goal.target != NEVER) {
            state.dropping.ended(in_time);
        }
    }
}

/// Sets how many rows of a query are counted as on their way to a step.
fn count(counted: &mut [f64], dropping: &mut Dropping, (step, rows): (usize, f64)) {
    let more = rows - std::mem::replace(&mut counted[step], rows);
    if more != 0.0 {
        dropping.adjust(step, more);
    }
}
