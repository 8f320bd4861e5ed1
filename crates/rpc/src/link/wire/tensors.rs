//! Tensors as bytes.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sextant_types::{Data, DataType, InvalidTensor, NamedTensor, Tensor};

use super::WirePart;
use crate::Part;

/// A tensor; nothing is known about its length until it becomes a [`Tensor`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireTensor {
    /// Element type.
    pub data_type: DataType,
    /// Dimensions.
    pub shape: Vec<usize>,
    /// Elements.
    pub data: WireData,
}

/// A tensor's elements.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WireData {
    /// Row-major, little-endian.
    Plain(#[serde(with = "one")] Bytes),
    /// Row-major strings.
    Strings(#[serde(with = "many")] Vec<Bytes>),
}

/// A tensor with the name of the input it belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireNamedTensor {
    /// Name in the graph.
    pub name: String,
    /// The value.
    pub tensor: WireTensor,
}

impl From<&Tensor> for WireTensor {
    /// Shares the elements.
    fn from(tensor: &Tensor) -> Self {
        Self {
            data_type: tensor.data_type(),
            shape: tensor.shape().to_vec(),
            data: match tensor.data() {
                Data::Plain(bytes) => WireData::Plain(bytes.clone()),
                Data::Strings(strings) => WireData::Strings(strings.clone()),
            },
        }
    }
}

impl TryFrom<WireTensor> for Tensor {
    type Error = InvalidTensor;

    fn try_from(tensor: WireTensor) -> Result<Self, InvalidTensor> {
        let WireTensor {
            data_type,
            shape,
            data,
        } = tensor;
        match data {
            WireData::Plain(bytes) => Self::from_bytes(data_type, shape, bytes),
            WireData::Strings(strings) if data_type == DataType::Bytes => {
                Self::from_strings(shape, strings)
            }
            WireData::Strings(_) => Err(InvalidTensor::Mixed),
        }
    }
}

impl From<&NamedTensor> for WireNamedTensor {
    /// Shares the elements.
    fn from(input: &NamedTensor) -> Self {
        Self {
            name: input.name.clone(),
            tensor: (&input.tensor).into(),
        }
    }
}

impl TryFrom<WireNamedTensor> for NamedTensor {
    type Error = InvalidTensor;

    fn try_from(input: WireNamedTensor) -> Result<Self, InvalidTensor> {
        Ok(Self::new(input.name, input.tensor.try_into()?))
    }
}

impl From<&Part> for WirePart {
    /// Shares the elements.
    fn from(part: &Part) -> Self {
        match part {
            Part::Inputs(inputs) => Self::Inputs(inputs.iter().map(Into::into).collect()),
            Part::Held(ticket) => Self::Held(*ticket),
        }
    }
}

impl TryFrom<WirePart> for Part {
    type Error = InvalidTensor;

    fn try_from(part: WirePart) -> Result<Self, InvalidTensor> {
        match part {
            WirePart::Inputs(inputs) => {
                let inputs: Result<_, _> = inputs.into_iter().map(NamedTensor::try_from).collect();
                inputs.map(Self::Inputs)
            }
            WirePart::Held(ticket) => Ok(Self::Held(ticket)),
        }
    }
}

/// Bytes in one piece, where a format has such a thing.
mod one {
    use super::Bytes;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &Bytes, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(bytes)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Bytes, D::Error> {
        Vec::<u8>::deserialize(from).map(Bytes::from)
    }
}

mod many {
    use super::Bytes;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(list: &[Bytes], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(list.iter().map(|bytes| bytes.as_ref()))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Bytes>, D::Error> {
        let list = Vec::<Vec<u8>>::deserialize(from)?;
        Ok(list.into_iter().map(Bytes::from).collect())
    }
}
