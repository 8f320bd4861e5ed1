//! InferLine's planner (section 4.5): starts with a feasible plan, then makes the change that saves most, until none
//! saves.
//!
//! The algorithms cannot run as printed. Line 6 of the first is inverted. The second compares with a plan that does not
//! exist yet. A larger batch costs the same, so a strict comparison would never take one. Here a larger batch is taken
//! if nothing cheaper is feasible: the one that adds most throughput. A device type is tried without regard to its cost
//! with batches of one, which is not its final cost.

use super::{Plan, Problem, StepPlan, trials::Trials};
use crate::whole::NONE;

/// The most replicas of a step that are tried.
const MOST_REPLICAS: u32 = 4096;

/// A search in progress.
struct Greedy<'a> {
    problem: Problem<'a>,
    trials: Trials<'a>,
    /// By step: mean rows per query.
    scale: Vec<f64>,
}

/// The plan of the published greedy search over device types, largest batches and replicas. Each step runs its most
/// accurate variant, because the search does not choose variants. `None` if no plan meets the targets.
pub fn inferline(problem: &Problem<'_>) -> Option<Plan> {
    Greedy::new(*problem).run()
}

/// The same plan if it costs less than `price`, US dollars an hour. It is not searched for if the work alone costs that
/// much.
pub(super) fn cheaper_than(problem: &Problem<'_>, price: f64) -> Option<Plan> {
    let greedy = Greedy::new(*problem);
    let is_cheaper = |cost: &f64| *cost < price - NONE;
    greedy.floor().filter(is_cheaper)?;
    let plan = greedy.run()?;
    is_cheaper(&plan.cost(problem.graph)).then_some(plan)
}

// === impl Greedy ===

impl<'a> Greedy<'a> {
    fn new(problem: Problem<'a>) -> Self {
        let steps = 0..problem.graph.steps().len();
        let scale = steps.map(|at| problem.load.routes.rows_per_query(at));
        Self {
            scale: scale.collect(),
            trials: Trials::new(problem),
            problem,
        }
    }

    /// The least cost of the steps, US dollars an hour, each on its most accurate variant; `None` if one cannot be
    /// done.
    fn floor(&self) -> Option<f64> {
        let steps = self.problem.graph.steps().iter().enumerate();
        let prices = steps.map(|(at, step)| {
            let name = step.most_accurate();
            let choices = step.choices.iter().enumerate();
            let own = choices.filter(|(_, choice)| choice.variant == name);
            let prices = own.filter_map(|(choice, _)| self.trials.least_price(at, choice));
            prices.min_by(f64::total_cmp)
        });
        prices.sum()
    }

    fn run(mut self) -> Option<Plan> {
        let mut plan = self.initial()?;
        let graph = self.problem.graph;
        while let Some(next) = self.cheaper(&plan).or_else(|| self.fuller(&plan)) {
            debug_assert!(next.cost(graph) <= plan.cost(graph) + 1e-9);
            plan = next;
        }
        Some(plan)
    }

    /// Batches of one row on the quickest device type, with replicas added where throughput is least until it is
    /// enough.
    fn initial(&mut self) -> Option<Plan> {
        let graph = self.problem.graph;
        let steps = graph
            .steps()
            .iter()
            .map(|step| Some(StepPlan::of(step.quickest_of_most_accurate()?, 1, 1)));
        let mut plan = Plan {
            steps: steps.collect::<Option<_>>()?,
        };
        if !self.problem.is_accurate(&plan) || self.service_time(&plan) > self.problem.target {
            return None;
        }
        while !self.trials.is_met(&plan) {
            let bottleneck = (0..plan.steps.len()).min_by(|a, b| {
                self.headroom(&plan, *a)
                    .total_cmp(&self.headroom(&plan, *b))
            })?;
            let group = &mut plan.steps[bottleneck].groups[0];
            if group.replicas >= MOST_REPLICAS {
                return None;
            }
            group.replicas += 1;
        }
        Some(plan)
    }

    /// The longest path through the steps with batches of one, ns.
    fn service_time(&self, plan: &Plan) -> u64 {
        let mut until = vec![0; plan.steps.len()];
        for (at, step) in self.problem.graph.steps().iter().enumerate() {
            let before = step.after.iter().map(|before| until[*before]).max();
            until[at] =
                before.unwrap_or(0) + step.choices[plan.steps[at].main().choice].latency.of(1);
        }
        until.into_iter().max().unwrap_or(0)
    }

    /// The queries a second that a step carries.
    fn headroom(&self, plan: &Plan, at: usize) -> f64 {
        let group = plan.steps[at].main();
        let one = self.problem.graph.steps()[at].choices[group.choice].throughput(group.batch);
        one * f64::from(group.replicas) / self.scale[at].max(1e-12)
    }

    /// The feasible change that saves most.
    fn cheaper(&mut self, plan: &Plan) -> Option<Plan> {
        let graph = self.problem.graph;
        let mut below = plan.cost(graph) - NONE;
        let mut cheapest = None;
        for at in 0..plan.steps.len() {
            for downgrades in [false, true] {
                let next = match downgrades {
                    true => self.downgraded(plan, at, below),
                    false => self.fewer(plan, at),
                };
                let next = next.map(|next| (next.cost(graph), next));
                if let Some((cost, next)) = next.filter(|(cost, _)| *cost < below) {
                    (below, cheapest) = (cost, Some(next));
                }
            }
        }
        cheapest
    }

    /// The feasible doubling of a batch that adds most throughput for the latency that it adds.
    fn fuller(&mut self, plan: &Plan) -> Option<Plan> {
        let fuller = (0..plan.steps.len()).filter_map(|at| {
            let next = self.doubled(plan, at)?;
            let choice = &self.problem.graph.steps()[at].choices[plan.steps[at].main().choice];
            let (before, after) = (plan.steps[at].main().batch, next.steps[at].main().batch);
            let gain = choice.throughput(after) - choice.throughput(before);
            let price = (choice.latency.of(after) - choice.latency.of(before)).max(1);
            Some((gain / price as f64, next))
        });
        fuller
            .filter(|(gain, _)| *gain > 0.0)
            .max_by(|a, b| a.0.total_cmp(&b.0))
            .map(|(_, next)| next)
    }

    fn doubled(&mut self, plan: &Plan, at: usize) -> Option<Plan> {
        let group = plan.steps[at].main();
        let batches = self.problem.graph.steps()[at].choices[group.choice].batches();
        let batch = batches.into_iter().find(|batch| *batch > group.batch)?;
        self.with(plan, at, StepPlan::of(group.choice, batch, group.replicas))
    }

    fn fewer(&mut self, plan: &Plan, at: usize) -> Option<Plan> {
        let group = plan.steps[at].main();
        let replicas = group
            .replicas
            .checked_sub(1)
            .filter(|replicas| *replicas > 0)?;
        self.with(plan, at, StepPlan::of(group.choice, group.batch, replicas))
    }

    /// The plan with the step on the next cheaper device type, with the best batch and replicas there. It is not tried
    /// if the whole plan could not cost less than `below`.
    fn downgraded(&mut self, plan: &Plan, at: usize, below: f64) -> Option<Plan> {
        let graph = self.problem.graph;
        let step = &graph.steps()[at];
        let now = &step.choices[plan.steps[at].main().choice];
        let cheaper = step.choices.iter().enumerate();
        let cheaper =
            cheaper.filter(|(_, choice)| choice.variant == now.variant && choice.price < now.price);
        let (choice, _) = cheaper.max_by(|a, b| a.1.price.total_cmp(&b.1.price))?;
        let others = plan.cost(graph) - plan.steps[at].cost(step);
        let least = others + self.trials.least_price(at, choice)?;
        if least >= below + NONE {
            return None;
        }
        let mut best = self.enough(plan, at, choice)?;
        // One replica less if that is feasible, else a larger batch, which may make it feasible.
        while let Some(next) = self.fewer(&best, at).or_else(|| self.doubled(&best, at)) {
            best = next;
        }
        (best.cost(graph) < plan.cost(graph) - 1e-9).then_some(best)
    }

    /// The plan with a step on another device type in batches of one, with the fewest replicas that are feasible.
    fn enough(&mut self, plan: &Plan, at: usize, choice: usize) -> Option<Plan> {
        let one = self.problem.graph.steps()[at].choices[choice].throughput(1);
        let needed = (self.problem.rate() * self.scale[at] / one * 0.5).floor() as u32;
        let mut few = needed.clamp(1, MOST_REPLICAS);
        let mut many = few;
        let found = loop {
            if let Some(found) = self.with(plan, at, StepPlan::of(choice, 1, many)) {
                break found;
            }
            if many >= 8 * needed.max(8) {
                return None;
            }
            (few, many) = (many, many * 2);
        };
        let mut found = found;
        while many - few > 1 {
            let middle = u32::midpoint(few, many);
            match self.with(plan, at, StepPlan::of(choice, 1, middle)) {
                Some(next) => (many, found) = (middle, next),
                None => few = middle,
            }
        }
        Some(found)
    }

    /// The plan with another step, if that meets the target.
    fn with(&mut self, plan: &Plan, at: usize, step: StepPlan) -> Option<Plan> {
        let mut next = plan.clone();
        next.steps[at] = step;
        self.trials.is_met(&next).then_some(next)
    }
}
