//! What is asked for, as the planner's picture takes it.

use sextant_scaling::demand;
use sextant_types::{ApplicationId, StepOf, TargetClass, WholeAccuracy};

/// Queries of an application with like targets.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Need {
    /// Whom they ask.
    pub application: ApplicationId,
    /// What their targets have in common.
    pub class: TargetClass,
    /// The step of a pipeline that asks them; `None` of those that clients ask.
    pub step: Option<StepOf>,
}

/// What a step asks for beside rows.
#[derive(Debug, Clone, PartialEq)]
pub struct StepLoad {
    /// How many runs of the step a row is, above 0.
    pub runs_per_row: f64,
    /// The strictest and the loosest latency target of the whole that was seen lately, ms; none where it has none.
    pub whole_ms: Option<(f64, f64)>,
    /// The highest least accuracy of the whole that was seen lately, and what was measured of it; none where none is asked for.
    pub accuracy: Option<WholeAccuracy>,
}

/// What is expected of a need, in rows.
#[derive(Debug, Clone)]
pub struct Forecast {
    /// Of which.
    pub need: Need,
    /// How much.
    pub of: demand::Forecast,
    /// The strictest and the loosest latency target that was seen lately, ms; those of the class where
    /// nothing is known, none where it has none.
    pub latency_ms: Option<(f64, f64)>,
    /// How many queries a row is, of those that came: 1 where each has one, above 0.
    pub queries_per_row: f64,
    /// Of a need that a step of a pipeline has.
    pub step: Option<StepLoad>,
}

// === impl Forecast ===

impl Forecast {
    /// A need that nobody has, of an application for which devices are kept.
    pub fn nobody(application: &ApplicationId) -> Self {
        Self {
            need: Need {
                application: application.clone(),
                class: TargetClass::default(),
                step: None,
            },
            of: demand::Forecast::default(),
            latency_ms: None,
            queries_per_row: 1.0,
            step: None,
        }
    }
}
