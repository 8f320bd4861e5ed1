//! Plans: what runs each step, what that costs, and the planners that search for plans.
//!
//! | planner | what it does |
//! |---|---|
//! | [`cg_mean`], [`cg_peak`] | the pipeline as one box, replicated as a whole for the mean or the peak rate (InferLine, section 4.6) |
//! | [`inferline`] | the published greedy search over device type, largest batch and replicas, with its errors corrected |
//! | [`search`] | our planner: also chooses the variant, by branch and bound on predictions whose plans are tried; if that takes too long, by the greedy search, improved two steps at a time |
//! | [`exhaustive`] | all plans that are cheaper than a known one, to determine how near to the optimum a planner comes |

mod coarse;
mod exhaustive;
mod greedy;
mod next;
mod residual;
mod search;
mod thin;
mod trials;
mod walk;
mod work;

use crate::{
    Graph, Nanos,
    estimate::{Estimate, Load, Station, estimate},
    whole::{CoVisits, NONE},
};

pub use coarse::{Unit, cg_mean, cg_peak, coarse, peak_rate};
pub use exhaustive::exhaustive;
pub use greedy::inferline;
pub use next::{Alternative, Shortfall, next_cheaper};
pub use residual::with_residual;
pub use search::{Options, SearchResult, search};

/// The problem that a plan solves.
#[derive(Debug, Clone, Copy)]
pub struct Problem<'a> {
    /// The pipeline.
    pub graph: &'a Graph,
    /// A sample of its queries.
    pub load: Load<'a>,
    /// Latency target of the whole pipeline, ns.
    pub target: Nanos,
    /// Least accuracy of the whole pipeline, 0 to 1.
    pub min_accuracy: f64,
    /// The share of the queries that may miss the target, 0 to 1: 0.01 for a target of the 99th percentile.
    pub miss_share: f64,
}

/// What runs each step.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Plan {
    /// By step.
    pub steps: Vec<StepPlan>,
}

/// The replicas of one step, mostly of one kind. A second kind serves what would fill a replica of the first badly.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StepPlan {
    /// Kinds of replicas, the main one first.
    pub groups: Vec<Group>,
}

/// Equal replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Group {
    /// Position of the choice in the step.
    pub choice: usize,
    /// The most rows of a batch.
    pub batch: u32,
    /// The number of replicas.
    pub replicas: u32,
}

// === impl Problem ===

impl Problem<'_> {
    /// The number of queries that may miss the target.
    pub fn may_miss(&self) -> usize {
        (self.miss_share * self.load.arrivals.len() as f64).floor() as usize
    }

    /// The latencies that the sample's queries would have.
    pub fn estimate(&self, plan: &Plan) -> Estimate {
        estimate(self.graph, &plan.stations(self.graph), self.load)
    }

    /// Whether a plan meets both targets on the sample.
    pub fn is_met(&self, plan: &Plan) -> bool {
        self.is_accurate(plan) && self.estimate(plan).misses(self.target) <= self.may_miss()
    }

    /// The accuracy of the whole pipeline: a query is answered correctly if each step that it visits is correct, and
    /// steps err independently of each other. The sample says which steps queries visit together. A measured accuracy
    /// of the whole is better, if there is one.
    pub fn accuracy(&self, plan: &Plan) -> f64 {
        let steps = self.graph.steps().iter().zip(&plan.steps);
        let least: Vec<f64> = steps.map(|(step, plan)| plan.accuracy(step)).collect();
        CoVisits::of(self.load.routes).accuracy(|at| least[at])
    }

    /// Whether a plan is accurate enough.
    pub fn is_accurate(&self, plan: &Plan) -> bool {
        self.accuracy(plan) >= self.min_accuracy - NONE
    }

    /// Time from the first arrival to the last, s.
    pub fn seconds(&self) -> f64 {
        match self.load.arrivals {
            [first, .., last] => (last - first) as f64 / 1e9,
            _ => 0.0,
        }
    }

    /// Mean number of arrivals a second.
    pub fn rate(&self) -> f64 {
        self.load.arrivals.len() as f64 / self.seconds().max(1e-9)
    }
}

// === impl Plan ===

impl Plan {
    /// Price of all replicas, US dollars an hour.
    pub fn cost(&self, graph: &Graph) -> f64 {
        let steps = graph.steps().iter().zip(&self.steps);
        steps.map(|(step, plan)| plan.cost(step)).sum()
    }

    /// The station of each step.
    pub fn stations(&self, graph: &Graph) -> Vec<Station> {
        let steps = graph.steps().iter().zip(&self.steps);
        steps.map(|(step, plan)| plan.station(step)).collect()
    }
}

// === impl StepPlan ===

impl StepPlan {
    /// A plan with replicas of one kind.
    pub fn of(choice: usize, batch: u32, replicas: u32) -> Self {
        Self {
            groups: vec![Group {
                choice,
                batch,
                replicas,
            }],
        }
    }

    /// The price, US dollars an hour.
    pub fn cost(&self, step: &crate::Step) -> f64 {
        let groups = self.groups.iter();
        groups
            .map(|group| step.choices[group.choice].price * f64::from(group.replicas))
            .sum()
    }

    /// The station that serves the step.
    pub fn station(&self, step: &crate::Step) -> Station {
        let mut station = Station::default();
        for group in &self.groups {
            let latency = step.choices[group.choice].latency.clone();
            station.add(latency, group.batch, group.replicas);
        }
        station
    }

    /// The accuracy of its least accurate kind.
    pub(crate) fn accuracy(&self, step: &crate::Step) -> f64 {
        let groups = self.groups.iter();
        let accuracies = groups.map(|group| step.choices[group.choice].accuracy);
        accuracies.fold(1.0, f64::min)
    }

    /// The main kind.
    pub fn main(&self) -> Group {
        self.groups[0]
    }
}
