//! A graph while it is rewritten: constants by name, fresh names, and removal of unused constants.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use sextant_types::{DataType, tensor::Element};

use super::{Read, Source};
use crate::{
    Error, decode, encode,
    external::{fill, place},
    proto::{GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto, data_type},
    walk::{self, WalkItem},
};

/// The oldest version of the file format in which constants need not be inputs.
const FREE_INITIALIZERS: i64 = 4;

/// Most bytes of a tensor's data that are read from a file: a larger tensor stays unchanged.
const MOST_STORED_BYTES: u64 = 1 << 30;

pub(super) struct Editor<'a> {
    model: ModelProto,
    weights: Option<&'a Read<'a>>,
    pub(super) graph: GraphProto,
    /// Version of the standard operator set.
    pub(super) opset: i64,
    names: BTreeSet<String>,
    constants: BTreeMap<String, usize>,
    /// Values of this graph that subgraphs use.
    captured: BTreeSet<String>,
}

/// A constant of 32-bit floats, read out.
pub(super) struct Floats {
    pub(super) dims: Vec<usize>,
    pub(super) values: Vec<f32>,
}

// === impl Editor ===

impl<'a> Editor<'a> {
    /// Opens a model for rewriting. Fails if it is not a model, keeps data elsewhere, or its
    /// operator set is older than `oldest`.
    pub(super) fn open(
        source: Source<'a>,
        purpose: &'static str,
        oldest: i64,
    ) -> Result<Self, Error> {
        let mut model = decode(source.graph)?;
        walk::model(&model, &mut |found| match found {
            WalkItem::Tensor(tensor) => tensor.check(),
            WalkItem::Node(_) => Ok(()),
        })?;
        let opset = model
            .opset_import
            .iter()
            .find(|set| matches!(set.domain(), "" | "ai.onnx"))
            .map_or(0, |set| set.version());
        if opset < oldest {
            return Err(Error::OpsetTooOld {
                purpose,
                needed: oldest,
                found: opset,
            });
        }
        let mut graph = model.graph.take().unwrap_or_default();
        lift_constants(&mut graph);
        let mut editor = Self {
            names: names(&graph),
            captured: captured(&graph),
            constants: BTreeMap::new(),
            weights: source.weights,
            model,
            graph,
            opset,
        };
        editor.index_constants();
        Ok(editor)
    }

    /// A constant of finite 32-bit floats by name.
    pub(super) fn floats(&self, name: &str) -> Option<Floats> {
        let tensor = self.constant(name)?;
        if tensor.data_type() != data_type::FLOAT {
            return None;
        }
        let values = match tensor.is_outlined() {
            true => self.stored(tensor)?.to_floats()?,
            false => tensor.to_floats()?,
        };
        let dims = tensor.dims.iter().map(|dim| *dim as usize).collect();
        values
            .iter()
            .all(|value| value.is_finite())
            .then_some(Floats { dims, values })
    }

    /// A tensor with its data from the outline's file, unless it would take too much memory.
    fn stored(&self, tensor: &TensorProto) -> Option<TensorProto> {
        let (offset, length) = place(tensor).ok()?;
        if length > MOST_STORED_BYTES {
            return None;
        }
        let data = self.weights?(offset..offset.checked_add(length)?)?;
        let mut stored = tensor.clone();
        fill(&mut stored, data).ok()?;
        Some(stored)
    }

    /// Dimensions of a constant.
    pub(super) fn dims(&self, name: &str) -> Option<&[i64]> {
        Some(&self.constant(name)?.dims)
    }

    /// Whether a value is a constant.
    pub(super) fn is_constant(&self, name: &str) -> bool {
        self.constants.contains_key(name)
    }

    /// Whether a subgraph takes a value from this graph.
    pub(super) fn is_captured(&self, name: &str) -> bool {
        self.captured.contains(name)
    }

    /// Whether a value is an output of the graph.
    pub(super) fn is_output(&self, name: &str) -> bool {
        self.graph.output.iter().any(|output| output.name() == name)
    }

    /// A name that is not used in the graph.
    pub(super) fn fresh(&mut self, stem: &str) -> String {
        let mut name = stem.to_owned();
        let mut count = 1;
        while !self.names.insert(name.clone()) {
            count += 1;
            name = format!("{stem}_{count}");
        }
        name
    }

    /// Adds a constant under a fresh name and returns that name.
    pub(super) fn add<T: Element>(&mut self, stem: &str, dims: &[usize], values: &[T]) -> String {
        let name = self.fresh(stem);
        let tensor = TensorProto::from_elements(name.as_str(), dims, values);
        self.constants
            .insert(name.clone(), self.graph.initializer.len());
        self.graph.initializer.push(tensor);
        name
    }

    /// Declares the use of another operator set.
    pub(super) fn import(&mut self, domain: &str, version: i64) {
        let sets = &mut self.model.opset_import;
        if !sets.iter().any(|set| set.domain() == domain) {
            sets.push(OperatorSetIdProto {
                domain: Some(domain.to_owned()),
                version: Some(version),
            });
        }
    }

    /// Declares a further output.
    pub(super) fn add_output(&mut self, name: &str, dims: &[crate::make::Dim]) {
        let value = crate::proto::ValueInfoProto::tensor(name, DataType::Fp32, dims);
        self.graph.output.push(value);
    }

    /// The rewritten file, without constants that nothing uses any more.
    pub(super) fn finish(mut self) -> Bytes {
        self.prune();
        let version = self.model.ir_version().max(FREE_INITIALIZERS);
        self.model.ir_version = Some(version);
        self.model.graph = Some(self.graph);
        encode(&self.model)
    }

    fn constant(&self, name: &str) -> Option<&TensorProto> {
        self.graph.initializer.get(*self.constants.get(name)?)
    }

    fn index_constants(&mut self) {
        self.constants = self
            .graph
            .initializer
            .iter()
            .enumerate()
            .map(|(index, tensor)| (tensor.name().to_owned(), index))
            .collect();
    }

    fn prune(&mut self) {
        let mut used = captured(&self.graph);
        used.extend(self.graph.output.iter().map(|it| it.name().to_owned()));
        for node in &self.graph.node {
            used.extend(node.input.iter().cloned());
        }
        let dropped: BTreeSet<String> = self
            .constants
            .keys()
            .filter(|name| !used.contains(*name))
            .cloned()
            .collect();
        let keep = |name: &str| !dropped.contains(name);
        self.graph.initializer.retain(|it| keep(it.name()));
        self.graph.input.retain(|it| keep(it.name()));
        for node in &self.graph.node {
            used.extend(node.output.iter().cloned());
        }
        self.graph.value_info.retain(|it| used.contains(it.name()));
    }
}

/// Turns `Constant` nodes with a tensor into initialisers, as every engine does on loading.
fn lift_constants(graph: &mut GraphProto) {
    let outputs: BTreeSet<String> = graph.output.iter().map(|it| it.name().to_owned()).collect();
    let mut lifted = Vec::new();
    graph.node.retain(|node| match lifted_constant(node) {
        Some(tensor) if !outputs.contains(tensor.name()) => {
            lifted.push(tensor);
            false
        }
        _ => true,
    });
    graph.initializer.append(&mut lifted);
}

fn lifted_constant(node: &NodeProto) -> Option<TensorProto> {
    let [name] = node.output.as_slice() else {
        return None;
    };
    if !node.is("Constant") {
        return None;
    }
    let tensor = node.attribute("value")?.t.as_deref()?;
    Some(TensorProto {
        name: Some(name.clone()),
        ..tensor.clone()
    })
}

fn names(graph: &GraphProto) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    names.extend(graph.input.iter().map(|it| it.name().to_owned()));
    names.extend(graph.initializer.iter().map(|it| it.name().to_owned()));
    visit_nodes(graph, &mut |node| {
        names.insert(node.name().to_owned());
        names.extend(node.input.iter().chain(&node.output).cloned());
    });
    names
}

fn captured(graph: &GraphProto) -> BTreeSet<String> {
    let mut captured = BTreeSet::new();
    for node in &graph.node {
        for attribute in &node.attribute {
            for inner in attribute.g.as_deref().into_iter().chain(&attribute.graphs) {
                captured.extend(inner.output.iter().map(|it| it.name().to_owned()));
                visit_nodes(inner, &mut |node| {
                    captured.extend(node.input.iter().cloned());
                });
            }
        }
    }
    captured
}

fn visit_nodes(graph: &GraphProto, visit: &mut dyn FnMut(&NodeProto)) {
    let Ok(()) = walk::graph(graph, &mut |found| {
        if let WalkItem::Node(node) = found {
            visit(node);
        }
        Ok::<(), std::convert::Infallible>(())
    });
}
