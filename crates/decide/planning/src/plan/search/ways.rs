//! The ways to run a step, and their effect on queries if all steps before took their least time.

use super::{super::work::Work, predict::Predictor};
use crate::{
    Choice, Nanos,
    estimate::Item,
    plan::{Group, Problem, StepPlan, walk::Walk},
};

/// The most replicas of one choice that are tried.
const MOST_REPLICAS: u32 = 100_000;

/// The number of queries that may miss the target in one step alone, as a multiple of the allowed misses and as an
/// additional number. Steps before it spread bursts, so fewer will miss.
const LOOSE: usize = 4;

/// A number of replicas of a choice.
pub(super) struct Way {
    choice: usize,
    replicas: u32,
    /// US dollars an hour.
    pub price: f64,
    /// The accuracy of the choice, 0 to 1.
    pub accuracy: f64,
    /// Largest batches with different results, the largest first.
    pub batches: Vec<u32>,
    /// Run time of one row, in parts of the target.
    pub run: i16,
    /// By query, in the predictor's order: by how much longer the step takes than `run`, with the best of the batches,
    /// in parts of the target; 0 if the step is not visited.
    pub waits: Vec<i16>,
    waited: u64,
}

/// The ways of a step that are known so far.
pub(super) struct Ways {
    step: usize,
    sources: Vec<Source>,
    /// The least run time of a row, ns.
    least: Nanos,
    items: Vec<Item>,
    /// Sorted by price, and those of one price by how long queries wait.
    pub list: Vec<Way>,
}

/// A choice, and its next number of replicas.
#[derive(Clone)]
struct Source {
    choice: usize,
    price: f64,
    accuracy: f64,
    batches: Vec<u32>,
    next: u32,
    most: u32,
}

// === impl Way ===

impl Way {
    /// The plan of the step with a largest batch.
    pub fn plan(&self, batch: u32) -> StepPlan {
        StepPlan::of(self.choice, batch, self.replicas)
    }
}

// === impl Ways ===

impl Ways {
    /// Starts with the choices that are accurate enough and that no other choice betters. No way is known yet.
    pub fn new(walk: &Walk<'_>, step: usize, is_accurate: impl Fn(f64) -> bool) -> Self {
        let choices = &walk.problem.graph.steps()[step].choices;
        let mut sources = sources(&walk.problem, step);
        sources.retain(|of| is_accurate(of.accuracy) && !is_bettered(choices, of.choice));
        let run = |of: &Source| choices[of.choice].latency.of(1);
        Self {
            step,
            least: sources.iter().map(run).min().unwrap_or(0),
            sources,
            items: walk.earliest(step),
            list: Vec::new(),
        }
    }

    /// Makes a list of a single way.
    pub fn only(walk: &mut Walk<'_>, predictor: &Predictor, step: usize, group: Group) -> Self {
        let choice = &walk.problem.graph.steps()[step].choices[group.choice];
        let source = Source {
            choice: group.choice,
            price: choice.price,
            accuracy: choice.accuracy,
            batches: vec![group.batch],
            next: group.replicas,
            most: group.replicas,
        };
        let mut ways = Self {
            step,
            sources: Vec::new(),
            least: choice.latency.of(1),
            items: walk.earliest(step),
            list: Vec::new(),
        };
        ways.add(&source, usize::MAX, walk, predictor);
        ways
    }

    /// Finds the cheapest way; `None` if there is none.
    pub fn first(&mut self, walk: &mut Walk<'_>, predictor: &Predictor) -> Option<()> {
        while self.list.is_empty() {
            let at = self.next()?;
            self.take(at, walk, predictor);
        }
        Some(())
    }

    /// The price of the cheapest way.
    pub fn floor(&self) -> f64 {
        self.list[0].price
    }

    /// How long queries wait with the cheapest way.
    pub fn cheapest(&self) -> &[i16] {
        &self.list[0].waits
    }

    /// The least run time of a row, in parts of the target.
    pub fn least_run(&self, predictor: &Predictor) -> i16 {
        predictor.parts(self.least)
    }

    /// Finds the ways of at most this price, as long as the effort lasts. Returns the price of the next one.
    pub fn extend(&mut self, most: f64, walk: &mut Walk<'_>, predictor: &Predictor) -> f64 {
        let next = loop {
            let Some(at) = self.next() else {
                break f64::INFINITY;
            };
            let price = self.sources[at].next_price();
            if price > most || walk.is_spent() {
                break price;
            }
            self.take(at, walk, predictor);
        };
        self.list
            .sort_by(|a, b| a.price.total_cmp(&b.price).then(a.waited.cmp(&b.waited)));
        next
    }

    /// Changes the order of queries.
    pub fn reorder(&mut self, order: &[u32]) {
        for way in &mut self.list {
            let waits = order.iter().map(|query| way.waits[*query as usize]);
            way.waits = waits.collect();
        }
    }

    /// The source whose next way is cheapest.
    fn next(&self) -> Option<usize> {
        let open = (0..self.sources.len()).filter(|at| {
            let source = &self.sources[*at];
            source.next <= source.most
        });
        let price = |at: &usize| self.sources[*at].next_price();
        open.min_by(|a, b| price(a).total_cmp(&price(b)))
    }

    fn take(&mut self, at: usize, walk: &mut Walk<'_>, predictor: &Predictor) {
        let source = self.sources[at].clone();
        self.sources[at].next += 1;
        let misses = walk.may_miss() * LOOSE + LOOSE;
        self.add(&source, misses, walk, predictor);
    }

    /// Tries the next way of a source. It is kept if at most `misses` queries miss the target with one of the batches.
    fn add(&mut self, of: &Source, misses: usize, walk: &mut Walk<'_>, predictor: &Predictor) {
        let one = walk.problem.graph.steps()[self.step].choices[of.choice]
            .latency
            .of(1);
        let mut waits = vec![i16::MAX; walk.missed.len()];
        let (mut batches, mut formed) = (Vec::new(), u32::MAX);
        for batch in &of.batches {
            if formed <= *batch {
                continue;
            }
            let plan = StepPlan::of(of.choice, *batch, of.next);
            let trial = match walk.attempt_with(self.step, &plan, &self.items, misses) {
                Ok(trial) => trial,
                Err(largest) => {
                    formed = largest;
                    continue;
                }
            };
            formed = trial.largest;
            batches.push(*batch);
            for (ready, query) in &self.items {
                let wait = (trial.ends[*query as usize] - ready).saturating_sub(one);
                let of = &mut waits[predictor.position(*query)];
                *of = predictor.parts(wait).min(*of);
            }
        }
        for wait in waits.iter_mut().filter(|wait| **wait == i16::MAX) {
            *wait = 0;
        }
        if !batches.is_empty() {
            self.list.push(Way {
                choice: of.choice,
                replicas: of.next,
                price: of.next_price(),
                accuracy: of.accuracy,
                batches,
                run: predictor.parts(one),
                waited: waits
                    .iter()
                    .map(|wait| u64::from(wait.unsigned_abs()))
                    .sum(),
                waits,
            });
        }
    }
}

// === impl Source ===

impl Source {
    fn next_price(&self) -> f64 {
        self.price * f64::from(self.next)
    }
}

fn sources(problem: &Problem<'_>, step: usize) -> Vec<Source> {
    let work = Work::new(problem, step);
    let choices = problem.graph.steps()[step].choices.iter().enumerate();
    let sources = choices.filter_map(|(at, choice)| {
        let least = work.replicas(choice)?;
        let mut batches = choice.batches();
        batches.reverse();
        Some(Source {
            choice: at,
            price: choice.price,
            accuracy: choice.accuracy,
            batches,
            next: least,
            most: least.max(8).saturating_mul(16).min(MOST_REPLICAS),
        })
    });
    sources.collect()
}

/// Whether another choice betters the one at `at` in price, accuracy and all run times.
fn is_bettered(choices: &[Choice], at: usize) -> bool {
    let betters = |a: &Choice, b: &Choice| {
        let mut rows = 1..=b.latency.measured_rows();
        a.price <= b.price
            && a.accuracy >= b.accuracy
            && a.latency.measured_rows() >= b.latency.measured_rows()
            && rows.all(|rows| a.latency.of(rows) <= b.latency.of(rows))
    };
    let own = &choices[at];
    let mut others = choices.iter().enumerate().filter(|(other, _)| *other != at);
    others.any(|(other, choice)| betters(choice, own) && (other < at || !betters(own, choice)))
}
