//! Figures over seeds, policies and cells.

use sextant_baselines::Policy;
use sextant_simulator::Record;

use super::{Experiment, Kind, label::Label, measure::CLAIRVOYANT};

/// Compares the policies by the mean goodput of the cells: each policy with the rate that knowledge of the arrivals
/// would allow, ours with the best other policy, and, as geometric means, each policy with the strong eager one and
/// with the fluid bound.
pub(super) fn comparisons(experiment: &Experiment, records: &[Record]) -> Vec<Record> {
    if !matches!(experiment.kind, Kind::Goodput | Kind::FlatTop) {
        return Vec::new();
    }
    let table = Goodputs::of(records);
    let mut made = Vec::new();
    for cell in &table.cells {
        let label = |policy: Policy| Label {
            experiment: &experiment.name,
            cell: Some(&cell.name),
            policy: Some(policy),
            seed: None,
        };
        if let Some(bound) = cell.clairvoyant.filter(|bound| *bound > 0.0) {
            let over = |(policy, rps): &(Policy, f64)| {
                label(*policy).record("goodput_over_clairvoyant_share", rps / bound)
            };
            made.extend(cell.policies.iter().map(over));
        }
        if let Some(over) = cell.over_best(Policy::Sextant) {
            made.push(label(Policy::Sextant).record("goodput_over_best_other_share", over));
        }
    }
    for policy in Policy::ALL {
        let label = Label {
            experiment: &experiment.name,
            cell: None,
            policy: Some(*policy),
            seed: None,
        };
        let over_eager = |cell: &CellSummary| Some(cell.of(*policy)? / cell.of(Policy::Eager)?);
        let over_bound = |cell: &CellSummary| Some(cell.of(*policy)? / cell.bound?);
        if let Some(mean) = table.geometric_mean(over_eager) {
            made.push(label.record("geometric_mean_over_eager_share", mean));
        }
        if let Some(mean) = table.geometric_mean(over_bound) {
            made.push(label.record("geometric_mean_over_bound_share", mean));
        }
    }
    made
}

/// Mean goodput by cell and policy.
struct Goodputs {
    cells: Vec<CellSummary>,
}

struct CellSummary {
    name: String,
    bound: Option<f64>,
    clairvoyant: Option<f64>,
    policies: Vec<(Policy, f64)>,
}

// === impl Goodputs ===

impl Goodputs {
    fn of(records: &[Record]) -> Self {
        let mut cells: Vec<CellSummary> = Vec::new();
        for record in records.iter().filter(|record| record.seed.is_none()) {
            let Some(name) = &record.cell else { continue };
            let known = cells.last().is_some_and(|cell| cell.name == *name);
            if !["goodput_rps", "fluid_bound_rps", CLAIRVOYANT].contains(&record.metric.as_str()) {
                continue;
            }
            if !known {
                cells.push(CellSummary {
                    name: name.clone(),
                    bound: None,
                    clairvoyant: None,
                    policies: Vec::new(),
                });
            }
            let Some(cell) = cells.last_mut() else {
                continue;
            };
            match record.policy.as_deref().map(str::parse::<Policy>) {
                Some(Ok(policy)) => cell.policies.push((policy, record.value)),
                _ if record.metric == CLAIRVOYANT => cell.clairvoyant = Some(record.value),
                _ => cell.bound = Some(record.value),
            }
        }
        Self { cells }
    }

    /// `None` if there are no cells, or if one of them has no value above zero.
    fn geometric_mean(&self, value: impl Fn(&CellSummary) -> Option<f64>) -> Option<f64> {
        let mut logs = 0.0;
        for cell in &self.cells {
            logs += value(cell)
                .filter(|value| *value > 0.0 && value.is_finite())?
                .ln();
        }
        let count = self.cells.len();
        (count > 0).then(|| (logs / count as f64).exp())
    }
}

impl CellSummary {
    fn of(&self, policy: Policy) -> Option<f64> {
        let found = self.policies.iter().find(|(known, _)| *known == policy);
        found.map(|(_, rps)| *rps)
    }

    /// The goodput of `policy` relative to the best other policy.
    fn over_best(&self, policy: Policy) -> Option<f64> {
        let others = self.policies.iter().filter(|(known, _)| *known != policy);
        let best = others.map(|(_, rps)| *rps).fold(0.0, f64::max);
        let own = self.of(policy)?;
        (best > 0.0).then(|| own / best)
    }
}
