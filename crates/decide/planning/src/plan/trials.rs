//! Tests plans one after another. Each is simulated from the first step that differs from the plan before.
//!
//! The result is that of [`Problem::is_met`], in less time: routes are read once for the accuracies of all plans, a
//! plan whose replicas cannot do the work of a step is not simulated ([`super::work`]), and a trial ends with the first
//! miss too many.

use super::{Plan, Problem, StepPlan, walk::Walk, work::Work};
use crate::whole::{CoVisits, NONE};

/// Tests plans; see the module.
pub(super) struct Trials<'a> {
    walk: Walk<'a>,
    /// Which steps queries visit together.
    together: CoVisits,
    /// By step and choice: the fewest replicas that can do the work of the step; `None` if none can.
    fewest: Vec<Vec<Option<u32>>>,
    /// By step of the plan before, as far as it was simulated: what ran it, and the queries that missed the target
    /// there.
    tried: Vec<(StepPlan, Vec<u32>)>,
}

// === impl Trials ===

impl<'a> Trials<'a> {
    pub fn new(problem: Problem<'a>) -> Self {
        let fewest = problem.graph.steps().iter().enumerate().map(|(at, step)| {
            let work = Work::new(&problem, at);
            let choices = step.choices.iter();
            choices
                .map(|choice| work.replicas(choice))
                .collect::<Vec<_>>()
        });
        Self {
            fewest: fewest.collect(),
            together: CoVisits::of(problem.load.routes),
            walk: Walk::new(problem),
            tried: Vec::new(),
        }
    }

    /// The least cost of a step on a choice, US dollars an hour; `None` if the choice cannot do its work.
    pub fn least_price(&self, step: usize, choice: usize) -> Option<f64> {
        let price = self.walk.problem.graph.steps()[step].choices[choice].price;
        self.fewest[step][choice].map(|replicas| price * f64::from(replicas))
    }

    /// Whether a plan with one kind of replicas for each step meets both targets on the sample.
    pub fn is_met(&mut self, plan: &Plan) -> bool {
        self.has_room(plan) && self.is_accurate(plan) && self.is_in_time(plan)
    }

    /// Whether there are enough replicas for the work of each step, however full their batches are.
    fn has_room(&self, plan: &Plan) -> bool {
        let mut steps = plan.steps.iter().zip(&self.fewest);
        steps.all(|(step, fewest)| {
            let group = step.main();
            fewest[group.choice].is_some_and(|fewest| group.replicas >= fewest)
        })
    }

    fn is_accurate(&self, plan: &Plan) -> bool {
        let problem = &self.walk.problem;
        let steps = problem.graph.steps();
        let reached = self
            .together
            .accuracy(|at| plan.steps[at].accuracy(&steps[at]));
        reached >= problem.min_accuracy - NONE
    }

    fn is_in_time(&mut self, plan: &Plan) -> bool {
        let before = self.tried.iter().zip(&plan.steps);
        let same = before.take_while(|((was, _), is)| was == *is).count();
        for (_, newly) in self.tried.drain(same..).rev() {
            self.walk.pop(&newly);
        }
        for (at, step) in plan.steps.iter().enumerate().skip(same) {
            let items = self.walk.items();
            let Ok(trial) = self.walk.attempt(at, step, &items) else {
                return false;
            };
            let newly = self.walk.push(trial);
            self.tried.push((step.clone(), newly));
        }
        true
    }
}
