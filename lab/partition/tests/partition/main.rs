//! Models divided among sub-clusters, through the public interface.

mod by_hand;
mod edges;
mod every;
mod oracle;
mod work;

use sextant_partition::{
    Effort, Error, Limits, MilpLimits, Model, Partition, Problem, Solution, heuristic, milp, random,
};
use sextant_types::random::Random;

const STEPS: u64 = 20_000;

fn model(rate_rps: f64, static_bytes: u64, dynamic_bytes: u64) -> Model {
    Model {
        rate_rps,
        static_bytes,
        dynamic_bytes,
        move_cost: 1.0,
        now: None,
    }
}

fn at(model: Model, now: usize) -> Model {
    Model {
        now: Some(now),
        ..model
    }
}

/// Models with these rates and no memory.
fn rates(rates: &[f64]) -> Vec<Model> {
    rates.iter().map(|rate| model(*rate, 0, 0)).collect()
}

fn ours(models: &[Model], limits: Limits) -> Result<Partition, Error> {
    let problem = Problem::new(models, limits)?;
    heuristic(&problem, &mut Effort::new(STEPS, &mut || false))
}

fn exact(models: &[Model], limits: Limits) -> Result<Solution, Error> {
    let problem = Problem::new(models, limits)?;
    let limits = MilpLimits::default();
    milp(&problem, &limits, &mut Effort::new(STEPS, &mut || false))
}

fn drawn(models: &[Model], limits: Limits, trials: u64) -> Result<Partition, Error> {
    let problem = Problem::new(models, limits)?;
    let mut draws = Random::new(7);
    random(
        &problem,
        &mut draws,
        &mut Effort::new(trials, &mut || false),
    )
}

/// The answers of all three methods.
fn all(models: &[Model], limits: Limits) -> [Result<Partition, Error>; 3] {
    [
        ours(models, limits),
        exact(models, limits).map(|solved| solved.partition),
        drawn(models, limits, 20_000),
    ]
}
