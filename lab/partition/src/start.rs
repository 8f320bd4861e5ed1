//! Where the search begins.

use super::{Load, Model, Problem, problem::Excess};

/// In which order models are placed, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    /// The largest first, each where least is (longest processing time first).
    Longest,
    /// By falling dynamic memory, each into the first sub-cluster with room: models with much dynamic
    /// memory share a sub-cluster, which needs it only once.
    Dynamic,
    /// By how much of the limits a model takes, largest first, each where room gets scarcest.
    Tightest,
}

impl Start {
    pub(super) const ALL: [Self; 3] = [Self::Longest, Self::Dynamic, Self::Tightest];

    /// Places models: those that are somewhere stay if `keep` says so.
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

    /// What is placed first.
    fn size(self, problem: &Problem<'_>, model: &Model) -> f64 {
        let mut alone = Load::default();
        alone.add(model);
        match self {
            Self::Longest => height(problem, &alone),
            Self::Dynamic => model.dynamic_bytes as f64,
            Self::Tightest => fullness(problem, &alone),
        }
    }

    /// Where the limits are exceeded least, and of those the best.
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

/// Rate and static memory as shares of the means, weighed and added.
fn height(problem: &Problem<'_>, load: &Load) -> f64 {
    // Both are counted from the mean, which changes no order.
    problem.rate_apart(load) + problem.limits.memory_weight * problem.memory_apart(load)
}

/// How much of the limits a load takes.
fn fullness(problem: &Problem<'_>, load: &Load) -> f64 {
    let rate = load.rate_rps / problem.limits.rate_rps.max(f64::MIN_POSITIVE);
    rate.max(load.memory_bytes() as f64 / (problem.limits.memory_bytes as f64).max(1.0))
}
