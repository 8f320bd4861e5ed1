//! Whether a model takes batches: several records at once are answered as they are one by one.

use std::collections::BTreeSet;

use sextant_engine::{Engine, LoadRequest, LoadedModel};
use sextant_types::{NamedTensor, Tensor};

use super::{Cancel, MeasureError, ScoreError, load_once, run};
use crate::{
    score::reals,
    validation::{Invalid, ValidationSet},
};

/// Records of the largest batch that is compared.
const MOST: usize = 3;

/// What floats may differ by: so much, and so much of the larger.
const TOLERANCE: (f64, f64) = (1e-4, 1e-3);

/// Runs batches of 1, 2 and 3 records and compares: the positions of the outputs that differ, none where the
/// model takes batches. The validation set has been read for the signature with a batch dimension.
///
/// # Errors
/// What the engine says.
pub fn differing_outputs(
    engine: &dyn Engine,
    request: &LoadRequest,
    validation: &ValidationSet,
    cancel: &Cancel,
) -> Result<Vec<usize>, MeasureError> {
    let model = load_once(engine, request, cancel)?;
    let records = validation.repeated(MOST).map_err(ScoreError::from)?;
    let mut alone = Vec::new();
    for record in 0..MOST {
        alone.push(part(model.as_ref(), &records, (record, 1), cancel)?);
    }
    let mut differ = BTreeSet::new();
    for rows in 1..=MOST {
        let together = part(model.as_ref(), &records, (0, rows), cancel)?;
        for (at, output) in together.iter().enumerate() {
            let apart = alone[..rows].iter().filter_map(|one| one.get(at));
            if !is_made_of(output, &apart.collect::<Vec<_>>()) {
                differ.insert(at);
            }
        }
    }
    Ok(differ.into_iter().collect())
}

/// Whether a batch's output is that of its records, a row each.
fn is_made_of(output: &Tensor, apart: &[&Tensor]) -> bool {
    let rows = |tensor: &Tensor| tensor.shape().first().copied();
    rows(output) == Some(apart.len())
        && apart.iter().all(|one| rows(one) == Some(1))
        && Tensor::concat(apart).is_ok_and(|apart| are_close(output, &apart))
}

/// The outputs of some of the records.
fn part(
    model: &dyn LoadedModel,
    records: &[NamedTensor],
    (start, rows): (usize, usize),
    cancel: &Cancel,
) -> Result<Vec<Tensor>, MeasureError> {
    cancel.check()?;
    let cut = |input: &NamedTensor| {
        let tensor = input.tensor.slice_rows(start, rows);
        let tensor = tensor.map_err(|source| Invalid::Tensor {
            name: input.name.clone(),
            source,
        })?;
        Ok(NamedTensor::new(input.name.clone(), tensor))
    };
    let inputs: Result<Vec<_>, Invalid> = records.iter().map(cut).collect();
    run(model, &inputs.map_err(ScoreError::from)?, rows)
}

fn are_close(one: &Tensor, other: &Tensor) -> bool {
    if one.shape() != other.shape() || one.data_type() != other.data_type() {
        return false;
    }
    let (Some(ones), Some(others)) = (reals(one), reals(other)) else {
        return one == other;
    };
    let (absolute, relative) = TOLERANCE;
    ones.iter().zip(&others).all(|(a, b)| {
        let limit = absolute + relative * a.abs().max(b.abs());
        a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= limit
    })
}
