//! The answers of a file to the records of a validation set without labels.

use sextant_engine::{Engine, LoadRequest, LoadedModel};
use sextant_types::Metric;

use super::{Cancel, MeasureError, ScoreError, load_once, run};
use crate::{
    score::{Answers, labels_of},
    validation::{Invalid, Labels, ValidationSet},
};

/// The answers to all records, those of each group, as labels of a metric. At most `batch` records run together; one at
/// a time if the file takes no batches of that size.
///
/// # Errors
/// An error of the engine, or that the answers cannot be labels of this metric.
pub fn answers(
    engine: &dyn Engine,
    request: &LoadRequest,
    validation: &ValidationSet,
    (metric, batch): (Metric, usize),
    cancel: &Cancel,
) -> Result<Vec<Labels>, MeasureError> {
    let model = load_once(engine, request, cancel)?;
    match in_batches(model.as_ref(), validation, (metric, batch), cancel) {
        Err(MeasureError::Run { .. }) if batch > 1 => {
            in_batches(model.as_ref(), validation, (metric, 1), cancel)
        }
        answered => answered,
    }
}

fn in_batches(
    model: &dyn LoadedModel,
    validation: &ValidationSet,
    (metric, batch): (Metric, usize),
    cancel: &Cancel,
) -> Result<Vec<Labels>, MeasureError> {
    let scored = model.signature().outputs.get(validation.scored());
    let name = scored.map_or("", |output| &*output.name);
    let mut groups = Vec::new();
    for part in validation.parts(batch) {
        cancel.check()?;
        if part.begins {
            groups.push(Answers::new(metric, name, part.start));
        }
        let inputs = validation.rows(part.start, part.count);
        let outputs = run(model, &inputs.map_err(ScoreError::from)?, part.count)?;
        let output = outputs.get(validation.scored()).ok_or(Invalid::NoOutput);
        let output = output.map_err(ScoreError::from)?;
        if let Some(group) = groups.last_mut() {
            group.push(output, part.count)?;
        }
    }
    Ok(labels_of(groups)?)
}
