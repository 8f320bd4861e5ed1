//! Placement policies by name, and their parameters.

use std::str::FromStr;

use super::Nanos;

/// A placement policy by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Policy {
    /// Ours; see its module.
    #[default]
    Sextant,
    /// By unfulfilled demand, least recently used out (Clockwork, section 5.3).
    Clockwork,
    /// First come, first served, least recently used out.
    Lru,
}

/// A name that is no placement policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownPolicy(pub String);

/// A policy and its parameters; each policy reads what concerns it.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Which policy.
    pub policy: Policy,
    /// LOAD work that may be outstanding on a device when one more LOAD is issued, ns.
    pub look_ahead: Nanos,
    /// Demand that a device can fulfil, ns: the target of a usual request. Clockwork's `capacity_g`.
    pub capacity: Nanos,
    /// `sextant`: time that is left for a batch to start between the end of a LOAD and the last
    /// moment for it, ns. Without any, a LOAD that ends in time for an idle device alone is
    /// wasted on a busy one.
    pub margin: Nanos,
    /// `sextant`: time over which request rates are forgotten, ns.
    pub memory: Nanos,
    /// `sextant`: whether models with a period are loaded before their next burst.
    pub prefetch: bool,
}

// === impl Policy ===

impl Policy {
    /// Every policy.
    pub const ALL: &'static [Self] = &[Self::Sextant, Self::Clockwork, Self::Lru];

    /// Its name in configuration and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sextant => "sextant",
            Self::Clockwork => "clockwork",
            Self::Lru => "lru",
        }
    }
}

impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        Self::ALL
            .iter()
            .copied()
            .find(|policy| policy.name() == name)
            .ok_or_else(|| UnknownPolicy(name.to_owned()))
    }
}

impl std::fmt::Display for Policy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

// === impl UnknownPolicy ===

impl std::fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "`{}` is no placement policy; known: ", self.0)?;
        for (at, policy) in Policy::ALL.iter().enumerate() {
            let comma = if at > 0 { ", " } else { "" };
            write!(f, "{comma}`{policy}`")?;
        }
        Ok(())
    }
}

impl std::error::Error for UnknownPolicy {}

// === impl Options ===

impl Default for Options {
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            look_ahead: 5_000_000,
            capacity: 100_000_000,
            margin: 5_000_000,
            memory: 60_000_000_000,
            prefetch: true,
        }
    }
}

impl Options {
    /// A policy with its defaults.
    pub fn of(policy: Policy) -> Self {
        Self {
            policy,
            ..Self::default()
        }
    }
}
