//! Names, types and shapes of a model's inputs and outputs.

use serde::{Deserialize, Serialize};

use crate::{DataType, NamedTensor};

/// One input or output. `None` in the shape is a dynamic dimension.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorSpec {
    /// Its name in the graph.
    pub name: String,
    /// Element type.
    pub data_type: DataType,
    /// Dimensions, `None` where any size is accepted.
    pub shape: Vec<Option<u64>>,
}

/// All inputs and outputs of a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signature {
    /// In the graph's order.
    pub inputs: Vec<TensorSpec>,
    /// In the graph's order.
    pub outputs: Vec<TensorSpec>,
    /// Whether the first dimension of every input and output is a dynamic batch dimension, so
    /// that rows of several queries can run together.
    pub batched: bool,
}

/// Why given inputs do not fit a signature.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignatureMismatch {
    /// An input is missing.
    #[error("input `{0}` is missing")]
    Missing(String),
    /// The model has no such input.
    #[error("the model has no input `{given}`: its inputs are {known}")]
    Unknown {
        /// The name that was sent.
        given: String,
        /// The names that exist, quoted.
        known: String,
    },
    /// The same input twice.
    #[error("input `{0}` is given twice")]
    Duplicate(String),
    /// Wrong element type.
    #[error("input `{name}` is {given}: the model takes {expected}")]
    DataType {
        /// Which input.
        name: String,
        /// The type that was sent.
        given: DataType,
        /// The type the model takes.
        expected: DataType,
    },
    /// Wrong shape.
    #[error("input `{name}` has shape {given:?}: the model takes {expected}")]
    Shape {
        /// Which input.
        name: String,
        /// The shape that was sent.
        given: Vec<usize>,
        /// The accepted shape, `?` where dynamic.
        expected: String,
    },
    /// Inputs disagree on the number of rows.
    #[error("inputs have {first} and {other} rows: all inputs of a query need the same number")]
    Rows {
        /// Rows of the first input.
        first: usize,
        /// Rows of an input that differs.
        other: usize,
    },
    /// A batch of no rows.
    #[error("input `{0}` has no rows")]
    Empty(String),
}

impl TensorSpec {
    /// Whether `shape` fits; a missing leading batch dimension is not repaired here.
    pub fn accepts(&self, shape: &[usize]) -> bool {
        self.shape.len() == shape.len()
            && self
                .shape
                .iter()
                .zip(shape)
                .all(|(want, have)| want.is_none_or(|want| want == *have as u64))
    }

    /// `[?, 3, 224, 224]`.
    pub fn shape_text(&self) -> String {
        let dims: Vec<String> = self
            .shape
            .iter()
            .map(|dim| dim.map_or_else(|| "?".to_owned(), |dim| dim.to_string()))
            .collect();
        format!("[{}]", dims.join(", "))
    }
}

impl Signature {
    /// Checks `inputs` and returns them in the signature's order with the number of rows (1 for
    /// a model that is not batched).
    pub fn bind(
        &self,
        inputs: Vec<NamedTensor>,
    ) -> Result<(Vec<NamedTensor>, usize), SignatureMismatch> {
        for (index, input) in inputs.iter().enumerate() {
            self.check(input)?;
            if inputs[..index]
                .iter()
                .any(|earlier| earlier.name == input.name)
            {
                return Err(SignatureMismatch::Duplicate(input.name.clone()));
            }
        }
        let ordered = self.order(inputs)?;
        let rows = self.rows(&ordered)?;
        Ok((ordered, rows))
    }

    fn check(&self, input: &NamedTensor) -> Result<(), SignatureMismatch> {
        let Some(spec) = self.inputs.iter().find(|spec| spec.name == input.name) else {
            return Err(SignatureMismatch::Unknown {
                given: input.name.chars().take(64).collect(),
                known: quoted(&self.inputs),
            });
        };
        if spec.data_type != input.tensor.data_type() {
            return Err(SignatureMismatch::DataType {
                name: spec.name.clone(),
                given: input.tensor.data_type(),
                expected: spec.data_type,
            });
        }
        if !spec.accepts(input.tensor.shape()) {
            return Err(SignatureMismatch::Shape {
                name: spec.name.clone(),
                given: input.tensor.shape().to_vec(),
                expected: spec.shape_text(),
            });
        }
        Ok(())
    }

    fn order(&self, mut inputs: Vec<NamedTensor>) -> Result<Vec<NamedTensor>, SignatureMismatch> {
        let in_order = inputs.len() == self.inputs.len()
            && inputs
                .iter()
                .zip(&self.inputs)
                .all(|(input, spec)| input.name == spec.name);
        if in_order {
            return Ok(inputs);
        }
        self.inputs
            .iter()
            .map(|spec| {
                let at = inputs.iter().position(|input| input.name == spec.name);
                at.map(|at| inputs.swap_remove(at))
                    .ok_or_else(|| SignatureMismatch::Missing(spec.name.clone()))
            })
            .collect()
    }

    fn rows(&self, ordered: &[NamedTensor]) -> Result<usize, SignatureMismatch> {
        if !self.batched {
            return Ok(1);
        }
        let Some(first) = ordered.first() else {
            return Ok(1);
        };
        let rows = first.tensor.rows();
        if rows == 0 {
            return Err(SignatureMismatch::Empty(first.name.clone()));
        }
        match ordered
            .iter()
            .map(|input| input.tensor.rows())
            .find(|other| *other != rows)
        {
            Some(other) => Err(SignatureMismatch::Rows { first: rows, other }),
            None => Ok(rows),
        }
    }
}

fn quoted(specs: &[TensorSpec]) -> String {
    let names: Vec<String> = specs
        .iter()
        .map(|spec| format!("`{}`", spec.name))
        .collect();
    names.join(", ")
}
