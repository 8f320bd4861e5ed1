//! Moves the batch dimension of a model to the front.
//!
//! Recurrent networks are often exported with time first: `[time, batch, features]`. If every input and output names
//! the same dimension, and its name says that it is the batch, inputs are transposed when they come in and outputs
//! before they go out; each keeps its name. The file does not show whether batches are then answered as their records
//! are one by one; the caller must run batches and compare.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use crate::{
    Error, decode, encode,
    proto::{
        AttributeProto, Dimension, GraphProto, NodeProto, ValueInfoProto, dimension, type_proto,
    },
};

/// Names of a batch dimension, in addition to those that contain `batch`.
const NAMES: [&str; 3] = ["N", "bs", "B"];

/// Appended to the names of transposed values.
const TURNED: &str = "/batch_elsewhere";

/// The model with its batch dimension first in every input and output. `None` if it is first already, or if not every
/// input and output says which one it is.
///
/// # Errors
/// [`Error::NotOnnx`] if the bytes are not a model.
pub fn turn(bytes: &Bytes) -> Result<Option<Bytes>, Error> {
    let mut model = decode(bytes)?;
    let Some(graph) = &mut model.graph else {
        return Ok(None);
    };
    let constants: BTreeSet<&str> = graph.initializer.iter().map(|it| it.name()).collect();
    let is_given = |value: &&ValueInfoProto| !constants.contains(value.name());
    let given: Vec<ValueInfoProto> = graph.input.iter().filter(is_given).cloned().collect();
    let axes = given.iter().chain(&graph.output).map(batch_axis);
    let Some(axes) = axes.collect::<Option<Vec<usize>>>() else {
        return Ok(None);
    };
    let symbols = given.iter().chain(&graph.output).zip(&axes);
    let symbols: BTreeSet<_> = symbols.filter_map(|(it, axis)| symbol(it, *axis)).collect();
    if symbols.len() != 1 || axes.iter().all(|axis| *axis == 0) {
        return Ok(None);
    }
    let of_inputs: BTreeMap<String, usize> = given
        .iter()
        .zip(&axes)
        .map(|(input, axis)| (input.name().to_owned(), *axis))
        .collect();
    let of_outputs = axes[given.len()..].to_vec();
    turn_graph(graph, &of_inputs, &of_outputs);
    Ok(Some(encode(&model)))
}

fn turn_graph(graph: &mut GraphProto, inputs: &BTreeMap<String, usize>, outputs: &[usize]) {
    let turned = |(name, axis): (&String, &usize)| {
        (*axis > 0).then(|| (name.clone(), format!("{name}{TURNED}")))
    };
    let mut renamed: BTreeMap<String, String> = inputs.iter().filter_map(turned).collect();
    for (output, axis) in graph.output.iter().zip(outputs) {
        renamed.extend(turned((&output.name().to_owned(), axis)));
    }
    rename(&mut graph.node, &renamed);
    let (mut before, mut after) = (Vec::new(), Vec::new());
    for input in &mut graph.input {
        let name = input.name().to_owned();
        let Some(axis) = inputs.get(&name).copied().filter(|axis| *axis > 0) else {
            continue;
        };
        let rank = move_to_front(input, axis);
        // Its earlier place: the others move back before it.
        let back: Vec<i64> = (1..=axis)
            .chain([0])
            .chain(axis + 1..rank)
            .map(|it| it as i64)
            .collect();
        before.push(transpose(&name, (&name, &renamed[&name]), &back));
    }
    for (output, axis) in graph.output.iter_mut().zip(outputs) {
        if *axis == 0 {
            continue;
        }
        let name = output.name().to_owned();
        let rank = move_to_front(output, *axis);
        let front: Vec<i64> = [*axis]
            .into_iter()
            .chain(0..*axis)
            .chain(axis + 1..rank)
            .map(|it| it as i64)
            .collect();
        after.push(transpose(&name, (&renamed[&name], &name), &front));
    }
    before.append(&mut graph.node);
    before.append(&mut after);
    graph.node = before;
    graph.value_info.clear();
}

fn transpose(name: &str, (from, to): (&str, &str), order: &[i64]) -> NodeProto {
    let node = NodeProto::new("Transpose", &format!("{name}/transpose"), &[from], &[to]);
    node.with(AttributeProto::ints("perm", order))
}

/// Renames values wherever they are read and written, also in subgraphs; each name is written once.
fn rename(nodes: &mut [NodeProto], names: &BTreeMap<String, String>) {
    for node in nodes {
        for value in node.input.iter_mut().chain(&mut node.output) {
            if let Some(name) = names.get(value) {
                value.clone_from(name);
            }
        }
        for attribute in &mut node.attribute {
            for graph in attribute
                .g
                .iter_mut()
                .map(|it| &mut **it)
                .chain(&mut attribute.graphs)
            {
                rename(&mut graph.node, names);
                for output in &mut graph.output {
                    if let Some(name) = names.get(output.name()) {
                        output.name = Some(name.clone());
                    }
                }
            }
        }
    }
}

/// Moves a dimension to the front; returns the number of dimensions.
fn move_to_front(value: &mut ValueInfoProto, axis: usize) -> usize {
    let tensor = value.r#type.as_mut().and_then(|it| it.value.as_mut());
    let Some(type_proto::Value::TensorType(tensor)) = tensor else {
        return 0;
    };
    let Some(shape) = &mut tensor.shape else {
        return 0;
    };
    shape.dim[..=axis].rotate_right(1);
    shape.dim.len()
}

fn dims(value: &ValueInfoProto) -> Option<&[Dimension]> {
    match value.r#type.as_ref()?.value.as_ref()? {
        type_proto::Value::TensorType(tensor) => Some(&tensor.shape.as_ref()?.dim),
        _ => None,
    }
}

fn symbol(value: &ValueInfoProto, axis: usize) -> Option<String> {
    match &dims(value)?.get(axis)?.value {
        Some(dimension::Value::DimParam(symbol)) => Some(symbol.clone()),
        _ => None,
    }
}

/// Whether a dimension of this name is that of batches.
pub(crate) fn is_batch_name(symbol: &str) -> bool {
    symbol.to_lowercase().contains("batch") || NAMES.contains(&symbol)
}

/// The dimension that is named as the batch; `None` if there is none, or several.
fn batch_axis(value: &ValueInfoProto) -> Option<usize> {
    let dims = dims(value)?.iter().enumerate();
    let mut named = dims.filter(|(_, dim)| match &dim.value {
        Some(dimension::Value::DimParam(symbol)) => is_batch_name(symbol),
        _ => false,
    });
    let (axis, _) = named.next()?;
    named.next().is_none().then_some(axis)
}
