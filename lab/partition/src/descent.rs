//! Moves and swaps that improve a partition, until none does.
//!
//! The objective is a sum of two maxima. So only a change that involves the sub-cluster with the largest deviation can
//! lower it, and only such changes are tried: moving one of its models elsewhere, moving a model of another to it, and
//! swapping one of its models for one of another. Each change is scored from the sums of the two sub-clusters that
//! change and from the largest deviations of the others, whatever the number of models.
//!
//! If two sub-clusters are equally bad, no single change lowers the objective. So a second measure decides between
//! equal objectives: the sum of squared deviations.

use super::{
    Effort, Load, Model, Problem,
    load::Tally,
    problem::{Excess, cost_of, over},
};

/// Differences below this are rounding errors.
const LEAST: f64 = 1e-12;

/// The score of a partition: lower is better; the first field that differs decides.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Score {
    /// By how much limits are exceeded, as shares of the limits.
    pub(super) excess: f64,
    /// The objective.
    pub(super) objective: f64,
    /// Sum of squared deviations.
    squares: f64,
}

/// A partition that is being changed; it may break limits.
#[derive(Debug, Clone)]
pub(super) struct Division<'a> {
    pub(super) problem: &'a Problem<'a>,
    /// The sub-cluster of each model.
    pub(super) clusters: Vec<usize>,
    tallies: Vec<Tally>,
    pub(super) move_cost: f64,
    standing: ClusterTotals,
}

/// A move of a model to another sub-cluster, with an optional model of that one that takes its place.
#[derive(Debug, Clone, Copy)]
pub(super) struct Change {
    pub(super) model: usize,
    pub(super) to: usize,
    pub(super) back: Option<usize>,
}

/// The totals of all sub-clusters.
#[derive(Debug, Clone, Default)]
struct ClusterTotals {
    excess: f64,
    squares: f64,
    /// Sub-clusters with the largest deviations, largest first.
    rate: Worst,
    memory: Worst,
}

/// The three largest deviations: two are left if a change touches one of them, one if it touches two.
#[derive(Debug, Clone, Copy, Default)]
struct Worst([(usize, f64); 3]);

// === impl Score ===

impl Score {
    /// Whether it is lower by more than rounding errors.
    pub(super) fn is_below(&self, other: &Self) -> bool {
        let pairs = [
            (self.excess, other.excess),
            (self.objective, other.objective),
            (self.squares, other.squares),
        ];
        let differs = pairs
            .iter()
            .find(|(one, other)| (one - other).abs() > LEAST);
        differs.is_some_and(|(one, other)| one < other)
    }

    /// Whether an improvement is possible.
    pub(super) fn is_imperfect(&self) -> bool {
        self.excess > LEAST || self.objective > LEAST
    }

    /// Whether the partition itself is better, without the second measure.
    pub(super) fn is_better(&self, other: &Self) -> bool {
        let (squares, other) = (0.0, *other);
        Self { squares, ..*self }.is_below(&Self { squares, ..other })
    }
}

// === impl Division ===

impl<'a> Division<'a> {
    pub(super) fn new(problem: &'a Problem<'a>, clusters: Vec<usize>) -> Self {
        let mut tallies = vec![Tally::default(); problem.limits.clusters];
        for (model, cluster) in clusters.iter().enumerate() {
            tallies[*cluster].members.push(model);
        }
        tallies.iter_mut().for_each(|of| of.count(problem.models));
        let costs = clusters.iter().zip(problem.models);
        let mut division = Self {
            problem,
            move_cost: costs.map(|(to, model)| cost_of(model, *to)).sum(),
            clusters,
            tallies,
            standing: ClusterTotals::default(),
        };
        division.stand();
        division
    }

    pub(super) fn score(&self) -> Score {
        let standing = &self.standing;
        let (rate, memory) = (standing.rate.0[0].1, standing.memory.0[0].1);
        Score {
            excess: standing.excess,
            objective: rate + self.problem.limits.memory_weight * memory,
            squares: standing.squares,
        }
    }

    /// Applies the best change as long as one improves the score and there is effort left.
    pub(super) fn descend(&mut self, effort: &mut Effort<'_>) {
        while let Some(change) = self.best_change(effort) {
            self.apply(change);
        }
    }

    pub(super) fn apply(&mut self, change: Change) {
        self.move_cost += self.cost_of(change);
        let from = self.clusters[change.model];
        self.put(change.model, change.to);
        if let Some(back) = change.back {
            self.put(back, from);
        }
        self.stand();
    }

    /// Whether the cost of a change is within the limit.
    pub(super) fn is_affordable(&self, change: Change) -> bool {
        let more = self.cost_of(change);
        more <= 0.0 || over(self.move_cost + more, self.problem.limits.move_cost) <= 0.0
    }

    /// Whether the cost of the partition is within the limit.
    pub(super) fn is_within_budget(&self) -> bool {
        over(self.move_cost, self.problem.limits.move_cost) <= 0.0
    }

    /// The score of the partition after a change.
    pub(super) fn score_after(&self, change: Change) -> Score {
        let from = self.clusters[change.model];
        let model = Some(&self.problem.models[change.model]);
        let back = change.back.map(|back| &self.problem.models[back]);
        let (one, other) = (&self.tallies[from], &self.tallies[change.to]);
        let before = self.sums(&one.load).and(self.sums(&other.load));
        let (one, other) = (one.changed(model, back), other.changed(back, model));
        let (one, other) = (self.sums(&one), self.sums(&other));
        let after = one.and(other);
        let touched = [from, change.to];
        let rate = self.standing.rate.but(touched).max(after.rate);
        let memory = self.standing.memory.but(touched).max(after.memory);
        Score {
            excess: (self.standing.excess - before.excess).max(0.0) + after.excess,
            objective: rate + self.problem.limits.memory_weight * memory,
            squares: self.standing.squares - before.squares + after.squares,
        }
    }

    fn best_change(&self, effort: &mut Effort<'_>) -> Option<Change> {
        let mut best = (self.score(), None);
        for worst in self.worst() {
            for model in 0..self.clusters.len() {
                if !effort.spend(self.steps_of(model, worst)) {
                    return best.1;
                }
                self.changes(model, worst, &mut |change| {
                    let score = self.score_after(change);
                    if score.is_below(&best.0) && self.is_affordable(change) {
                        best = (score, Some(change));
                    }
                });
            }
        }
        best.1
    }

    /// Changes between a model and a sub-cluster: moves of its models elsewhere, and moves of others to it.
    fn changes(&self, model: usize, worst: usize, each: &mut dyn FnMut(Change)) {
        let back = None;
        if self.clusters[model] == worst {
            let others = (0..self.tallies.len()).filter(|to| *to != worst);
            others.for_each(|to| each(Change { model, to, back }));
            return;
        }
        let to = worst;
        each(Change { model, to, back });
        for back in self.tallies[worst].members.iter().copied().map(Some) {
            each(Change { model, to, back });
        }
    }

    fn steps_of(&self, model: usize, worst: usize) -> u64 {
        let count = match self.clusters[model] == worst {
            true => self.tallies.len() - 1,
            false => self.tallies[worst].members.len() + 1,
        };
        count as u64
    }

    /// Sub-clusters that a change must involve.
    fn worst(&self) -> Vec<usize> {
        let mut worst = vec![self.standing.rate.0[0].0];
        if self.problem.limits.memory_weight > 0.0 {
            worst.push(self.standing.memory.0[0].0);
        }
        let exceeding = |cluster: &usize| self.sums(&self.tallies[*cluster].load).excess > 0.0;
        worst.extend((0..self.tallies.len()).filter(exceeding));
        worst.sort_unstable();
        worst.dedup();
        worst
    }

    fn cost_of(&self, change: Change) -> f64 {
        let from = self.clusters[change.model];
        let of = |model: usize, from: usize, to: usize| {
            let model: &Model = &self.problem.models[model];
            cost_of(model, to) - cost_of(model, from)
        };
        let back = change.back.map_or(0.0, |back| of(back, change.to, from));
        of(change.model, from, change.to) + back
    }

    fn put(&mut self, model: usize, to: usize) {
        let models = self.problem.models;
        self.tallies[self.clusters[model]].remove(models, model);
        self.tallies[to].insert(models, model);
        self.clusters[model] = to;
    }

    fn stand(&mut self) {
        let mut standing = ClusterTotals::default();
        for (cluster, tally) in self.tallies.iter().enumerate() {
            let sums = self.sums(&tally.load);
            standing.excess += sums.excess;
            standing.squares += sums.squares;
            standing.rate.enter(cluster, sums.rate);
            standing.memory.enter(cluster, sums.memory);
        }
        self.standing = standing;
    }

    fn sums(&self, load: &Load) -> Sums {
        let problem = self.problem;
        let (rate, memory) = (problem.rate_apart(load), problem.memory_apart(load));
        let excess: Excess = problem.excess_of(load);
        Sums {
            excess: excess.sum(),
            squares: rate * rate + problem.limits.memory_weight * memory * memory,
            rate: rate.abs(),
            memory: memory.abs(),
        }
    }
}

/// The sums of one or two sub-clusters.
#[derive(Debug, Clone, Copy)]
struct Sums {
    excess: f64,
    squares: f64,
    rate: f64,
    memory: f64,
}

// === impl Sums ===

impl Sums {
    fn and(self, other: Self) -> Self {
        Self {
            excess: self.excess + other.excess,
            squares: self.squares + other.squares,
            rate: self.rate.max(other.rate),
            memory: self.memory.max(other.memory),
        }
    }
}

// === impl Worst ===

impl Worst {
    fn enter(&mut self, cluster: usize, apart: f64) {
        let entry = (cluster, apart);
        let Worst([first, second, third]) = *self;
        self.0 = match apart {
            _ if apart > first.1 => [entry, first, second],
            _ if apart > second.1 => [first, entry, second],
            _ if apart > third.1 => [first, second, entry],
            _ => return,
        };
    }

    /// The largest deviation of those that are not touched.
    fn but(&self, touched: [usize; 2]) -> f64 {
        let others = self.0.iter().find(|(of, _)| !touched.contains(of));
        others.map_or(0.0, |(_, apart)| *apart)
    }
}
