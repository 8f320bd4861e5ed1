//! What no output needs: nodes and constants that are only there for outputs which are not served.

use std::collections::BTreeSet;

use crate::proto::{GraphProto, NodeProto, TensorProto};

/// Takes nodes and constants out of the main graph that no output needs. Engines would leave them out as well,
/// but only once they had them in memory; and weights that are not used need not be made smaller.
pub(crate) fn take_out(graph: &mut GraphProto) {
    let mut needed: BTreeSet<String> = graph
        .output
        .iter()
        .map(|output| output.name().to_owned())
        .collect();
    let mut kept: Vec<NodeProto> = Vec::with_capacity(graph.node.len());
    // In topological order, so that whoever needs a value is seen before who makes it.
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

/// What a node reads; in subgraphs any name counts, whoever makes it.
fn read(node: &NodeProto, needed: &mut BTreeSet<String>) {
    needed.extend(node.input.iter().cloned());
    for attribute in &node.attribute {
        for graph in attribute.g.as_deref().into_iter().chain(&attribute.graphs) {
            needed.extend(graph.output.iter().map(|it| it.name().to_owned()));
            graph.node.iter().for_each(|node| read(node, needed));
        }
    }
}
