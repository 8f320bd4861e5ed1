//! Tensors whose rows a step asks one by one: cutting them, and joining the outputs.

use sextant_rpc::QueryError;
use sextant_types::{Code, NamedTensor, Tensor, TensorSpec};

use crate::graph::Node;

/// Most rows that a step asks one by one.
const MOST_ROWS: usize = 4096;

/// The inputs of each row.
pub(super) fn cut(
    node: &Node,
    inputs: &[NamedTensor],
) -> Result<Vec<Vec<NamedTensor>>, QueryError> {
    let invalid = |message: String| QueryError::new(Code::InvalidTensor, message);
    let mut counts = node
        .cut
        .iter()
        .map(|at| (&inputs[*at].name, inputs[*at].tensor.rows()));
    let (first, rows) = counts
        .next()
        .ok_or_else(|| invalid("it has nothing to cut".to_owned()))?;
    if let Some((other, count)) = counts.find(|(_, count)| *count != rows) {
        return Err(invalid(format!(
            "`{first}` has {rows} rows, and `{other}` has {count}"
        )));
    }
    if rows > MOST_ROWS {
        let message = format!("`{first}` has {rows} rows: a step is asked for {MOST_ROWS} at most");
        return Err(QueryError::new(Code::TooLarge, message));
    }
    let row = |row: usize| {
        let inputs = inputs.iter().enumerate().map(|(at, input)| {
            if !node.cut.contains(&at) {
                return Ok(input.clone());
            }
            let tensor = input.tensor.slice_rows(row, 1);
            let tensor = tensor.map_err(|error| invalid(error.to_string()))?;
            let rank = node.signature.inputs[at].shape.len();
            let tensor = match tensor.shape().len() > rank {
                true => {
                    let shape = tensor.shape()[1..].to_vec();
                    tensor.reshaped(shape)
                }
                false => Ok(tensor),
            };
            let tensor = tensor.map_err(|error| invalid(error.to_string()))?;
            Ok(NamedTensor::new(&input.name, tensor))
        });
        inputs.collect()
    };
    (0..rows).map(row).collect()
}

/// The outputs of a batch of no rows.
pub(super) fn nothing(gives: &[TensorSpec]) -> Vec<NamedTensor> {
    let empty = gives.iter().filter_map(|spec| {
        let shape = spec.shape.iter().enumerate();
        let shape = shape.map(|(axis, size)| match axis {
            0 => 0,
            _ => size.unwrap_or(0) as usize,
        });
        let tensor = match spec.data_type.size() {
            Some(_) => Tensor::from_bytes(spec.data_type, shape.collect(), bytes::Bytes::new()),
            None => Tensor::from_strings(shape.collect(), [""; 0]),
        };
        Some(NamedTensor::new(&spec.name, tensor.ok()?))
    });
    empty.collect()
}

/// An output of a step that gave `gave`. A pipeline that is a step leaves out the outputs of its skipped steps. Where
/// some are missing, an output is found by its name, not its position.
pub(super) fn output<'o>(
    gives: &[TensorSpec],
    gave: &'o [NamedTensor],
    at: usize,
) -> Option<&'o NamedTensor> {
    if gave.len() == gives.len() {
        return gave.get(at);
    }
    let spec = gives.get(at)?;
    gave.iter().find(|it| it.name == spec.name)
}

/// The outputs of all rows as one; each row gave a batch.
pub(super) fn concatenated(
    gives: &[TensorSpec],
    gave: &[Vec<NamedTensor>],
) -> Result<Vec<NamedTensor>, QueryError> {
    joined(gives, gave, |tensor| Some(tensor.clone()))
}

/// The outputs of all rows as one; each row gave a record.
pub(super) fn stacked(
    gives: &[TensorSpec],
    gave: &[Vec<NamedTensor>],
) -> Result<Vec<NamedTensor>, QueryError> {
    joined(gives, gave, as_row)
}

fn joined(
    gives: &[TensorSpec],
    gave: &[Vec<NamedTensor>],
    row: impl Fn(&Tensor) -> Option<Tensor>,
) -> Result<Vec<NamedTensor>, QueryError> {
    if gave.is_empty() {
        return Ok(nothing(gives));
    }
    let columns = gives.iter().enumerate().filter_map(|(at, spec)| {
        let found = gave.iter().filter_map(|outputs| output(gives, outputs, at));
        let found: Vec<&NamedTensor> = found.collect();
        match found.len() {
            0 => None,
            some if some < gave.len() => Some(Err(missing(spec))),
            _ => Some(column(spec, &found, &row)),
        }
    });
    columns.collect()
}

/// One output of all rows.
fn column(
    spec: &TensorSpec,
    gave: &[&NamedTensor],
    row: impl Fn(&Tensor) -> Option<Tensor>,
) -> Result<NamedTensor, QueryError> {
    let rows: Option<Vec<Tensor>> = gave.iter().map(|output| row(&output.tensor)).collect();
    let rows = rows.ok_or_else(|| unequal(spec))?;
    let rows: Vec<&Tensor> = rows.iter().collect();
    let joined = Tensor::concat(&rows).map_err(|_| unequal(spec))?;
    Ok(NamedTensor::new(&spec.name, joined))
}

fn missing(spec: &TensorSpec) -> QueryError {
    let message = format!(
        "some of its rows gave no `{}`, and others did: answer it for each row or for none",
        spec.name
    );
    QueryError::new(Code::InvalidTensor, message)
}

fn unequal(spec: &TensorSpec) -> QueryError {
    let message = format!(
        "its rows gave `{}` in different shapes, which no tensor holds: answer each row in one shape",
        spec.name
    );
    QueryError::new(Code::InvalidTensor, message)
}

/// The tensor as the only row of a new one.
fn as_row(tensor: &Tensor) -> Option<Tensor> {
    let shape: Vec<usize> = std::iter::once(1)
        .chain(tensor.shape().iter().copied())
        .collect();
    tensor.reshaped(shape).ok()
}
