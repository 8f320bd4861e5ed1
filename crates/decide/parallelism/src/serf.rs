//! Chooses a configuration while requests arrive.

use sextant_types::time::Nanos;

use super::{Configuration, MissingTuple, Model, Profile, Table};

/// SERF as printed: the observed rate, updated periodically, is looked up in the table of equation 12.
///
/// The paper leaves the period open. Here it is the one given to [`Serf::new`], and the rate is that of the last
/// period.
///
/// Contract: every arrival is reported, and the configuration is asked for as often as the caller likes, in order of
/// time. The same calls give the same answers.
#[derive(Debug, Clone)]
pub struct Serf {
    table: Table,
    period: Nanos,
    until: Nanos,
    arrivals: u64,
    /// The last observed load, requests a second.
    load_per_s: f64,
    current: Configuration,
}

// === impl Serf ===

impl Serf {
    /// The default period, ns.
    pub const PERIOD: Nanos = 2_000_000_000;

    /// Makes an instance for a profile on one machine; `None` for an empty profile.
    ///
    /// # Errors
    /// Names a tuple without a usable service time.
    pub fn of(profile: &Profile) -> Result<Option<Self>, MissingTuple> {
        let table = Table::build(profile, 1, Model::Serf)?;
        Ok(table.map(|table| Self::new(table, Self::PERIOD)))
    }

    /// Makes an instance that looks `table` up once every `period` ns.
    pub fn new(table: Table, period: Nanos) -> Self {
        let current = table.at(0.0);
        Self {
            table,
            period: period.max(1),
            until: 0,
            arrivals: 0,
            load_per_s: 0.0,
            current,
        }
    }

    /// Uses another profile from now on, at the observed load. An empty profile changes nothing.
    ///
    /// # Errors
    /// Names a tuple without a usable service time.
    pub fn renew(&mut self, profile: &Profile) -> Result<(), MissingTuple> {
        if let Some(table) = Table::build(profile, 1, Model::Serf)? {
            self.current = table.at(self.load_per_s);
            self.table = table;
        }
        Ok(())
    }

    /// A request arrived.
    pub fn arrived(&mut self) {
        self.arrivals += 1;
    }

    /// The configuration for requests that start from `now` on.
    pub fn choose(&mut self, now: Nanos) -> Configuration {
        if self.until == 0 {
            self.until = now + self.period;
        }
        if now >= self.until {
            let passed = self.period + (now - self.until);
            self.load_per_s = self.arrivals as f64 * 1e9 / passed as f64;
            self.current = self.table.at(self.load_per_s);
            self.arrivals = 0;
            self.until = now + self.period;
        }
        self.current
    }
}
