//! Walks through plans step by step, each step tried on what came of those before.
//!
//! A query counts as missed as soon as no plan can save it: when what must follow takes longer with single rows on the
//! quickest choices than the time that is left. So a start of a plan is given up before its end is tried.

use super::{Problem, StepPlan};
use crate::{
    Nanos,
    estimate::{Item, items, serve},
};

/// Where [`Walk::pressure`] looks, the highest first.
const QUANTILES: [f64; 3] = [0.99, 0.9, 0.5];

/// How late a step ends, by quantile, ns.
pub(super) type Pressure = [i64; 3];

/// See the module.
pub(super) struct Walk<'a> {
    pub problem: Problem<'a>,
    /// By step and query: until when the step must have ended, ns.
    due: Vec<Vec<Nanos>>,
    /// By step: what came of the steps that are decided.
    ends: Vec<Vec<Nanos>>,
    missed: Vec<bool>,
    count: usize,
    may_miss: usize,
    /// Rows that were served in all trials: what has been spent.
    pub spent: u64,
}

/// What became of a step that was tried.
pub(super) struct Trial {
    ends: Vec<Nanos>,
    newly: Vec<u32>,
    /// Rows of its largest batch.
    pub largest: u32,
}

/// A start of a plan that can be taken up again.
#[derive(Clone)]
pub(super) struct Mark {
    ends: Vec<Vec<Nanos>>,
    missed: Vec<bool>,
    count: usize,
}

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
        }
    }

    /// What arrives at the next step.
    pub fn items(&self) -> Vec<Item> {
        let step = self.ends.len();
        items(self.problem.graph, self.problem.load, step, |before| {
            &self.ends[before]
        })
    }

    /// What would arrive at a step if those before it took their least.
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

    /// Tries a step on `items`; `None` where too many queries would miss the target.
    pub fn attempt(&mut self, step: usize, plan: &StepPlan, items: &[Item]) -> Option<Trial> {
        let station = plan.station(&self.problem.graph.steps()[step]);
        let (due, missed) = (&self.due[step], &mut self.missed);
        let left = self.may_miss - self.count;
        let mut newly = Vec::new();
        let mut rows = 0;
        let served = serve(&station, items, missed.len(), |query, end| {
            rows += 1;
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
        (newly.len() <= left).then_some(Trial {
            ends: served.ends,
            newly,
            largest: served.largest,
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

    /// Takes the last decision back.
    pub fn pop(&mut self, newly: &[u32]) {
        for query in newly {
            self.missed[*query as usize] = false;
        }
        self.count -= newly.len();
        self.ends.pop();
    }

    /// How late the step ended against when it must have ended, at some quantiles, ns.
    pub fn pressure(&self, step: usize, trial: &Trial) -> Pressure {
        let ended = trial.ends.iter().enumerate().filter(|(_, end)| **end > 0);
        let mut late: Vec<i64> = ended
            .map(|(query, end)| *end as i64 - self.due[step][query] as i64)
            .collect();
        let mut most = late.len();
        QUANTILES.map(|share| {
            let at = (share * late.len() as f64) as usize;
            if at >= most {
                return i64::MIN;
            }
            let value = *late[..most].select_nth_unstable(at).1;
            most = at + 1;
            value
        })
    }

    pub fn mark(&self) -> Mark {
        Mark {
            ends: self.ends.clone(),
            missed: self.missed.clone(),
            count: self.count,
        }
    }

    pub fn resume(&mut self, mark: &Mark) {
        self.ends.clone_from(&mark.ends);
        self.missed.clone_from(&mark.missed);
        self.count = mark.count;
    }
}

/// By step: the least that it takes, ns.
fn least(problem: &Problem<'_>) -> Vec<Nanos> {
    let steps = problem.graph.steps().iter();
    let least = steps.map(|step| step.choices.iter().map(|choice| choice.latency.of(1)).min());
    least.map(|least| least.unwrap_or(0)).collect()
}

/// By step and query: until when it must have ended.
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

/// By step and route: the least until it can begin after the query's arrival.
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
