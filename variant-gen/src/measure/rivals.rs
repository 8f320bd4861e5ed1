//! Whether a configuration is worth measuring in full.
//!
//! It is a race: the configurations that were measured before are its rivals. After it is loaded, a lone query and a
//! batch are timed. If a rival that is at least as exact and takes no more threads is clearly faster in both, the rest
//! of the measurement would be of no use. If the two differ only in how far the graph is optimised, they are
//! near-copies, and the rival need only be as fast. Only a configuration that is as accurate as the uploaded file is a
//! rival. Quick models are measured in full in any case.

use std::time::Instant;

use serde::{Deserialize, Serialize};
use sextant_types::{EngineName, Precision, fit, uploaded_quality};

use super::{MeasureError, Measurement, ScoreError, milliseconds, run, sweep::Sweep};
use crate::configuration::Configuration;

/// Rows of the batch that is timed.
const ROWS: u16 = 8;

/// This many times as fast is clearly faster: more than the fifth by which variants are compared in steps.
const CLEARLY: f64 = 1.25;

/// A rival may take this much longer to load, ms.
const LOAD_MS: f64 = 200.0;

/// A configuration that was measured before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rival {
    /// The configuration's name.
    pub name: String,
    /// Which engine runs it.
    pub engine: EngineName,
    /// Number format.
    pub precision: Precision,
    /// Intra-op threads.
    pub threads: u16,
    /// Time to load, ms.
    pub load_ms: f64,
    /// Time of a batch of one, ms.
    pub alone_ms: f64,
    /// Most rows per second.
    pub rows_per_s: f64,
}

/// Those of the measured configurations that are as accurate as the uploaded file.
pub fn rivals(measured: &[(&Configuration, &Measurement)]) -> Vec<Rival> {
    let accuracies: Vec<_> = measured
        .iter()
        .map(|(configuration, measurement)| (configuration.precision, &measurement.accuracy))
        .collect();
    let Some(least) = uploaded_quality(&accuracies) else {
        return Vec::new();
    };
    let accurate = measured
        .iter()
        .filter(|(_, measurement)| measurement.accuracy.quality() >= least);
    accurate
        .filter_map(|(configuration, measurement)| {
            let batches: Vec<_> = measurement.points.iter().map(|it| it.latency).collect();
            Some(Rival {
                name: configuration.name(),
                engine: configuration.engine.clone(),
                precision: configuration.precision,
                threads: configuration.threads,
                load_ms: measurement.load_ms,
                alone_ms: batches.first()?.p50_ms,
                rows_per_s: fit::saturation_rps(&batches),
            })
        })
        .collect()
}

impl Sweep<'_> {
    /// Why the rest need not be measured, if so.
    pub(super) fn outrun(&self, load_ms: f64) -> Result<Option<String>, MeasureError> {
        let request = &self.subject.request;
        let rivals = self.subject.rivals.iter().filter(|rival| {
            rival.precision <= request.precision
                && rival.threads <= request.threads
                && rival.load_ms <= load_ms + LOAD_MS
        });
        let rivals: Vec<&Rival> = rivals.collect();
        if rivals.is_empty() {
            return Ok(None);
        }
        let rows = match self.subject.signature.batched {
            true => ROWS.min(self.effort.largest_batch).max(1),
            false => 1,
        };
        // A model that cannot run so many rows shows that when it is measured.
        let Some(together_ms) = self.quickest(rows)? else {
            return Ok(None);
        };
        if together_ms <= milliseconds(self.effort.pruned_above) {
            return Ok(None);
        }
        let Some(alone_ms) = self.quickest(1)? else {
            return Ok(None);
        };
        let rows_per_s = f64::from(rows) / together_ms * 1e3;
        let faster = rivals.into_iter().find(|rival| {
            let times = match self.is_near_copy(rival) {
                true => 1.0,
                false => CLEARLY,
            };
            rival.alone_ms * times <= alone_ms && rival.rows_per_s >= rows_per_s * times
        });
        Ok(faster.map(|rival| {
            format!(
                "slower than `{}`: {alone_ms:.1} ms for one row in place of {:.1}, {rows_per_s:.0} rows per \
                 second in place of {:.0}",
                rival.name, rival.alone_ms, rival.rows_per_s
            )
        }))
    }

    /// Whether a rival differs only in how far the graph is optimised. Two measurements of the same thing differ as
    /// well, so it does not matter which of the two is kept.
    fn is_near_copy(&self, rival: &Rival) -> bool {
        let request = &self.subject.request;
        rival.engine.0 == self.subject.engine.name()
            && (rival.precision, rival.threads) == (request.precision, request.threads)
    }

    /// The quicker of two runs of a batch, ms; of one run if that is quick enough for a full measurement. `None` if the
    /// engine does not run it.
    fn quickest(&self, rows: u16) -> Result<Option<f64>, MeasureError> {
        let inputs = self.subject.validation.repeated(usize::from(rows));
        let inputs = inputs.map_err(ScoreError::from)?;
        let mut least = f64::INFINITY;
        for _ in 0..2 {
            self.cancel.check()?;
            let started = Instant::now();
            match run(self.model, &inputs, usize::from(rows)) {
                Err(MeasureError::Run { .. }) => return Ok(None),
                Err(other) => return Err(other),
                Ok(_) => least = least.min(milliseconds(started.elapsed())),
            }
            if least <= milliseconds(self.effort.pruned_above) {
                break;
            }
        }
        Ok(Some(least))
    }
}
