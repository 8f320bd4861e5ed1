//! How long a model takes to load.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use sextant_engine::{Engine, LoadRequest, LoadedModel};

use super::{Cancel, Effort, MeasureError, Subject, milliseconds};
use crate::interval::quantile;

/// Time after which loading is not repeated.
const LOADING: Duration = Duration::from_millis(300);

/// The times of the loads so far, ms.
#[derive(Debug, Default)]
pub(super) struct Loads(Vec<f64>);

/// Loads a model.
pub(super) fn load_once(
    engine: &dyn Engine,
    request: &LoadRequest,
    cancel: &Cancel,
) -> Result<Arc<dyn LoadedModel>, MeasureError> {
    cancel.check()?;
    let loaded = engine.load_interruptible(request, cancel.interrupt());
    loaded.map_err(|error| match cancel.is_cancelled() {
        true => MeasureError::Cancelled,
        false => MeasureError::Load(error),
    })
}

// === impl Loads ===

impl Loads {
    /// Loads once and notes how long that took.
    pub(super) fn load(
        &mut self,
        subject: &Subject<'_>,
        cancel: &Cancel,
    ) -> Result<Arc<dyn LoadedModel>, MeasureError> {
        let started = Instant::now();
        let model = load_once(subject.engine, &subject.request, cancel)?;
        self.0.push(milliseconds(started.elapsed()));
        Ok(model)
    }

    /// Loads again as often as is wanted and quick. At no time are there two of the model.
    pub(super) fn repeat(
        &mut self,
        mut model: Arc<dyn LoadedModel>,
        (subject, effort): (&Subject<'_>, &Effort),
        cancel: &Cancel,
    ) -> Result<Arc<dyn LoadedModel>, MeasureError> {
        let is_wanted = |times: &[f64]| {
            times.len() < effort.loads as usize && times.iter().sum::<f64>() < milliseconds(LOADING)
        };
        while is_wanted(&self.0) {
            drop(model);
            model = self.load(subject, cancel)?;
        }
        Ok(model)
    }

    /// What half of the loads take at most.
    pub(super) fn median_ms(&self) -> f64 {
        let mut times = self.0.clone();
        times.sort_by(f64::total_cmp);
        quantile(&times, 0.5)
    }
}
