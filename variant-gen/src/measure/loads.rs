//! How long a model takes to load.
//!
//! Some engines keep what the first load prepared, such as converted weights and compiled kernels. Their later loads
//! take a hundredth of the time, and those are the loads that a device does day by day. The time of the first load is
//! given beside it.

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
pub(super) struct Loads {
    /// The time of the first load, if it prepared what the others used.
    first: Option<f64>,
    /// The times of the similar loads.
    times: Vec<f64>,
}

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
    /// Loads once and records the time.
    pub(super) fn load(
        &mut self,
        subject: &Subject<'_>,
        cancel: &Cancel,
    ) -> Result<Arc<dyn LoadedModel>, MeasureError> {
        let started = Instant::now();
        let model = load_once(subject.engine, &subject.request, cancel)?;
        let took = milliseconds(started.elapsed());
        match self.first {
            None if self.times.is_empty() && subject.engine.keeps_prepared() => {
                self.first = Some(took);
            }
            _ => self.times.push(took),
        }
        Ok(model)
    }

    /// Loads again as often as `effort` says, if that is quick, and at least once if the first load says nothing about
    /// the others. The model is never loaded twice at the same time.
    pub(super) fn repeat(
        &mut self,
        mut model: Arc<dyn LoadedModel>,
        (subject, effort): (&Subject<'_>, &Effort),
        cancel: &Cancel,
    ) -> Result<Arc<dyn LoadedModel>, MeasureError> {
        let is_wanted = |times: &[f64]| {
            times.len() < effort.loads as usize && times.iter().sum::<f64>() < milliseconds(LOADING)
        };
        while self.times.is_empty() || is_wanted(&self.times) {
            drop(model);
            model = self.load(subject, cancel)?;
        }
        Ok(model)
    }

    /// The median time of the loads, without a first one that differs from the others; that of the first if there are
    /// no others.
    pub(super) fn median_ms(&self) -> f64 {
        let mut times = self.times.clone();
        if times.is_empty() {
            times.extend(self.first);
        }
        times.sort_by(f64::total_cmp);
        quantile(&times, 0.5)
    }

    /// The time of a first load that differs from the others.
    pub(super) fn first_ms(&self) -> Option<f64> {
        self.first
    }
}
