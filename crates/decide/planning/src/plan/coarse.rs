//! Coarse-grained planning: the pipeline as one box (InferLine, section 4.6).
//!
//! A unit has one replica of each step, on the device type that is quickest with one row. All steps have the same
//! largest batch: the largest with which the longest path through them takes no longer than the target. Units are
//! replicated for the mean rate, or for the highest rate of any window as long as the target. Where the paper leaves a
//! choice open, the baseline gets the better option: its units share queues, and its steps work side by side.

use super::{Plan, Problem, StepPlan};
use crate::{Nanos, Step};

/// One replica of the whole pipeline.
#[derive(Debug, Clone, PartialEq)]
pub struct Unit {
    /// A plan with one unit.
    pub plan: Plan,
    /// The queries a second that it carries.
    pub rate: f64,
}

/// Units for the mean rate of the sample. `None` if a unit takes longer than the target with single rows, or is less
/// accurate than asked.
pub fn cg_mean(problem: &Problem<'_>) -> Option<Plan> {
    let unit = coarse(problem)?;
    Some(unit.times(problem.rate()))
}

/// Units for the highest rate of a window as long as the target.
pub fn cg_peak(problem: &Problem<'_>) -> Option<Plan> {
    let unit = coarse(problem)?;
    Some(unit.times(peak_rate(problem.load.arrivals, problem.target)))
}

/// The highest rate of arrivals within any window of this length, per second.
pub fn peak_rate(arrivals: &[Nanos], window: Nanos) -> f64 {
    let (mut first, mut most) = (0, 0);
    for (at, now) in arrivals.iter().enumerate() {
        while arrivals[first] + window <= *now {
            first += 1;
        }
        most = most.max(at + 1 - first);
    }
    most as f64 * 1e9 / window.max(1) as f64
}

/// The unit of a pipeline: the most accurate variant of each step.
pub fn coarse(problem: &Problem<'_>) -> Option<Unit> {
    let steps = problem.graph.steps();
    let choices: Vec<usize> = steps
        .iter()
        .map(Step::quickest_of_most_accurate)
        .collect::<Option<_>>()?;
    let latency = |at: usize, batch: u32| {
        let table = &steps[at].choices[choices[at]].latency;
        table.of(batch.min(table.measured_rows()))
    };
    let longest = |batch: u32| {
        let mut until = vec![0; steps.len()];
        for (at, step) in steps.iter().enumerate() {
            let before = step.after.iter().map(|before| until[*before]).max();
            until[at] = before.unwrap_or(0) + latency(at, batch);
        }
        until.into_iter().max().unwrap_or(0)
    };
    let batches = (0..12).map(|power| 1u32 << power);
    let batch = batches
        .take_while(|batch| longest(*batch) <= problem.target)
        .last()?;
    let plan = choices.iter().zip(steps).map(|(choice, step)| {
        let most = step.choices[*choice].latency.measured_rows();
        StepPlan::of(*choice, batch.min(most), 1)
    });
    let plan = Plan {
        steps: plan.collect(),
    };
    if !problem.is_accurate(&plan) {
        return None;
    }
    let rates = (0..steps.len()).map(|at| {
        let group = plan.steps[at].main();
        steps[at].choices[group.choice].throughput(group.batch)
            / problem.load.routes.rows_per_query(at).max(1e-12)
    });
    let rate = rates.fold(f64::INFINITY, f64::min);
    Some(Unit { plan, rate })
}

// === impl Unit ===

impl Unit {
    /// A plan with as many units as carry a rate.
    pub fn times(&self, rate: f64) -> Plan {
        let units = (rate / self.rate).ceil().max(1.0) as u32;
        let mut plan = self.plan.clone();
        for group in plan.steps.iter_mut().flat_map(|step| &mut step.groups) {
            group.replicas = units;
        }
        plan
    }
}
