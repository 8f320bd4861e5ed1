//! Ranges of activations on the validation set, for static quantisation.

use std::sync::Arc;

use bytes::Bytes;
use sextant_engine::{Engine, LoadRequest, LoadedModel};
use sextant_onnx::quantize::{Calibration, Ranges, calibration_graph};
use sextant_types::{Optimization, Precision};

use crate::{measure::Cancel, validation::ValidationSet};

/// What calibration runs on.
pub(crate) struct Sample {
    /// Tried in order: the first that loads the graph is used.
    pub engines: Vec<Arc<dyn Engine>>,
    /// The records.
    pub validation: Arc<ValidationSet>,
    /// Most records used.
    pub records: usize,
    /// Records at a time; 1 for a model without a batch dimension.
    pub batch: usize,
    /// The model's own outputs, which come before the ranges.
    pub outputs: usize,
}

/// Runs the model with its ranges as further outputs. Not optimised: a fusion could take away
/// the value that is looked at.
pub(crate) fn ranges(model: &Bytes, sample: &Sample, cancel: &Cancel) -> Result<Ranges, String> {
    let graph = calibration_graph(model).map_err(|e| e.to_string())?;
    let loaded = load(&graph, &sample.engines)?;
    let mut ranges = Ranges::new();
    for part in sample.validation.parts(sample.batch) {
        cancel.check().map_err(|e| e.to_string())?;
        if part.start >= sample.records {
            break;
        }
        let rows = part.count.min(sample.records - part.start);
        let inputs = sample.validation.rows(part.start, rows);
        let inputs = inputs.map_err(|e| e.to_string())?;
        let outputs = loaded
            .run(&inputs)
            .map_err(|e| format!("calibration failed: {e}"))?;
        let observed = outputs.get(sample.outputs..).unwrap_or_default();
        for (tensor, range) in graph.tensors.iter().zip(observed) {
            ranges.observe(tensor, &range.to_vec().unwrap_or_default());
        }
    }
    Ok(ranges)
}

fn load(graph: &Calibration, engines: &[Arc<dyn Engine>]) -> Result<Arc<dyn LoadedModel>, String> {
    let request = LoadRequest {
        artefact: sextant_objects::digest_of(&graph.model),
        model: graph.model.clone(),
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
