//! Optional inputs and outputs: inputs with a default value, and inputs and outputs of ONNX's optional types.
//!
//! Here every query supplies the same inputs, so nothing is optional: a default becomes a constant, with which engines
//! compute ahead of time, and an optional value is always present.

use std::collections::BTreeSet;

use bytes::Bytes;
use sextant_types::DataType;

use super::{Plain, constants::CONSTANTS_ALONE};
use crate::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, ValueInfoProto,
    type_proto,
};

/// Most names that a message lists.
const MOST_NAMES: usize = 3;

/// Makes inputs with a default value constants. Before version 4 of the format every constant was an input, and some
/// exporters still write that: these are reported in one message.
pub(super) fn fix_defaults(model: &mut ModelProto, plain: &mut Plain) {
    let Some(graph) = &mut model.graph else {
        return;
    };
    let constants: BTreeSet<&str> = graph.initializer.iter().map(TensorProto::name).collect();
    let has_default = |input: &ValueInfoProto| constants.contains(input.name());
    let names: Vec<String> = graph
        .input
        .iter()
        .filter(|input| has_default(input))
        .map(|input| format!("`{}`", input.name()))
        .collect();
    if names.is_empty() {
        return;
    }
    let is_given = |input: &ValueInfoProto| !has_default(input);
    graph.input.retain(is_given);
    model.ir_version = model.ir_version.max(Some(CONSTANTS_ALONE));
    let told = names[..names.len().min(MOST_NAMES)].join(", ");
    let more = match names.len().saturating_sub(MOST_NAMES) {
        0 => String::new(),
        more => format!(" and {more} others"),
    };
    plain.changes.push(format!(
        "inputs with a default value are left at it, and queries do not give them: {told}{more}"
    ));
}

/// Replaces optional inputs and outputs by the tensors that they may hold, if nothing else is done with them.
pub(super) fn hold_always(graph: &mut GraphProto, plain: &mut Plain) {
    for at in 0..graph.input.len() {
        let Some(held) = held(&graph.input[at]) else {
            continue;
        };
        let name = graph.input[at].name().to_owned();
        if !is_only_opened(&graph.node, &name) {
            continue;
        }
        open(&mut graph.node, &name);
        graph.input[at].r#type = Some(held);
        let change = format!("input `{name}` was optional and is given by every query");
        plain.changes.push(change);
    }
    for at in 0..graph.output.len() {
        let Some(held) = held(&graph.output[at]) else {
            continue;
        };
        let name = graph.output[at].name().to_owned();
        let wraps = |node: &&mut NodeProto| {
            node.is("Optional") && node.input.len() == 1 && node.output.first() == Some(&name)
        };
        let Some(node) = graph.node.iter_mut().find(wraps) else {
            continue;
        };
        *node = NodeProto::new("Identity", node.name(), &[&node.input[0]], &[&name]);
        graph.output[at].r#type = Some(held);
        let change = format!("output `{name}` was optional and is always there");
        plain.changes.push(change);
    }
}

/// The type of the tensor in an optional value; `None` if it is not a tensor.
fn held(value: &ValueInfoProto) -> Option<TypeProto> {
    let type_proto::Value::OptionalType(optional) = value.r#type.as_ref()?.value.as_ref()? else {
        return None;
    };
    let held = optional.elem_type.as_deref()?;
    matches!(held.value, Some(type_proto::Value::TensorType(_))).then(|| held.clone())
}

fn opens(node: &NodeProto) -> bool {
    node.is("OptionalGetElement") || node.is("OptionalHasElement")
}

/// Whether a value is used only to be tested and opened, also in subgraphs.
fn is_only_opened(nodes: &[NodeProto], name: &str) -> bool {
    nodes.iter().all(|node| {
        let is_read = node.input.iter().any(|input| input == name);
        let mut inner = graphs(node);
        (!is_read || opens(node)) && inner.all(|graph| is_only_opened(&graph.node, name))
    })
}

fn graphs(node: &NodeProto) -> impl Iterator<Item = &GraphProto> {
    let attributes = node.attribute.iter();
    attributes.flat_map(|it| it.g.as_deref().into_iter().chain(&it.graphs))
}

/// Reads a value that is always present instead of opening it.
fn open(nodes: &mut [NodeProto], name: &str) {
    for node in nodes {
        for attribute in &mut node.attribute {
            let inner = attribute.g.as_deref_mut().into_iter();
            for graph in inner.chain(&mut attribute.graphs) {
                open(&mut graph.node, name);
            }
        }
        if !opens(node) || node.input.first().is_none_or(|input| input != name) {
            continue;
        }
        let to: Vec<&str> = node.output.iter().map(String::as_str).collect();
        *node = match node.is("OptionalGetElement") {
            true => NodeProto::new("Identity", node.name(), &[name], &to),
            false => {
                let there =
                    TensorProto::from_bytes("", DataType::Bool, &[], Bytes::from_static(&[1]));
                let there = AttributeProto::tensor("value", there);
                NodeProto::new("Constant", node.name(), &[], &to).with(there)
            }
        };
    }
}
