//! Tensors as protobuf. Elements are shared, never copied, in both directions.

use sextant_rpc::InferError;
use sextant_types::{Data, DataType, InvalidTensor, NamedTensor, Tensor, Texts};

use super::{MalformedFrame, field};
use crate::grpc::proto::{self, tensor};

/// Approximate bytes of a tensor in addition to its elements.
const HEADER_BYTES: usize = 32;

pub(super) fn weight_bytes(tensor: &Tensor) -> usize {
    HEADER_BYTES + tensor.held_bytes()
}

pub(super) fn named_weight_bytes(tensors: &[NamedTensor]) -> usize {
    let weights = tensors
        .iter()
        .map(|it| it.name.len() + weight_bytes(&it.tensor));
    weights.sum()
}

/// An output of a worker; with a name, another tensor.
fn pack(name: String, tensor: &Tensor) -> proto::Tensor {
    proto::Tensor {
        name,
        data_type: data_type(tensor.data_type()).into(),
        shape: tensor.shape().iter().map(|it| *it as u64).collect(),
        data: Some(match tensor.data() {
            Data::Plain(bytes) => tensor::Data::Plain(bytes.clone()),
            Data::Strings(texts) => tensor::Data::Strings(proto::Strings {
                texts: texts.bytes().clone(),
                places: texts.places().clone(),
            }),
        }),
    }
}

/// The tensor and its name. The inner error is that of an invalid tensor in a valid message.
fn unpack(tensor: proto::Tensor) -> Result<Result<NamedTensor, InvalidTensor>, MalformedFrame> {
    let data_type = read_data_type(tensor.data_type)?;
    let shape = tensor.shape.into_iter().map(usize::try_from);
    let shape = shape
        .collect::<Result<_, _>>()
        .map_err(|_| MalformedFrame::Field("shape"))?;
    let read = match field(tensor.data, "data")? {
        tensor::Data::Plain(bytes) => Tensor::from_bytes(data_type, shape, bytes),
        tensor::Data::Strings(strings) if data_type == DataType::Bytes => {
            let texts = Texts::from_parts(strings.texts, strings.places);
            let texts = texts.ok_or(MalformedFrame::Field("places"))?;
            Tensor::from_texts(shape, texts)
        }
        tensor::Data::Strings(_) => Err(InvalidTensor::Mixed),
    };
    Ok(read.map(|value| NamedTensor::new(tensor.name, value)))
}

pub(super) fn pack_named(tensors: Vec<NamedTensor>) -> Vec<proto::Tensor> {
    let tensors = tensors.into_iter();
    tensors.map(|it| pack(it.name, &it.tensor)).collect()
}

/// The inner error is that of an invalid tensor in a valid message.
pub(super) fn unpack_named(
    tensors: Vec<proto::Tensor>,
) -> Result<Result<Vec<NamedTensor>, InvalidTensor>, MalformedFrame> {
    tensors.into_iter().map(unpack).collect()
}

pub(super) fn pack_outputs(outputs: &[Tensor]) -> proto::Tensors {
    let tensors = outputs.iter().map(|it| pack(String::new(), it));
    proto::Tensors {
        tensors: tensors.collect(),
    }
}

/// Invalid outputs are a fault of the engine.
pub(super) fn unpack_outputs(
    outputs: proto::Tensors,
) -> Result<Result<Vec<Tensor>, InferError>, MalformedFrame> {
    let outputs = unpack_named(outputs.tensors)?;
    let outputs = outputs.map_err(|error| InferError::failed(error.to_string()));
    Ok(outputs.map(|named| named.into_iter().map(|it| it.tensor).collect()))
}

pub(super) fn read_data_type(number: i32) -> Result<DataType, MalformedFrame> {
    let mut all = DataType::ALL.into_iter();
    field(
        all.find(|it| i32::from(data_type(*it)) == number),
        "data_type",
    )
}

pub(super) fn data_type(data_type: DataType) -> proto::DataType {
    match data_type {
        DataType::Bool => proto::DataType::Bool,
        DataType::Uint8 => proto::DataType::Uint8,
        DataType::Uint16 => proto::DataType::Uint16,
        DataType::Uint32 => proto::DataType::Uint32,
        DataType::Uint64 => proto::DataType::Uint64,
        DataType::Int8 => proto::DataType::Int8,
        DataType::Int16 => proto::DataType::Int16,
        DataType::Int32 => proto::DataType::Int32,
        DataType::Int64 => proto::DataType::Int64,
        DataType::Fp16 => proto::DataType::Fp16,
        DataType::Bf16 => proto::DataType::Bf16,
        DataType::Fp32 => proto::DataType::Fp32,
        DataType::Fp64 => proto::DataType::Fp64,
        DataType::Bytes => proto::DataType::Bytes,
    }
}
