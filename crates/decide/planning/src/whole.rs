//! The accuracy of a pipeline as a whole, from what is known of its steps and from what was measured of it.

use std::collections::BTreeMap;

use crate::{
    Routes,
    plan::{Plan, Problem, StepPlan},
};

/// Differences of accuracies below this count as zero.
pub(crate) const NONE: f64 = 1e-9;

/// The measurement of a pipeline as a whole.
#[derive(Debug, Clone, PartialEq)]
pub struct Whole {
    /// The lower end of its interval, 0 to 1.
    pub accuracy: f64,
    /// By step of the graph: the variants that answered it then, the most frequent first.
    pub answered: Vec<Vec<String>>,
}

/// How often queries visit the same steps.
#[derive(Debug, Clone)]
pub(crate) struct CoVisits {
    /// Sets of steps, one bit for each step, and the share of the queries that visit exactly that set.
    sets: Vec<(u64, f64)>,
}

// === impl Whole ===

impl Whole {
    /// The ratio of the measured accuracy to the accuracy that follows from the steps. For the variants that were
    /// measured, the product is the measured accuracy. For others, it changes as their accuracies do. `None` if one of
    /// the variants is unknown.
    pub fn factor(&self, problem: &Problem<'_>) -> Option<f64> {
        let steps = problem.graph.steps().iter().zip(&self.answered);
        let steps = steps.map(|(step, answered)| {
            let choice = |name: &String| step.choices.iter().position(|it| it.variant == *name);
            Some(StepPlan::of(answered.iter().find_map(choice)?, 1, 1))
        });
        let steps: Vec<StepPlan> = steps.collect::<Option<_>>()?;
        let is_whole = steps.len() == problem.graph.steps().len();
        let of_steps = is_whole.then(|| problem.accuracy(&Plan { steps }))?;
        (of_steps > 0.0 && self.accuracy > 0.0).then(|| self.accuracy / of_steps)
    }
}

// === impl Problem ===

impl Problem<'_> {
    /// The same problem with the least accuracy referring to the measured accuracy of the whole, and the factor by
    /// which its accuracies must be multiplied; `None` if there is no usable measurement.
    pub fn held_to(self, whole: Option<&Whole>) -> (Self, Option<f64>) {
        let factor = whole.and_then(|whole| whole.factor(&self));
        let min_accuracy = self.min_accuracy / factor.unwrap_or(1.0);
        let problem = Self {
            min_accuracy,
            ..self
        };
        (problem, factor)
    }
}

// === impl CoVisits ===

impl CoVisits {
    /// Makes the sets of a sample.
    pub fn of(routes: &Routes) -> Self {
        let mut sets: BTreeMap<u64, usize> = BTreeMap::new();
        for query in 0..routes.len() {
            let visited = routes.of(query).iter().enumerate();
            let visited = visited.filter(|(_, rows)| **rows > 0);
            let set = visited.fold(0u64, |set, (at, _)| {
                set | 1u64.checked_shl(at as u32).unwrap_or(0)
            });
            *sets.entry(set).or_default() += 1;
        }
        let count = routes.len().max(1) as f64;
        let sets = sets.into_iter();
        Self {
            sets: sets.map(|(set, of)| (set, of as f64 / count)).collect(),
        }
    }

    /// The same with the steps in another order. There may be at most 64 steps.
    pub fn reordered(&self, steps: &[usize]) -> Self {
        let moved = |set: u64| {
            let kept = steps
                .iter()
                .enumerate()
                .filter(|(_, step)| set >> **step & 1 == 1);
            kept.fold(0, |moved, (at, _)| moved | 1 << at)
        };
        let sets = self.sets.iter().map(|(set, share)| (moved(*set), *share));
        Self {
            sets: sets.collect(),
        }
    }

    /// The share of the queries that are answered correctly, if each step is correct with probability `of`,
    /// independently of the others. Steps of which a query visits only one add up; steps that it visits together
    /// multiply.
    pub fn accuracy(&self, of: impl Fn(usize) -> f64) -> f64 {
        let right = |mut set: u64| {
            let mut right = 1.0;
            while set != 0 {
                right *= of(set.trailing_zeros() as usize);
                set &= set - 1;
            }
            right
        };
        match self.sets.is_empty() {
            true => 1.0,
            false => self
                .sets
                .iter()
                .map(|(set, share)| share * right(*set))
                .sum(),
        }
    }
}
