//! Custom metrics: a graph over the model's answers and the labels.
//!
//! The input `labels` gets the labels, the input `outputs` the scored output, and any other input the model's output of
//! its name. The first output is a number from 0 to 1 for each record; greater is better.

use std::sync::Arc;

use bytes::Bytes;
use sextant_engine::{Engine, LoadRequest, LoadedModel};
use sextant_objects::digest_of;
use sextant_types::{NamedTensor, Optimization, Precision, Tensor, TensorSpec, convert};

use super::reals;
use crate::validation::Invalid;

/// The input that gets the labels.
const LABELS: &str = "labels";

/// The input that gets the scored output, whatever the output's name.
const OUTPUTS: &str = "outputs";

/// A loaded graph.
#[derive(Clone)]
pub struct CustomMetric(Arc<dyn LoadedModel>);

impl CustomMetric {
    /// Loads the graph with the first engine that accepts it.
    ///
    /// # Errors
    /// Why no engine accepts it.
    pub fn load(graph: &Bytes, engines: &[Arc<dyn Engine>]) -> Result<Self, Invalid> {
        let request = LoadRequest {
            artefact: digest_of(graph),
            model: graph.clone().into(),
            precision: Precision::Fp32,
            optimization: Optimization::All,
            threads: 1,
        };
        let mut reason = "no engine here reads it".to_owned();
        for engine in engines.iter().filter(|engine| engine.reads(graph)) {
            match engine.load(&request) {
                Ok(loaded) => return Ok(Self(loaded)),
                Err(error) => reason = format!("engine `{}`: {error}", engine.name()),
            }
        }
        Err(Invalid::CustomMetric(format!(
            "it cannot be loaded: {reason}"
        )))
    }

    /// The scores of these records. `answers` are the model's outputs by name, `scored` the position of the scored
    /// output.
    pub(super) fn scores(
        &self,
        answers: &[NamedTensor],
        scored: usize,
        labels: &Tensor,
    ) -> Result<Vec<f64>, Invalid> {
        let records = labels.rows();
        let inputs = self.0.signature().inputs.iter().map(|spec| {
            let tensor = match spec.name.as_str() {
                LABELS => Some(labels),
                OUTPUTS => answers.get(scored).map(|answer| &answer.tensor),
                name => {
                    let answer = answers.iter().find(|answer| answer.name == name);
                    answer.map(|answer| &answer.tensor)
                }
            };
            let tensor = tensor.ok_or_else(|| no_such(spec, answers))?;
            let tensor = convert::input(tensor, spec.data_type);
            let tensor = tensor.map_err(|why| {
                Invalid::CustomMetric(format!("its input `{}`: {why}", spec.name))
            })?;
            Ok(NamedTensor::new(&spec.name, tensor))
        });
        let inputs = inputs.collect::<Result<Vec<_>, Invalid>>()?;
        let outputs = self.0.run(&inputs);
        let outputs = outputs.map_err(|error| Invalid::CustomMetric(error.to_string()))?;
        let scores = outputs.first().and_then(reals).unwrap_or_default();
        let is_share = |score: &f64| (0.0..=1.0).contains(score);
        if scores.len() != records {
            let count = scores.len();
            return Err(Invalid::CustomMetric(format!(
                "its first output has `{count}` elements for `{records}` records: it must have one for each"
            )));
        }
        match scores.iter().find(|score| !is_share(score)) {
            Some(score) => Err(Invalid::CustomMetric(format!(
                "it says `{score}` of a record: it must be from 0 to 1, and more for what is better"
            ))),
            None => Ok(scores),
        }
    }
}

fn no_such(spec: &TensorSpec, answers: &[NamedTensor]) -> Invalid {
    let names = answers.iter().map(|answer| format!("`{}`", answer.name));
    Invalid::CustomMetric(format!(
        "its input `{}` is neither `labels` nor `outputs` nor an output of the model, which are {}",
        spec.name,
        names.collect::<Vec<_>>().join(", ")
    ))
}
