//! Names, types and shapes of a model's inputs and outputs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{DataType, Fill, InvalidTensor, NamedTensor, convert};

/// What a user declares about inputs that are the same in every query: by input, its elements in row-major order, or
/// one element that fills it.
pub type Constants = BTreeMap<String, Vec<f64>>;

/// Parses one of [`Constants`]: `input=value`, or `input=value,value,..`.
///
/// # Errors
/// The accepted form.
pub fn constant(text: &str) -> Result<(String, Vec<f64>), &'static str> {
    let parsed = text.split_once('=').and_then(|(input, values)| {
        let values = values.split(',').map(|value| value.trim().parse::<f64>());
        let values = values.collect::<Result<Vec<_>, _>>().ok()?;
        let is_usable = !input.trim().is_empty() && values.iter().all(|it| it.is_finite());
        is_usable.then(|| (input.trim().to_owned(), values))
    });
    parsed.ok_or("it must be `input=value`, or `input=value,value,..`, with finite numbers")
}

/// New names of a model's inputs or outputs, by the names in its file.
pub type Names = BTreeMap<String, String>;

/// The names by which a user calls a model's inputs and outputs, if the file has other names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Renames {
    /// Of inputs.
    #[serde(default, skip_serializing_if = "Names::is_empty")]
    pub inputs: Names,
    /// Of outputs.
    #[serde(default, skip_serializing_if = "Names::is_empty")]
    pub outputs: Names,
}

impl Renames {
    /// Whether nothing has a new name.
    pub fn is_empty(&self) -> bool {
        self.inputs.is_empty() && self.outputs.is_empty()
    }
}

/// Parses a new name: `OLD=NEW`.
///
/// # Errors
/// The accepted form.
pub fn rename(text: &str) -> Result<(String, String), &'static str> {
    let parsed = text.split_once('=');
    let parsed = parsed.map(|(old, new)| (old.trim().to_owned(), new.trim().to_owned()));
    let usable = parsed.filter(|(old, new)| !old.is_empty() && !new.is_empty());
    usable.ok_or("it must be `OLD=NEW`: the name in the file, and the application's name")
}

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
    /// An input is given twice.
    #[error("input `{0}` is given twice")]
    Duplicate(String),
    /// Elements that the model's type cannot hold.
    #[error("input `{name}` is {given}: the model takes {expected}, and {why}")]
    DataType {
        /// Which input.
        name: String,
        /// The type that was sent.
        given: DataType,
        /// The type the model takes.
        expected: DataType,
        /// Which element cannot be converted, and why.
        why: String,
    },
    /// Wrong shape.
    #[error("input `{name}` has shape {given:?}: the model takes {expected}")]
    Shape {
        /// Which input.
        name: String,
        /// The shape that was sent.
        given: Vec<usize>,
        /// The accepted shape, with `?` for dynamic dimensions.
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
    /// More rows than can be counted.
    #[error("a query has `{0}` rows, and no batch has more than 4294967295: split it")]
    TooManyRows(usize),
    /// A batch of no rows.
    #[error("input `{0}` has no rows")]
    Empty(String),
}

impl TensorSpec {
    /// Whether `shape` fits. A missing leading batch dimension is not added here.
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
    /// The input that one text or one file can be: the only one, if it has strings.
    pub fn only_text(&self) -> Option<&TensorSpec> {
        match &self.inputs[..] {
            [only] if only.data_type == DataType::Bytes => {
                only.accepts(&vec![1; only.shape.len()]).then_some(only)
            }
            _ => None,
        }
    }

    /// Bytes that the outputs of this many rows take, with 64 bytes for each string. `None` if a dimension other than
    /// that of the batch is dynamic, because the size is then unknown before the run.
    pub fn output_bytes(&self, rows: u32) -> Option<u64> {
        let bytes = |spec: &TensorSpec| {
            let element = spec.data_type.size().map_or(64, |bytes| bytes as u64);
            let batched = usize::from(self.batched);
            let mut rest = spec.shape.iter().skip(batched);
            let first = if self.batched { u64::from(rows) } else { 1 };
            rest.try_fold(first * element, |bytes, dim| bytes.checked_mul((*dim)?))
        };
        let mut outputs = self.outputs.iter().map(bytes);
        outputs.try_fold(0u64, |sum, bytes| sum.checked_add(bytes?))
    }

    /// Checks `inputs` and returns them in the signature's order with the number of rows (1 for a model that is not
    /// batched). Elements of another type are converted to the model's by the rules of [`convert`].
    ///
    /// # Errors
    /// What does not fit.
    pub fn bind(
        &self,
        mut inputs: Vec<NamedTensor>,
    ) -> Result<(Vec<NamedTensor>, u32), SignatureMismatch> {
        for index in 0..inputs.len() {
            self.fit(&mut inputs[index])?;
            let input = &inputs[index];
            if inputs[..index]
                .iter()
                .any(|earlier| earlier.name == input.name)
            {
                return Err(SignatureMismatch::Duplicate(input.name.clone()));
            }
        }
        let ordered = self.order(inputs)?;
        let rows = self.rows(&ordered)?;
        let rows = u32::try_from(rows).map_err(|_| SignatureMismatch::TooManyRows(rows))?;
        Ok((ordered, rows))
    }

    /// An input by its name.
    ///
    /// # Errors
    /// [`SignatureMismatch::Unknown`] when there is none.
    pub fn input(&self, name: &str) -> Result<&TensorSpec, SignatureMismatch> {
        let found = self.inputs.iter().find(|spec| spec.name == name);
        found.ok_or_else(|| SignatureMismatch::Unknown {
            given: name.chars().take(64).collect(),
            known: quoted(&self.inputs),
        })
    }

    /// Whether queries come in several sizes: an input has a dynamic dimension beside that of the batch.
    pub fn is_dynamic(&self) -> bool {
        self.dynamic_axes().next().is_some()
    }

    /// The dynamic dimensions beside that of the batch, as positions of the input and of the axis.
    pub fn dynamic_axes(&self) -> impl Iterator<Item = (usize, usize)> {
        let skip = usize::from(self.batched);
        let inputs = self.inputs.iter().enumerate();
        inputs.flat_map(move |(input, spec)| {
            let axes = spec.shape.iter().enumerate().skip(skip);
            let dynamic = axes.filter(|(_, size)| size.is_none());
            dynamic.map(move |(axis, _)| (input, axis))
        })
    }

    /// The sizes of the dynamic dimensions of `inputs`, which are bound, in the order of
    /// [`Self::dynamic_axes`]; empty for a model that has none.
    pub fn dims(&self, inputs: &[NamedTensor]) -> Vec<u64> {
        let size = |(input, axis): (usize, usize)| {
            let tensor = &inputs.get(input)?.tensor;
            Some(*tensor.shape().get(axis)? as u64)
        };
        self.dynamic_axes().filter_map(size).collect()
    }

    /// The shape of an input of a query of `rows` rows with these sizes of the dynamic dimensions.
    pub fn shape_with(&self, input: usize, rows: u64, dims: &[u64]) -> Vec<usize> {
        let sizes = self.dynamic_axes().zip(dims);
        let mut of_input = sizes.filter(|((at, _), _)| *at == input);
        let spec = self.inputs.get(input);
        let shape = spec.map_or(&[][..], |spec| &spec.shape).iter().enumerate();
        let size = |(axis, size): (usize, &Option<u64>)| match (axis, size) {
            (0, _) if self.batched => rows,
            (_, Some(size)) => *size,
            (_, None) => of_input.next().map_or(1, |(_, size)| *size),
        };
        shape.map(size).map(|size| size as usize).collect()
    }

    /// Resizes inputs, which are bound, to other sizes of their dynamic dimensions. `fill` gives the fill of an input
    /// that grows.
    ///
    /// # Errors
    /// If an input cannot be resized: its name, and why.
    pub fn resized(
        &self,
        inputs: &[NamedTensor],
        dims: &[u64],
        fill: impl Fn(&str) -> Fill,
    ) -> Result<Vec<NamedTensor>, (String, InvalidTensor)> {
        let inputs = inputs.iter().enumerate();
        let resize = |(at, input): (usize, &NamedTensor)| {
            let shape = self.shape_with(at, input.tensor.rows() as u64, dims);
            let tensor = input.tensor.resized(&shape, fill(&input.name));
            let tensor = tensor.map_err(|error| (input.name.clone(), error))?;
            Ok(NamedTensor::new(&input.name, tensor))
        };
        inputs.map(resize).collect()
    }

    /// The size of a query: elements of one of its rows over all inputs, with these sizes of the dynamic dimensions.
    pub fn row_elements(&self, dims: &[u64]) -> u64 {
        let inputs = 0..self.inputs.len();
        let elements = inputs.map(|input| {
            let shape = self.shape_with(input, 1, dims);
            let sizes = shape.into_iter().map(|size| size as u64);
            sizes.fold(1u64, u64::saturating_mul)
        });
        elements.fold(0, u64::saturating_add)
    }

    fn fit(&self, input: &mut NamedTensor) -> Result<(), SignatureMismatch> {
        let spec = self.input(&input.name)?;
        if !spec.accepts(input.tensor.shape()) {
            return Err(SignatureMismatch::Shape {
                name: spec.name.clone(),
                given: input.tensor.shape().to_vec(),
                expected: spec.shape_text(),
            });
        }
        let given = input.tensor.data_type();
        if given != spec.data_type {
            let fitted = convert::input(&input.tensor, spec.data_type);
            input.tensor = fitted.map_err(|why| SignatureMismatch::DataType {
                name: spec.name.clone(),
                given,
                expected: spec.data_type,
                why,
            })?;
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
