//! Nodes and constants that no served output needs.

use std::collections::BTreeSet;

use crate::proto::{GraphProto, NodeProto, TensorProto};

/// Removes nodes and constants from the main graph that no output needs. Engines would leave them out as well, but only
/// after they had them in memory; and unused weights need not be made smaller.
pub(crate) fn take_out(graph: &mut GraphProto) {
    let mut needed: BTreeSet<String> = graph
        .output
        .iter()
        .map(|output| output.name().to_owned())
        .collect();
    let mut kept: Vec<NodeProto> = Vec::with_capacity(graph.node.len());
    // In reverse topological order, so that the reader of a value is visited before its producer.
    for node in graph.node.drain(..).rev() {
        if node.output.iter().any(|made| needed.contains(made)) {
            read(&node, &mut needed);
            kept.push(node);
        }
    }
    kept.reverse();
    graph.node = kept;
    let is_needed = |tensor: &TensorProto| needed.contains(tensor.name());
    graph.initializer.retain(is_needed);
    let values = |name: Option<&TensorProto>| name.is_none_or(|it| needed.contains(it.name()));
    graph
        .sparse_initializer
        .retain(|sparse| values(sparse.values.as_ref()));
}

/// The values that a node reads; in subgraphs every name counts, whatever produces it.
fn read(node: &NodeProto, needed: &mut BTreeSet<String>) {
    needed.extend(node.input.iter().cloned());
    for attribute in &node.attribute {
        for graph in attribute.g.as_deref().into_iter().chain(&attribute.graphs) {
            needed.extend(graph.output.iter().map(|it| it.name().to_owned()));
            graph.node.iter().for_each(|node| read(node, needed));
        }
    }
}
