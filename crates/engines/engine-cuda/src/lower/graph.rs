//! The graph of a file, checked and simplified.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bytes::Bytes;
use sextant_engine::Error;
use sextant_onnx::proto::{GraphProto, ModelProto, NodeProto, TensorProto};
use sextant_types::DataType;

use super::{HostTensor, context::elements, fold, fuse, node::Node, operators};
use crate::operation::Activation;

/// Most nodes. Planning time grows with the square of their number; real models have some hundred to a few thousand.
const MAX_NODES: usize = 20_000;

/// The graph that is lowered: the fused nodes that outputs depend on, and the constants.
#[derive(Debug, Clone)]
pub struct Graph {
    /// Names and types of the inputs.
    pub inputs: Vec<(String, DataType)>,
    /// Names and types of the outputs.
    pub outputs: Vec<(String, DataType)>,
    pub(crate) constants: BTreeMap<String, Arc<HostTensor>>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) opset: i64,
}

impl Graph {
    /// Reads a file that [`sextant_onnx::inspect()`] accepts; `inputs` and `outputs` are those of its signature.
    ///
    /// # Errors
    /// [`Error::InvalidModel`] when it cannot be read, [`Error::Unsupported`] naming the first
    /// operator that has no implementation.
    pub fn read(
        file: &Bytes,
        inputs: Vec<(String, DataType)>,
        outputs: Vec<(String, DataType)>,
    ) -> Result<Self, Error> {
        let model =
            sextant_onnx::decode(file).map_err(|error| Error::InvalidModel(error.to_string()))?;
        let opset = opset(&model);
        let graph = model.graph.unwrap_or_default();
        let nodes = nodes(&graph)?;
        let mut read = Self {
            inputs,
            outputs,
            constants: constants(&graph),
            nodes,
            opset,
        };
        fold::constants(&mut read)?;
        read.prune();
        fuse::fuse(&mut read);
        read.prune();
        Ok(read)
    }

    /// How often each value is used, as an input or an output of the graph.
    pub(crate) fn uses(&self) -> BTreeMap<String, usize> {
        let mut uses = BTreeMap::<String, usize>::new();
        let taken = self.nodes.iter().flat_map(|node| &node.inputs);
        for name in taken.chain(self.outputs.iter().map(|(name, _)| name)) {
            *uses.entry(name.clone()).or_default() += 1;
        }
        uses
    }

    /// Drops nodes and constants that nothing depends on.
    pub(super) fn prune(&mut self) {
        let mut wanted: BTreeSet<String> =
            self.outputs.iter().map(|(name, _)| name.clone()).collect();
        let mut kept = Vec::new();
        for mut node in std::mem::take(&mut self.nodes).into_iter().rev() {
            if node.outputs.iter().any(|name| wanted.contains(name)) {
                wanted.extend(node.inputs.iter().cloned());
                let absent = |name: &mut String| {
                    if !wanted.contains(name) {
                        name.clear();
                    }
                };
                node.outputs.iter_mut().for_each(absent);
                kept.push(node);
            }
        }
        kept.reverse();
        self.nodes = kept;
        self.constants.retain(|name, _| wanted.contains(name));
    }
}

fn opset(model: &ModelProto) -> i64 {
    let standard = |domain: &str| matches!(domain, "" | "ai.onnx");
    let set = model.opset_import.iter().find(|set| standard(set.domain()));
    set.map_or(1, |set| set.version())
}

fn constants(graph: &GraphProto) -> BTreeMap<String, Arc<HostTensor>> {
    let named = graph.initializer.iter().filter_map(|tensor| {
        let host = host_tensor(tensor)?;
        Some((tensor.name().to_owned(), Arc::new(host)))
    });
    named.collect()
}

/// `None` for strings and for types that are not plain numbers; their users are refused.
pub(super) fn host_tensor(tensor: &TensorProto) -> Option<HostTensor> {
    let (data_type, bytes) = tensor.to_bytes()?;
    let dims: Vec<u64> = tensor.dims.iter().map(|dim| *dim as u64).collect();
    elements(&dims)?;
    Some(HostTensor {
        data_type,
        dims,
        bytes,
    })
}

fn nodes(graph: &GraphProto) -> Result<Vec<Node>, Error> {
    if graph.node.len() > MAX_NODES {
        let count = graph.node.len();
        return Err(Error::Unsupported(format!(
            "{count} operators in one graph"
        )));
    }
    graph.node.iter().map(node).collect()
}

fn node(proto: &NodeProto) -> Result<Node, Error> {
    let unnamed = || proto.output.first().cloned().unwrap_or_default();
    let standard = matches!(proto.domain(), "" | "ai.onnx");
    let node = Node {
        name: proto
            .name
            .clone()
            .filter(|name| !name.is_empty())
            .unwrap_or_else(unnamed),
        op_type: if standard {
            proto.op_type().to_owned()
        } else {
            format!("{}::{}", proto.domain(), proto.op_type())
        },
        inputs: proto.input.clone(),
        outputs: proto.output.clone(),
        attributes: proto.attribute.clone(),
        activation: Activation::None,
    };
    if operators::find(&node.op_type).is_none() {
        return Err(node.unsupported("the engine has no implementation of it"));
    }
    Ok(node)
}
