//! Placement policies by name, and their parameters.

use super::Nanos;
use sextant_types::named;

named! {
    /// A placement policy by name.
    Policy,
    /// A name that is not a placement policy.
    UnknownPolicy of "placement policy",
    /// Our policy; see its module.
    #[default]
    Sextant = "sextant",
    /// By unfulfilled demand, least recently used out (Clockwork, section 5.3).
    Clockwork = "clockwork",
    /// First come, first served, least recently used out.
    Lru = "lru",
}

/// A policy and its parameters. Each policy reads the parameters that concern it.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// The policy.
    pub policy: Policy,
    /// LOAD work that may be outstanding on a device when one more LOAD is issued, ns.
    pub look_ahead: Nanos,
    /// Demand that a device can fulfil, ns: the target of a usual request. It is Clockwork's `capacity_g`.
    pub capacity: Nanos,
    /// `sextant`: the time left for a batch to start between the end of a LOAD and the last moment for the batch, ns.
    /// Without this margin, a LOAD that ends just in time for an idle device is wasted on a busy one.
    pub margin: Nanos,
    /// `sextant`: time over which request rates are forgotten, ns.
    pub memory: Nanos,
    /// `sextant`: whether variants with a period are loaded before their next burst.
    pub prefetch: bool,
}

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
