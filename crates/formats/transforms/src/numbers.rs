//! Converts tensors to Rust's numbers and strings, and back.

use bytes::Bytes;
use sextant_types::{Data, Element, NamedTensor, Tensor, Texts, convert};

use crate::Error;

/// The elements of a tensor of numbers as `f32`.
pub fn floats(input: &'static str, tensor: &Tensor) -> Result<Vec<f32>, Error> {
    if let Some(values) = tensor.to_vec::<f32>() {
        return Ok(values);
    }
    let numbers = convert::numbers(tensor).ok_or_else(|| Error::Input {
        input,
        why: "has strings where numbers are taken".to_owned(),
    })?;
    Ok(numbers.map(|number| number.real() as f32).collect())
}

/// The elements of a tensor of strings.
pub fn strings(input: &'static str, tensor: &Tensor) -> Result<Texts, Error> {
    match tensor.data() {
        Data::Strings(strings) => Ok(strings.clone()),
        Data::Plain(_) => Err(Error::Input {
            input,
            why: format!("has {} where BYTES are taken", tensor.data_type()),
        }),
    }
}

/// A tensor of elements that fit its shape.
pub fn tensor<T: Element>(
    name: &'static str,
    shape: Vec<usize>,
    values: &[T],
) -> Result<NamedTensor, Error> {
    let tensor = Tensor::from_elements(shape, values).map_err(|error| unfit(name, &error))?;
    Ok(NamedTensor::new(name, tensor))
}

/// A tensor of strings.
pub fn text(
    name: &'static str,
    shape: Vec<usize>,
    values: Vec<Bytes>,
) -> Result<NamedTensor, Error> {
    let tensor = Tensor::from_strings(shape, values).map_err(|error| unfit(name, &error))?;
    Ok(NamedTensor::new(name, tensor))
}

fn unfit(name: &'static str, error: &sextant_types::InvalidTensor) -> Error {
    Error::Input {
        input: name,
        why: format!("cannot be made: {error}"),
    }
}

/// The shape of a tensor, which must have this many dimensions.
pub fn shape<const N: usize>(input: &'static str, tensor: &Tensor) -> Result<[usize; N], Error> {
    tensor.shape().try_into().map_err(|_| Error::Input {
        input,
        why: format!("has shape {:?}: it takes {N} dimensions", tensor.shape()),
    })
}
