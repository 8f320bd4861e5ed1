//! All plans that are cheaper than a known one.
//!
//! Plans are left out only if they are impossible, or equivalent to something that is tried:
//!
//! - numbers of replicas that cannot do a step's work in time however full their batches are ([`super::work`]), and
//!   plans that together with the least cost of all other steps cost more than a known one;
//! - variants with which the whole pipeline is not accurate enough, whatever the other steps run;
//! - largest batches above the largest that was formed, which have the same result;
//! - partial plans that leave a step exactly as a cheaper or equally expensive partial plan of the same accuracy does,
//!   query for query.
//!
//! More replicas, or a quicker variant, may make later steps worse, because other batches form. Nothing is therefore
//! left out merely because something else seems better. Steps are decided in an order in which those that cost most
//! come early. The result of a plan does not depend on the order.

use super::{
    Plan, Problem, SearchResult, StepPlan,
    search::Ordered,
    walk::{Trial, Walk},
    work::Work,
};
use crate::{
    estimate::Item,
    whole::{CoVisits, NONE},
};

/// A search in progress.
struct Exhaustive<'a> {
    walk: Walk<'a>,
    /// Which steps queries visit together.
    together: CoVisits,
    /// By step: the choices that may run it.
    choices: Vec<Vec<Candidate>>,
    /// By step: the least cost of this and all later ones.
    rest: Vec<f64>,
    /// By step: the accuracy of the decided choice, or else the highest.
    accuracy: Vec<f64>,
    /// The cheapest plan and its price.
    best: Option<(f64, Plan)>,
    start: Vec<StepPlan>,
}

/// A choice of a step.
struct Candidate {
    choice: usize,
    price: f64,
    accuracy: f64,
    /// Fewer replicas cannot do the work.
    least: u32,
    /// Largest batches, the largest first.
    batches: Vec<u32>,
}

/// A step that was tried.
struct Way {
    /// The price of the partial plan.
    price: f64,
    accuracy: f64,
    plan: StepPlan,
    trial: Trial,
}

/// The cheapest plan of all, if `complete`: each step runs on a number of replicas of one choice, with a largest batch
/// from [`crate::Choice::batches`]. No such plan meets the targets on the sample, by the estimator, and is cheaper (by
/// more than 1e-9 US dollars an hour). Plans with a second kind of replicas are not considered. If `most_rows` do not
/// suffice, returns `known` or what was found until then, and nothing is proven. The search takes long; it exists to
/// judge [`super::search`].
pub fn exhaustive(problem: &Problem<'_>, known: Option<&Plan>, most_rows: u64) -> SearchResult {
    let ordered = Ordered::new(problem);
    let of = ordered.problem(problem);
    let mut search = Exhaustive::new(of, most_rows);
    search.best = known.map(|plan| (plan.cost(problem.graph), ordered.reordered(plan)));
    let complete = search.descend(0.0);
    SearchResult {
        plan: search.best.map(|(_, plan)| ordered.restored(plan)),
        complete,
        rows: search.walk.spent,
    }
}

// === impl Exhaustive ===

impl<'a> Exhaustive<'a> {
    fn new(problem: Problem<'a>, most_rows: u64) -> Self {
        let accuracy = problem.graph.steps().iter().map(|step| {
            let accuracies = step.choices.iter().map(|choice| choice.accuracy);
            accuracies.fold(0.0, f64::max)
        });
        let mut search = Self {
            walk: Walk::new(problem),
            together: CoVisits::of(problem.load.routes),
            choices: Vec::new(),
            rest: vec![0.0],
            accuracy: accuracy.collect(),
            best: None,
            start: Vec::new(),
        };
        let steps = 0..problem.graph.steps().len();
        search.walk.most_rows = most_rows;
        search.choices = steps.map(|step| search.candidates(step)).collect();
        for choices in search.choices.iter().rev() {
            let work = choices.iter().map(|of| of.price * f64::from(of.least));
            let work = work.fold(f64::INFINITY, f64::min);
            search.rest.push(search.rest[search.rest.len() - 1] + work);
        }
        search.rest.reverse();
        search
    }

    /// The choices that may run a step.
    fn candidates(&self, step: usize) -> Vec<Candidate> {
        let work = Work::new(&self.walk.problem, step);
        let choices = self.walk.problem.graph.steps()[step].choices.iter();
        let candidates = choices.enumerate().filter_map(|(at, choice)| {
            let least = work.replicas(choice)?;
            let mut batches = choice.batches();
            batches.reverse();
            self.is_accurate_with(step, choice.accuracy)
                .then_some(Candidate {
                    choice: at,
                    price: choice.price,
                    accuracy: choice.accuracy,
                    least,
                    batches,
                })
        });
        candidates.collect()
    }

    /// Whether the whole pipeline can be accurate enough if a step has this accuracy.
    fn is_accurate_with(&self, step: usize, accuracy: f64) -> bool {
        let reached = self.together.accuracy(|at| match at == step {
            true => accuracy,
            false => self.accuracy[at],
        });
        reached >= self.walk.problem.min_accuracy - NONE
    }

    /// The price that plans must be below.
    fn limit(&self) -> f64 {
        let cost = self.best.as_ref().map(|(cost, _)| cost - NONE);
        cost.unwrap_or(f64::INFINITY)
    }

    /// Tries all ways to continue the partial plan. Returns `false` if that took too long.
    fn descend(&mut self, price: f64) -> bool {
        let step = self.start.len();
        if step == self.choices.len() {
            let steps = self.start.clone();
            self.best = Some((price, Plan { steps }));
            return true;
        }
        let Some(ways) = self.ways(step, price) else {
            return false;
        };
        for way in ways {
            if way.price + self.rest[step + 1] > self.limit() {
                continue;
            }
            let highest = std::mem::replace(&mut self.accuracy[step], way.accuracy);
            let newly = self.walk.push(way.trial);
            self.start.push(way.plan);
            let ended = self.descend(way.price);
            self.start.pop();
            self.walk.pop(&newly);
            self.accuracy[step] = highest;
            if !ended {
                return false;
            }
        }
        true
    }

    /// The feasible ways to continue, by price; `None` if that took too long.
    fn ways(&mut self, step: usize, price: f64) -> Option<Vec<Way>> {
        let items = self.walk.items();
        let ready: u128 = items.iter().map(|(ready, _)| u128::from(*ready)).sum();
        let mut ways = Vec::new();
        // By choice: the number of replicas with which each row begins at once.
        let mut enough = vec![items.len().max(1) as u32; self.choices[step].len()];
        let is_last = step + 1 == self.choices.len();
        for (price, at, replicas) in self.open(step, price, items.len()) {
            if replicas > enough[at] {
                continue;
            }
            let least = self.add(step, (price, at, replicas), &items, &mut ways);
            if least == Some(ready) {
                enough[at] = replicas;
            }
            if self.walk.is_spent() {
                return None;
            }
            if is_last && !ways.is_empty() {
                break;
            }
        }
        Some(ways)
    }

    /// The price so far, the candidate and its number of replicas, by price, for everything that may be cheaper than
    /// the known plan. With as many replicas as rows, each row begins at once.
    fn open(&self, step: usize, price: f64, rows: usize) -> Vec<(f64, usize, u32)> {
        let limit = self.limit() - self.rest[step + 1];
        let mut open = Vec::new();
        for (at, of) in self.choices[step].iter().enumerate() {
            if !self.is_accurate_with(step, of.accuracy) {
                continue;
            }
            let with = |replicas: u32| price + of.price * f64::from(replicas);
            let most = of.least.max(rows as u32);
            let replicas = (of.least..=most).take_while(|replicas| with(*replicas) <= limit);
            open.extend(replicas.map(|replicas| (with(replicas), at, replicas)));
        }
        open.sort_by(|a, b| a.0.total_cmp(&b.0));
        open
    }

    /// Tries replicas of a choice with each largest batch. Returns the least sum of the times when rows began, if all
    /// ran alone.
    fn add(
        &mut self,
        step: usize,
        (price, at, replicas): (f64, usize, u32),
        items: &[Item],
        ways: &mut Vec<Way>,
    ) -> Option<u128> {
        let of = &self.choices[step][at];
        let one = self.walk.problem.graph.steps()[step].choices[of.choice]
            .latency
            .of(1);
        let runs = u128::from(one) * items.len() as u128;
        let (mut formed, mut began) = (u32::MAX, None);
        for batch in &of.batches {
            if formed <= *batch {
                continue;
            }
            let plan = StepPlan::of(of.choice, *batch, replicas);
            match self.walk.attempt(step, &plan, items) {
                Err(largest) => formed = largest,
                Ok(trial) => {
                    formed = trial.largest;
                    if formed <= 1 {
                        began = trial.sum.checked_sub(runs);
                    }
                    let way = Way {
                        price,
                        accuracy: of.accuracy,
                        plan,
                        trial,
                    };
                    if !ways.iter().any(|other| other.does_as(&way)) {
                        ways.push(way);
                    }
                }
            }
        }
        began
    }
}

// === impl Way ===

impl Way {
    /// Whether later steps cannot distinguish it from one that is not cheaper.
    fn does_as(&self, other: &Self) -> bool {
        self.price <= other.price
            && self.accuracy >= other.accuracy
            && self.trial.sum == other.trial.sum
            && self.trial.ends == other.trial.ends
    }
}
