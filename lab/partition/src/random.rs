//! The paper's baseline: random partitions, of which the best one that keeps the limits is returned.

use super::{Effort, Error, Partition, Problem, load::Load};
use sextant_types::random::Random;

/// Draws as many partitions as there are steps and returns the best. Each model is in every sub-cluster with the same
/// probability, whatever the present division.
///
/// # Errors
/// [`Error::NotFound`] when none of them keeps all limits.
pub fn random(
    problem: &Problem<'_>,
    random: &mut Random,
    effort: &mut Effort<'_>,
) -> Result<Partition, Error> {
    let mut clusters = vec![0; problem.models.len()];
    let mut loads = vec![Load::default(); problem.limits.clusters];
    let mut best: Option<(f64, f64, Vec<usize>)> = None;
    while effort.spend(1) {
        loads.fill(Load::default());
        let mut move_cost = 0.0;
        for (cluster, model) in clusters.iter_mut().zip(problem.models) {
            *cluster = random.below(loads.len());
            loads[*cluster].add(model);
            move_cost += super::problem::cost_of(model, *cluster);
        }
        let excess = problem.excess(&loads, move_cost).sum();
        let objective = problem.objective(&loads);
        if best
            .as_ref()
            .is_none_or(|best| (excess, objective) < (best.0, best.1))
        {
            best = Some((excess, objective, clusters.clone()));
        }
    }
    problem.partition(best.map_or(clusters, |(_, _, clusters)| clusters))
}
