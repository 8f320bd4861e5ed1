//! Measured service times of a model on one kind of machine.

use std::collections::BTreeMap;

use super::{Configuration, Tuple};

/// Service rates of one request while 1, 2, .. requests run side by side: the paper's mu_i.
///
/// They include interference: on a machine whose requests slow each other down, the rates fall.
#[derive(Debug, Clone, PartialEq)]
pub struct Rates(Vec<f64>);

/// Rates that are invalid.
#[derive(Debug, Clone, PartialEq)]
pub enum InvalidRates {
    /// There is no rate.
    Empty,
    /// A rate is not a positive finite number of requests per second.
    Rate {
        /// Requests that run side by side at that rate.
        running: usize,
        /// The rate, per second.
        per_s: f64,
    },
}

/// The measurements of a tuple.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// The number of measured service times.
    pub samples: usize,
    /// Their mean, s.
    pub mean_s: f64,
    /// Their squared coefficient of variation.
    pub scv: f64,
}

/// A tuple that was not profiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MissingTuple(pub Tuple);

/// The measurements of each tuple. They hold as long as model and machine stay the same.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Profile {
    tuples: BTreeMap<Tuple, Summary>,
}

// === impl Rates ===

impl Rates {
    /// Rates in requests per second, of one running request first.
    ///
    /// # Errors
    /// When there is none, or one is not positive and finite.
    pub fn new(per_s: Vec<f64>) -> Result<Self, InvalidRates> {
        if per_s.is_empty() {
            return Err(InvalidRates::Empty);
        }
        let wrong = |rate: &f64| !(rate.is_finite() && *rate > 0.0);
        match per_s.iter().position(wrong) {
            Some(at) => Err(InvalidRates::Rate {
                running: at + 1,
                per_s: per_s[at],
            }),
            None => Ok(Self(per_s)),
        }
    }

    /// The most requests that run side by side: c.
    pub fn service(&self) -> usize {
        self.0.len()
    }

    /// The rate of one of `running` requests, per second. Beyond the service degree it is the rate
    /// at that degree.
    pub fn at(&self, running: usize) -> f64 {
        self.0[running.clamp(1, self.0.len()) - 1]
    }

    /// The same service degree without interference: every request has the rate of a lone one.
    pub fn constant(&self) -> Self {
        Self(vec![self.at(1); self.service()])
    }

    /// All rates, of one running request first.
    pub fn per_s(&self) -> &[f64] {
        &self.0
    }

    /// Requests per second that the unit completes when it is full: c times mu_c.
    pub fn capacity_per_s(&self) -> f64 {
        self.service() as f64 * self.at(self.service())
    }
}

// === impl Profile ===

impl Profile {
    /// Adds a tuple, or replaces its measurements.
    pub fn insert(&mut self, tuple: Tuple, summary: Summary) {
        self.tuples.insert(tuple, summary);
    }

    /// The measurements of a tuple.
    pub fn tuple(&self, tuple: Tuple) -> Option<&Summary> {
        self.tuples.get(&tuple)
    }

    /// All tuples in order.
    pub fn tuples(&self) -> impl Iterator<Item = (Tuple, &Summary)> {
        self.tuples.iter().map(|(tuple, summary)| (*tuple, summary))
    }

    /// The configurations whose tuples are all measured, sorted.
    pub fn configurations(&self) -> Vec<Configuration> {
        let full = self.tuples.keys().map(|tuple| Configuration {
            service: tuple.running,
            inter: tuple.inter,
            intra: tuple.intra,
        });
        let known = |all: &Configuration| all.tuples().all(|part| self.tuples.contains_key(&part));
        full.filter(known).collect()
    }

    /// Rates of a configuration.
    ///
    /// # Errors
    /// Names a tuple that is missing.
    pub fn rates(&self, configuration: Configuration) -> Result<Rates, MissingTuple> {
        let rate = |tuple| match self.tuples.get(&tuple) {
            Some(summary) if summary.mean_s > 0.0 => Ok(1.0 / summary.mean_s),
            _ => Err(MissingTuple(tuple)),
        };
        let per_s: Vec<f64> = configuration.tuples().map(rate).collect::<Result<_, _>>()?;
        Rates::new(per_s).map_err(|_| MissingTuple(configuration.full()))
    }

    /// By how much requests slow each other down when the configuration is full: mu_1 / mu_c.
    ///
    /// # Errors
    /// Names a tuple that is missing.
    pub fn interference(&self, configuration: Configuration) -> Result<f64, MissingTuple> {
        let rates = self.rates(configuration)?;
        Ok(rates.at(1) / rates.at(rates.service()))
    }
}

// === impl errors ===

impl std::fmt::Display for InvalidRates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Empty => write!(f, "no service rates; profile at least one running request"),
            Self::Rate { running, per_s } => write!(
                f,
                "`{per_s}` requests per second with `{running}` running is not a rate; it must be \
                 positive and finite"
            ),
        }
    }
}

impl std::error::Error for InvalidRates {}

impl std::fmt::Display for MissingTuple {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Tuple {
            running,
            inter,
            intra,
        } = self.0;
        write!(
            f,
            "`{running}` requests on `{inter}` machines with `{intra}` threads each were not \
             profiled"
        )
    }
}

impl std::error::Error for MissingTuple {}
