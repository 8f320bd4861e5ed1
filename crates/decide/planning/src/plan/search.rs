//! Our planner: over variant, device type, largest batch and replicas of all steps.
//!
//! Steps are decided in the order of the graph, each tried on what really came of those before ([`super::walk`]). Each
//! step has a floor: the price of the cheapest that would do if all others took their least. A start of a plan whose
//! price and the floors of what is left exceed the cheapest known plan is given up. The price that may be reached rises
//! by a little from the sum of the floors, so that the first plans that are found are cheap and what is dear is
//! never looked at. Where this takes longer than allowed, a beam goes on: at each step the starts that are cheapest
//! for the time that they have used. Its width is limited, so that it always ends, and the greedy plan ([`super::greedy`])
//! is what it must beat.

mod beam;

use super::{
    Plan, Problem, StepPlan, inferline, thin,
    walk::{Pressure, Trial, Walk},
};
use crate::{
    Choice,
    estimate::{Item, Load},
    whole::CoVisits,
};

/// Differences of price, US dollars an hour, and of accuracy that count as none.
const NONE: f64 = 1e-9;

/// How much the price that may be reached rises from one round to the next.
const RISE: f64 = 1.05;

/// Steps of a pipeline up to which every way is tried; in larger ones those that another betters are left out.
const SMALL: usize = 3;

/// Most replicas of one choice that are tried.
const MOST_REPLICAS: u32 = 100_000;

/// How much a search may spend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Most rows that are served in trials before the beam takes over; some tens of millions are a second.
    pub most_rows: u64,
    /// Most queries of the sample that are searched with; what is found is then mended on the whole sample.
    pub most_queries: usize,
}

/// What a search found.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchResult {
    /// The cheapest plan; `None` where none meets the targets.
    pub plan: Option<Plan>,
    /// Whether every cheaper plan was ruled out, by the floors of the steps.
    pub complete: bool,
    /// Rows that were served in trials.
    pub rows: u64,
}

/// A search under way.
struct Search<'a> {
    walk: Walk<'a>,
    /// Which steps queries visit together.
    together: CoVisits,
    /// By step: the choices in the order of their price.
    choices: Vec<Vec<Candidate>>,
    /// By step: the least price of this and all later ones.
    rest: Vec<f64>,
    /// By step: the highest accuracy of its choices.
    best_accuracy: Vec<f64>,
    most_rows: u64,
    is_exhaustive: bool,
    /// What may be reached now, and the least that was beyond it.
    limit: f64,
    beyond: f64,
    best: Option<(f64, usize, Plan)>,
    start: Vec<StepPlan>,
}

/// A choice of a step.
#[derive(Clone)]
struct Candidate {
    choice: usize,
    price: f64,
    accuracy: f64,
    /// Without fewer replicas the work cannot be done in time.
    least: u32,
    /// Largest batches, the largest first.
    batches: Vec<u32>,
}

/// A step that was tried.
struct Way {
    /// Of the plan so far.
    price: f64,
    /// The accuracy of the whole where all later steps are as accurate as they can be.
    accuracy: f64,
    pressure: Pressure,
    plan: StepPlan,
    trial: Trial,
}

/// The cheapest plan that is found.
pub fn search(problem: &Problem<'_>, options: Options) -> SearchResult {
    let Some((arrivals, routes)) = thin::thin(problem, options.most_queries) else {
        return searched(problem, problem, options);
    };
    let load = Load {
        arrivals: &arrivals,
        routes: &routes,
    };
    let part = Problem { load, ..*problem };
    let found = searched(&part, problem, options);
    let plan = found.plan.and_then(|plan| thin::mended(problem, plan));
    SearchResult {
        plan,
        complete: false,
        rows: found.rows,
    }
}

/// Searches with a part of a sample. Accuracies are those of the whole.
fn searched(part: &Problem<'_>, whole: &Problem<'_>, options: Options) -> SearchResult {
    let mut search = Search::new(*part, whole, options.most_rows);
    if search.floors().is_none() {
        return search.found(true);
    }
    let complete = search.rounds();
    if !complete {
        search.seed(inferline(part));
        search.beam();
    }
    search.settle();
    search.found(complete)
}

/// Rules out every plan cheaper than `known` by trying all that could be, and returns the cheapest. The floor of a step
/// is what its work needs at least, which no plan can be below; variants that seem worse than others are tried as well.
/// Takes long: it exists to judge [`search`].
pub fn exhaustive(problem: &Problem<'_>, known: Option<&Plan>, most_rows: u64) -> SearchResult {
    let mut search = Search::new(*problem, problem, most_rows);
    search.is_exhaustive = true;
    search.choices = (0..problem.graph.steps().len())
        .map(|at| search.candidates(at))
        .collect();
    let work = search.choices.iter().map(|choices| {
        let least = choices.iter().map(|of| of.price * f64::from(of.least));
        least.fold(f64::INFINITY, f64::min)
    });
    search.rest = sums(&work.collect::<Vec<f64>>());
    search.seed(known.cloned());
    search.limit = search
        .best
        .as_ref()
        .map_or(f64::INFINITY, |(cost, ..)| cost - NONE);
    let complete = search.descend(0.0);
    search.found(complete)
}

// === impl Options ===

impl Default for Options {
    fn default() -> Self {
        Self {
            most_rows: 3_000_000,
            most_queries: 3_000,
        }
    }
}

// === impl Search ===

impl<'a> Search<'a> {
    fn new(problem: Problem<'a>, whole: &Problem<'_>, most_rows: u64) -> Self {
        let best_accuracy = problem.graph.steps().iter().map(|step| {
            let accuracies = step.choices.iter().map(|choice| choice.accuracy);
            accuracies.fold(0.0, f64::max)
        });
        let mut search = Self {
            walk: Walk::new(problem),
            together: CoVisits::of(whole.load.routes),
            choices: Vec::new(),
            rest: Vec::new(),
            best_accuracy: best_accuracy.collect(),
            most_rows,
            is_exhaustive: false,
            limit: f64::INFINITY,
            beyond: f64::INFINITY,
            best: None,
            start: Vec::new(),
        };
        let steps = 0..problem.graph.steps().len();
        search.choices = steps
            .map(|at| undominated(&problem.graph.steps()[at].choices, search.candidates(at)))
            .collect();
        search
    }

    /// The accuracy of the whole where a step has this one, those of the start have theirs and all others are as accurate as
    /// they can be.
    fn reach(&self, step: usize, accuracy: f64) -> f64 {
        let steps = self.walk.problem.graph.steps();
        self.together.accuracy(|at| match self.start.get(at) {
            Some(of) => of.accuracy(&steps[at]),
            None if at == step => accuracy,
            None => self.best_accuracy[at],
        })
    }

    fn found(self, complete: bool) -> SearchResult {
        SearchResult {
            plan: self.best.map(|(_, _, plan)| plan),
            complete,
            rows: self.walk.spent,
        }
    }

    /// What may run a step, by price.
    fn candidates(&self, step: usize) -> Vec<Candidate> {
        let problem = &self.walk.problem;
        let load = problem.load;
        let rows = load.routes.rows_per_query(step) * load.arrivals.len() as f64;
        let most = (0..load.routes.len())
            .map(|query| load.routes.of(query)[step])
            .max();
        let needed = (rows - problem.may_miss() as f64 * f64::from(most.unwrap_or(0))).max(0.0);
        let ns = problem.seconds() * 1e9 + problem.target as f64;
        let choices = problem.graph.steps()[step].choices.iter().enumerate();
        let candidates = choices.map(|(at, choice)| {
            let most = choice.latency.measured_rows();
            let per_row = (1..=most).map(|rows| choice.latency.of(rows) as f64 / f64::from(rows));
            let quickest = per_row.fold(f64::INFINITY, f64::min);
            let mut batches = choice.batches();
            batches.reverse();
            Candidate {
                choice: at,
                price: choice.price,
                accuracy: choice.accuracy,
                least: ((needed * quickest / ns).ceil() as u32).max(1),
                batches,
            }
        });
        candidates.collect()
    }

    /// Sets the floors; `None` where a step cannot be done at any price.
    fn floors(&mut self) -> Option<()> {
        let steps = self.walk.problem.graph.steps().len();
        let best = self.together.accuracy(|at| self.best_accuracy[at]);
        if best < self.walk.problem.min_accuracy - NONE {
            return None;
        }
        let floors: Option<Vec<f64>> = (0..steps).map(|step| self.floor(step)).collect();
        self.rest = sums(&floors?);
        Some(())
    }

    /// The price of the cheapest that does a step where all others take their least.
    fn floor(&mut self, step: usize) -> Option<f64> {
        let items = self.walk.earliest(step);
        let least = self.walk.problem.min_accuracy;
        let candidates: Vec<Candidate> = self.choices[step]
            .iter()
            .filter(|of| self.reach(step, of.accuracy) >= least - NONE)
            .cloned()
            .collect();
        let mut next: Vec<u32> = candidates.iter().map(|of| of.least).collect();
        let cap = |of: &Candidate| (of.least.max(8)).saturating_mul(16).min(MOST_REPLICAS);
        loop {
            let open = candidates
                .iter()
                .zip(&next)
                .enumerate()
                .filter(|(_, (of, n))| **n <= cap(of));
            let price = |(of, n): (&Candidate, &u32)| of.price * f64::from(*n);
            let (at, _) = open.min_by(|a, b| price(a.1).total_cmp(&price(b.1)))?;
            let of = &candidates[at];
            if self.any_batch(step, of, next[at], &items) {
                return Some(of.price * f64::from(next[at]));
            }
            next[at] += 1 + next[at] / 64;
        }
    }

    fn any_batch(&mut self, step: usize, of: &Candidate, replicas: u32, items: &[Item]) -> bool {
        let mut batches = of.batches.iter();
        batches.any(|batch| {
            self.walk
                .attempt(step, &StepPlan::of(of.choice, *batch, replicas), items)
                .is_some()
        })
    }

    /// Raises what may be reached until a plan is found; tells whether nothing cheaper is left.
    fn rounds(&mut self) -> bool {
        self.limit = self.rest[0] + NONE;
        loop {
            self.beyond = f64::INFINITY;
            if !self.descend(0.0) {
                return false;
            }
            if self.best.is_some() || self.beyond == f64::INFINITY {
                return true;
            }
            self.limit = (self.limit * RISE).max(self.beyond + NONE);
        }
    }

    /// Tries all ways to go on from the start; false where that took too long.
    fn descend(&mut self, price: f64) -> bool {
        let step = self.start.len();
        if step == self.choices.len() {
            self.complete(price);
            return true;
        }
        let Some(mut ways) = self.tried(price) else {
            return false;
        };
        if !self.is_exhaustive && self.choices.len() > SMALL {
            ways = undominated_ways(ways);
        }
        for way in ways {
            if way.price + self.rest[step + 1] > self.limit {
                continue;
            }
            let newly = self.walk.push(way.trial);
            self.start.push(way.plan);
            let ended = self.descend(way.price);
            self.start.pop();
            self.walk.pop(&newly);
            if !ended {
                return false;
            }
        }
        true
    }

    /// The feasible ways to go on, by price; `None` where that took too long.
    fn tried(&mut self, price: f64) -> Option<Vec<Way>> {
        let step = self.start.len();
        let items = self.walk.items();
        let mut tried = Vec::new();
        for (of, replicas, accuracy) in self.ways(step, price) {
            let price = price + of.price * f64::from(replicas);
            let mut formed = u32::MAX;
            for batch in &of.batches {
                if formed <= *batch {
                    continue;
                }
                if self.walk.spent > self.most_rows {
                    return None;
                }
                let plan = StepPlan::of(of.choice, *batch, replicas);
                let Some(trial) = self.walk.attempt(step, &plan, &items) else {
                    continue;
                };
                formed = trial.largest;
                tried.push(Way {
                    price,
                    accuracy,
                    pressure: self.walk.pressure(step, &trial),
                    plan,
                    trial,
                });
            }
        }
        Some(tried)
    }

    /// Choices and replicas of a step that may be reached, by price, with the accuracy that the whole can have then.
    fn ways(&mut self, step: usize, price: f64) -> Vec<(Candidate, u32, f64)> {
        let left = self.limit - price - self.rest[step + 1];
        let mut ways = Vec::new();
        for of in &self.choices[step] {
            let accuracy = self.reach(step, of.accuracy);
            if accuracy < self.walk.problem.min_accuracy - NONE {
                continue;
            }
            let mut replicas = of.least;
            while of.price * f64::from(replicas) <= left && replicas <= MOST_REPLICAS {
                ways.push((of.clone(), replicas, accuracy));
                replicas += 1;
            }
            let beyond = price + of.price * f64::from(replicas) + self.rest[step + 1];
            self.beyond = self.beyond.min(beyond);
        }
        let cost = |(of, replicas, _): &(Candidate, u32, f64)| of.price * f64::from(*replicas);
        ways.sort_by(|a, b| cost(a).total_cmp(&cost(b)));
        ways
    }

    /// A plan is found: what is dearer need not be looked at.
    fn complete(&mut self, price: f64) {
        let plan = Plan {
            steps: self.start.clone(),
        };
        if self
            .best
            .as_ref()
            .is_none_or(|(cost, ..)| price < cost - NONE)
        {
            self.best = Some((price, usize::MAX, plan));
            self.limit = price - NONE;
        }
    }

    /// A plan that is known to meet the targets.
    fn seed(&mut self, plan: Option<Plan>) {
        let Some(plan) = plan else {
            return;
        };
        let cost = plan.cost(self.walk.problem.graph);
        if self
            .best
            .as_ref()
            .is_none_or(|(best, ..)| cost < best - NONE)
        {
            self.best = Some((cost, usize::MAX, plan));
        }
    }

    /// Of equally dear batches and choices those with which fewest queries miss: what was planned for a sample must
    /// hold for other queries as well.
    fn settle(&mut self) {
        let Some((_, _, plan)) = self.best.take() else {
            return;
        };
        let problem = self.walk.problem;
        let mut best = (problem.estimate(&plan).misses(problem.target), plan);
        for step in 0..best.1.steps.len() {
            let group = best.1.steps[step].main();
            for batch in problem.graph.steps()[step].choices[group.choice].batches() {
                let mut other = best.1.clone();
                other.steps[step].groups[0].batch = batch;
                let misses = problem.estimate(&other).misses(problem.target);
                if misses < best.0 {
                    best = (misses, other);
                }
            }
        }
        let cost = best.1.cost(problem.graph);
        self.best = Some((cost, best.0, best.1));
    }
}

/// Of each entry and all later ones, and 0 behind them.
fn sums(of: &[f64]) -> Vec<f64> {
    let mut rest = vec![0.0];
    for price in of.iter().rev() {
        rest.push(price + rest[rest.len() - 1]);
    }
    rest.reverse();
    rest
}

/// Without those that another choice betters in price, accuracy and all run times.
fn undominated(choices: &[Choice], candidates: Vec<Candidate>) -> Vec<Candidate> {
    let betters = |a: &Choice, b: &Choice| {
        let mut rows = 1..=b.latency.measured_rows();
        a.price <= b.price
            && a.accuracy >= b.accuracy
            && a.latency.measured_rows() >= b.latency.measured_rows()
            && rows.all(|rows| a.latency.of(rows) <= b.latency.of(rows))
    };
    let kept = candidates.into_iter().filter(|of| {
        let own = &choices[of.choice];
        let mut others = choices
            .iter()
            .enumerate()
            .filter(|(at, _)| *at != of.choice);
        !others.any(|(at, other)| betters(other, own) && (at < of.choice || !betters(own, other)))
    });
    kept.collect()
}

/// Without those that another one betters in price, accuracy and at what quantile ever.
fn undominated_ways(ways: Vec<Way>) -> Vec<Way> {
    let mut kept: Vec<Way> = Vec::new();
    for way in ways {
        let betters = |other: &Way| {
            let quicker = other
                .pressure
                .iter()
                .zip(&way.pressure)
                .all(|(other, own)| other <= own);
            quicker && other.accuracy >= way.accuracy && other.price <= way.price + NONE
        };
        if !kept.iter().any(betters) {
            kept.push(way);
        }
    }
    kept
}
