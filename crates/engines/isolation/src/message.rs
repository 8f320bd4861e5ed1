//! Requests to a child that serves models, and its replies.

use std::io::{self, Read};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sextant_engine::Error;
use sextant_types::{
    Data, DataType, Digest, NamedTensor, Optimization, Precision, Signature, Tensor, Texts,
};

use crate::frame;

/// A request.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Request {
    /// Load a model; its file follows.
    Load {
        artefact: Digest,
        precision: Precision,
        optimization: Optimization,
        threads: u16,
        model_bytes: u64,
    },
    /// Run a batch; its inputs follow.
    Run { model: u32, inputs: Vec<Head> },
    /// Forget a model.
    Unload { model: u32 },
}

/// A reply.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reply {
    Loaded(Loaded),
    /// The outputs follow.
    Ran {
        outputs: Vec<Head>,
        /// How long the engine took.
        nanos: u64,
    },
    Unloaded {
        resident_bytes: u64,
    },
    Failed(Failure),
}

/// A loaded model.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Loaded {
    /// The model's number in the child.
    pub(crate) model: u32,
    pub(crate) signature: Signature,
    pub(crate) weights_bytes: u64,
    pub(crate) working_bytes: Option<u64>,
    /// Weights that the child holds now, each copy counted once.
    pub(crate) resident_bytes: u64,
}

/// A tensor without its elements, which follow.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Head {
    name: String,
    data_type: DataType,
    shape: Vec<usize>,
    bytes: u64,
    /// Bytes of the entries of strings, which follow their texts.
    places: Option<u64>,
}

/// An engine's error.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Failure {
    kind: Kind,
    text: String,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    InvalidModel,
    Unsupported,
    Failed,
    InvalidInput,
    OutOfMemory,
    MemoryExceeded,
    Lost,
}

/// The head of a tensor and its elements.
pub(crate) fn pack(name: &str, tensor: &Tensor) -> (Head, Vec<Bytes>) {
    let elements = match tensor.data() {
        Data::Plain(bytes) => vec![bytes.clone()],
        Data::Strings(texts) => vec![texts.bytes().clone(), texts.places().clone()],
    };
    let head = Head {
        name: name.to_owned(),
        data_type: tensor.data_type(),
        shape: tensor.shape().to_vec(),
        bytes: elements[0].len() as u64,
        places: elements.get(1).map(|places| places.len() as u64),
    };
    (head, elements)
}

impl Head {
    /// Bytes that follow, as the sender announces them.
    pub(crate) fn announced_bytes(&self) -> u64 {
        self.bytes.saturating_add(self.places.unwrap_or(0))
    }

    /// Reads the elements that follow.
    pub(crate) fn unpack(self, from: &mut impl Read) -> io::Result<NamedTensor> {
        let elements = frame::read_bytes(from, self.bytes)?;
        let tensor = match self.places {
            None => Tensor::from_bytes(self.data_type, self.shape, elements),
            Some(length) => {
                let texts = Texts::from_parts(elements, frame::read_bytes(from, length)?);
                let texts = texts
                    .ok_or_else(|| io::Error::other("the places of strings are not theirs"))?;
                Tensor::from_texts(self.shape, texts)
            }
        };
        let tensor = tensor.map_err(io::Error::other)?;
        Ok(NamedTensor::new(self.name, tensor))
    }
}

// === impl Failure ===

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let (kind, text) = match error {
            Error::InvalidModel(text) => (Kind::InvalidModel, text),
            Error::Unsupported(text) => (Kind::Unsupported, text),
            Error::InvalidInput(text) => (Kind::InvalidInput, text),
            Error::OutOfMemory(shortage) => (Kind::OutOfMemory, shortage.to_string()),
            Error::MemoryExceeded(text) => (Kind::MemoryExceeded, text),
            Error::Lost(text) | Error::Gone(text) => (Kind::Lost, text),
            Error::Failed(text) => (Kind::Failed, text),
            error => (Kind::Failed, error.to_string()),
        };
        Self { kind, text }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        let Failure { kind, text } = failure;
        match kind {
            Kind::InvalidModel => Self::InvalidModel(text),
            Kind::Unsupported => Self::Unsupported(text),
            Kind::Failed => Self::Failed(text),
            Kind::InvalidInput => Self::InvalidInput(text),
            Kind::OutOfMemory => Self::OutOfMemory(text.into()),
            Kind::MemoryExceeded => Self::MemoryExceeded(text),
            Kind::Lost => Self::Lost(text),
        }
    }
}
