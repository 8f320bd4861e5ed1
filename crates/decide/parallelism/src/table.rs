//! The best configuration for each load (SERF, section V-C).
//!
//! The paper tabulates some ten loads and does not say what holds between them. Here bisection finds the loads at which
//! the choice changes, so the table is exact for every load.

use super::{Configuration, MissingTuple, Model, Profile, Rates, unit_load};

/// A configuration with its prediction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choice {
    /// The configuration.
    pub configuration: Configuration,
    /// Mean latency, s; `None` if no configuration keeps up with the load. The configuration is then the one that
    /// completes most.
    pub mean_s: Option<f64>,
}

/// The best configuration for every load. It is made once for a profile and looked up in logarithmic time.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// The loads, per second, from which on a configuration is best, with the configuration; sorted, starting at 0.
    steps: Vec<(f64, Configuration)>,
    capacity_per_s: f64,
}

/// The configurations that can be chosen.
#[derive(Clone, Copy)]
struct Chooser<'a> {
    options: &'a [(Configuration, Rates)],
    machines: u32,
    model: Model,
}

/// The configuration of `profile` with the least mean latency for `load_per_s` requests per second on `machines`
/// machines, by `model`. If none keeps up, the one that completes most. `None` for an empty profile.
///
/// # Errors
/// Names a tuple without a usable service time.
pub fn best(
    profile: &Profile,
    load_per_s: f64,
    machines: u32,
    model: Model,
) -> Result<Option<Choice>, MissingTuple> {
    let options = options(profile, machines)?;
    let chooser = Chooser {
        options: &options,
        machines,
        model,
    };
    Ok(chooser.best(load_per_s))
}

/// The configurations that `machines` machines can run, with their rates.
pub(super) fn options(
    profile: &Profile,
    machines: u32,
) -> Result<Vec<(Configuration, Rates)>, MissingTuple> {
    let all = profile.configurations().into_iter();
    let fitting = all.filter(|configuration| u32::from(configuration.inter) <= machines.max(1));
    fitting
        .map(|configuration| Ok((configuration, profile.rates(configuration)?)))
        .collect()
}

// === impl Table ===

impl Table {
    /// The table of a profile on `machines` machines, by `model`; `None` for an empty profile.
    ///
    /// # Errors
    /// Names a tuple without a usable service time.
    pub fn build(
        profile: &Profile,
        machines: u32,
        model: Model,
    ) -> Result<Option<Self>, MissingTuple> {
        /// The number of loads that are tried before bisection. A configuration that is best only on a narrower range
        /// is missed.
        const LEVELS: u32 = 256;
        let options = options(profile, machines)?;
        let chooser = Chooser {
            options: &options,
            machines,
            model,
        };
        let Some(first) = chooser.best(0.0) else {
            return Ok(None);
        };
        let capacity_per_s = chooser.capacity_per_s();
        let mut steps = vec![(0.0, first.configuration)];
        for level in 0..LEVELS {
            let at = |level: u32| capacity_per_s * f64::from(level) / f64::from(LEVELS);
            chooser.refine(at(level), at(level + 1), &mut steps);
        }
        Ok(Some(Self {
            steps,
            capacity_per_s,
        }))
    }

    /// The configuration for `load_per_s` requests per second.
    pub fn at(&self, load_per_s: f64) -> Configuration {
        let behind = self.steps.partition_point(|(from, _)| *from <= load_per_s);
        self.steps[behind.saturating_sub(1)].1
    }

    /// The loads, per second, from which on each configuration is best.
    pub fn steps(&self) -> &[(f64, Configuration)] {
        &self.steps
    }

    /// The load with which no configuration keeps up, per second.
    pub fn capacity_per_s(&self) -> f64 {
        self.capacity_per_s
    }
}

// === impl Chooser ===

impl Chooser<'_> {
    fn best(&self, load_per_s: f64) -> Option<Choice> {
        let mut best: Option<Choice> = None;
        for (configuration, rates) in self.options {
            let load = unit_load(load_per_s, configuration.inter, self.machines);
            let Some(mean_s) = self.model.mean_s(rates, load) else {
                continue;
            };
            if best.is_none_or(|best| Some(mean_s) < best.mean_s) {
                best = Some(Choice {
                    configuration: *configuration,
                    mean_s: Some(mean_s),
                });
            }
        }
        best.or_else(|| self.strongest())
    }

    fn strongest(&self) -> Option<Choice> {
        let strongest = self.options.iter().max_by(|(a, a_rates), (b, b_rates)| {
            let (a, b) = (self.completed(*a, a_rates), self.completed(*b, b_rates));
            a.total_cmp(&b)
        });
        strongest.map(|(configuration, _)| Choice {
            configuration: *configuration,
            mean_s: None,
        })
    }

    /// Requests per second that all units together complete.
    fn completed(&self, configuration: Configuration, rates: &Rates) -> f64 {
        rates.capacity_per_s() / unit_load(1.0, configuration.inter, self.machines)
    }

    fn capacity_per_s(&self) -> f64 {
        let all = self.options.iter();
        all.map(|(configuration, rates)| self.completed(*configuration, rates))
            .fold(0.0, f64::max)
    }

    /// Adds the changes of the choice above `low` up to `high`.
    fn refine(&self, low: f64, high: f64, steps: &mut Vec<(f64, Configuration)>) {
        const PRECISION: f64 = 1e-12;
        let Some(choice) = self.best(high) else {
            return;
        };
        if steps.last().is_none_or(|(_, c)| *c == choice.configuration) {
            return;
        }
        if high - low <= PRECISION * high {
            steps.push((high, choice.configuration));
            return;
        }
        let middle = 0.5 * (low + high);
        self.refine(low, middle, steps);
        self.refine(middle, high, steps);
    }
}
