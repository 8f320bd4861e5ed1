//! Measures one configuration: load time, latency per batch size, memory, accuracy.
//!
//! The order matters. Batches are swept from small to large, and the memory peak is read after each, so that a smaller
//! batch is never charged for a larger one. The evaluation, which runs batches of 32, comes last. Calls block; the
//! caller puts them on a thread of their own.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use serde::{Deserialize, Serialize};
use sextant_engine::{Engine, Interrupt, LoadRequest, LoadedModel};
use sextant_types::{
    Accuracy, BatchLatency, Code, ConcurrentRun, InvalidTensor, Metric, NamedTensor, Padding,
    Profile, ShapeProfile, Signature, Sizes, Tensor, fit,
};

use crate::{
    memory::{Baseline, MemorySource},
    score::{CustomMetric, ScoreError, Scorer},
    validation::{Invalid, ValidationSet},
};

mod answers;
mod batches;
mod concurrent;
mod effort;
mod loads;
mod padding;
mod ranks;
mod rivals;
mod shapes;
mod sweep;

pub use answers::answers;
pub use batches::{Batches, UploadedAnswers, differing_outputs};
pub use effort::Effort;
use loads::{Loads, load_once};
pub use ranks::output_shapes;
pub use rivals::{Rival, rivals};
use sweep::Sweep;

/// Unit to which memory is rounded up: a process that does other things cannot be measured more finely.
const MEMORY_GRAIN_BYTES: u64 = 1 << 20;

/// Stops a measurement; cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<Flags>);

#[derive(Debug, Default)]
struct Flags {
    /// Raised when the measurement is to stop.
    interrupt: Interrupt,
    steps: AtomicU64,
}

/// The subject of a measurement.
pub struct Subject<'a> {
    /// The engine.
    pub engine: &'a dyn Engine,
    /// Artefact, optimisation, threads.
    pub request: LoadRequest,
    /// The signature of the registered model, which the engine's must equal.
    pub signature: &'a Signature,
    /// Records to score on and to profile with.
    pub validation: &'a ValidationSet,
    /// How outputs are scored.
    pub metric: Metric,
    /// How inputs are padded, as declared.
    pub padding: Option<&'a Padding>,
    /// Measurements of other configurations: a clearly slower subject is not measured in full.
    pub rivals: &'a [Rival],
    /// A custom metric.
    pub judge: Option<&'a CustomMetric>,
    /// The accuracy, if it was measured with another number of threads.
    pub accuracy: Option<Accuracy>,
    /// The answers in single precision, if known; a subject in single precision adds its own.
    pub uploaded: Option<&'a UploadedAnswers>,
    /// Whether most of the file's weights have 16 bits.
    pub is_half: bool,
    /// Whether this process does nothing else, so that the memory that it touches is what the subject needs.
    pub in_own_process: bool,
}

/// One measured batch size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The latency.
    pub latency: BatchLatency,
    /// Peak memory of a variant with this maximum batch, bytes.
    pub peak_memory_bytes: u64,
    /// The source of that figure.
    pub memory: MemorySource,
}

/// All that was measured about one configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Score on the validation set.
    pub accuracy: Accuracy,
    /// Median time to load, ms.
    pub load_ms: f64,
    /// Time of the first load, ms, if `load_ms` is that of later loads, which used what the first had prepared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_load_ms: Option<f64>,
    /// Batch sizes in increasing order; never empty.
    pub points: Vec<Point>,
    /// Bytes of the weights.
    pub weights_bytes: u64,
    /// Why larger batches were not measured.
    pub stopped: Option<String>,
    /// The size of the records, and the measurements at other sizes.
    #[serde(flatten)]
    pub sizes: Sizes,
    /// Run times of lone queries side by side, if measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub concurrent: Vec<ConcurrentRun>,
    /// Why queries cannot share its batches, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apart: Option<String>,
    /// How inputs are padded and which outputs are cut back, if padding changes no answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub padding: Option<Padding>,
}

/// Why a configuration could not be measured.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum MeasureError {
    /// The engine refused the model.
    #[error(transparent)]
    Load(sextant_engine::Error),
    /// The engine failed while it ran.
    #[error("a batch of `{batch}` failed: {source}")]
    Run {
        /// Rows in the batch.
        batch: usize,
        /// What the engine said.
        source: sextant_engine::Error,
    },
    /// The engine sees other inputs or outputs than the model declares.
    #[error("the engine sees other inputs or outputs than the model declares")]
    Signature,
    /// Padded inputs get other answers.
    #[error(
        "padding changes the answers by `{percent:.1}` %: register the model without a mask, or with \
         the mask and the values that it was trained with"
    )]
    Padding {
        /// Distance of the outputs relative to their length, in percent.
        percent: f64,
    },
    /// The output cannot be scored.
    #[error(transparent)]
    Score(#[from] ScoreError),
    /// The measurement in another process was refused, or the process ended.
    #[error("{}", .0.message)]
    Refused(Refusal),
    /// The artefact store failed while a file was passed to another process.
    #[error("{message}")]
    Store {
        /// The stable public code.
        code: Code,
        /// What it said.
        message: String,
        /// Whether a retry may succeed a moment later.
        is_transient: bool,
    },
    /// A configuration that was measured before is better in every way.
    #[error("{0}")]
    Pruned(String),
    /// The caller asked to stop.
    #[error("cancelled")]
    Cancelled,
}

/// Why a measurement in another process was refused.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Refusal {
    /// The stable public code.
    pub code: Code,
    /// Why.
    pub message: String,
    /// Whether no other configuration can succeed.
    pub is_final: bool,
    /// Whether a measurement at another time may succeed.
    pub may_pass: bool,
}

/// Measures `subject`.
pub fn measure(
    subject: &Subject<'_>,
    effort: &Effort,
    cancel: &Cancel,
) -> Result<Measurement, MeasureError> {
    let baseline = Baseline::take(subject.in_own_process);
    let mut loads = Loads::default();
    let first = loads.load(subject, cancel)?;
    check_signature(subject.signature, first.signature())?;
    let race = Sweep {
        subject,
        effort,
        cancel,
        model: first.as_ref(),
        baseline: baseline.clone(),
    };
    if let Some(reason) = race.outrun(loads.median_ms())? {
        return Err(MeasureError::Pruned(reason));
    }
    let model = loads.repeat(first, (subject, effort), cancel)?;
    baseline.lower_peak();
    let sweep = Sweep {
        subject,
        effort,
        cancel,
        model: model.as_ref(),
        baseline,
    };
    let (points, stopped) = sweep.points()?;
    let largest = points.last().map_or(1, |point| point.latency.batch);
    let largest = u16::try_from(largest).unwrap_or(u16::MAX);
    let record = subject.validation.repeated(1).map_err(ScoreError::from)?;
    let dims = subject.signature.dims(&record);
    let padding = sweep.padding(&dims)?;
    let batches: Vec<BatchLatency> = points.iter().map(|point| point.latency).collect();
    let (shapes, longest) = sweep.shapes(&dims, &batches)?;
    let apart = sweep.apart(largest)?;
    let concurrent = sweep.concurrent()?;
    let accuracy = match subject.accuracy.filter(|_| !effort.scores_each) {
        Some(known) => known,
        None => score(model.as_ref(), subject, (effort, largest), cancel)?,
    };
    Ok(Measurement {
        accuracy,
        load_ms: loads.median_ms(),
        first_load_ms: loads.first_ms(),
        points,
        weights_bytes: model.weights_bytes(),
        stopped,
        sizes: Sizes {
            dims,
            shapes,
            longest,
        },
        concurrent,
        apart,
        padding,
    })
}

/// Scores a loaded model on the whole validation set, in file order.
pub fn evaluate(
    model: &dyn LoadedModel,
    subject: &Subject<'_>,
    effort: &Effort,
    cancel: &Cancel,
) -> Result<Accuracy, MeasureError> {
    let validation = subject.validation;
    let at = validation.scored();
    let output = subject.signature.outputs.get(at);
    let name = output
        .map(|output| output.name.as_str())
        .unwrap_or_default();
    let mut scorer = Scorer::new(subject.metric, validation.labels(), name);
    let batch = match subject.signature.batched {
        true => effort.evaluation_batch.max(1),
        false => 1,
    };
    for part in validation.parts(batch.into()) {
        cancel.check()?;
        if part.begins {
            scorer.turn_to(part.labels);
        }
        let inputs = validation.rows(part.start, part.count);
        let outputs = run(model, &inputs.map_err(ScoreError::from)?, part.count)?;
        if let Some(judge) = subject.judge {
            let names = subject.signature.outputs.iter().map(|output| &output.name);
            let answers = names
                .zip(outputs)
                .map(|(name, tensor)| NamedTensor::new(name, tensor));
            scorer.push_judged(judge, (&answers.collect::<Vec<_>>(), at), part.count)?;
            continue;
        }
        let scored = outputs.get(at).ok_or(Invalid::NoOutput);
        scorer.push(scored.map_err(ScoreError::from)?, part.count)?;
    }
    Ok(scorer.finish(u32::from(batch)))
}

// === impl Cancel ===

impl Cancel {
    /// Asks the measurement to stop.
    pub fn cancel(&self) {
        self.0.interrupt.raise();
    }

    /// Whether it was asked to stop.
    pub fn is_cancelled(&self) -> bool {
        self.0.interrupt.is_raised()
    }

    /// Ends a load in progress when the measurement is to stop.
    fn interrupt(&self) -> &Interrupt {
        &self.0.interrupt
    }

    /// Number of loads and runs that were begun.
    pub fn steps(&self) -> u64 {
        self.0.steps.load(Ordering::Relaxed)
    }

    pub(crate) fn check(&self) -> Result<(), MeasureError> {
        self.0.steps.fetch_add(1, Ordering::Relaxed);
        match self.is_cancelled() {
            true => Err(MeasureError::Cancelled),
            false => Ok(()),
        }
    }
}

// === impl Measurement ===

impl Measurement {
    /// Largest measured batch.
    pub fn max_batch(&self) -> u32 {
        self.points.last().map_or(1, |point| point.latency.batch)
    }

    /// The profile of the variant whose batches have at most `max_batch` rows: only what such a variant can do counts.
    pub fn profile(&self, max_batch: u16) -> Profile {
        let within = |point: &&Point| point.latency.batch <= u32::from(max_batch);
        let points: Vec<&Point> = self.points.iter().filter(within).collect();
        let batches: Vec<BatchLatency> = points.iter().map(|point| point.latency).collect();
        let line = fit::line(&batches);
        let peak = points.iter().map(|point| point.peak_memory_bytes).max();
        let peak = peak.unwrap_or(self.weights_bytes).max(self.weights_bytes);
        Profile {
            load_ms: self.load_ms,
            first_load_ms: self.first_load_ms,
            alpha_ms: line.alpha_ms,
            beta_ms: line.beta_ms,
            residual_ms: line.residual_ms,
            saturation_rps: fit::saturation_rps(&batches),
            peak_memory_bytes: match points.iter().all(|it| it.memory == MemorySource::Device) {
                true => peak,
                false => peak.div_ceil(MEMORY_GRAIN_BYTES) * MEMORY_GRAIN_BYTES,
            },
            weights_bytes: self.weights_bytes,
            batches,
            sizes: Sizes {
                shapes: self.shapes_within(max_batch),
                ..self.sizes.clone()
            },
            concurrent: match max_batch {
                1 => self.concurrent.clone(),
                _ => Vec::new(),
            },
        }
    }

    fn shapes_within(&self, max_batch: u16) -> Vec<ShapeProfile> {
        let within = |shape: &ShapeProfile| {
            let points = shape.batches.iter();
            let points = points.filter(|point| point.batch <= u32::from(max_batch));
            ShapeProfile {
                dims: shape.dims.clone(),
                batches: points.copied().collect(),
            }
        };
        self.sizes.shapes.iter().map(within).collect()
    }
}

// === helpers ===

/// Scores in batches of the usual size, or of the largest that was measured.
fn score(
    model: &dyn LoadedModel,
    subject: &Subject<'_>,
    (effort, largest): (&Effort, u16),
    cancel: &Cancel,
) -> Result<Accuracy, MeasureError> {
    match evaluate(model, subject, effort, cancel) {
        // The model may not take so large a batch; it takes those that were measured.
        Err(MeasureError::Run { .. }) if effort.evaluation_batch > largest => {
            let effort = Effort {
                evaluation_batch: largest,
                ..*effort
            };
            evaluate(model, subject, &effort, cancel)
        }
        scored => scored,
    }
}

/// Compares names, order and types, on which batches depend. Engines may know less about shapes.
fn check_signature(declared: &Signature, seen: &Signature) -> Result<(), MeasureError> {
    let all = |signature: &Signature| {
        let specs = signature.inputs.iter().chain(&signature.outputs);
        let of_spec = |spec: &sextant_types::TensorSpec| (spec.name.clone(), spec.data_type);
        specs.map(of_spec).collect::<Vec<_>>()
    };
    let counts = |signature: &Signature| (signature.inputs.len(), signature.outputs.len());
    if counts(declared) == counts(seen) && all(declared) == all(seen) {
        return Ok(());
    }
    Err(MeasureError::Signature)
}

fn run(
    model: &dyn LoadedModel,
    inputs: &[NamedTensor],
    batch: usize,
) -> Result<Vec<Tensor>, MeasureError> {
    model
        .run(inputs)
        .map_err(|source| MeasureError::Run { batch, source })
}

/// The error of a validation set that does not fit.
pub(crate) fn unfit(invalid: Invalid) -> MeasureError {
    ScoreError::from(invalid).into()
}

fn unsizable((name, source): (String, InvalidTensor)) -> MeasureError {
    ScoreError::from(Invalid::Tensor { name, source }).into()
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measurement(points: &[(u32, f64, u64)]) -> Measurement {
        Measurement {
            accuracy: Accuracy {
                kind: sextant_types::AccuracyKind::Accuracy,
                metric: Metric::Top1,
                value: 0.5,
                lower: 0.4,
                upper: 0.6,
                records: 100,
                evaluation_batch: 32,
            },
            load_ms: 3.0,
            first_load_ms: Some(700.0),
            points: points
                .iter()
                .map(|(batch, p50_ms, peak_memory_bytes)| Point {
                    latency: BatchLatency {
                        batch: *batch,
                        p50_ms: *p50_ms,
                        p99_ms: *p50_ms,
                        mean_ms: *p50_ms,
                        samples: 10,
                    },
                    peak_memory_bytes: *peak_memory_bytes,
                    memory: MemorySource::Measured,
                })
                .collect(),
            weights_bytes: 5,
            stopped: None,
            sizes: Sizes::default(),
            concurrent: Vec::new(),
            apart: None,
            padding: None,
        }
    }

    #[test]
    fn a_variant_is_credited_only_with_what_its_batches_can_do() {
        let measured = measurement(&[(1, 1.0, 10), (2, 1.5, 3 << 20), (4, 2.5, 9 << 20)]);
        let one = measured.profile(1);
        assert_eq!((one.load_ms, one.first_load_ms), (3.0, Some(700.0)));
        assert_eq!(one.batches.len(), 1);
        assert_eq!(one.saturation_rps, 1000.0);
        assert_eq!(one.peak_memory_bytes, 1 << 20);
        let two = measured.profile(2);
        assert_eq!(two.peak_memory_bytes, 3 << 20);
        assert!((two.alpha_ms - 0.5).abs() < 1e-12);
        assert_eq!(measured.profile(64), measured.profile(4));
        assert_eq!(measured.max_batch(), 4);
    }
}
