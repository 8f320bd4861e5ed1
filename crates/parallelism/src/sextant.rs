//! Ours: plays the last arrivals, the backlog and the measured scatter of work on the profile.
//!
//! Every so often the configurations are ranked by a formula (equation 12 with Allen and Cunneen's
//! correction for bursts, and the time that the backlog takes), and the best few are played with
//! the same arrivals and the same work. The gaps are those that were seen, in their order from a
//! random place on, so bursts stay bursts; their mean is the estimated load's. What is compared is
//! the objective itself: the mean, or a quantile.
//!
//! A change must promise to be worth it: the same arrivals for all candidates make the comparison
//! much more precise than the figures, but a choice between two that differ little would still go
//! back and forth.

use sextant_types::time::Nanos;

use super::{
    Backlog, Choose, Configuration, Load, LoadEstimator, LoadOptions, MissingTuple, Profile, Queue,
    Rates,
    lookahead::{self, Scenario},
    table,
};
use sextant_types::random::Random;

/// What latency is to be low.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Objective {
    /// The mean.
    Mean,
    /// That which this share of requests do not exceed: 0.99 for the 99th percentile.
    Quantile(f64),
}

/// How [`Sextant`] decides.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SextantOptions {
    /// What is to be low.
    pub objective: Objective,
    /// Least time between two decisions, ns.
    pub period: Nanos,
    /// Share of the current configuration's predicted latency that a change must gain.
    pub minimum_gain: f64,
    /// Most configurations that are played, the current one included.
    pub candidates: usize,
    /// Requests that are played.
    pub requests: usize,
    /// Gaps that must be known before the first decision.
    pub minimum_gaps: usize,
    /// How load is followed.
    pub load: LoadOptions,
    /// Decides the draws.
    pub seed: u64,
}

/// The policy. See the module.
#[derive(Debug, Clone)]
pub struct Sextant {
    options: SextantOptions,
    unit: Unit,
    load: LoadEstimator,
    random: Random,
    current: usize,
    next: Nanos,
    last: Option<Decision>,
}

/// What a machine can run, with rates.
#[derive(Debug, Clone)]
pub struct Unit {
    /// At least one.
    configurations: Vec<Known>,
}

#[derive(Debug, Clone)]
struct Known {
    configuration: Configuration,
    rates: Rates,
    work_scv: f64,
}

/// Why the last decision was as it was.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Decision {
    /// What was chosen.
    pub configuration: Configuration,
    /// Whether that was a change.
    pub switched: bool,
    /// The load it was chosen for.
    pub load: Load,
    /// The objective's predicted value under it, s.
    pub chosen_s: f64,
    /// The same under the configuration before, s.
    pub before_s: f64,
}

/// What is played for all candidates.
struct Trace {
    gaps_s: Vec<f64>,
    /// Draws that work is made of.
    normals: Vec<f64>,
}

// === impl SextantOptions ===

impl Default for SextantOptions {
    fn default() -> Self {
        Self {
            objective: Objective::Mean,
            period: 100_000_000,
            minimum_gain: 0.05,
            candidates: 6,
            requests: 800,
            minimum_gaps: 16,
            load: LoadOptions::default(),
            seed: 1,
        }
    }
}

// === impl Unit ===

impl Unit {
    /// What one machine can run of a profile; `None` where that is nothing.
    ///
    /// # Errors
    /// Names a tuple without a usable service time.
    pub fn of(profile: &Profile) -> Result<Option<Self>, MissingTuple> {
        let options = table::options(profile, 1)?;
        let known = options.into_iter().map(|(configuration, rates)| Known {
            configuration,
            rates,
            work_scv: profile.scv(configuration),
        });
        let configurations: Vec<_> = known.collect();
        Ok((!configurations.is_empty()).then_some(Self { configurations }))
    }

    /// The number of the configuration that answers a lone request soonest.
    fn fastest(&self) -> usize {
        let lone = self.configurations.iter().enumerate();
        lone.max_by(|(_, a), (_, b)| a.rates.at(1).total_cmp(&b.rates.at(1)))
            .map_or(0, |(at, _)| at)
    }
}

// === impl Sextant ===

impl Sextant {
    /// Begins with the configuration that answers a lone request soonest.
    pub fn new(unit: Unit, options: SextantOptions) -> Self {
        Self {
            options,
            current: unit.fastest(),
            unit,
            load: LoadEstimator::new(options.load),
            random: Random::new(options.seed),
            next: 0,
            last: None,
        }
    }

    /// The last decision; `None` before the first.
    pub fn last(&self) -> Option<&Decision> {
        self.last.as_ref()
    }

    /// What is known of the load at `now`.
    pub fn load(&self, now: Nanos) -> Load {
        self.load.load(now)
    }

    fn decide(&mut self, now: Nanos, backlog: Backlog) {
        let load = self.load.load(now);
        if load.gaps < self.options.minimum_gaps.max(1) {
            return;
        }
        let trace = self.trace(&load);
        let before = self.current;
        let before_s = self.value_s(before, &trace, backlog);
        let mut chosen = (before, before_s);
        for candidate in self.ranked(&load, backlog) {
            let value_s = self.value_s(candidate, &trace, backlog);
            if value_s < chosen.1 {
                chosen = (candidate, value_s);
            }
        }
        if before_s - chosen.1 <= self.options.minimum_gain * before_s {
            chosen = (before, before_s);
        }
        self.current = chosen.0;
        self.last = Some(Decision {
            configuration: self.unit.configurations[chosen.0].configuration,
            switched: chosen.0 != before,
            load,
            chosen_s: chosen.1,
            before_s,
        });
    }

    /// The most promising candidates but the current one.
    fn ranked(&self, load: &Load, backlog: Backlog) -> Vec<usize> {
        let known = self.unit.configurations.iter().enumerate();
        let mut ranked: Vec<(f64, usize)> = known
            .filter(|(at, _)| *at != self.current)
            .map(|(at, known)| (known.estimate_s(load, backlog), at))
            .collect();
        ranked.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        ranked.truncate(self.options.candidates.saturating_sub(1));
        ranked.into_iter().map(|(_, at)| at).collect()
    }

    /// The gaps that were seen, from a random place on and again from the first, at the rate of the
    /// estimate.
    fn trace(&mut self, load: &Load) -> Trace {
        let seen: Vec<f64> = self.load.gaps_s().collect();
        let sum: f64 = seen.iter().sum();
        let scale = seen.len() as f64 / (sum.max(1e-9) * load.per_s.max(1e-9));
        let start = self.random.below(seen.len());
        let repeated = seen.iter().cycle().skip(start);
        Trace {
            gaps_s: repeated
                .take(self.options.requests)
                .map(|gap| gap * scale)
                .collect(),
            normals: (0..self.options.requests)
                .map(|_| self.random.normal())
                .collect(),
        }
    }

    /// The objective's value when a candidate meets the trace, s.
    fn value_s(&self, candidate: usize, trace: &Trace, backlog: Backlog) -> f64 {
        let known = &self.unit.configurations[candidate];
        let work = lookahead::work_of(&trace.normals, known.work_scv);
        let latencies = lookahead::play(&Scenario {
            rates: &known.rates,
            gaps_s: &trace.gaps_s,
            work: &work,
            running: backlog.running.min(known.rates.service()),
            queued: backlog.queued + backlog.running.saturating_sub(known.rates.service()),
        });
        match self.options.objective {
            Objective::Mean => latencies.mean_s(0),
            Objective::Quantile(share) => latencies.quantile_s(share, 0),
        }
    }
}

impl Choose for Sextant {
    fn arrived(&mut self, now: Nanos) {
        self.load.arrived(now);
    }

    fn choose(&mut self, now: Nanos, backlog: Backlog) -> Configuration {
        if now >= self.next {
            self.next = now + self.options.period;
            self.decide(now, backlog);
        }
        self.unit.configurations[self.current].configuration
    }
}

// === impl Known ===

impl Known {
    /// A cheap estimate, good enough to say which configurations are worth playing, s.
    fn estimate_s(&self, load: &Load, backlog: Backlog) -> f64 {
        let capacity = self.rates.capacity_per_s();
        let steady = match Queue::solve(&self.rates, load.per_s) {
            Some(queue) => {
                let bursts = load.dispersion.max(load.scv);
                queue.service_s() + queue.general_wait_s(self.work_scv, bursts)
            }
            // Ever more wait: by how much it falls behind in a time that is long for all.
            None => 1e3 * load.per_s / capacity,
        };
        let present = (backlog.running + backlog.queued) as f64;
        steady + (present - self.rates.service() as f64).max(0.0) / capacity
    }
}
