//! Checks that the arrays of a set fit a model's inputs, and converts them to the inputs' types and shapes.

use sextant_types::{NamedTensor, Signature, Tensor, TensorSpec, convert};

use super::{Invalid, Raw, RowShape};

pub(super) fn fit_input(
    spec: &TensorSpec,
    raw: &Raw,
    records: usize,
    signature: &Signature,
) -> Result<NamedTensor, Invalid> {
    let name = || spec.name.clone();
    let given = raw.inputs.iter().find(|input| input.name == spec.name);
    let given = given.ok_or_else(|| Invalid::MissingInput { name: name() })?;
    let tensor = &given.tensor;
    let Some((rows, row)) = tensor.shape().split_first() else {
        return Err(Invalid::NoRecordDimension { name: name() });
    };
    if *rows != records {
        return Err(Invalid::RecordCounts {
            name: name(),
            records: *rows,
            labels: records,
        });
    }
    let shape = row_shape(spec, signature.batched);
    let Some(fit) = fit_row(row, shape, signature) else {
        return Err(Invalid::Shape {
            name: name(),
            given: tensor.shape().to_vec(),
            expected: shape_text(shape),
        });
    };
    let tensor = convert::input(tensor, spec.data_type).map_err(|why| Invalid::Convert {
        name: name(),
        from: tensor.data_type(),
        to: spec.data_type,
        why,
    })?;
    let tensor = match fit {
        Fit::AsItIs => Ok(tensor),
        Fit::WithoutOne => with_unit_dimension(&tensor),
        Fit::WithOne => without_unit_dimension(&tensor),
    };
    let tensor = tensor.map_err(|source| Invalid::Tensor {
        name: name(),
        source,
    })?;
    Ok(NamedTensor::new(name(), tensor))
}

/// The shape of one record, without the batch dimension if there is one.
pub(crate) fn row_shape(spec: &TensorSpec, batched: bool) -> RowShape<'_> {
    let skip = usize::from(batched);
    spec.shape.get(skip..).unwrap_or_default()
}

/// How a record's shape fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fit {
    AsItIs,
    /// The record leaves out the 1 at the front that the model takes.
    WithoutOne,
    /// The record has a 1 at the front that the model does not take.
    WithOne,
}

/// How a record's shape fits; `None` if it does not.
pub(super) fn fit_row(
    given: &[usize],
    expected: RowShape<'_>,
    signature: &Signature,
) -> Option<Fit> {
    if dimensions_fit(given, expected) {
        return Some(Fit::AsItIs);
    }
    let batched = signature.batched;
    let needed = match expected {
        [Some(1), ..] => true,
        // With a single open dimension, each element of an array would be a record. If only an output or an input of
        // one number keeps a model from taking batches, the error should tell its owner.
        [None, _, ..] => has_a_state(signature),
        _ => false,
    };
    let has = given.first() == Some(&1);
    if !batched && needed && dimensions_fit(given, &expected[1..]) {
        return Some(Fit::WithoutOne);
    }
    (batched && has && dimensions_fit(&given[1..], expected)).then_some(Fit::WithOne)
}

/// Whether an input has a first dimension that does not count records, such as the state of a recurrent network.
fn has_a_state(signature: &Signature) -> bool {
    let first = |input: &TensorSpec| input.shape.first().copied().flatten();
    signature.inputs.iter().any(|input| first(input).is_some())
}

fn dimensions_fit(given: &[usize], expected: RowShape<'_>) -> bool {
    given.len() == expected.len()
        && given
            .iter()
            .zip(expected)
            .all(|(have, want)| want.is_none_or(|want| want == *have as u64))
}

/// `[records, 3, ?]`.
pub(super) fn shape_text(row: RowShape<'_>) -> String {
    let dims = row
        .iter()
        .map(|dim| dim.map_or_else(|| "?".to_owned(), |dim| dim.to_string()));
    let dims: Vec<String> = std::iter::once("records".to_owned()).chain(dims).collect();
    format!("[{}]", dims.join(", "))
}

fn with_unit_dimension(tensor: &Tensor) -> Result<Tensor, sextant_types::InvalidTensor> {
    let mut shape = tensor.shape().to_vec();
    shape.insert(1, 1);
    tensor.reshaped(shape)
}

fn without_unit_dimension(tensor: &Tensor) -> Result<Tensor, sextant_types::InvalidTensor> {
    let mut shape = tensor.shape().to_vec();
    shape.remove(1);
    tensor.reshaped(shape)
}

pub(super) fn without_first_dimension(
    tensor: &Tensor,
) -> Result<Tensor, sextant_types::InvalidTensor> {
    tensor.reshaped(tensor.shape().get(1..).unwrap_or_default().to_vec())
}
