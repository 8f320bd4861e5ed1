//! What can be computed before a batch comes is computed on the host.

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
    operation::{Arithmetic, Element},
    reference::{self, Memory},
};

/// Lowers a call, or computes it where all its inputs are known.
pub(super) fn run_or_fold(
    lowering: &mut Lowering<'_>,
    call: &Call<'_>,
    operator: Operator,
) -> Result<Vec<Value>, Error> {
    let known = |value: &Value| matches!(value, Value::Constant(_));
    if call.inputs.iter().flatten().all(known) {
        fold(call, operator)
    } else {
        operator(lowering, call)
    }
}

/// Folds the nodes of a graph that depend on constants only, once for all input shapes.
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
        for (name, value) in node.outputs.iter().zip(fold(&call, operator)?) {
            if let Value::Constant(constant) = value {
                graph.constants.insert(name.clone(), constant.tensor);
            }
        }
    }
    graph.nodes = kept;
    Ok(())
}

fn fold(call: &Call<'_>, operator: Operator) -> Result<Vec<Value>, Error> {
    let target = Target {
        float: Element::F32,
        arithmetic: Arithmetic::Full,
        convolution: false,
        page_bytes: u64::MAX,
    };
    let mut lowering = Lowering::new(target, None);
    let values = operator(&mut lowering, call)?;
    let fixed = call.inputs.iter().flatten().all(|value| match value {
        Value::Constant(constant) => constant.fixed,
        Value::Device(_) => false,
    });
    let (memory, starts) = compute(lowering)?;
    let known = |(value, name): (Value, &String)| {
        let tensor = match value {
            Value::Constant(constant) => constant.tensor,
            Value::Device(device) => {
                let at = starts[(device.address >> OFFSET_BITS) as usize]
                    + (device.address & ((1 << OFFSET_BITS) - 1));
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
    values.into_iter().zip(names).map(known).collect()
}

/// Computes what was lowered; gives the memory and where each buffer begins.
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
        memory.write(starts[0] + offset, constant)?;
    }
    let place = |at: u64| starts[(at >> OFFSET_BITS) as usize] + (at & ((1 << OFFSET_BITS) - 1));
    for operation in &draft.operations {
        reference::compute(&operation.map_addresses(place), &mut memory)?;
    }
    Ok((memory, starts))
}
