//! The depth-first search over all steps.

use super::{
    predict::{NOTHING, Predictor},
    ways::Ways,
};
use crate::{
    estimate::Item,
    plan::{
        Plan, Problem, StepPlan,
        walk::{Trial, Walk},
    },
    whole::{CoVisits, NONE},
};

/// The factor by which the price limit rises from one round to the next.
pub(super) const RISE: f64 = 1.05;

/// The stages of the search, one after the other: with caution until there is a plan, then with less and less trust in
/// predictions.
const STAGES: [Stage; 6] = [
    Stage::new(2, 1, false),
    Stage::new(NOTHING, 1, false),
    Stage::new(NOTHING, 1, true),
    Stage::new(NOTHING, 2, false),
    Stage::new(NOTHING, 2, true),
    Stage::new(NOTHING, 4, true),
];

/// The factor by which more may be spent until the second stage has ended.
const MORE: u64 = 3;

/// How far predictions are trusted.
#[derive(Clone, Copy)]
pub(super) struct Stage {
    /// Of two waits the shorter one counts by a half to the power of this.
    shift: u32,
    /// The ratio of predicted misses that are accepted to the allowed ones.
    pub(super) times: usize,
    /// Whether the search continues from all largest batches of a step, or only from those that seem best after it.
    all_batches: bool,
}

/// A search in progress.
pub(super) struct Search<'a> {
    pub(super) walk: Walk<'a>,
    pub(super) predictor: Predictor,
    /// Which steps queries visit together.
    together: CoVisits,
    /// By step: the ways to run it.
    pub(super) ways: Vec<Ways>,
    /// By step: the least price of this and all later ones.
    pub(super) rest: Vec<f64>,
    /// By step: the highest accuracy of its choices.
    pub(super) best_accuracy: Vec<f64>,
    /// By step: the accuracy of the decided way, or else the highest.
    pub(super) accuracy: Vec<f64>,
    pub(super) stage: Stage,
    /// Whether the price limit rises from a low value although a plan is known, because that plan may be far too
    /// expensive.
    rises: bool,
    pub(super) predictions: usize,
    /// The current price limit. `beyond` has the least price that exceeded it.
    pub(super) limit: f64,
    pub(super) beyond: f64,
    start: Vec<StepPlan>,
    /// The cheapest plan that was found, with its price.
    pub best: Option<(f64, Plan)>,
}

// === impl Stage ===

impl Stage {
    const fn new(shift: u32, times: usize, all_batches: bool) -> Self {
        Self {
            shift,
            times,
            all_batches,
        }
    }
}

// === impl Search ===

impl<'a> Search<'a> {
    /// Returns `None` if the whole pipeline cannot be accurate enough, or a step cannot be done at any price.
    pub fn new(problem: Problem<'a>, together: CoVisits, most_rows: u64) -> Option<Self> {
        let best = problem.graph.steps().iter().map(|step| {
            let accuracies = step.choices.iter().map(|choice| choice.accuracy);
            accuracies.fold(0.0, f64::max)
        });
        let best: Vec<f64> = best.collect();
        let mut walk = Walk::new(problem);
        walk.most_rows = most_rows.saturating_mul(MORE);
        let mut search = Self {
            predictor: Predictor::new(&problem, &walk),
            walk,
            together,
            ways: Vec::new(),
            rest: Vec::new(),
            accuracy: best.clone(),
            best_accuracy: best,
            stage: STAGES[0],
            rises: false,
            predictions: 0,
            limit: f64::INFINITY,
            beyond: f64::INFINITY,
            start: Vec::new(),
            best: None,
        };
        for step in 0..problem.graph.steps().len() {
            let is_accurate = |accuracy| search.is_accurate_with(step, accuracy);
            let mut ways = Ways::new(&search.walk, step, is_accurate);
            ways.first(&mut search.walk, &search.predictor)?;
            search.ways.push(ways);
        }
        search.reorder();
        Some(search)
    }

    /// The effort spent, in rows.
    pub fn spent(&self) -> u64 {
        self.walk.spent
    }

    /// Whether the whole pipeline can be accurate enough if a step has this accuracy and the others have that of the
    /// decided ways or their best.
    pub(super) fn is_accurate_with(&self, step: usize, accuracy: f64) -> bool {
        let reached = self.together.accuracy(|at| match at == step {
            true => accuracy,
            false => self.accuracy[at],
        });
        reached >= self.walk.problem.min_accuracy - NONE
    }

    /// Puts the queries first that wait longest with the cheapest ways, so that predictions with too many misses end
    /// early.
    fn reorder(&mut self) {
        let mut waits = vec![0i64; self.walk.missed.len()];
        for ways in &self.ways {
            for (sum, wait) in waits.iter_mut().zip(ways.cheapest()) {
                *sum += i64::from(*wait);
            }
        }
        let mut order: Vec<u32> = (0..waits.len() as u32).collect();
        order.sort_by_key(|query| std::cmp::Reverse(waits[*query as usize]));
        self.predictor.reorder(&order);
        for ways in &mut self.ways {
            ways.reorder(&order);
        }
    }

    /// Searches stage by stage. Returns whether the first two stages came to their ends with a plan.
    pub fn stages(&mut self) -> bool {
        let mut complete = false;
        for (at, stage) in STAGES.into_iter().enumerate() {
            self.set(stage);
            let ended = self.run();
            if !ended {
                break;
            }
            complete = at > 0 && self.best.is_some();
            if at == 1 {
                self.walk.most_rows /= MORE;
            }
        }
        complete
    }

    fn set(&mut self, stage: Stage) {
        self.stage = stage;
        self.predictor.shift = stage.shift;
    }

    /// Plans two steps at a time anew, with all others unchanged, until that saves nothing or has spent as much as was
    /// spent before.
    pub fn improve(&mut self, plan: Plan) {
        let graph = self.walk.problem.graph;
        self.best = Some((plan.cost(graph), plan));
        self.set(STAGES[1]);
        self.rises = true;
        let more = self.walk.most_rows / MORE;
        self.walk.most_rows = self.walk.spent.saturating_add(more);
        let steps = self.ways.len();
        let mut before = f64::INFINITY;
        while let Some(cost) = self.cost().filter(|cost| *cost < before - NONE) {
            before = cost;
            for free in (0..steps).flat_map(|a| (a + 1..steps.max(2)).map(move |b| [a, b])) {
                self.exchange(free);
            }
        }
    }

    /// The price of the cheapest plan that was found.
    pub fn cost(&self) -> Option<f64> {
        self.best.as_ref().map(|(cost, _)| *cost)
    }

    /// Plans two steps anew, with all others unchanged.
    fn exchange(&mut self, free: [usize; 2]) {
        let Some((_, plan)) = self.best.clone() else {
            return;
        };
        let mut kept = Vec::new();
        for step in (0..plan.steps.len()).filter(|step| !free.contains(step)) {
            let only = Ways::only(
                &mut self.walk,
                &self.predictor,
                step,
                plan.steps[step].main(),
            );
            kept.push((step, std::mem::replace(&mut self.ways[step], only)));
        }
        self.run();
        for (step, ways) in kept {
            self.ways[step] = ways;
        }
    }

    /// Searches for plans that are cheaper than the best one, first from the last step back and then over all steps.
    /// Returns `false` if that took too long.
    fn run(&mut self) -> bool {
        let known = self.cost().map_or(f64::INFINITY, |cost| cost - NONE);
        let floors: Vec<f64> = self.ways.iter().map(Ways::floor).collect();
        self.rest = sums(&floors);
        for step in (1..floors.len()).rev() {
            let before: f64 = floors[..step].iter().sum();
            match self.rest_from(step, known - before) {
                Some(rest) if rest.is_finite() && before + rest <= known => self.rest[step] = rest,
                Some(_) => return true,
                None => return false,
            }
        }
        self.rest[0] = floors[0] + self.rest[1];
        self.whole(known)
    }

    /// Raises the price limit until a plan is found or the price of a known one is reached. Returns `false` if that
    /// took too long.
    fn whole(&mut self, known: f64) -> bool {
        let mut limit = match known.is_finite() && !self.rises {
            true => known,
            false => (self.rest[0] + NONE).min(known),
        };
        loop {
            self.limit = limit;
            self.extend(0);
            if !self.descend(0.0) {
                return false;
            }
            if self.limit < limit || limit >= known || self.beyond == f64::INFINITY {
                return true;
            }
            limit = (limit * RISE).max(self.beyond + NONE).min(known);
        }
    }

    /// Finds the ways of the steps from `first` on within the price limit, and the price of the next ones.
    pub(super) fn extend(&mut self, first: usize) {
        let floors: f64 = self.ways[first..].iter().map(Ways::floor).sum();
        self.beyond = f64::INFINITY;
        for ways in &mut self.ways[first..] {
            let others = floors - ways.floor();
            let next = ways.extend(self.limit - others, &mut self.walk, &self.predictor);
            self.beyond = self.beyond.min(others + next);
        }
    }

    /// Tries all ways to continue the partial plan. Returns `false` if that took too long.
    fn descend(&mut self, price: f64) -> bool {
        let step = self.start.len();
        if step == self.ways.len() {
            self.complete(price);
            return true;
        }
        let mut items = None;
        for at in 0..self.ways[step].list.len() {
            let Some(price) = self.reached(step, at, price) else {
                break;
            };
            if self.walk.is_spent() {
                return false;
            }
            if !self.decide(step, at) {
                continue;
            }
            let mut ended = true;
            if self.may_go_on(step + 1, price) {
                let items = items.get_or_insert_with(|| self.walk.items());
                ended = self.go_on(step, at, price, items);
            }
            self.accuracy[step] = self.best_accuracy[step];
            if !ended {
                return false;
            }
        }
        true
    }

    /// Continues from a way with each of its batches, by their real trials.
    fn go_on(&mut self, step: usize, at: usize, price: f64, items: &[Item]) -> bool {
        let run = self.ways[step].list[at].run;
        for (plan, trial) in self.tried(step, at, items) {
            let newly = self.walk.push(trial);
            self.predictor.set(step, run, &self.walk);
            self.start.push(plan);
            let ended = !self.may_go_on(step + 1, price) || self.descend(price);
            self.start.pop();
            self.walk.pop(&newly);
            if !ended {
                return false;
            }
        }
        true
    }

    /// The largest batches with which a way meets the target, the quickest first. Batches that another one betters in
    /// misses and in the sum of times are left out, unless all are asked for.
    fn tried(&mut self, step: usize, at: usize, items: &[Item]) -> Vec<(StepPlan, Trial)> {
        let way = &self.ways[step].list[at];
        let all = self.stage.all_batches;
        let mut tried: Vec<(StepPlan, Trial)> = Vec::new();
        let mut formed = u32::MAX;
        for batch in &way.batches {
            if formed <= *batch {
                continue;
            }
            let plan = way.plan(*batch);
            let trial = match self.walk.attempt(step, &plan, items) {
                Ok(trial) => trial,
                Err(largest) => {
                    formed = largest;
                    continue;
                }
            };
            formed = trial.largest;
            if all || !tried.iter().any(|(_, other)| other.betters(&trial)) {
                tried.retain(|(_, other)| all || !trial.betters(other));
                tried.push((plan, trial));
            }
        }
        tried.sort_by_key(|(_, trial)| trial.sum);
        tried
    }

    /// A plan is found, so more expensive ones need not be considered.
    fn complete(&mut self, price: f64) {
        let steps = self.start.clone();
        self.best = Some((price, Plan { steps }));
        self.limit = price - NONE;
    }
}

/// The sum of each entry and all later ones, followed by 0.
fn sums(of: &[f64]) -> Vec<f64> {
    let mut rest = vec![0.0];
    for price in of.iter().rev() {
        rest.push(price + rest[rest.len() - 1]);
    }
    rest.reverse();
    rest
}
