//! Computes on the host what can be computed before a batch comes.

use std::sync::Arc;

use bytes::Bytes;
use sextant_engine::Error;

use super::{
    Constant, Graph, HostTensor, OFFSET_BITS, Target,
    context::{Lowering, Value},
    node::Call,
    operators::Operator,
};
use crate::{
    operation::{Address, Arithmetic, Element, Symbolic},
    reference::{self, Memory},
};

/// Most bytes that are computed on the host for one set of input shapes: enough for every shape. Larger values are
/// computed on the device instead of being copied there with each batch.
const SMALL_BYTES: u64 = 4096;

/// Lowers a call, or computes it if all its inputs are known.
pub(super) fn run_or_fold(
    lowering: &mut Lowering<'_>,
    call: &Call<'_>,
    operator: Operator,
) -> Result<Vec<Value>, Error> {
    let constants: Option<Vec<&Constant>> = call
        .inputs
        .iter()
        .flatten()
        .map(|value| match value {
            Value::Constant(constant) => Some(constant),
            Value::Device(_) => None,
        })
        .collect();
    let Some(constants) = constants else {
        return operator(lowering, call);
    };
    let fixed = constants.iter().all(|constant| constant.fixed);
    // A table is recognised by its size, whatever the input shapes. So the same tables are weights for all shapes.
    let large = |it: &&Constant| it.fixed && it.tensor.bytes.len() as u64 > SMALL_BYTES;
    if !fixed && constants.iter().any(large) {
        return operator(lowering, call);
    }
    let limit = if fixed {
        fixed_limit(call)
    } else {
        SMALL_BYTES
    };
    match fold(call, operator, limit)? {
        Some(values) => Ok(values),
        None => operator(lowering, call),
    }
}

/// Folds, once for all input shapes, the nodes of a graph that depend only on constants.
pub(super) fn constants(graph: &mut Graph) -> Result<(), Error> {
    let mut kept = Vec::new();
    for node in std::mem::take(&mut graph.nodes) {
        let inputs: Option<Vec<Option<Value>>> = node
            .inputs
            .iter()
            .map(|name| {
                if name.is_empty() {
                    return Some(None);
                }
                let tensor = graph.constants.get(name)?;
                Some(Some(Constant::fixed(name, Arc::clone(tensor)).into()))
            })
            .collect();
        let (Some(inputs), Some(operator)) = (inputs, super::operators::find(&node.op_type)) else {
            kept.push(node);
            continue;
        };
        let call = Call {
            node: &node,
            inputs,
            opset: graph.opset,
        };
        let Some(values) = fold(&call, operator, fixed_limit(&call))? else {
            kept.push(node);
            continue;
        };
        for (name, value) in node.outputs.iter().zip(values) {
            if let Value::Constant(constant) = value {
                graph.constants.insert(name.clone(), constant.tensor);
            }
        }
    }
    graph.nodes = kept;
    Ok(())
}

/// Limit for values that depend only on the file: twice the size of their inputs, or the size of a few weights.
fn fixed_limit(call: &Call<'_>) -> u64 {
    let bytes = |value: &Value| match value {
        Value::Constant(constant) => constant.tensor.bytes.len() as u64,
        Value::Device(_) => 0,
    };
    let given: u64 = call.inputs.iter().flatten().map(bytes).sum();
    (2 * given).max(16 << 20)
}

/// `None` when the device would have to write more than `limit` bytes.
fn fold(call: &Call<'_>, operator: Operator, limit: u64) -> Result<Option<Vec<Value>>, Error> {
    let target = Target {
        float: Element::F32,
        arithmetic: Arithmetic::Full,
        convolution: false,
        attention: false,
        page_bytes: u64::MAX,
    };
    let mut lowering = Lowering::new(target, None);
    let values = operator(&mut lowering, call)?;
    let fixed = call.inputs.iter().flatten().all(|value| match value {
        Value::Constant(constant) => constant.fixed,
        Value::Device(_) => false,
    });
    let bytes = |value: &Value| match value {
        Value::Constant(_) => 0,
        Value::Device(device) => device.count() * device.element.bytes(),
    };
    if values.iter().map(bytes).sum::<u64>() > limit {
        return Ok(None);
    }
    let (memory, starts) = compute(lowering)?;
    let known = |(value, name): (Value, &String)| {
        let tensor = match value {
            Value::Constant(constant) => constant.tensor,
            Value::Device(device) => {
                let at = placed(&starts, device.address);
                let bytes = memory.read(at..at + device.count() * device.element.bytes())?;
                Arc::new(HostTensor {
                    data_type: device.data_type,
                    dims: device.dims,
                    bytes: Bytes::copy_from_slice(bytes),
                })
            }
        };
        Ok(Value::Constant(Constant {
            key: name.clone(),
            fixed,
            tensor,
        }))
    };
    let names = &call.node.outputs;
    let values: Result<Vec<Value>, Error> = values.into_iter().zip(names).map(known).collect();
    values.map(Some)
}

/// Computes what was lowered. Returns the memory and the start of each buffer.
fn compute(lowering: Lowering<'_>) -> Result<(Memory, Vec<u64>), Error> {
    let draft = lowering.finish();
    let mut bytes = 0;
    let mut starts = Vec::new();
    for buffer in &draft.buffers {
        starts.push(bytes);
        bytes += buffer.bytes.next_multiple_of(super::ALIGNMENT);
    }
    let mut memory = Memory::new(bytes as usize);
    for (offset, constant) in &draft.constants {
        memory.write(Address::new(starts[0] + offset), constant)?;
    }
    for operation in &draft.operations {
        reference::compute(
            &operation.map_addresses(|at| placed(&starts, at)),
            &mut memory,
        )?;
    }
    Ok((memory, starts))
}

/// The position of a symbolic address, given the start of each buffer.
fn placed(starts: &[u64], symbolic: Address<Symbolic>) -> Address {
    let at = symbolic.get();
    let start = starts[(at >> OFFSET_BITS) as usize];
    Address::new(start + (at & ((1 << OFFSET_BITS) - 1)))
}
