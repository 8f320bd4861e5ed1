//! Tensors as protobuf. Elements are shared, never copied, in both directions.

use sextant_rpc::link::wire::{WireData, WireNamedTensor, WireTensor};
use sextant_types::DataType;

use super::{Malformed, field};
use crate::proto::{self, part_outcome, tensor};

/// Bytes that a tensor takes beside its elements, about.
const HEADER_BYTES: usize = 32;

pub(super) fn weight_bytes(tensor: &WireTensor) -> usize {
    let elements = match &tensor.data {
        WireData::Plain(bytes) => bytes.len(),
        WireData::Strings(strings) => strings.iter().map(|it| it.len() + 8).sum(),
    };
    HEADER_BYTES + elements
}

pub(super) fn inputs_weight_bytes(inputs: &[WireNamedTensor]) -> usize {
    let weights = inputs
        .iter()
        .map(|it| it.name.len() + weight_bytes(&it.tensor));
    weights.sum()
}

pub(super) fn outcome_weight_bytes(outcome: &Result<Vec<WireTensor>, String>) -> usize {
    match outcome {
        Ok(tensors) => tensors.iter().map(weight_bytes).sum(),
        Err(reason) => reason.len(),
    }
}

/// An output, or an input when it has a name.
fn pack(name: String, tensor: WireTensor) -> proto::Tensor {
    proto::Tensor {
        name,
        data_type: data_type(tensor.data_type).into(),
        shape: tensor.shape.into_iter().map(|it| it as u64).collect(),
        data: Some(match tensor.data {
            WireData::Plain(bytes) => tensor::Data::Plain(bytes),
            WireData::Strings(values) => tensor::Data::Strings(proto::Strings { values }),
        }),
    }
}

fn unpack(tensor: proto::Tensor) -> Result<(String, WireTensor), Malformed> {
    let data_type = DataType::ALL
        .into_iter()
        .find(|it| i32::from(data_type(*it)) == tensor.data_type);
    let shape = tensor.shape.into_iter().map(usize::try_from);
    let unpacked = WireTensor {
        data_type: field(data_type, "data_type")?,
        shape: shape
            .collect::<Result<_, _>>()
            .map_err(|_| Malformed::Field("shape"))?,
        data: match field(tensor.data, "data")? {
            tensor::Data::Plain(bytes) => WireData::Plain(bytes),
            tensor::Data::Strings(strings) => WireData::Strings(strings.values),
        },
    };
    Ok((tensor.name, unpacked))
}

pub(super) fn pack_inputs(inputs: Vec<WireNamedTensor>) -> Vec<proto::Tensor> {
    let inputs = inputs.into_iter();
    inputs.map(|it| pack(it.name, it.tensor)).collect()
}

pub(super) fn unpack_inputs(inputs: Vec<proto::Tensor>) -> Result<Vec<WireNamedTensor>, Malformed> {
    let named = |it| unpack(it).map(|(name, tensor)| WireNamedTensor { name, tensor });
    inputs.into_iter().map(named).collect()
}

pub(super) fn pack_outcome(outcome: Result<Vec<WireTensor>, String>) -> proto::PartOutcome {
    let outcome = match outcome {
        Ok(outputs) => part_outcome::Outcome::Outputs(proto::Tensors {
            tensors: outputs
                .into_iter()
                .map(|it| pack(String::new(), it))
                .collect(),
        }),
        Err(reason) => part_outcome::Outcome::Failure(reason),
    };
    proto::PartOutcome {
        outcome: Some(outcome),
    }
}

pub(super) fn unpack_outcome(
    outcome: proto::PartOutcome,
) -> Result<Result<Vec<WireTensor>, String>, Malformed> {
    Ok(match field(outcome.outcome, "outcome")? {
        part_outcome::Outcome::Outputs(outputs) => {
            let tensors = outputs.tensors.into_iter();
            let tensors: Result<_, _> = tensors.map(|it| unpack(it).map(|(_, it)| it)).collect();
            Ok(tensors?)
        }
        part_outcome::Outcome::Failure(reason) => Err(reason),
    })
}

fn data_type(data_type: DataType) -> proto::DataType {
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
