//! Whether a model takes batches: several records at once are answered as they are one by one.

use std::collections::BTreeSet;

use sextant_engine::{Engine, LoadRequest, LoadedModel};
use sextant_types::{NamedTensor, Tensor, convert};

use super::{Cancel, MeasureError, ScoreError, load_once, run};
use crate::{
    isolation::protocol::Origin,
    score::reals,
    validation::{Invalid, ValidationSet},
};

/// Records of the largest batch that is compared.
const MOST: usize = 3;

/// What floats may differ by: so much, and so much of the larger.
const TOLERANCE: (f64, f64) = (1e-4, 1e-3);

/// Where a batch dimension is declared, the mean difference may be so much of that between records: scales that are
/// found for a whole batch, as of activations in 8 bits, make some.
const SHARE: f64 = 0.1;

/// Runs batches of 1, 2 and 3 records, of 3 alone where they are declared, and compares: the positions of the outputs
/// that differ, none where the model takes batches. The validation set has been read for the signature with a batch
/// dimension.
///
/// A model that declares one keeps it where its outputs are drawn at random, where they differ by much less than
/// records do, and where only whole numbers beside them differ. It loses it where it cannot run larger batches.
///
/// # Errors
/// What the engine says.
pub fn differing_outputs(
    engine: &dyn Engine,
    (request, origin): (&LoadRequest, Origin),
    validation: &ValidationSet,
    cancel: &Cancel,
) -> Result<Vec<usize>, MeasureError> {
    let model = load_once(engine, request, cancel)?;
    let records = validation.repeated(MOST).map_err(ScoreError::from)?;
    let run = |rows| part(model.as_ref(), &records, rows, cancel);
    let alone = (0..MOST).map(|record| run((record, 1)));
    let alone = Alone(alone.collect::<Result<_, _>>()?);
    let drawn = match origin {
        Origin::Declared => alone.differing(&run((0, 1))?, 1, is_the_first),
        Origin::Tried => BTreeSet::new(),
    };
    let sizes = match origin {
        Origin::Declared => MOST..=MOST,
        Origin::Tried => 1..=MOST,
    };
    let mut differ = BTreeSet::new();
    for rows in sizes {
        match (origin, run((0, rows))) {
            (Origin::Tried, Ok(together)) => {
                differ.extend(alone.differing(&together, rows, is_made_of));
            }
            (Origin::Declared, Ok(together)) => {
                let between = |at| alone.most_between(at);
                let like = |output: &Tensor, apart: &[&Tensor], at| {
                    is_made_of(output, apart, at) || is_nearly(output, apart, between(at))
                };
                differ.extend(alone.differing(&together, rows, like));
            }
            (Origin::Declared, Err(error)) if !is_stopped(&error) => {
                return Ok((0..alone.0[0].len()).collect());
            }
            (_, Err(error)) => return Err(error),
        }
    }
    if origin == Origin::Declared {
        differ.retain(|at| !drawn.contains(at));
        if !differ.iter().any(|at| alone.is_float(*at)) && alone.has_floats() {
            differ.clear();
        }
    }
    Ok(differ.into_iter().collect())
}

/// The outputs of single records.
struct Alone(Vec<Vec<Tensor>>);

impl Alone {
    /// The positions of the outputs of the first `rows` records together that are not as `is_right` has them.
    fn differing(
        &self,
        together: &[Tensor],
        rows: usize,
        is_right: impl Fn(&Tensor, &[&Tensor], usize) -> bool,
    ) -> BTreeSet<usize> {
        let wrong = together.iter().enumerate().filter(|(at, output)| {
            let apart: Vec<&Tensor> = self.outputs(*at).take(rows).collect();
            !is_right(output, &apart, *at)
        });
        wrong.map(|(at, _)| at).collect()
    }

    /// One output, by record.
    fn outputs(&self, at: usize) -> impl Iterator<Item = &Tensor> {
        self.0.iter().filter_map(move |outputs| outputs.get(at))
    }

    /// By how much an output differs between neighbouring records, at most.
    fn most_between(&self, at: usize) -> f64 {
        let pairs = self.outputs(at).zip(self.outputs(at).skip(1));
        let differences = pairs.filter_map(|(one, other)| mean_difference(one, other));
        differences.fold(0.0, f64::max)
    }

    fn is_float(&self, at: usize) -> bool {
        let mut outputs = self.outputs(at);
        outputs.any(|output| convert::is_float(output.data_type()))
    }

    fn has_floats(&self) -> bool {
        (0..self.0[0].len()).any(|at| self.is_float(at))
    }
}

/// Whether it is not the model that failed.
fn is_stopped(error: &MeasureError) -> bool {
    matches!(error, MeasureError::Cancelled) || error.may_pass()
}

/// Whether a record's output is as it was before.
fn is_the_first(output: &Tensor, apart: &[&Tensor], _: usize) -> bool {
    apart.first().is_some_and(|first| are_close(output, first))
}

/// Whether a batch's output is that of its records, a row each.
fn is_made_of(output: &Tensor, apart: &[&Tensor], _: usize) -> bool {
    has_a_row_each(output, apart)
        && Tensor::concat(apart).is_ok_and(|apart| are_close(output, &apart))
}

fn has_a_row_each(output: &Tensor, apart: &[&Tensor]) -> bool {
    let rows = |tensor: &Tensor| tensor.shape().first().copied();
    rows(output) == Some(apart.len()) && apart.iter().all(|one| rows(one) == Some(1))
}

/// Whether it differs from that by little of what is between records.
fn is_nearly(output: &Tensor, apart: &[&Tensor], between: f64) -> bool {
    let expected = Tensor::concat(apart).ok();
    let expected = expected.filter(|_| has_a_row_each(output, apart));
    let difference = expected.and_then(|expected| mean_difference(output, &expected));
    difference.is_some_and(|difference| difference <= SHARE * between)
}

/// Of two tensors of numbers of one shape.
fn mean_difference(one: &Tensor, other: &Tensor) -> Option<f64> {
    if one.shape() != other.shape() {
        return None;
    }
    let (ones, others) = (reals(one)?, reals(other)?);
    let sum: f64 = ones.iter().zip(&others).map(|(a, b)| (a - b).abs()).sum();
    Some(sum / ones.len().max(1) as f64).filter(|mean| mean.is_finite())
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
