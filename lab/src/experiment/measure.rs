//! Measurements in a cell, by kind of experiment.

use sextant_baselines::Policy;

use super::{Cell, Experiment, Kind, Record, build::PreparedCell, label::Label, spread};
use crate::{
    bound,
    goodput::{Goodput, Search},
};
use sextant_simulator::{Error, Report, Shape, Tally, World, profiles::nanos};

/// One unit of an experiment: a cell with one policy and all seeds, or the figures that hold for every policy.
#[derive(Debug, Clone, Copy)]
pub(super) struct Unit<'a> {
    pub(super) experiment: &'a Experiment,
    pub(super) cell: &'a Cell,
    pub(super) policy: Option<Policy>,
    pub(super) seeds: u64,
}

/// The last figure of a unit with a policy: the number of its runs.
pub(super) const LAST_METRIC: &str = "runs_count";

/// The metric of the rate that a scheduler with knowledge of the arrivals cannot exceed.
pub(super) const CLAIRVOYANT: &str = "clairvoyant_bound_rps";

impl Unit<'_> {
    /// Runs the unit. Returns the figures of each seed, then their means.
    pub(super) fn measure(&self) -> Result<Vec<Record>, Error> {
        let explain = |error: Error| {
            let because = std::error::Error::source(&error).map(|source| format!(": {source}"));
            let because = because.unwrap_or_default();
            let problem = format!("cell `{}`: {error}{because}", self.cell.name);
            Error::experiment(&self.experiment.name, problem)
        };
        self.records().map_err(explain)
    }

    fn records(&self) -> Result<Vec<Record>, Error> {
        if self.experiment.kind == Kind::Spread {
            return Ok(self.spread());
        }
        let mut prepared = PreparedCell::new(self.cell)?;
        let Some(policy) = self.policy else {
            return self.about_cell(&prepared);
        };
        let mut records = Vec::new();
        let mut around_rps = None;
        for seed in 1..=self.seeds {
            let mut run = Run {
                cell: self.cell,
                prepared: &mut prepared,
                policy,
                seed,
                runs: 0,
                label: self.label(Some(seed)),
                around_rps,
                records: &mut records,
            };
            match self.experiment.kind {
                Kind::Goodput => run.goodput()?,
                Kind::Shapes => run.shapes()?,
                Kind::Sweep => run.sweep()?,
                Kind::Ladder => run.ladder()?,
                Kind::FlatTop => run.flat_top()?,
                Kind::Prices => run.prices()?,
                Kind::Timeline => run.timeline()?,
                Kind::Spread => {}
            }
            around_rps = run.around_rps;
            let runs = f64::from(run.runs);
            records.push(self.label(Some(seed)).record(LAST_METRIC, runs));
        }
        let means = sextant_simulator::means(&records);
        records.extend(means);
        Ok(records)
    }

    pub(super) fn label(&self, seed: Option<u64>) -> Label<'_> {
        Label {
            experiment: &self.experiment.name,
            cell: Some(&self.cell.name),
            policy: self.policy,
            seed,
        }
    }

    /// Figures that do not depend on the policy.
    fn about_cell(&self, prepared: &PreparedCell) -> Result<Vec<Record>, Error> {
        let label = self.label(None);
        let mut records = Vec::new();
        let of_devices = matches!(
            self.experiment.kind,
            Kind::Goodput | Kind::FlatTop | Kind::Timeline
        );
        // If not every model has a share of the rate, there is no bound.
        if of_devices && prepared.bound_rps.is_finite() {
            records.push(label.record("fluid_bound_rps", prepared.bound_rps));
        }
        if matches!(self.experiment.kind, Kind::Goodput | Kind::FlatTop) {
            records.extend(self.clairvoyant(prepared)?);
        }
        let profile = prepared
            .groups
            .first()
            .and_then(|part| part.profiles.first());
        if let (true, Some(profile)) = (self.cell.analytic, profile) {
            let (alpha, beta) = profile.line();
            let own = self.cell.group.first().and_then(|group| group.target_ms);
            let target = own.or(profile.target_ms).unwrap_or(0.0);
            let devices = self.cell.devices;
            let alone = bound::no_coordination(alpha, beta, target, devices);
            let staggered = bound::staggered(alpha, beta, target, devices);
            records.extend([
                label.record("no_coordination_rows", f64::from(alone.rows)),
                label.record("no_coordination_rps", alone.rps),
                label.record("staggered_rows", f64::from(staggered.rows)),
                label.record("staggered_rps", staggered.rps),
            ]);
        }
        Ok(records)
    }

    /// The rate that knowledge of each seed's arrivals would allow, and the mean over seeds.
    fn clairvoyant(&self, prepared: &PreparedCell) -> Result<Vec<Record>, Error> {
        let mut records = Vec::new();
        for seed in 1..=self.seeds {
            let bound = prepared.clairvoyant_bound_rps(self.cell, seed)?;
            let label = self.label(Some(seed));
            records.extend(bound.map(|rps| label.record(CLAIRVOYANT, rps)));
        }
        records.extend(sextant_simulator::means(&records));
        Ok(records)
    }

    fn spread(&self) -> Vec<Record> {
        let mut records: Vec<Record> = (1..=self.seeds)
            .map(|seed| {
                let deviation = spread::deviation(self.cell, seed);
                self.label(Some(seed)).record("deviation_count", deviation)
            })
            .collect();
        records.extend(sextant_simulator::means(&records));
        let closed_form = spread::closed_form(self.cell);
        records.push(self.label(None).record("closed_form_count", closed_form));
        records
    }
}

/// The runs of one (cell, policy, seed).
pub(super) struct Run<'a> {
    pub(super) cell: &'a Cell,
    pub(super) prepared: &'a mut PreparedCell,
    pub(super) policy: Policy,
    pub(super) seed: u64,
    pub(super) runs: u32,
    pub(super) label: Label<'a>,
    /// The goodput of the previous seed.
    around_rps: Option<f64>,
    pub(super) records: &'a mut Vec<Record>,
}

impl Run<'_> {
    fn push(&mut self, metric: &str, value: f64) {
        self.records.push(self.label.record(metric, value));
    }

    fn goodput(&mut self) -> Result<(), Error> {
        let found = self.search()?;
        self.push("goodput_rps", found.rps);
        self.push(
            "goodput_over_bound_share",
            found.rps / self.prepared.bound_rps,
        );
        self.push("good_rps", found.report.good_per_s());
        self.push("busy_share", found.report.busy_share);
        self.push("batch_mean_rows", found.report.mean_rows());
        self.push("batch_median_rows", median_rows(&found.report));
        self.latencies(&found.report);
        Ok(())
    }

    /// Measures the goodput in both shapes. Each search begins where the other has ended.
    fn shapes(&mut self) -> Result<(), Error> {
        self.prepared.set_shape(Shape::Pool);
        let pool_rps = self.search()?.rps;
        self.prepared.set_shape(Shape::Fleet);
        let fleet_rps = self.search()?.rps;
        self.push("pool_goodput_rps", pool_rps);
        self.push("fleet_goodput_rps", fleet_rps);
        self.push("fleet_over_pool_ratio", fleet_rps / pool_rps.max(1e-9));
        Ok(())
    }

    /// Searches the goodput. The result holds the run at that rate.
    fn search(&mut self) -> Result<Goodput, Error> {
        let mut search = Search::below(self.prepared.bound_rps);
        if let Some(around_rps) = self.around_rps {
            search.around_rps = around_rps;
            search.first_step = 0.01;
        }
        search.most_missed_share = self.cell.most_missed_share;
        search.criterion = self.cell.criterion;
        let setting = self.prepared.setting(self.policy, self.seed);
        let found = search.run(|rps| {
            let mut source = self.prepared.source(rps, self.seed)?;
            let span = match search.criterion {
                super::Criterion::EachModel => self.prepared.hopeful_span(rps),
                super::Criterion::Total => self.prepared.span(),
            };
            Ok::<Report, Error>(World::new(&setting).run(source.as_mut(), span))
        })?;
        self.runs += found.probes.len() as u32;
        self.around_rps = (found.rps > 0.0).then_some(found.rps);
        Ok(found)
    }

    fn run_at(&mut self, rps: f64) -> Result<Report, Error> {
        self.runs += 1;
        let setting = self.prepared.setting(self.policy, self.seed);
        let mut source = self.prepared.source(rps, self.seed)?;
        Ok(World::new(&setting).run(source.as_mut(), self.prepared.span()))
    }

    fn sweep(&mut self) -> Result<(), Error> {
        let report = self.run_at(self.cell.rate_rps)?;
        self.about_run(&report, None);
        Ok(())
    }

    /// Figures of one run, under the cell's name or a name below it.
    fn about_run(&mut self, report: &Report, below: Option<&str>) {
        let cell = match below {
            None => self.cell.name.clone(),
            Some(below) => format!("{}/{below}", self.cell.name),
        };
        self.about_tallies(&cell, &report.models, report.seconds);
        let label = Label {
            cell: Some(&cell),
            ..self.label
        };
        self.records.extend([
            label.record("busy_share", report.busy_share),
            label.record("batch_mean_rows", report.mean_rows()),
            label.record("p50_ms", ms(report.latencies.quantile(0.5))),
            label.record("p99_ms", ms(report.latencies.quantile(0.99))),
        ]);
        let parts = self.prepared.groups.len();
        for at in 0..if parts > 1 { parts } else { 0 } {
            let part = &self.prepared.groups[at];
            let name = format!("{cell}/{}", part.name());
            let models = part.models.start as usize..part.models.end as usize;
            self.about_tallies(&name, &report.models[models], report.seconds);
        }
    }

    fn about_tallies(&mut self, cell: &str, tallies: &[Tally], seconds: f64) {
        let sum = |part: fn(&Tally) -> u64| tallies.iter().map(part).sum::<u64>() as f64;
        let (sent, good) = (sum(|tally| tally.sent), sum(|tally| tally.good));
        let longest = tallies.iter().map(|tally| tally.max_latency).max();
        let label = Label {
            cell: Some(cell),
            ..self.label
        };
        self.records.extend([
            label.record("offered_rps", sent / seconds),
            label.record("good_rps", good / seconds),
            label.record("satisfaction_share", good / sent.max(1.0)),
            label.record("max_ms", ms(longest.unwrap_or(0))),
        ]);
    }

    fn latencies(&mut self, report: &Report) {
        self.push("p50_ms", ms(report.latencies.quantile(0.5)));
        self.push("p99_ms", ms(report.latencies.quantile(0.99)));
        self.push("wait_p50_ms", ms(report.waits.quantile(0.5)));
    }

    fn ladder(&mut self) -> Result<(), Error> {
        let mut smallest = None;
        for target_ms in &self.cell.targets_ms {
            self.prepared.set_target(nanos(*target_ms));
            let report = self.run_at(self.cell.rate_rps)?;
            self.about_run(&report, Some(&format!("{target_ms}ms")));
            let first = self
                .prepared
                .groups
                .first()
                .map_or(0..0, |part| part.models.clone());
            let tallies = &report.models[first.start as usize..first.end as usize];
            let sent: u64 = tallies.iter().map(|tally| tally.sent).sum();
            let missed: u64 = tallies.iter().map(Tally::missed).sum();
            let met = missed as f64 <= self.cell.most_missed_share * sent as f64;
            if met && smallest.is_none() {
                smallest = Some(*target_ms);
            }
        }
        if let Some(target_ms) = smallest {
            self.push("full_satisfaction_target_ms", target_ms);
        }
        Ok(())
    }

    /// Measures the rate that the first type of device carries alone, then runs all devices at multiples of it.
    fn prices(&mut self) -> Result<(), Error> {
        let mut alone = PreparedCell::new(self.cell)?;
        alone.keep_first_kind();
        std::mem::swap(self.prepared, &mut alone);
        let cheap = self.search();
        std::mem::swap(self.prepared, &mut alone);
        let cheap_rps = cheap?.rps;
        self.push("cheap_goodput_rps", cheap_rps);
        for load in &self.cell.loads {
            let (report, cell) = self.run_below(*load, cheap_rps)?;
            let label = Label {
                cell: Some(&cell),
                ..self.label
            };
            self.records.extend([
                label.record("dear_share_percent", 100.0 * report.dear_share()),
                label.record("cost_per_1k_usd", report.cost_per_1k_usd()),
            ]);
        }
        Ok(())
    }

    /// Runs at a multiple of a rate. Returns also the name of the figures below the cell's name.
    fn run_below(&mut self, load: f64, rps: f64) -> Result<(Report, String), Error> {
        let report = self.run_at(load * rps)?;
        let name = format!("{load}x");
        self.about_run(&report, Some(&name));
        Ok((report, format!("{}/{name}", self.cell.name)))
    }

    fn flat_top(&mut self) -> Result<(), Error> {
        let peak_rps = self.search()?.rps;
        self.push("goodput_rps", peak_rps);
        for load in &self.cell.loads {
            let (report, cell) = self.run_below(*load, peak_rps)?;
            let label = Label {
                cell: Some(&cell),
                ..self.label
            };
            let idle = 1.0 - report.busy_share;
            self.records.push(label.record("idle_share", idle));
            if *load < 1.0 {
                let error = (idle - (1.0 - load)).abs();
                self.records.push(label.record("idle_error_share", error));
            } else {
                let over_peak = report.good_per_s() / peak_rps;
                self.records
                    .push(label.record("good_over_peak_share", over_peak));
            }
        }
        Ok(())
    }
}

fn ms(nanos: u64) -> f64 {
    nanos as f64 / 1e6
}

/// Rows of the median batch.
fn median_rows(report: &Report) -> f64 {
    let all: u64 = report.batches.values().sum();
    let mut seen = 0;
    for (rows, count) in &report.batches {
        seen += count;
        if 2 * seen >= all {
            return f64::from(*rows);
        }
    }
    0.0
}
