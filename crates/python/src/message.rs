//! Messages between a process and its child.

use std::io::{self, Read};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sextant_isolation::frame;
use sextant_types::{Data, DataType, NamedTensor, Tensor, TensorSpec, Texts};

/// A request.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Request<'a> {
    /// Run this file. Its bytes follow, and after them those of the files beside it.
    Load {
        path: &'a str,
        bytes: usize,
        files: Vec<(&'a str, usize)>,
    },
    /// Is there a function of this name?
    Find { function: &'a str },
    /// Call it with the tensors whose elements follow.
    Call {
        function: &'a str,
        inputs: Vec<TensorHeader<'a>>,
        gives: Vec<ExpectedTensor<'a>>,
    },
}

/// A reply.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reply {
    Ready {},
    Gave { outputs: Vec<Head> },
    Failed { kind: Kind, text: String },
}

/// Why a function has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// It raised an exception.
    Raised,
    /// It was refused memory.
    Memory,
    /// It does not exist, or returned something other than its step declares.
    Wrong,
}

/// A tensor that is sent, without its elements.
#[derive(Debug, Serialize)]
pub(crate) struct TensorHeader<'a> {
    name: &'a str,
    datatype: DataType,
    shape: &'a [usize],
    bytes: usize,
    /// Bytes of the entries of strings, which follow their texts.
    places: usize,
}

/// A tensor that is expected.
#[derive(Debug, Serialize)]
pub(crate) struct ExpectedTensor<'a> {
    name: &'a str,
    datatype: DataType,
}

/// A received tensor, without its elements.
#[derive(Debug, Deserialize)]
pub(crate) struct Head {
    shape: Vec<usize>,
    bytes: u64,
    #[serde(default)]
    places: u64,
}

/// The head and the elements of a tensor.
pub(crate) fn pack<'a>(name: &'a str, tensor: &'a Tensor) -> (TensorHeader<'a>, Vec<Bytes>) {
    let elements = match tensor.data() {
        Data::Plain(bytes) => vec![bytes.clone()],
        Data::Strings(texts) => vec![texts.bytes().clone(), texts.places().clone()],
    };
    let sent = TensorHeader {
        name,
        datatype: tensor.data_type(),
        shape: tensor.shape(),
        bytes: elements[0].len(),
        places: elements.get(1).map_or(0, Bytes::len),
    };
    (sent, elements)
}

// === impl ExpectedTensor ===

impl<'a> From<&'a TensorSpec> for ExpectedTensor<'a> {
    fn from(spec: &'a TensorSpec) -> Self {
        Self {
            name: &spec.name,
            datatype: spec.data_type,
        }
    }
}

// === impl Head ===

impl Head {
    /// Bytes that follow it.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.saturating_add(self.places)
    }

    /// Checks it against the expected tensor.
    pub(crate) fn check(&self, spec: &TensorSpec) -> Result<(), String> {
        let count = self
            .shape
            .iter()
            .try_fold(1u64, |all, size| all.checked_mul(*size as u64));
        let fits = match spec.data_type.size() {
            Some(size) => {
                count.and_then(|it| it.checked_mul(size as u64)) == Some(self.bytes)
                    && self.places == 0
            }
            None => count.and_then(|it| it.checked_add(1)?.checked_mul(4)) == Some(self.places),
        };
        match spec.accepts(&self.shape) && fits {
            true => Ok(()),
            false => Err(format!(
                "gave `{}` with the shape {:?}, and says {}",
                spec.name,
                self.shape,
                spec.shape_text()
            )),
        }
    }

    /// Reads the elements that follow.
    pub(crate) fn unpack(self, spec: &TensorSpec, from: &mut impl Read) -> io::Result<NamedTensor> {
        let elements = frame::read_bytes(from, self.bytes)?;
        let tensor = match spec.data_type.size() {
            Some(_) => Tensor::from_bytes(spec.data_type, self.shape, elements),
            None => {
                let texts = Texts::from_parts(elements, frame::read_bytes(from, self.places)?);
                let texts = texts
                    .ok_or_else(|| io::Error::other("the places of strings are not theirs"))?;
                Tensor::from_texts(self.shape, texts)
            }
        };
        Ok(NamedTensor::new(
            &spec.name,
            tensor.map_err(io::Error::other)?,
        ))
    }
}
