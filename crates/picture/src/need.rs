//! The demand, as the planner's picture takes it.

use sextant_scaling::demand;
use sextant_types::{ApplicationId, StepOf, TargetClass, WholeAccuracy};

/// Queries of an application with similar targets.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Need {
    /// The application that they ask.
    pub application: ApplicationId,
    /// The class of their targets.
    pub class: TargetClass,
    /// The step of a pipeline that asks them; `None` if clients ask them.
    pub step: Option<StepOf>,
}

/// What a step asks for beside rows.
#[derive(Debug, Clone, PartialEq)]
pub struct StepLoad {
    /// Runs of the step per row, above 0.
    pub runs_per_row: f64,
    /// The strictest and the loosest latency target of the whole pipeline that was seen lately, ms; `None` if it has
    /// none.
    pub whole_ms: Option<(f64, f64)>,
    /// The highest least accuracy of the whole pipeline that was seen lately, and what was measured of it; `None` if
    /// none is asked for.
    pub accuracy: Option<WholeAccuracy>,
}

/// The expected demand of a need, in rows.
#[derive(Debug, Clone)]
pub struct Forecast {
    /// The need.
    pub need: Need,
    /// How much.
    pub of: demand::Forecast,
    /// The strictest and the loosest latency target that was seen lately, ms. If none was seen, those of the class.
    /// `None` if the class has none.
    pub latency_ms: Option<(f64, f64)>,
    /// Queries per row of the queries that came, above 0; 1 if each query has one row.
    pub queries_per_row: f64,
    /// The load of the step, if the need belongs to a step of a pipeline.
    pub step: Option<StepLoad>,
}

// === impl Forecast ===

impl Forecast {
    /// A need without load, of an application for which devices are kept.
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
