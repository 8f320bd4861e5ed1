//! Runs the units of an experiment in parallel and reports them in order.

use std::collections::BTreeMap;

use rand::{SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use sextant_baselines::Policy;

use super::{
    Cell, Event, Experiment, Kind, Plan, Progress, Record, Variation, measure::Unit,
    resume::Journal, summary,
};
use sextant_simulator::{Error, parallel};

/// Runs the part of `experiment` that `plan` selects. `on` gets the end of each unit when it comes, and each record in
/// the order in which the records are returned: cell by cell; within a cell first what does not depend on the policy,
/// then policy by policy, seed by seed, with the means last; in the end the comparisons over all cells.
///
/// # Errors
/// When a cell cannot be built, `plan` names a cell that does not exist, or the file to resume from cannot be read or
/// written. The first error in the order of the report is returned.
pub fn run(
    experiment: &Experiment,
    plan: &Plan,
    on: &mut dyn FnMut(Event<'_>),
) -> Result<Vec<Record>, Error> {
    let units = plan.units(experiment)?;
    let mut journal = match &plan.resume {
        Some(path) => Some(Journal::open(path, &experiment.name)?),
        None => None,
    };
    let mut report = Report::default();
    if let Some(journal) = &journal {
        for (at, unit) in units.iter().enumerate() {
            report
                .waiting
                .extend(journal.find(unit)?.map(|found| (at, found)));
        }
    }
    let known = |at: &usize| report.waiting.contains_key(at);
    let (found, todo): (Vec<usize>, Vec<usize>) = (0..units.len()).partition(known);
    report.emit(on);
    let mut done = found.len();
    let mut first_error: Option<(usize, Error)> = None;
    let work = |at: &usize| units[*at].measure();
    parallel::each(
        &todo,
        parallel::threads(plan.threads),
        work,
        |at, measured| {
            let at = todo[at];
            let unit = &units[at];
            let kept = measured.and_then(|records| {
                if let Some(journal) = &mut journal {
                    journal.append(unit, &records)?;
                }
                Ok(records)
            });
            match kept {
                Ok(records) => {
                    done += 1;
                    on(Event::Progress(unit.progress(done, units.len())));
                    report.waiting.insert(at, records);
                    report.emit(on);
                }
                Err(error) if first_error.as_ref().is_none_or(|(first, _)| at < *first) => {
                    first_error = Some((at, error));
                }
                Err(_) => {}
            }
            first_error.is_none()
        },
    );
    if let Some((_, error)) = first_error {
        return Err(error);
    }
    let comparisons = summary::comparisons(experiment, &report.records);
    report.waiting.insert(units.len(), comparisons);
    report.emit(on);
    Ok(report.records)
}

/// Records in the order of their units, and records that wait for earlier units.
#[derive(Default)]
struct Report {
    records: Vec<Record>,
    waiting: BTreeMap<usize, Vec<Record>>,
    next: usize,
}

impl Report {
    fn emit(&mut self, on: &mut dyn FnMut(Event<'_>)) {
        while let Some(records) = self.waiting.remove(&self.next) {
            for record in &records {
                on(Event::Record(record));
            }
            self.records.extend(records);
            self.next += 1;
        }
    }
}

// === impl Unit ===

impl<'a> Unit<'a> {
    fn progress(&self, done: usize, total: usize) -> Progress<'a> {
        Progress {
            done,
            total,
            cell: &self.cell.name,
            policy: self.policy,
        }
    }
}

// === impl Plan ===

impl Plan {
    /// The units to run, in the order of the report.
    fn units<'a>(&self, experiment: &'a Experiment) -> Result<Vec<Unit<'a>>, Error> {
        let own_seeds = match self.variation(experiment) {
            Some(variation) => variation.seeds,
            None => experiment.seeds,
        };
        let seeds = if self.seeds > 0 {
            self.seeds
        } else {
            own_seeds
        };
        let policies = if self.policies.is_empty() {
            &experiment.policies
        } else {
            &self.policies
        };
        let policies: &[Policy] = match experiment.kind {
            Kind::Spread => &[],
            _ => policies,
        };
        let mut units = Vec::new();
        for cell in self.chosen(experiment)? {
            let none = std::iter::once(None);
            for policy in none.chain(policies.iter().copied().map(Some)) {
                units.push(Unit {
                    experiment,
                    cell,
                    policy,
                    seeds,
                });
            }
        }
        Ok(units)
    }

    /// The version that is asked for, if it is not the usual one.
    fn variation<'a>(&self, experiment: &'a Experiment) -> Option<&'a Variation> {
        if self.quick {
            return Some(&experiment.quick);
        }
        let full = &experiment.full;
        (self.full && !full.cells.is_empty()).then_some(full)
    }

    fn chosen<'a>(&self, experiment: &'a Experiment) -> Result<Vec<&'a Cell>, Error> {
        let all = match self.variation(experiment) {
            Some(variation) => &variation.cells,
            None => &experiment.cells,
        };
        if let Some(missing) = self
            .cells
            .iter()
            .find(|name| !all.iter().any(|cell| cell.name == **name))
        {
            let known: Vec<&str> = all.iter().map(|cell| cell.name.as_str()).collect();
            return Err(Error::unknown("cell", missing, &known));
        }
        let mut cells: Vec<(usize, &Cell)> = all
            .iter()
            .enumerate()
            .filter(|(_, cell)| self.cells.is_empty() || self.cells.contains(&cell.name))
            .collect();
        if let Some(count) = self.sample {
            let mut random = ChaCha8Rng::seed_from_u64(self.sample_seed);
            cells.shuffle(&mut random);
            cells.truncate(count);
            cells.sort_by_key(|(at, _)| *at);
        }
        Ok(cells.into_iter().map(|(_, cell)| cell).collect())
    }
}
