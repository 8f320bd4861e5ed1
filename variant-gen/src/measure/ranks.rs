//! The shapes of outputs that are declared without one, found by running the model.

use sextant_engine::{Engine, LoadRequest};

use super::{Cancel, MeasureError, ScoreError, load_once, run};
use crate::validation::{Invalid, ValidationSet};

/// Records of the largest batch.
const MOST: usize = 3;

/// Runs a model that answers with shapes ([`sextant_onnx::ranks::probe`]) on batches of 1, 2 and 3 records, or on one
/// record if it takes no batches. Returns for each batch the shape of each output. The validation set has been read for
/// the model's inputs.
///
/// # Errors
/// An error of the engine.
pub fn output_shapes(
    engine: &dyn Engine,
    request: &LoadRequest,
    validation: &ValidationSet,
    cancel: &Cancel,
) -> Result<Vec<Vec<Vec<u64>>>, MeasureError> {
    let model = load_once(engine, request, cancel)?;
    let most = match model.signature().batched {
        true => MOST,
        false => 1,
    };
    let mut found = Vec::with_capacity(most);
    for rows in 1..=most {
        cancel.check()?;
        let inputs = validation.repeated(rows).map_err(ScoreError::from)?;
        let outputs = run(model.as_ref(), &inputs, rows)?;
        let shapes = outputs.iter().map(|output| {
            let sizes = output.to_vec::<i64>()?;
            let sizes = sizes.into_iter().map(|size| u64::try_from(size).ok());
            sizes.collect::<Option<Vec<u64>>>()
        });
        let shapes = shapes.collect::<Option<Vec<_>>>().ok_or(Invalid::NoOutput);
        found.push(shapes.map_err(ScoreError::from)?);
    }
    Ok(found)
}
