//! Predicts the combined effect of ways of several steps, from the waits that each causes alone.
//!
//! Run times add up along a query's path. Of its waits the longest counts: after a slow step, rows that arrived
//! together come out no faster than the next, quicker step can take them. For queues in series with constant run times
//! this is exact (Friedman, Reduction methods for tandem queuing systems, Operations Research 13, 1965). Batches make
//! it an approximation.
//!
//! Times are in parts of the target, so that eight queries are added and compared at once.

use crate::{
    Nanos,
    plan::{Problem, walk::Walk},
};

/// Parts of the target.
const PARTS: u64 = 8192;

/// The number of queries whose misses are counted in 16 bits at a time.
const CHUNK: usize = 128;

/// The number of queries that are predicted in the time in which one row is simulated.
const PER_ROW: usize = 64;

/// A [`Predictor::shift`] with which nothing of a number remains.
pub(super) const NOTHING: u32 = 15;

/// Predicts misses; see the module. Queries have positions, which order everything that has an entry for each query.
pub(super) struct Predictor {
    /// The length of a part, ns.
    part: Nanos,
    /// By query: its position.
    positions: Vec<u32>,
    steps: Vec<Step>,
    /// By step: when it has ended for each query.
    ends: Vec<Times>,
    /// By number of decided steps: 1 for a query that misses the target, else 0.
    missed: Vec<Vec<i16>>,
    ready: Times,
    /// Of two waits the longer counts, and the shorter one counts by a half to the power of this.
    pub shift: u32,
}

/// A step, for the predictor.
struct Step {
    after: Vec<usize>,
    /// By when after a query's arrival it must have ended.
    due: Vec<i16>,
    /// -1 for a query that visits it, else 0.
    visits: Vec<i16>,
}

/// Times since each query's arrival; 0 if a step is not visited.
#[derive(Clone)]
struct Times {
    runs: Vec<i16>,
    waits: Vec<i16>,
}

// === impl Predictor ===

impl Predictor {
    /// Makes a predictor for the queries of a sample, in the order of their arrivals.
    pub fn new(problem: &Problem<'_>, walk: &Walk<'_>) -> Self {
        let queries = problem.load.arrivals.len();
        let part = problem.target.div_ceil(PARTS).max(1);
        let steps = 0..problem.graph.steps().len();
        let steps: Vec<Step> = steps.map(|at| Step::new(problem, walk, at, part)).collect();
        let none = vec![0; queries];
        let times = Times {
            runs: none.clone(),
            waits: none.clone(),
        };
        Self {
            part,
            positions: (0..queries as u32).collect(),
            ends: vec![times.clone(); steps.len()],
            missed: vec![none; steps.len() + 1],
            ready: times,
            shift: NOTHING,
            steps,
        }
    }

    /// Converts a time to parts of the target.
    pub fn parts(&self, time: Nanos) -> i16 {
        parts(time, self.part)
    }

    /// The position of a query.
    pub fn position(&self, query: u32) -> usize {
        self.positions[query as usize] as usize
    }

    /// The number of rows that are simulated in the time of a prediction.
    pub fn rows(&self) -> u64 {
        (self.positions.len() / PER_ROW) as u64
    }

    /// Changes the order of queries. Nothing may be decided yet.
    pub fn reorder(&mut self, order: &[u32]) {
        for (position, query) in order.iter().enumerate() {
            self.positions[*query as usize] = position as u32;
        }
        for step in &mut self.steps {
            for of in [&mut step.due, &mut step.visits] {
                *of = order.iter().map(|query| of[*query as usize]).collect();
            }
        }
    }

    /// Decides the first steps so that each takes only its run time.
    pub fn lead(&mut self, runs: &[i16]) {
        for (step, run) in runs.iter().enumerate() {
            self.begin(step);
            let visits = self.steps[step].visits.iter();
            let ends = &mut self.ends[step];
            for ((to, ready), visits) in ends.runs.iter_mut().zip(&self.ready.runs).zip(visits) {
                *to = ready.saturating_add(*run) & visits;
            }
            ends.waits.fill(0);
        }
        self.missed[runs.len()].fill(0);
    }

    /// Decides a step as it was last tried.
    pub fn set(&mut self, step: usize, run: i16, walk: &Walk<'_>) {
        self.begin(step);
        let to = &mut self.ends[step];
        let arrivals = walk.problem.load.arrivals.iter();
        for (query, (end, arrived)) in walk.ends[step].iter().zip(arrivals).enumerate() {
            let at = self.positions[query] as usize;
            let visits = self.steps[step].visits[at];
            let took = parts(end.saturating_sub(*arrived), self.part);
            let runs = self.ready.runs[at].saturating_add(run) & visits;
            to.runs[at] = runs;
            to.waits[at] = took.saturating_sub(runs).max(0) & visits;
        }
        for (at, missed) in self.positions.iter().zip(&walk.missed) {
            self.missed[step + 1][*at as usize] = i16::from(*missed);
        }
    }

    /// Decides a step in which a row takes `run` and queries take `waits` longer. Returns `false`, with nothing
    /// decided, if more than `most` queries then miss the target.
    pub fn predict(&mut self, step: usize, run: i16, waits: &[i16], most: usize) -> bool {
        let of = &self.steps[step];
        if of.after.len() != 1 {
            self.begin(step);
        }
        let of = &self.steps[step];
        let (before, from) = self.ends.split_at_mut(step);
        let ready = match of.after[..] {
            [one] => &before[one],
            _ => &self.ready,
        };
        let (earlier, later) = self.missed.split_at_mut(step + 1);
        let (was, is, to) = (&earlier[step], &mut later[0], &mut from[0]);
        let (mut misses, mut at) = (0, 0);
        while at < waits.len() && misses <= most {
            let range = at..waits.len().min(at + CHUNK);
            at = range.end;
            let ready = [&ready.runs[range.clone()], &ready.waits[range.clone()]];
            let was = [
                &was[range.clone()],
                &of.due[range.clone()],
                &of.visits[range.clone()],
            ];
            let [runs, longest] = [&mut to.runs[range.clone()], &mut to.waits[range.clone()]];
            misses += chunk(
                (run, self.shift, &waits[range.clone()]),
                ready,
                was,
                [runs, longest, &mut is[range]],
            );
        }
        misses <= most
    }

    /// When queries can begin with a step.
    fn begin(&mut self, step: usize) {
        let ready = &mut self.ready;
        ready.runs.fill(0);
        ready.waits.fill(0);
        for before in &self.steps[step].after {
            latest(&mut ready.runs, &self.ends[*before].runs);
            latest(&mut ready.waits, &self.ends[*before].waits);
        }
    }
}

// === impl Step ===

impl Step {
    fn new(problem: &Problem<'_>, walk: &Walk<'_>, step: usize, part: Nanos) -> Self {
        let load = problem.load;
        let due = walk.due[step].iter().zip(load.arrivals);
        let due = due.map(|(due, arrived)| {
            let left = due.checked_sub(*arrived);
            left.map_or(-1, |left| parts(left, part))
        });
        let visits = |query| !load.routes.is_empty() && load.routes.of(query)[step] > 0;
        Self {
            after: problem.graph.steps()[step].after.clone(),
            due: due.collect(),
            visits: (0..load.arrivals.len())
                .map(|query| -i16::from(visits(query)))
                .collect(),
        }
    }
}

/// Takes some queries through a step, from the run times and waits until it to those until its end. Returns how many
/// have missed the target.
#[inline]
fn chunk(
    (run, shift, own): (i16, u32, &[i16]),
    [runs, waits]: [&[i16]; 2],
    [was, due, visits]: [&[i16]; 3],
    [to_runs, to_waits, is]: [&mut [i16]; 3],
) -> usize {
    let count = own.len();
    let (runs, waits, was, due) = (
        &runs[..count],
        &waits[..count],
        &was[..count],
        &due[..count],
    );
    let (visits, is) = (&visits[..count], &mut is[..count]);
    let (to_runs, to_waits) = (&mut to_runs[..count], &mut to_waits[..count]);
    let mut misses = 0i16;
    for query in 0..count {
        let (a, b) = (waits[query], own[query]);
        let wait = a.max(b).saturating_add(a.min(b) >> shift) & visits[query];
        let run = runs[query].saturating_add(run) & visits[query];
        let missed = was[query] | i16::from(run.saturating_add(wait) > due[query]);
        to_runs[query] = run;
        to_waits[query] = wait;
        is[query] = missed;
        misses += missed;
    }
    misses as usize
}

fn latest(of: &mut [i16], other: &[i16]) {
    for (of, other) in of.iter_mut().zip(other) {
        *of = (*of).max(*other);
    }
}

fn parts(time: Nanos, part: Nanos) -> i16 {
    i16::try_from(time / part).unwrap_or(i16::MAX)
}
