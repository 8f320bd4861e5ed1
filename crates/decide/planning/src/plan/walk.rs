//! Walks through plans step by step, and tries each step on the results of those before.
//!
//! A query counts as missed as soon as no plan can save it: when the steps that must follow take longer, with single
//! rows on the quickest choices, than the time that is left. A partial plan is therefore given up before its end is
//! tried.

use super::{Problem, StepPlan};
use crate::{
    Nanos,
    estimate::{Item, items, serve},
};

/// A walk through plans; see the module.
pub(super) struct Walk<'a> {
    pub problem: Problem<'a>,
    /// By step and query: by when the step must have ended, ns.
    pub due: Vec<Vec<Nanos>>,
    /// By step and query: when the decided steps have ended, ns; 0 if the query does not visit one.
    pub ends: Vec<Vec<Nanos>>,
    /// By query: whether it misses the target.
    pub missed: Vec<bool>,
    count: usize,
    may_miss: usize,
    /// The effort spent: rows that were simulated in all trials.
    pub spent: u64,
    /// The effort that may be spent.
    pub most_rows: u64,
}

/// The result of a step that was tried.
pub(super) struct Trial {
    /// By query: when it ended, ns; 0 if it is not visited.
    pub ends: Vec<Nanos>,
    newly: Vec<u32>,
    /// Rows of its largest batch.
    pub largest: u32,
    /// The sum of the times when its rows ended, ns.
    pub sum: u128,
}

// === impl Trial ===

impl Trial {
    /// Whether it has no more new misses than another trial, and ends no later on average.
    pub fn betters(&self, other: &Self) -> bool {
        self.newly.len() <= other.newly.len() && self.sum <= other.sum
    }
}

// === impl Walk ===

impl<'a> Walk<'a> {
    pub fn new(problem: Problem<'a>) -> Self {
        let queries = problem.load.arrivals.len();
        Self {
            problem,
            due: due(&problem),
            ends: Vec::new(),
            missed: vec![false; queries],
            count: 0,
            may_miss: problem.may_miss(),
            spent: 0,
            most_rows: u64::MAX,
        }
    }

    /// The rows that arrive at the next step.
    pub fn items(&self) -> Vec<Item> {
        let step = self.ends.len();
        items(self.problem.graph, self.problem.load, step, |before| {
            &self.ends[before]
        })
    }

    /// The rows that would arrive at a step if those before it took their least time.
    pub fn earliest(&self, step: usize) -> Vec<Item> {
        let heads = heads(&self.problem);
        let routes = self.problem.load.routes;
        let mut items = Vec::new();
        for (query, arrived) in self.problem.load.arrivals.iter().enumerate() {
            let rows = routes.of(query)[step];
            let ready = *arrived + heads[step][query % routes.len().max(1)];
            items.extend((0..rows).map(|_| (ready, query as u32)));
        }
        items.sort_unstable();
        items
    }

    /// Whether more was spent than is allowed.
    pub fn is_spent(&self) -> bool {
        self.spent > self.most_rows
    }

    /// The number of queries that may miss the target.
    pub fn may_miss(&self) -> usize {
        self.may_miss
    }

    /// Tries a step on `items`. If too many queries would miss the target, returns the rows of the largest batch up to
    /// that point as the error: every largest batch from there on fails equally.
    pub fn attempt(&mut self, step: usize, plan: &StepPlan, items: &[Item]) -> Result<Trial, u32> {
        self.attempt_with(step, plan, items, self.may_miss - self.count)
    }

    /// The same, if `more` additional queries may miss the target.
    pub fn attempt_with(
        &mut self,
        step: usize,
        plan: &StepPlan,
        items: &[Item],
        left: usize,
    ) -> Result<Trial, u32> {
        let station = plan.station(&self.problem.graph.steps()[step]);
        let (due, missed) = (&self.due[step], &mut self.missed);
        let (mut newly, mut rows, mut sum) = (Vec::new(), 0, 0);
        let served = serve(&station, items, missed.len(), |query, end| {
            rows += 1;
            sum += u128::from(end);
            let at = query as usize;
            if end > due[at] && !missed[at] {
                missed[at] = true;
                newly.push(query);
            }
            newly.len() <= left
        });
        self.spent += rows;
        for query in &newly {
            missed[*query as usize] = false;
        }
        if newly.len() > left {
            return Err(served.largest);
        }
        Ok(Trial {
            ends: served.ends,
            newly,
            largest: served.largest,
            sum,
        })
    }

    /// Decides the next step as it was tried.
    pub fn push(&mut self, trial: Trial) -> Vec<u32> {
        for query in &trial.newly {
            self.missed[*query as usize] = true;
        }
        self.count += trial.newly.len();
        self.ends.push(trial.ends);
        trial.newly
    }

    /// Reverts the last decision.
    pub fn pop(&mut self, newly: &[u32]) {
        for query in newly {
            self.missed[*query as usize] = false;
        }
        self.count -= newly.len();
        self.ends.pop();
    }
}

/// By step: the least time that it takes, ns.
fn least(problem: &Problem<'_>) -> Vec<Nanos> {
    let steps = problem.graph.steps().iter();
    let least = steps.map(|step| step.choices.iter().map(|choice| choice.latency.of(1)).min());
    least.map(|least| least.unwrap_or(0)).collect()
}

/// By step and query: by when it must have ended.
fn due(problem: &Problem<'_>) -> Vec<Vec<Nanos>> {
    let least = least(problem);
    let (graph, load) = (problem.graph, problem.load);
    let mut due: Vec<Vec<Nanos>> = least
        .iter()
        .map(|_| Vec::with_capacity(load.arrivals.len()))
        .collect();
    let mut tail = vec![0; least.len()];
    for (query, arrived) in load.arrivals.iter().enumerate() {
        tail.fill(0);
        let route = load.routes.of(query);
        for at in (0..least.len()).rev() {
            for before in graph.steps()[at].after.iter().filter(|_| route[at] > 0) {
                tail[*before] = tail[*before].max(least[at] + tail[at]);
            }
        }
        for (due, tail) in due.iter_mut().zip(&tail) {
            due.push((arrived + problem.target).saturating_sub(*tail));
        }
    }
    due
}

/// By step and route: the least time after the query's arrival until it can begin.
fn heads(problem: &Problem<'_>) -> Vec<Vec<Nanos>> {
    let least = least(problem);
    let (graph, routes) = (problem.graph, problem.load.routes);
    let mut heads: Vec<Vec<Nanos>> = least
        .iter()
        .map(|_| Vec::with_capacity(routes.len()))
        .collect();
    for query in 0..routes.len() {
        let route = routes.of(query);
        for (at, step) in graph.steps().iter().enumerate() {
            let before = step.after.iter().filter(|before| route[**before] > 0);
            let head = before
                .map(|before| heads[*before][query] + least[*before])
                .max();
            heads[at].push(head.unwrap_or(0));
        }
    }
    heads
}
