//! Our way: the largest first, then moves and swaps, then the same again after small disturbances.
//!
//! Where models are in sub-clusters already, the search begins there. Otherwise models are placed
//! afresh, the largest first, each where there is least. Moves and swaps follow until none helps. Where
//! the limits are still broken, other starts are tried that fill sub-clusters one by one.
//!
//! No single change helps then, but several at once may: three pairs of models are swapped at random and
//! the descent begins anew, from the best partition each time. Each change must be affordable, and
//! what moved without need goes back in the end.

use super::{
    Effort, Error, Partition, Problem,
    descent::{Change, Division},
    start::Start,
};
use crate::parallelism::Random;

/// Of the disturbances: the same answer every time.
const SEED: u64 = 1;

/// Pairs of models that one disturbance swaps.
const KICKS: usize = 3;

/// Disturbances in a row without a better partition after which it is enough.
const IN_VAIN: usize = 2_000;

/// Divides models. The same input and the same number of steps give the same answer.
///
/// # Errors
/// [`Error::NotFound`] when no partition was found that keeps to all limits.
pub fn heuristic(problem: &Problem<'_>, effort: &mut Effort<'_>) -> Result<Partition, Error> {
    let mut best: Option<Division<'_>> = None;
    for (start, keep) in starts(problem) {
        let mut division = Division::new(problem, start.place(problem, keep));
        if !division.is_within_budget() {
            continue;
        }
        division.descend(effort);
        let is_better = |best: &Division<'_>| division.score().is_better(&best.score());
        if best.as_ref().is_none_or(is_better) {
            best = Some(division);
        }
        let fits = best.as_ref().is_some_and(|best| best.score().excess <= 0.0);
        if fits || effort.is_over() {
            break;
        }
    }
    let Some(mut best) = best else {
        return problem.partition(vec![0; problem.models.len()]);
    };
    kick(&mut best, effort);
    go_home(&mut best);
    problem.partition(best.clusters)
}

/// Disturbs the best partition a little and descends again, as long as there is effort.
fn kick(best: &mut Division<'_>, effort: &mut Effort<'_>) {
    let count = best.clusters.len();
    let mut random = Random::new(SEED);
    let mut in_vain = 0;
    while in_vain < IN_VAIN && count > 1 && best.score().is_imperfect() {
        in_vain += 1;
        let mut division = best.clone();
        for _ in 0..KICKS {
            let (model, other) = (random.below(count), random.below(count));
            let (from, to) = (division.clusters[model], division.clusters[other]);
            let swap = Change {
                model,
                to,
                back: Some(other),
            };
            if from != to && division.is_affordable(swap) {
                division.apply(swap);
            }
        }
        if !effort.spend(count as u64) {
            return;
        }
        division.descend(effort);
        if division.score().is_better(&best.score()) {
            *best = division;
            in_vain = 0;
        }
    }
}

/// Where to begin, and whether models stay where they are then.
fn starts(problem: &Problem<'_>) -> Vec<(Start, bool)> {
    let is_somewhere = problem.models.iter().any(|model| model.now.is_some());
    let present = is_somewhere.then_some((Start::Longest, true));
    let afresh = Start::ALL.map(|start| (start, false));
    present.into_iter().chain(afresh).collect()
}

/// Takes back moves and swaps that gain nothing.
fn go_home(division: &mut Division<'_>) {
    let models = division.problem.models;
    for (model, of) in models.iter().enumerate() {
        let Some(home) = of.now.filter(|now| *now != division.clusters[model]) else {
            continue;
        };
        let here = division.clusters[model];
        let guests = (0..models.len())
            .filter(|at| models[*at].now == Some(here) && division.clusters[*at] == home);
        let backs: Vec<Option<usize>> = std::iter::once(None).chain(guests.map(Some)).collect();
        let changes = backs.into_iter().map(|back| Change {
            model,
            to: home,
            back,
        });
        let score = division.score();
        let free = changes
            .into_iter()
            .find(|change| !score.is_better(&division.score_after(*change)));
        if let Some(change) = free {
            division.apply(change);
        }
    }
}
