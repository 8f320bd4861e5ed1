//! The order in which steps are decided: of the steps that may come next, the one that costs most, so that infeasible
//! plans are detected early.

use super::super::work::Work;
use crate::{
    Graph, Routes,
    estimate::Load,
    plan::{Plan, Problem},
};

/// A pipeline with its steps in another order.
pub(in crate::plan) struct Ordered {
    graph: Graph,
    routes: Routes,
    /// By position: the step at that position.
    pub steps: Vec<usize>,
}

// === impl Ordered ===

impl Ordered {
    /// Orders by the least cost of each step's work.
    pub fn new(problem: &Problem<'_>) -> Self {
        let steps = order(problem);
        Self {
            graph: graph(problem.graph, &steps),
            routes: routes(problem.load.routes, &steps),
            steps,
        }
    }

    /// The problem with its steps in this order.
    pub fn problem<'a>(&'a self, problem: &Problem<'a>) -> Problem<'a> {
        Problem {
            graph: &self.graph,
            load: Load {
                routes: &self.routes,
                ..problem.load
            },
            ..*problem
        }
    }

    /// A plan with its steps in this order.
    pub fn reordered(&self, plan: &Plan) -> Plan {
        let steps = self.steps.iter().map(|step| plan.steps[*step].clone());
        Plan {
            steps: steps.collect(),
        }
    }

    /// A plan in the problem's own order.
    pub fn restored(&self, plan: Plan) -> Plan {
        let mut steps: Vec<_> = self.steps.iter().copied().zip(plan.steps).collect();
        steps.sort_by_key(|(step, _)| *step);
        let steps = steps.into_iter().map(|(_, plan)| plan).collect();
        Plan { steps }
    }
}

fn order(problem: &Problem<'_>) -> Vec<usize> {
    let from = problem.graph.steps();
    let floors: Vec<f64> = (0..from.len())
        .map(|step| Work::new(problem, step).floor(&from[step]))
        .collect();
    let mut steps: Vec<usize> = Vec::with_capacity(from.len());
    while steps.len() < from.len() {
        let may_come = |at: &usize| {
            !steps.contains(at) && from[*at].after.iter().all(|before| steps.contains(before))
        };
        let open = (0..from.len()).filter(may_come);
        let next = open.max_by(|a, b| floors[*a].total_cmp(&floors[*b]).then(b.cmp(a)));
        steps.push(next.expect("steps come after those that they wait for"));
    }
    steps
}

fn graph(from: &Graph, steps: &[usize]) -> Graph {
    let position = |step: usize| steps.iter().position(|at| *at == step).unwrap_or(step);
    let ordered = steps.iter().map(|at| {
        let mut step = from.steps()[*at].clone();
        for before in &mut step.after {
            *before = position(*before);
        }
        step
    });
    Graph::new(ordered.collect()).expect("steps come after those that they wait for")
}

fn routes(from: &Routes, steps: &[usize]) -> Routes {
    let mut routes = Routes::new(steps.len());
    let mut rows = vec![0; steps.len()];
    for query in 0..from.len() {
        for (rows, step) in rows.iter_mut().zip(steps) {
            *rows = from.of(query)[*step];
        }
        routes.push(&rows);
    }
    routes
}
