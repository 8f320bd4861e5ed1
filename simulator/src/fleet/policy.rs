//! Who decides about devices and variants, by name.

use std::{fmt, str::FromStr};

use sextant_policies::scaling;

/// A way to run a fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Policy {
    /// The autoscaler of the live service with one of its planners.
    Scaler(scaling::Policy),
    /// The baseline of INFaaS (section 6): a fixed number of devices, one variant for each application,
    /// loaded before the first query.
    ClipperPlus,
    /// The other one: one variant for each application, of which as many instances run as load asks
    /// for.
    SagemakerPlus,
}

/// A name that no policy has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownPolicy(String);

// === impl Policy ===

impl Policy {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Scaler(scaling::Policy::Sextant),
        Self::Scaler(scaling::Policy::Infaas),
        Self::Scaler(scaling::Policy::Ilp),
        Self::ClipperPlus,
        Self::SagemakerPlus,
    ];

    /// Ours.
    pub const SEXTANT: Self = Self::Scaler(scaling::Policy::Sextant);

    /// Its name in files and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Scaler(policy) => policy.name(),
            Self::ClipperPlus => "clipper-plus",
            Self::SagemakerPlus => "sagemaker-plus",
        }
    }

    /// Whether each application is answered by one variant that is chosen before the run.
    pub fn is_pinned(self) -> bool {
        matches!(self, Self::ClipperPlus | Self::SagemakerPlus)
    }

    /// Who plans; nobody where everything stays as it is.
    pub(super) fn planner(self) -> Option<scaling::Policy> {
        match self {
            Self::Scaler(policy) => Some(policy),
            Self::SagemakerPlus => Some(scaling::Policy::Ilp),
            Self::ClipperPlus => None,
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
