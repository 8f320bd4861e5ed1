//! Initial partitions of the search.

use super::{Load, Model, Problem, problem::Excess};

/// The order in which models are placed, and the choice of their sub-cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    /// The largest first, each in the sub-cluster with the least load (longest processing time first).
    Longest,
    /// By decreasing dynamic memory, each in the first sub-cluster with room. Models with much dynamic memory then
    /// share a sub-cluster, which needs it only once.
    Dynamic,
    /// By the share of the limits that a model takes, largest first, each where the room is scarcest.
    Tightest,
}

impl Start {
    pub(super) const ALL: [Self; 3] = [Self::Longest, Self::Dynamic, Self::Tightest];

    /// Places models. With `keep`, models that are in a sub-cluster stay there.
    pub(super) fn place(self, problem: &Problem<'_>, keep: bool) -> Vec<usize> {
        let mut loads = vec![Load::default(); problem.limits.clusters];
        let mut clusters = vec![0; problem.models.len()];
        let mut open = Vec::new();
        for (at, model) in problem.models.iter().enumerate() {
            match model.now.filter(|_| keep) {
                Some(now) => {
                    loads[now].add(model);
                    clusters[at] = now;
                }
                None => open.push(at),
            }
        }
        let size = |at: &usize| self.size(problem, &problem.models[*at]);
        open.sort_by(|one, other| size(other).total_cmp(&size(one)).then(one.cmp(other)));
        for at in open {
            let model = &problem.models[at];
            let cluster = self.cluster(problem, &loads, model);
            loads[cluster].add(model);
            clusters[at] = cluster;
        }
        clusters
    }

    /// The size by which models are ordered.
    fn size(self, problem: &Problem<'_>, model: &Model) -> f64 {
        let mut alone = Load::default();
        alone.add(model);
        match self {
            Self::Longest => height(problem, &alone),
            Self::Dynamic => model.dynamic_bytes as f64,
            Self::Tightest => fullness(problem, &alone),
        }
    }

    /// The sub-cluster that exceeds the limits least, and of those the best.
    fn cluster(self, problem: &Problem<'_>, loads: &[Load], model: &Model) -> usize {
        let rank = |cluster: usize| {
            let mut load = loads[cluster];
            let before: Excess = problem.excess_of(&load);
            load.add(model);
            let excess = problem.excess_of(&load).sum() - before.sum();
            let rank = match self {
                Self::Longest => height(problem, &load),
                Self::Dynamic => cluster as f64,
                Self::Tightest => -fullness(problem, &load),
            };
            (excess, rank)
        };
        let order = |one: &usize, other: &usize| {
            let (one, other) = (rank(*one), rank(*other));
            one.0.total_cmp(&other.0).then(one.1.total_cmp(&other.1))
        };
        (0..loads.len()).min_by(order).unwrap_or(0)
    }
}

/// Weighted sum of rate and static memory as shares of the means.
fn height(problem: &Problem<'_>, load: &Load) -> f64 {
    // Both are measured from the mean, which does not change the order.
    problem.rate_apart(load) + problem.limits.memory_weight * problem.memory_apart(load)
}

/// The share of the limits that a load takes.
fn fullness(problem: &Problem<'_>, load: &Load) -> f64 {
    let rate = load.rate_rps / problem.limits.rate_rps.max(f64::MIN_POSITIVE);
    rate.max(load.memory_bytes() as f64 / (problem.limits.memory_bytes as f64).max(1.0))
}
