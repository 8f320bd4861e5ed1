//! Predicted against measured: a profile, then open-loop load at several rates on every
//! configuration that keeps up with them.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use sextant_policies::parallelism::{
    Configuration, Model, Profile, Random, StopRule, Summary, Tuple,
    lookahead::{self, Arrivals, Scenario},
};
use sextant_types::NamedTensor;

use super::{Error, Handles, Profiled, Runner, RunnerOptions, drive, measure};

/// What is compared.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Loads, as shares of what the strongest configuration completes.
    pub utilizations: Vec<f64>,
    /// Configurations that a load fills more than this are left out: near saturation the measured
    /// mean of any run that ends is an accident.
    pub highest: f64,
    /// Time of each run, s.
    pub seconds: f64,
    /// Runs of each load on each configuration, with the same arrivals.
    pub repetitions: usize,
    /// Coefficient of variation of the gaps between arrivals: 1 for Poisson.
    pub cv: f64,
    /// When a tuple is known well enough.
    pub rule: StopRule,
    /// Decides the arrivals.
    pub seed: u64,
}

/// How far it is.
#[derive(Debug, Clone, PartialEq)]
pub enum Progress {
    /// A tuple was profiled.
    Tuple(Tuple, Summary),
    /// So many of so many runs are done; this one was the last.
    Run {
        /// Runs that are done.
        done: usize,
        /// Runs there are.
        total: usize,
        /// Of the last one.
        load_per_s: f64,
        /// Of the last one.
        configuration: Configuration,
    },
}

/// One load on one configuration. Times in seconds.
#[derive(Debug, Clone)]
pub struct Cell {
    /// Requests per second.
    pub load_per_s: f64,
    /// Under which they ran.
    pub configuration: Configuration,
    /// Mean latency by each of [`Model::ALL`]; `None` where it predicts an endless queue.
    pub models_s: [Option<f64>; 4],
    /// Mean latency of long play of such arrivals on the profile: our prediction.
    pub played_mean_s: f64,
    /// The 99th percentile of it.
    pub played_p99_s: f64,
    /// Mean latency of the very arrivals that were measured, played on the profile: what is left of
    /// the error without the accident of the arrivals.
    pub replayed_mean_s: f64,
    /// Measured mean latencies of the repetitions.
    pub means_s: Vec<f64>,
    /// Measured 99th percentiles of the repetitions.
    pub p99s_s: Vec<f64>,
    /// Measured mean time from start to end, over all repetitions.
    pub service_s: f64,
    /// Requests of each repetition.
    pub requests: usize,
}

/// All of it.
#[derive(Debug, Clone)]
pub struct Evaluation {
    /// The profile that predictions are made from.
    pub profiled: Profiled,
    /// The same, measured again at the end.
    pub again: Profile,
    /// Loads in rising order, configurations in order.
    pub cells: Vec<Cell>,
    /// Requests per second that the strongest configuration completes.
    pub capacity_per_s: f64,
    /// Time that runs took.
    pub took: Duration,
    /// What measuring every configuration at every load would take with 5000 requests each, as the
    /// paper does it, s.
    pub exhaustive_s: f64,
}

/// Requests at the beginning of a run that do not count: the queue is not in its steady state.
const WARM_UPS: usize = 50;

/// Requests that are played for a prediction.
const PLAYED: usize = 200_000;

/// Samples for each configuration and load in exhaustive profiling (SERF, section VI-C).
const EXHAUSTIVE_SAMPLES: f64 = 5000.0;

/// How long an idle thread spins before an arrival.
const SPIN: Duration = Duration::from_micros(200);

/// Profiles the model, predicts, measures and compares; `progress` is told as it goes on.
///
/// # Errors
/// A plan without sense, or what the engine says.
pub fn evaluate(
    handles: &Handles,
    inputs: &Arc<Vec<NamedTensor>>,
    cores: &[usize],
    plan: &Plan,
    progress: &mut dyn FnMut(Progress),
) -> Result<Evaluation, Error> {
    plan.check()?;
    let mut each = |tuple, summary: &Summary| progress(Progress::Tuple(tuple, *summary));
    let profiled = measure(handles, inputs, cores, plan.rule, &mut each)?;
    let profile = &profiled.profile;
    let mut capacity_per_s = 0.0_f64;
    for configuration in profile.configurations() {
        capacity_per_s = capacity_per_s.max(profile.rates(configuration)?.capacity_per_s());
    }
    let (runs, exhaustive_s) = runs(profile, plan, capacity_per_s)?;

    let began = Instant::now();
    let runner = Runner::start(
        handles.clone(),
        RunnerOptions {
            cores: cores.to_vec(),
            configuration: Configuration::local(1, 1),
            spin: SPIN,
        },
    )?;
    let mut cells = Vec::with_capacity(runs.len());
    for (load_per_s, configuration) in &runs {
        let mut cell = predict(profile, *configuration, *load_per_s, plan)?;
        runner.configure(*configuration)?;
        cell.run(&runner, inputs, profile, plan)?;
        cells.push(cell);
        progress(Progress::Run {
            done: cells.len(),
            total: runs.len(),
            load_per_s: *load_per_s,
            configuration: *configuration,
        });
    }
    let took = began.elapsed();
    drop(runner);
    let again = measure(handles, inputs, cores, plan.rule, &mut |_, _| {})?.profile;
    Ok(Evaluation {
        profiled,
        again,
        cells,
        capacity_per_s,
        took,
        exhaustive_s,
    })
}

/// Loads and configurations that keep up with them, and the time of exhaustive profiling, s.
fn runs(
    profile: &Profile,
    plan: &Plan,
    capacity_per_s: f64,
) -> Result<(Vec<(f64, Configuration)>, f64), Error> {
    let (mut runs, mut exhaustive_s) = (Vec::new(), 0.0);
    for share in &plan.utilizations {
        let load_per_s = share * capacity_per_s;
        for configuration in profile.configurations() {
            let capacity = profile.rates(configuration)?.capacity_per_s();
            // One that cannot keep up is found out at its own rate.
            exhaustive_s += EXHAUSTIVE_SAMPLES / load_per_s.min(capacity);
            if load_per_s <= plan.highest * capacity {
                runs.push((load_per_s, configuration));
            }
        }
    }
    Ok((runs, exhaustive_s))
}

fn predict(
    profile: &Profile,
    configuration: Configuration,
    load_per_s: f64,
    plan: &Plan,
) -> Result<Cell, Error> {
    let rates = profile.rates(configuration)?;
    let arrivals = Arrivals {
        per_s: load_per_s,
        cv: plan.cv,
    };
    let mut random = Random::new(plan.seed ^ 0x5eed);
    let scv = profile.scv(configuration);
    let played = lookahead::steady(&rates, arrivals, scv, PLAYED, &mut random);
    Ok(Cell {
        load_per_s,
        configuration,
        models_s: Model::ALL.map(|model| model.mean_s(&rates, load_per_s)),
        played_mean_s: played.mean_s(WARM_UPS),
        played_p99_s: played.quantile_s(0.99, WARM_UPS),
        replayed_mean_s: 0.0,
        means_s: Vec::new(),
        p99s_s: Vec::new(),
        service_s: 0.0,
        requests: 0,
    })
}

// === impl Plan ===

impl Default for Plan {
    fn default() -> Self {
        Self {
            utilizations: vec![0.2, 0.35, 0.5, 0.65, 0.8],
            highest: 0.9,
            seconds: 10.0,
            repetitions: 1,
            cv: 1.0,
            rule: StopRule::default(),
            seed: 1,
        }
    }
}

impl Plan {
    fn check(&self) -> Result<(), Error> {
        let invalid = |what: String| Err(Error::Invalid(what));
        let share = |share: &f64| *share > 0.0 && *share < 1.0;
        if let Some(wrong) = self.utilizations.iter().find(|it| !share(it)) {
            return invalid(format!(
                "`{wrong}` is not a load; give a share between 0 and 1"
            ));
        }
        if !(self.seconds > 0.0 && self.seconds.is_finite()) || self.repetitions == 0 {
            return invalid("runs need a time above 0 s and at least one repetition".to_owned());
        }
        if !(0.0..=10.0).contains(&self.cv) {
            return invalid(format!("`{}` is not a variation; give 0 to 10", self.cv));
        }
        Ok(())
    }
}

// === impl Cell ===

impl Cell {
    fn run(
        &mut self,
        runner: &Runner,
        inputs: &Arc<Vec<NamedTensor>>,
        profile: &Profile,
        plan: &Plan,
    ) -> Result<(), Error> {
        let count = (plan.seconds * self.load_per_s).ceil() as usize + WARM_UPS;
        // The same arrivals for all configurations of a load.
        let mut random = Random::new(plan.seed.wrapping_add(self.load_per_s.to_bits()));
        let gaps_s = random.gaps(count, 1.0 / self.load_per_s, plan.cv);
        let rates = profile.rates(self.configuration)?;
        let replayed = lookahead::play(&Scenario {
            rates: &rates,
            gaps_s: &gaps_s,
            work: &[],
            running: 0,
            queued: 0,
        });
        self.replayed_mean_s = replayed.mean_s(WARM_UPS);
        self.requests = count - WARM_UPS;
        for _ in 0..plan.repetitions {
            let served = drive(runner, inputs, &gaps_s)?;
            let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
            self.means_s.push(mean(&served.latencies_s[WARM_UPS..]));
            self.p99s_s
                .push(quantile(&served.latencies_s[WARM_UPS..], 0.99));
            self.service_s += mean(&served.services_s) / plan.repetitions as f64;
        }
        Ok(())
    }

    /// Measured mean latency over all repetitions, s.
    pub fn mean_s(&self) -> f64 {
        self.means_s.iter().sum::<f64>() / self.means_s.len().max(1) as f64
    }

    /// Measured 99th percentile, mean over the repetitions, s.
    pub fn p99_s(&self) -> f64 {
        self.p99s_s.iter().sum::<f64>() / self.p99s_s.len().max(1) as f64
    }

    /// By how much a prediction is off, as a share of what was measured.
    pub fn error(&self, predicted_s: f64) -> f64 {
        (predicted_s / self.mean_s() - 1.0).abs()
    }

    /// By how much repetitions differ: the largest less the smallest mean, as a share of the mean.
    pub fn spread(&self) -> f64 {
        let largest = self.means_s.iter().copied().fold(0.0, f64::max);
        let smallest = self.means_s.iter().copied().fold(f64::INFINITY, f64::min);
        (largest - smallest).max(0.0) / self.mean_s()
    }
}

// === impl Evaluation ===

impl Evaluation {
    /// The cells of each load, lowest load first.
    pub fn loads(&self) -> impl Iterator<Item = &[Cell]> {
        self.cells.chunk_by(|a, b| a.load_per_s == b.load_per_s)
    }

    /// The error of each cell by one of [`Model::ALL`]; what predicts no end counts as 1.
    pub fn errors(&self, model: Model) -> Vec<f64> {
        let at = Model::ALL.iter().position(|known| *known == model);
        let predicted = |cell: &Cell| at.and_then(|at| cell.models_s[at]);
        let error = |cell: &Cell| predicted(cell).map_or(1.0, |it| cell.error(it));
        self.cells.iter().map(error).collect()
    }

    /// The largest change of a tuple's mean between the two profiles.
    pub fn drift(&self) -> f64 {
        let changes = self
            .profiled
            .profile
            .tuples()
            .filter_map(|(tuple, before)| {
                let after = self.again.tuple(tuple)?;
                Some((after.mean_s / before.mean_s - 1.0).abs())
            });
        changes.fold(0.0, f64::max)
    }
}

/// The smallest value that at least this share do not exceed; 0 of none.
pub fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (share * sorted.len() as f64).ceil() as usize;
    let at = rank.saturating_sub(1).min(sorted.len().saturating_sub(1));
    sorted.get(at).copied().unwrap_or(0.0)
}
