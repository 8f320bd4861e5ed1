//! Joins products of one input into one product, as those of queries, keys and values.

use std::{collections::BTreeMap, sync::Arc};

use sextant_onnx::proto::AttributeProto;

use super::Links;
use crate::{
    lower::{Graph, HostTensor, node::Node},
    operation::Activation,
};

/// What products must have in common to be joined: the input, its width, the bits of the factor, whether there is a
/// bias.
type Key = (String, u64, u32, bool);

/// Joins products whose results are transposed anyway. Taking the parts out of the joined result then costs nothing.
pub(super) fn products(graph: &mut Graph) {
    let links = Links::new(graph);
    let mut groups: BTreeMap<Key, Vec<usize>> = BTreeMap::new();
    for index in 0..graph.nodes.len() {
        if let Some(key) = key(graph, &links, index) {
            groups.entry(key).or_default().push(index);
        }
    }
    let mut parts = BTreeMap::new();
    for group in groups.into_values().filter(|group| group.len() > 1) {
        if let Some(node) = join(graph, &group) {
            parts.insert(group[0], node);
        }
    }
    let nodes = std::mem::take(&mut graph.nodes).into_iter().enumerate();
    let nodes = nodes.flat_map(|(index, node)| [Some(node), parts.remove(&index)]);
    let nodes = nodes.flatten().filter(|node| !node.outputs.is_empty());
    graph.nodes = nodes.collect();
}

fn key(graph: &Graph, links: &Links, index: usize) -> Option<Key> {
    let node = &graph.nodes[index];
    let only = |name: &String| links.uses.get(name) == Some(&1);
    let right = graph.constants.get(node.inputs.get(1)?)?;
    let [rows, columns] = right.dims[..] else {
        return None;
    };
    let fits = node.op_type == "MatMul"
        && node.activation == Activation::None
        && node.int("transB", 0) == 0
        && node.inputs[1..].iter().all(only)
        && !graph.constants.contains_key(&node.inputs[0]);
    if !fits || !is_turned(graph, links, node) {
        return None;
    }
    let bias = node.inputs.get(2);
    if let Some(bias) = bias {
        let bias = graph.constants.get(bias)?;
        let alike = bias.data_type == right.data_type && bias.dims == [columns];
        alike.then_some(())?;
    }
    let alpha = node.float("alpha", 1.0).to_bits();
    Some((node.inputs[0].clone(), rows, alpha, bias.is_some()))
}

/// Whether the result is reshaped and transposed, and is used otherwise only for its shape.
fn is_turned(graph: &Graph, links: &Links, node: &Node) -> bool {
    let next = |node: &Node, op_type: &str| -> Option<usize> {
        let [output] = node.outputs.as_slice() else {
            return None;
        };
        let users = links.consumers.get(output)?;
        let whole = links.uses.get(output) == Some(&users.len());
        let mut others = users
            .iter()
            .filter(|user| graph.nodes[**user].op_type != "Shape");
        let (other, end) = (others.next()?, others.next());
        let fits = whole && end.is_none() && graph.nodes[*other].op_type == op_type;
        fits.then_some(*other)
    };
    let turned = next(node, "Reshape").and_then(|shape| next(&graph.nodes[shape], "Transpose"));
    turned.is_some()
}

/// Puts one product in the place of the first. Returns the node that splits its result.
fn join(graph: &mut Graph, group: &[usize]) -> Option<Node> {
    let input = |index: &usize, at: usize| {
        let name = graph.nodes[*index].inputs.get(at)?;
        graph.constants.get(name).map(Arc::as_ref)
    };
    let rights: Vec<&HostTensor> = group
        .iter()
        .map(|index| input(index, 1))
        .collect::<Option<_>>()?;
    let biases: Vec<&HostTensor> = group.iter().filter_map(|index| input(index, 2)).collect();
    let widths: Vec<i64> = rights
        .iter()
        .map(|right| right.dims[1].cast_signed())
        .collect();
    let (right, bias) = (beside(&rights)?, beside(&biases));
    let first = group[0];
    let mut node = graph.nodes[first].clone();
    let output = node.outputs[0].clone();
    let names = ["joined", "weights", "bias"].map(|what| format!("{output} {what}"));
    let [joined, weights, vector] = names;
    node.inputs.truncate(1);
    node.inputs.push(weights.clone());
    graph.constants.insert(weights, Arc::new(right));
    if let Some(bias) = bias {
        node.inputs.push(vector.clone());
        graph.constants.insert(vector, Arc::new(bias));
    }
    node.outputs = vec![joined.clone()];
    let mut outputs = Vec::new();
    for index in group {
        outputs.append(&mut graph.nodes[*index].outputs);
        graph.nodes[*index].inputs.clear();
    }
    let parts = Node {
        name: format!("{} parts", node.name),
        op_type: "Split".to_owned(),
        inputs: vec![joined],
        outputs,
        attributes: vec![
            AttributeProto::int("axis", -1),
            AttributeProto::ints("split", &widths),
        ],
        activation: Activation::None,
    };
    graph.nodes[first] = node;
    Some(parts)
}

/// Matrices with equally many rows, or vectors, side by side; `None` if there are none or their types differ.
fn beside(tensors: &[&HostTensor]) -> Option<HostTensor> {
    let first = tensors.first()?;
    let (width, outer) = first.dims.split_last()?;
    let size = first.data_type.size()?;
    let alike = |it: &&HostTensor| {
        it.data_type == first.data_type && it.dims.split_last().is_some_and(|(_, own)| own == outer)
    };
    if !tensors.iter().all(alike) || *width == 0 {
        return None;
    }
    let columns = |it: &HostTensor| it.dims.last().copied().unwrap_or(0);
    let rows: u64 = outer.iter().product();
    let all: u64 = tensors.iter().map(|it| columns(it)).sum();
    let mut bytes = Vec::with_capacity((rows * all) as usize * size);
    for row in 0..rows as usize {
        for tensor in tensors {
            let length = columns(tensor) as usize * size;
            bytes.extend_from_slice(&tensor.bytes[row * length..(row + 1) * length]);
        }
    }
    let mut dims = outer.to_vec();
    dims.push(all);
    Some(HostTensor {
        data_type: first.data_type,
        dims,
        bytes: bytes.into(),
    })
}
