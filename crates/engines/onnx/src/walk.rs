//! Visits every graph, node and tensor of a model, nested ones included. Depth is bounded by the
//! decoder, which refuses more than 100 nested messages.

use crate::proto::{AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto};

/// Something found on the walk.
pub(crate) enum WalkItem<'a> {
    /// A node of any graph or function.
    Node(&'a NodeProto),
    /// A constant of any graph, function or attribute.
    Tensor(&'a TensorProto),
}

type Visit<'v, E> = dyn FnMut(WalkItem<'_>) -> Result<(), E> + 'v;

/// Visits everything; stops at the first error.
pub(crate) fn model<E>(model: &ModelProto, visit: &mut Visit<'_, E>) -> Result<(), E> {
    if let Some(graph) = &model.graph {
        self::graph(graph, visit)?;
    }
    for training in &model.training_info {
        for graph in training.initialization.iter().chain(&training.algorithm) {
            self::graph(graph, visit)?;
        }
    }
    for function in &model.functions {
        attributes(&function.attribute_proto, visit)?;
        nodes(&function.node, visit)?;
    }
    Ok(())
}

/// Visits everything in a graph; stops at the first error.
pub(crate) fn graph<E>(graph: &GraphProto, visit: &mut Visit<'_, E>) -> Result<(), E> {
    for tensor in &graph.initializer {
        visit(WalkItem::Tensor(tensor))?;
    }
    for sparse in &graph.sparse_initializer {
        for tensor in sparse.values.iter().chain(&sparse.indices) {
            visit(WalkItem::Tensor(tensor))?;
        }
    }
    nodes(&graph.node, visit)
}

fn nodes<E>(nodes: &[NodeProto], visit: &mut Visit<'_, E>) -> Result<(), E> {
    for node in nodes {
        visit(WalkItem::Node(node))?;
        attributes(&node.attribute, visit)?;
    }
    Ok(())
}

fn attributes<E>(attributes: &[AttributeProto], visit: &mut Visit<'_, E>) -> Result<(), E> {
    for attribute in attributes {
        for tensor in attribute.t.as_deref().into_iter().chain(&attribute.tensors) {
            visit(WalkItem::Tensor(tensor))?;
        }
        let sparse = attribute.sparse_tensor.as_deref();
        for sparse in sparse.into_iter().chain(&attribute.sparse_tensors) {
            for tensor in sparse.values.iter().chain(&sparse.indices) {
                visit(WalkItem::Tensor(tensor))?;
            }
        }
        for graph in attribute.g.as_deref().into_iter().chain(&attribute.graphs) {
            self::graph(graph, visit)?;
        }
    }
    Ok(())
}
