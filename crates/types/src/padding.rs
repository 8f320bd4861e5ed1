//! How queries of different lengths share a batch.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{DataType, Fill, InvalidTensor, NamedTensor, Signature, SignatureMismatch, Tensor};

/// What a user declares about a model whose inputs may be padded. Queries whose dynamic dimensions
/// all have one length, such as texts, are padded to the longest of their batch.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Padding {
    /// The input that distinguishes given elements (1) from added ones (0).
    pub mask: String,
    /// By input: the value of the added elements. It is 0, or an empty string, for an input that is
    /// not named.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<String, f64>,
    /// The axes of the outputs that are as long as the inputs and are cut back to the length of
    /// each query. Registration determines them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cropped: Vec<OutputAxis>,
}

/// An axis of an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputAxis {
    /// Position of the output.
    pub output: usize,
    /// Position of the axis.
    pub axis: usize,
}

/// Why a padding does not suit a model.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum InvalidPadding {
    /// It names an input that does not exist.
    #[error(transparent)]
    Input(#[from] SignatureMismatch),
    /// Rows of several queries never share a batch.
    #[error("the model has no batch dimension: there is nothing to pad for")]
    NotBatched,
    /// The mask has only one size.
    #[error("mask `{0}` has no dynamic dimension beside that of the batch")]
    FixedMask(String),
    /// The mask cannot be filled with numbers.
    #[error("mask `{0}` holds strings: a mask holds numbers or booleans")]
    MaskType(String),
    /// A value that the input's type cannot hold.
    #[error("`{value}` is not a value of input `{name}`, which is {data_type}")]
    Value {
        /// The input.
        name: String,
        /// The value.
        value: f64,
        /// The type of the input.
        data_type: DataType,
    },
}

impl Padding {
    /// Checks a declaration against the model's inputs.
    ///
    /// # Errors
    /// When it does not suit them.
    pub fn check(&self, signature: &Signature) -> Result<(), InvalidPadding> {
        if !signature.batched {
            return Err(InvalidPadding::NotBatched);
        }
        let mask = signature.input(&self.mask)?;
        if mask.data_type == DataType::Bytes {
            return Err(InvalidPadding::MaskType(self.mask.clone()));
        }
        if !mask.shape.iter().skip(1).any(Option::is_none) {
            return Err(InvalidPadding::FixedMask(self.mask.clone()));
        }
        for (name, value) in &self.values {
            let data_type = signature.input(name)?.data_type;
            let is_mask = *name == self.mask && *value != 0.0;
            if is_mask || data_type.element(*value).is_none() {
                return Err(InvalidPadding::Value {
                    name: name.clone(),
                    value: *value,
                    data_type,
                });
            }
        }
        Ok(())
    }

    /// The common length of all dynamic dimensions of inputs that may be padded; `None` if they
    /// differ.
    pub fn length(signature: &Signature, inputs: &[NamedTensor]) -> Option<u64> {
        let dims = signature.dims(inputs);
        let first = dims.first()?;
        dims.iter().all(|size| size == first).then_some(*first)
    }

    /// Pads inputs, which are bound, to a length.
    ///
    /// # Errors
    /// If an input cannot be resized: its name, and why.
    pub fn pad(
        &self,
        signature: &Signature,
        inputs: &[NamedTensor],
        length: u64,
    ) -> Result<Vec<NamedTensor>, (String, InvalidTensor)> {
        let dims = vec![length; signature.dynamic_axes().count()];
        let value = |input: &str| self.values.get(input).copied().unwrap_or(0.0);
        signature.resized(inputs, &dims, |input| Fill::Value(value(input)))
    }

    /// Cuts the outputs of inputs that were padded to `padded` back to their own length.
    ///
    /// # Errors
    /// If an output cannot be resized.
    pub fn crop(
        &self,
        outputs: &mut [Tensor],
        length: u64,
        padded: u64,
    ) -> Result<(), InvalidTensor> {
        for OutputAxis { output, axis } in &self.cropped {
            let Some(tensor) = outputs.get_mut(*output) else {
                continue;
            };
            let mut shape = tensor.shape().to_vec();
            match shape.get_mut(*axis) {
                Some(size) if *size as u64 == padded => *size = length as usize,
                _ => continue,
            }
            *tensor = tensor.resized(&shape, Fill::Repeated)?;
        }
        Ok(())
    }
}
