//! Our method: places the largest models first, then moves and swaps, and repeats this after small disturbances.
//!
//! If models are already in sub-clusters, the search starts from there. Otherwise models are placed anew, the largest
//! first, each in the sub-cluster with the least load. Moves and swaps follow until none helps. If limits are still
//! broken, other starts are tried that fill sub-clusters one by one.
//!
//! At that point no single change helps, but several at once may. Three random pairs of models are swapped and the
//! descent begins again, each time from the best partition. Each change must be affordable. In the end, models that
//! moved without need go back.

use super::{
    Effort, Error, Partition, Problem,
    descent::{Change, Division},
    start::Start,
};
use sextant_types::random::Random;

/// Seed of the disturbances, so that the answer is always the same.
const SEED: u64 = 1;

/// Pairs of models that one disturbance swaps.
const PAIRS: usize = 3;

/// Consecutive disturbances without a better partition after which the search ends.
const IN_VAIN: usize = 10_000;

/// Divides models. The same input and the same number of steps give the same answer.
///
/// # Errors
/// [`Error::NotFound`] when no partition that keeps all limits was found.
pub fn heuristic(problem: &Problem<'_>, effort: &mut Effort<'_>) -> Result<Partition, Error> {
    let Some(mut best) = from_starts(problem, effort) else {
        return problem.partition(vec![0; problem.models.len()]);
    };
    search_on(&mut best, effort);
    go_home(&mut best);
    problem.partition(best.clusters)
}

/// The first start whose descent keeps the limits, otherwise the start that comes nearest to them.
fn from_starts<'a>(problem: &'a Problem<'a>, effort: &mut Effort<'_>) -> Option<Division<'a>> {
    let mut best: Option<Division<'_>> = None;
    for (start, keep) in starts(problem) {
        let mut division = Division::new(problem, start.place(problem, keep));
        if !division.is_within_budget() {
            continue;
        }
        division.descend(effort);
        let score = division.score();
        let is_better = |best: &Division<'_>| score.is_better(&best.score());
        if best.as_ref().is_none_or(is_better) {
            best = Some(division);
        }
        if score.excess <= 0.0 || effort.is_over() {
            break;
        }
    }
    best
}

/// Disturbs the best partition and descends again, as long as there is effort and a chance of success.
fn search_on(best: &mut Division<'_>, effort: &mut Effort<'_>) {
    let count = best.clusters.len();
    let mut random = Random::new(SEED);
    let mut in_vain = 0;
    while in_vain < IN_VAIN && best.score().is_imperfect() && effort.spend(count as u64) {
        in_vain += 1;
        let mut division = best.clone();
        disturb(&mut division, &mut random);
        division.descend(effort);
        if division.score().is_better(&best.score()) {
            *best = division;
            in_vain = 0;
        }
    }
}

/// Swaps a few random pairs of models.
fn disturb(division: &mut Division<'_>, random: &mut Random) {
    let count = division.clusters.len();
    for _ in 0..PAIRS {
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
}

/// The starts, each with whether models keep their present places.
fn starts(problem: &Problem<'_>) -> Vec<(Start, bool)> {
    let is_somewhere = problem.models.iter().any(|model| model.now.is_some());
    let present = is_somewhere.then_some((Start::Longest, true));
    let afresh = Start::ALL.map(|start| (start, false));
    present.into_iter().chain(afresh).collect()
}

/// Reverts moves and swaps that gain nothing.
fn go_home(division: &mut Division<'_>) {
    for model in 0..division.clusters.len() {
        let score = division.score();
        let is_free = |change: &Change| !score.is_better(&division.score_after(*change));
        if let Some(change) = ways_home(division, model).into_iter().find(is_free) {
            division.apply(change);
        }
    }
}

/// The changes that bring a moved model back: alone, or in a swap with one that moved the other way.
fn ways_home(division: &Division<'_>, model: usize) -> Vec<Change> {
    let (models, here) = (division.problem.models, division.clusters[model]);
    let Some(to) = models[model].now.filter(|home| *home != here) else {
        return Vec::new();
    };
    let came = |at: &usize| models[*at].now == Some(here) && division.clusters[*at] == to;
    let back = (0..models.len()).filter(came).map(Some);
    let ways = std::iter::once(None).chain(back);
    ways.map(|back| Change { model, to, back }).collect()
}
