//! Ranges of activations on the validation set, for static quantisation.
//!
//! The extremes of a tensor are the range of its 256 steps, unless that costs accuracy: a few values far outside leave
//! few steps to all others. Both kinds of range are measured on the validation set. If the whole range keeps the
//! accuracy of the model within its interval, it is used. If not, ranges that leave out a few values are tried, and the
//! most accurate one is used.

use std::{
    collections::BTreeMap,
    sync::{Arc, mpsc},
    thread::{self, available_parallelism},
    time::Duration,
};

use sextant_engine::{Engine, LoadRequest, LoadedModel, ModelFile};
use sextant_objects::digest_of;
use sextant_onnx::quantize::{
    Calibration, QuantizedModel, Ranges, Source, activation_graph, calibration_graph,
    quantize_static,
};
use sextant_types::{Accuracy, Metric, Optimization, Precision, Signature};

use crate::{
    measure::{self, Cancel, Effort, Subject},
    rewriting::RewriteOutput,
    score::CustomMetric,
    validation::ValidationSet,
};

/// Shares of the values that a range covers, if the whole range is not accurate.
const SHARES: [f64; 3] = [0.9999, 0.999, 0.99];

/// Time between two signs of life while weights are quantised.
const BEAT: Duration = Duration::from_millis(250);

/// Most records whose values are examined one by one.
const SAMPLED_RECORDS: usize = 64;

/// Most values of a tensor that are kept of a record.
const SAMPLED_VALUES: usize = 2048;

/// The records and engines for calibration.
pub(crate) struct Sample {
    /// Tried in order: the first that loads the graph is used.
    pub engines: Vec<Arc<dyn Engine>>,
    /// The records.
    pub validation: Arc<ValidationSet>,
    /// Most records used.
    pub records: usize,
    /// Records at a time; 1 for a model without a batch dimension.
    pub batch: usize,
    /// Inputs and outputs of the model.
    pub signature: Signature,
    /// How outputs are scored.
    pub metric: Metric,
}

/// Ranges, and a note about them.
struct CalibratedRanges {
    ranges: Ranges,
    /// Why they are not the whole ranges, if so.
    note: Option<String>,
}

/// Runs the model with the ranges as further outputs, and chooses the ranges.
fn calibrate(
    model: &ModelFile,
    sample: &Sample,
    cancel: &Cancel,
) -> Result<CalibratedRanges, String> {
    let whole = ranges(model, sample, cancel)?;
    let kept = |ranges| CalibratedRanges { ranges, note: None };
    // If scoring fails here, the measurement reports why.
    let (Some(of_model), Some(of_whole)) = (
        sample.score(model, Precision::Fp32, cancel),
        sample.score_quantized(model, &whole, cancel),
    ) else {
        return Ok(kept(whole));
    };
    if of_whole.quality() >= of_model.quality_bound() {
        return Ok(kept(whole));
    }
    let samples = samples(model, sample, cancel)?;
    let mut best = (of_whole, None);
    for share in SHARES {
        let ranges = whole.clipped(&samples, share);
        let Some(accuracy) = sample.score_quantized(model, &ranges, cancel) else {
            continue;
        };
        if accuracy.quality() > best.0.quality() {
            best = (accuracy, Some((share, ranges)));
        }
        if accuracy.quality() >= of_model.quality_bound() {
            break;
        }
    }
    let (accuracy, Some((share, ranges))) = best else {
        return Ok(kept(whole));
    };
    let note = format!(
        "for `int8s` the ranges of activations hold `{}` % of their values: accuracy is `{:.4}` with them and `{:.4}` \
         with the whole ranges",
        100.0 * share,
        accuracy.value,
        of_whole.value
    );
    Ok(CalibratedRanges {
        ranges,
        note: Some(note),
    })
}

/// The extremes. The graph is not optimised: a fusion could remove the observed value.
fn ranges(model: &ModelFile, sample: &Sample, cancel: &Cancel) -> Result<Ranges, String> {
    let graph = rewritten(model, |source| calibration_graph(source)).map_err(|e| e.to_string())?;
    let mut ranges = Ranges::new();
    let records = (sample.records, sample.batch, 1);
    sample.observe((model, &graph), records, cancel, &mut |tensor, values| {
        ranges.observe(tensor, &values);
    })?;
    Ok(ranges)
}

/// Some of the values of each tensor, spread evenly over records that are spread evenly over all.
fn samples(
    model: &ModelFile,
    sample: &Sample,
    cancel: &Cancel,
) -> Result<BTreeMap<String, Vec<f32>>, String> {
    let graph = rewritten(model, |source| activation_graph(source)).map_err(|e| e.to_string())?;
    let mut samples: BTreeMap<String, Vec<f32>> = BTreeMap::new();
    let records = sample.records.min(sample.validation.records());
    let every = records.div_ceil(SAMPLED_RECORDS).max(1);
    sample.observe(
        (model, &graph),
        (records, 1, every),
        cancel,
        &mut |tensor, values| {
            let step = values.len().div_ceil(SAMPLED_VALUES).max(1);
            let kept = samples.entry(tensor.to_owned()).or_default();
            kept.extend(values.into_iter().step_by(step));
        },
    )?;
    Ok(samples)
}

fn load(
    (model, graph): (&ModelFile, &Calibration),
    engines: &[Arc<dyn Engine>],
) -> Result<Arc<dyn LoadedModel>, String> {
    let request = LoadRequest {
        artefact: digest_of(&graph.model),
        model: model.with_graph(graph.model.clone()),
        precision: Precision::Fp32,
        optimization: Optimization::Basic,
        threads: 1,
    };
    let mut reason = "no engine to calibrate on".to_owned();
    for engine in engines {
        match engine.load(&request) {
            Ok(loaded) => return Ok(loaded),
            Err(error) => reason = format!("engine `{}`: {error}", engine.name()),
        }
    }
    Err(format!("the model cannot be calibrated: {reason}"))
}

/// The nodes that compute in 8 bits, and a note about the ranges.
pub(crate) type InEightBits = (Vec<String>, Option<String>);

/// The model, quantised with the ranges that are found.
pub(crate) fn quantized(
    model: &ModelFile,
    sample: &Sample,
    cancel: &Cancel,
) -> Result<RewriteOutput<InEightBits>, String> {
    let CalibratedRanges { ranges, note } = calibrate(model, sample, cancel)?;
    let made = with_ranges(model, &ranges, cancel)?;
    Ok(RewriteOutput::one((made.nodes, note), made.model))
}

/// A model with these ranges. It gives signs of life to the process that waits: quantising gigabytes of weights takes
/// longer than a run may.
fn with_ranges(
    model: &ModelFile,
    ranges: &Ranges,
    cancel: &Cancel,
) -> Result<QuantizedModel, String> {
    let (sender, made) = mpsc::channel();
    thread::scope(|scope| {
        // The caller waits for it.
        let quantize = move || rewritten(model, |source| quantize_static(source, ranges));
        scope.spawn(move || sender.send(quantize()).ok());
        loop {
            match made.recv_timeout(BEAT) {
                Ok(quantized) => return quantized.map_err(|error| error.to_string()),
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    cancel.check().map_err(|error| error.to_string())?;
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    return Err("the weights could not be quantised".to_owned());
                }
            }
        }
    })
}

/// Rewrites a file, wherever its weights are.
pub(crate) fn rewritten<T>(model: &ModelFile, rewrite: impl FnOnce(Source<'_>) -> T) -> T {
    let read = |range| model.read(range);
    rewrite(Source {
        graph: &model.graph,
        weights: model.weights.is_some().then_some(&read),
    })
}

// === impl Sample ===

impl Sample {
    /// Passes to `told` the outputs after the model's own for the first `records` records, `batch` at a time, running
    /// one of every `every` parts.
    fn observe(
        &self,
        (model, graph): (&ModelFile, &Calibration),
        (records, batch, every): (usize, usize, usize),
        cancel: &Cancel,
        told: &mut dyn FnMut(&str, Vec<f32>),
    ) -> Result<(), String> {
        let loaded = load((model, graph), &self.engines)?;
        for part in self.validation.parts(batch).step_by(every) {
            cancel.check().map_err(|e| e.to_string())?;
            if part.start >= records {
                break;
            }
            let rows = part.count.min(records - part.start);
            let inputs = self.validation.rows(part.start, rows);
            let inputs = inputs.map_err(|e| e.to_string())?;
            let outputs = loaded
                .run(&inputs)
                .map_err(|e| format!("calibration failed: {e}"))?;
            let own = self.signature.outputs.len();
            let observed = outputs.get(own..).unwrap_or_default();
            for (tensor, values) in graph.tensors.iter().zip(observed) {
                told(tensor, values.to_vec().unwrap_or_default());
            }
        }
        Ok(())
    }

    fn score_quantized(
        &self,
        model: &ModelFile,
        ranges: &Ranges,
        cancel: &Cancel,
    ) -> Option<Accuracy> {
        let quantized = with_ranges(model, ranges, cancel).ok()?;
        let quantized = model.with_graph(quantized.model);
        self.score(&quantized, Precision::Int8Static, cancel)
    }

    /// The accuracy with the first engine that makes such variants; `None` if the model does not run.
    fn score(&self, model: &ModelFile, precision: Precision, cancel: &Cancel) -> Option<Accuracy> {
        let makes = |engine: &&Arc<dyn Engine>| {
            engine
                .capabilities()
                .precisions
                .contains(&Precision::Int8Static)
        };
        let engine = self.engines.iter().find(makes)?;
        let cores = available_parallelism().map_or(1, usize::from);
        let request = LoadRequest {
            artefact: digest_of(&model.graph),
            model: model.clone(),
            precision,
            optimization: Optimization::All,
            threads: u16::try_from(cores).unwrap_or(u16::MAX),
        };
        let judge = self.validation.judge();
        let judge = judge.map(|graph| CustomMetric::load(graph, &self.engines));
        let judge = judge.transpose().ok()?;
        let loaded = engine.load(&request).ok()?;
        let subject = Subject {
            engine: engine.as_ref(),
            request,
            signature: &self.signature,
            validation: &self.validation,
            metric: self.metric,
            padding: None,
            rivals: &[],
            judge: judge.as_ref(),
            accuracy: None,
            uploaded: None,
            is_half: false,
            in_own_process: false,
        };
        let effort = Effort {
            evaluation_batch: u16::try_from(self.batch).unwrap_or(u16::MAX),
            ..Effort::default()
        };
        measure::evaluate(loaded.as_ref(), &subject, &effort, cancel).ok()
    }
}
