//! The policies that decide about devices and variants, by name.

use std::{fmt, str::FromStr};

use sextant_scaling as scaling;
use sextant_scaling::autoscale;

/// A way to run a fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Policy {
    /// The autoscaler of the live service with one of its planners.
    Scaler(scaling::Policy),
    /// The baseline of INFaaS (section 6) with a fixed number of devices and one variant for each application, loaded
    /// before the first query.
    ClipperPlus,
    /// The other baseline: one variant for each application, with as many instances as its load requires.
    SagemakerPlus,
    /// One variant for each application, loaded on all devices of its type. A rule about replicas sets the number of
    /// devices.
    Replicas(autoscale::Policy),
}

/// A name that no policy has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownPolicy(String);

// === impl Policy ===

impl Policy {
    /// All policies.
    pub const ALL: [Self; 9] = [
        Self::Scaler(scaling::Policy::Sextant),
        Self::Scaler(scaling::Policy::Infaas),
        Self::Scaler(scaling::Policy::Ilp),
        Self::Scaler(scaling::Policy::Symphony),
        Self::ClipperPlus,
        Self::SagemakerPlus,
        Self::Replicas(autoscale::Policy::Hpa),
        Self::Replicas(autoscale::Policy::Kpa),
        Self::Replicas(autoscale::Policy::KedaQueue),
    ];

    /// The policies that a service may have.
    pub const OF_SERVICE: [Self; 2] = [
        Self::Scaler(scaling::Policy::Sextant),
        Self::Scaler(scaling::Policy::Ilp),
    ];

    /// Our policy.
    pub const SEXTANT: Self = Self::Scaler(scaling::Policy::Sextant);

    /// Its name in files and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Scaler(policy) => policy.name(),
            Self::ClipperPlus => "clipper-plus",
            Self::SagemakerPlus => "sagemaker-plus",
            Self::Replicas(rule) => rule.name(),
        }
    }

    /// Whether each application is answered by one variant that is chosen before the run.
    pub fn is_pinned(self) -> bool {
        !matches!(self, Self::Scaler(_))
    }

    /// Whether it is one of the baselines of INFaaS.
    pub(super) fn is_baseline(self) -> bool {
        matches!(self, Self::ClipperPlus | Self::SagemakerPlus)
    }

    /// The planner; `None` if no plan is made.
    pub(super) fn planner(self) -> Option<scaling::Policy> {
        match self {
            Self::Scaler(policy) => Some(policy),
            Self::SagemakerPlus => Some(scaling::Policy::Ilp),
            Self::ClipperPlus | Self::Replicas(_) => None,
        }
    }
}

impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        let known = Self::ALL.into_iter().find(|known| known.name() == name);
        known.ok_or_else(|| UnknownPolicy(name.to_owned()))
    }
}

impl fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = Policy::ALL.map(Policy::name).join(", ");
        write!(f, "there is no fleet policy `{}`; known: {known}", self.0)
    }
}

impl std::error::Error for UnknownPolicy {}
