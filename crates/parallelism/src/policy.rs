//! What chooses a configuration while requests arrive, by name.

use std::str::FromStr;

use sextant_types::time::Nanos;

use super::{
    Configuration, MissingTuple, Model, Objective, Profile, Sextant, SextantOptions, Table,
    sextant::Unit,
};

/// Requests that are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Backlog {
    /// That run.
    pub running: usize,
    /// That wait.
    pub queued: usize,
}

/// Chooses the configuration of one machine.
///
/// Contract: is told of every arrival, in order of time, and asked as often as the caller likes; it
/// decides for itself how often it thinks again. The same calls give the same answers.
pub trait Choose: Send {
    /// A request arrived at `now`.
    fn arrived(&mut self, now: Nanos);

    /// The configuration for requests that start from `now` on.
    fn choose(&mut self, now: Nanos, backlog: Backlog) -> Configuration;
}

/// A way to choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Policy {
    /// The paper's: [`Serf`].
    Serf,
    /// Ours: [`Sextant`].
    Sextant,
}

/// A name that no policy has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownPolicy(String);

/// SERF as printed: the observed rate, updated periodically, looked up in the table of equation 12.
///
/// The paper leaves the period open; here it is what [`Serf::new`] is given, and the rate is that
/// of the last one.
#[derive(Debug, Clone)]
pub struct Serf {
    table: Table,
    period: Nanos,
    until: Nanos,
    arrivals: u64,
    current: Configuration,
}

// === impl Policy ===

impl Policy {
    /// All policies, ours last.
    pub const ALL: [Self; 2] = [Self::Serf, Self::Sextant];

    /// The period of [`Serf`] where none is given, ns.
    pub const PERIOD: Nanos = 2_000_000_000;

    /// Its name in configurations and figures.
    pub fn name(self) -> &'static str {
        match self {
            Self::Serf => "serf",
            Self::Sextant => "sextant",
        }
    }

    /// The policy for a profile on one machine, with default options; `None` of an empty profile.
    ///
    /// # Errors
    /// Names a tuple without a usable service time.
    pub fn build(
        self,
        profile: &Profile,
        objective: Objective,
    ) -> Result<Option<Box<dyn Choose>>, MissingTuple> {
        Ok(match self {
            Self::Serf => Table::build(profile, 1, Model::Serf)?
                .map(|table| Box::new(Serf::new(table, Self::PERIOD)) as Box<dyn Choose>),
            Self::Sextant => Unit::of(profile)?.map(|unit| {
                let options = SextantOptions {
                    objective,
                    ..SextantOptions::default()
                };
                Box::new(Sextant::new(unit, options)) as Box<dyn Choose>
            }),
        })
    }
}

impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        let known = Self::ALL.into_iter().find(|policy| policy.name() == name);
        known.ok_or_else(|| UnknownPolicy(name.to_owned()))
    }
}

impl std::fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<_> = Policy::ALL.iter().map(|policy| policy.name()).collect();
        write!(
            f,
            "there is no policy `{}`; there are: {}",
            self.0,
            names.join(", ")
        )
    }
}

impl std::error::Error for UnknownPolicy {}

// === impl Choose ===

impl Serf {
    /// Looks `table` up once every `period` ns.
    pub fn new(table: Table, period: Nanos) -> Self {
        let current = table.at(0.0);
        Self {
            table,
            period: period.max(1),
            until: 0,
            arrivals: 0,
            current,
        }
    }
}

impl Choose for Serf {
    fn arrived(&mut self, _now: Nanos) {
        self.arrivals += 1;
    }

    fn choose(&mut self, now: Nanos, _backlog: Backlog) -> Configuration {
        if self.until == 0 {
            self.until = now + self.period;
        }
        if now >= self.until {
            let passed = self.period + (now - self.until);
            let load_per_s = self.arrivals as f64 * 1e9 / passed as f64;
            self.current = self.table.at(load_per_s);
            self.arrivals = 0;
            self.until = now + self.period;
        }
        self.current
    }
}
