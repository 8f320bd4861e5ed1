//! Makes fewer, larger nodes: element-by-element nodes behind a product or a convolution are merged into it, and
//! formulas that exporters split up become one operator again.
//!
//! No result depends on this. It is done once for a file, before shapes are known.

use std::{collections::BTreeMap, sync::Arc};

use sextant_onnx::proto::AttributeProto;
use sextant_types::DataType;

use super::{Graph, HostTensor, node::Node};
use crate::operation::Activation;

mod formulas;
mod joined;

/// Applies every fusion.
pub(super) fn fuse(graph: &mut Graph) {
    formulas::layer_norms(graph);
    formulas::gelus(graph);
    normalisations(graph);
    each(graph, follow);
    joined::products(graph);
    scaled_factors(graph);
    turned_factors(graph);
}

/// The producers and the uses of the values of nodes.
struct Links {
    producers: BTreeMap<String, usize>,
    consumers: BTreeMap<String, Vec<usize>>,
    uses: BTreeMap<String, usize>,
}

// === impl Links ===

impl Links {
    fn new(graph: &Graph) -> Self {
        let mut links = Self {
            producers: BTreeMap::new(),
            consumers: BTreeMap::new(),
            uses: graph.uses(),
        };
        for (index, node) in graph.nodes.iter().enumerate() {
            for name in node.outputs.iter().filter(|name| !name.is_empty()) {
                links.producers.insert(name.clone(), index);
            }
            for name in node.inputs.iter().filter(|name| !name.is_empty()) {
                links.consumers.entry(name.clone()).or_default().push(index);
            }
        }
        links
    }

    /// The node that is the only user of another node's only output.
    fn follower(&self, graph: &Graph, index: usize) -> Option<usize> {
        let [output] = graph.nodes[index].outputs.as_slice() else {
            return None;
        };
        let [follower] = self.consumers.get(output)?.as_slice() else {
            return None;
        };
        (self.uses.get(output) == Some(&1)).then_some(*follower)
    }

    /// Notes that a node has moved to the place of another.
    fn replace(&mut self, node: &Node, [from, to]: [usize; 2]) {
        for name in &node.outputs {
            self.producers.insert(name.clone(), to);
        }
        for name in &node.inputs {
            let consumers = self.consumers.get_mut(name).into_iter().flatten();
            consumers.filter(|it| **it == from).for_each(|it| *it = to);
        }
    }

    /// The node of the given kind that produces a value.
    fn producer<'a>(&self, graph: &'a Graph, name: &str, op_type: &str) -> Option<&'a Node> {
        let node = &graph.nodes[*self.producers.get(name)?];
        (node.op_type == op_type).then_some(node)
    }
}

/// Merges followers into every node while this is possible. `merge` returns the node with the follower merged; the
/// follower becomes an empty node.
fn each(graph: &mut Graph, merge: fn(&Graph, &Node, &Node) -> Option<Node>) {
    let mut links = Links::new(graph);
    let mut index = 0;
    while index < graph.nodes.len() {
        let merged = links.follower(graph, index).and_then(|follower| {
            let node = merge(graph, &graph.nodes[index], &graph.nodes[follower])?;
            Some((follower, node))
        });
        let Some((follower, mut node)) = merged else {
            index += 1;
            continue;
        };
        let taken = &mut graph.nodes[follower];
        links.replace(taken, [follower, index]);
        node.outputs = std::mem::take(&mut taken.outputs);
        taken.inputs.clear();
        graph.nodes[index] = node;
    }
    graph.nodes.retain(|node| !node.outputs.is_empty());
}

/// Merges a scale, then a bias, into a product, and an activation into any node that computes in floats.
fn follow(graph: &Graph, node: &Node, follower: &Node) -> Option<Node> {
    if node.activation != Activation::None {
        return None;
    }
    let carries = matches!(
        node.op_type.as_str(),
        "Conv" | "Gemm" | "MatMul" | "Add" | "Sub" | "Mul" | "BatchNormalization"
    );
    let mut merged = node.clone();
    match follower.op_type.as_str() {
        "Relu" if carries => {
            merged.activation = Activation::Relu;
            Some(merged)
        }
        "Mul" | "Div" if node.op_type == "MatMul" && node.inputs.len() == 2 => {
            let factor = graph.constants.get(other(node, follower)?)?;
            let factor = (factor.dims.len() <= 1)
                .then(|| factor.scalar())
                .flatten()? as f32;
            let factor = match (
                follower.op_type.as_str(),
                follower.inputs[0] == node.outputs[0],
            ) {
                ("Mul", _) => factor,
                (_, true) => 1.0 / factor,
                (_, false) => return None,
            };
            let alpha = node.float("alpha", 1.0) * factor;
            merged.attributes.retain(|it| it.name() != "alpha");
            merged
                .attributes
                .push(AttributeProto::float("alpha", alpha));
            Some(merged)
        }
        "Add" if node.op_type == "MatMul" && node.inputs.len() == 2 => {
            let name = other(node, follower)?;
            let bias = graph.constants.get(name)?;
            let right = graph.constants.get(&node.inputs[1])?;
            let fits = right.dims.len() == 2 && bias.dims[..] == right.dims[1..];
            merged.inputs.push(name.clone());
            fits.then_some(merged)
        }
        _ => None,
    }
}

/// Merges the scales of a product's factors into the product, because exporters scale queries and keys.
fn scaled_factors(graph: &mut Graph) {
    let links = Links::new(graph);
    for index in 0..graph.nodes.len() {
        if graph.nodes[index].op_type != "MatMul" {
            continue;
        }
        for side in 0..2 {
            let Some((name, scale)) = scaled_factor(graph, &links, index, side) else {
                continue;
            };
            let node = &mut graph.nodes[index];
            let alpha = node.float("alpha", 1.0) * scale;
            node.inputs[side] = name;
            node.attributes.retain(|it| it.name() != "alpha");
            node.attributes.push(AttributeProto::float("alpha", alpha));
        }
    }
    graph.prune();
}

/// If only a product uses the factor: the value of which the factor is a multiple, and the multiple.
fn scaled_factor(graph: &Graph, links: &Links, index: usize, side: usize) -> Option<(String, f32)> {
    let factor = graph.nodes[index].inputs.get(side)?;
    let node = &graph.nodes[*links.producers.get(factor)?];
    let [first, second] = node.inputs.as_slice() else {
        return None;
    };
    let number = |name: &String| {
        let constant = graph.constants.get(name)?;
        let scalar = constant.scalar().filter(|_| constant.dims.len() <= 1);
        scalar.map(|scale| scale as f32)
    };
    if links.uses.get(factor) != Some(&1) || node.activation != Activation::None {
        return None;
    }
    match (node.op_type.as_str(), number(first), number(second)) {
        ("Mul", None, Some(scale)) => Some((first.clone(), scale)),
        ("Mul", Some(scale), None) => Some((second.clone(), scale)),
        ("Div", None, Some(scale)) => Some((first.clone(), 1.0 / scale)),
        _ => None,
    }
}

/// Merges a transposition of the last two dimensions into the product whose right factor it makes, if the product is
/// its only user. What is left of the transposition keeps neighbours together.
fn turned_factors(graph: &mut Graph) {
    let links = Links::new(graph);
    for index in 0..graph.nodes.len() {
        let node = &graph.nodes[index];
        if node.op_type != "MatMul" {
            continue;
        }
        let factor = node.inputs.get(1).cloned().unwrap_or_default();
        let producer = links.producers.get(&factor).copied();
        let Some(producer) = producer.filter(|_| links.uses.get(&factor) == Some(&1)) else {
            continue;
        };
        let transpose = &mut graph.nodes[producer];
        let order = transpose.attributes.iter_mut();
        let mut order = order.filter(|it| it.name() == "perm");
        if let (true, Some(order)) = (transpose.op_type == "Transpose", order.next())
            && let rank = order.ints.len() as i64
            && let [.., row, column] = order.ints.as_mut_slice()
            && (*row == rank - 1 || *row == -1)
        {
            std::mem::swap(row, column);
            let turned = AttributeProto::int("transB", 1);
            graph.nodes[index].attributes.push(turned);
        }
    }
}

/// The other input of a follower with two.
fn other<'a>(node: &Node, follower: &'a Node) -> Option<&'a String> {
    match follower.inputs.as_slice() {
        [first, second] if *first == node.outputs[0] => Some(second),
        [first, second] if *second == node.outputs[0] => Some(first),
        _ => None,
    }
}

/// Reduces the four vectors of a batch normalisation to two, and merges these into the convolution before it.
fn normalisations(graph: &mut Graph) {
    for index in 0..graph.nodes.len() {
        if graph.nodes[index].op_type == "BatchNormalization" {
            let _ = simplify(graph, index);
        }
    }
    each(graph, |_, node, follower| {
        let fused = follower.op_type == "BatchNormalization" && follower.inputs.len() == 3;
        // A second normalisation stays where it is.
        let is_free = node.op_type == "Conv" && node.inputs.len() <= 3;
        (fused && is_free && node.activation == Activation::None).then(|| pending(node, follower))
    });
    // A normalisation that becomes a node again shifts the nodes behind it.
    let mut index = 0;
    while let Some(node) = graph.nodes.get(index) {
        if node.op_type == "Conv" && node.inputs.len() == 5 {
            absorb(graph, index);
        }
        index += 1;
    }
}

/// `None` if the statistics are not constant, or if those of the batch are asked for; then lowering reports it.
fn simplify(graph: &mut Graph, index: usize) -> Option<()> {
    let node = &graph.nodes[index];
    if node.int("training_mode", 0) != 0 {
        return None;
    }
    let vector = |at: usize| graph.constants.get(node.inputs.get(at)?)?.to_floats();
    let (scale, bias, mean, variance) = (vector(1)?, vector(2)?, vector(3)?, vector(4)?);
    let length = scale.len();
    if [bias.len(), mean.len(), variance.len()] != [length; 3] {
        return None;
    }
    let epsilon = node.float("epsilon", 1e-5);
    let scale: Vec<f32> = (0..length)
        .map(|at| scale[at] / (variance[at] + epsilon).sqrt())
        .collect();
    let shift: Vec<f32> = (0..length)
        .map(|at| bias[at] - mean[at] * scale[at])
        .collect();
    let names = ["scale", "shift"].map(|what| format!("{} {what}", node.outputs[0]));
    for (name, values) in names.iter().zip([scale, shift]) {
        let tensor = HostTensor::floats(&[length as u64], &values);
        graph.constants.insert(name.clone(), Arc::new(tensor));
    }
    let node = &mut graph.nodes[index];
    node.inputs.truncate(1);
    node.inputs.extend(names);
    Some(())
}

/// A convolution that carries the names of a scale and a shift as its fourth and fifth input.
fn pending(node: &Node, follower: &Node) -> Node {
    let mut merged = node.clone();
    merged.inputs.resize(3, String::new());
    merged.inputs.extend_from_slice(&follower.inputs[1..]);
    merged
}

/// Scales the weights and the bias. A normalisation that cannot be merged becomes a node again.
fn absorb(graph: &mut Graph, index: usize) {
    let Some((weights, bias)) = scaled(graph, index) else {
        separate(graph, index);
        return;
    };
    let output = graph.nodes[index].outputs[0].clone();
    let names = ["weights", "bias"].map(|what| format!("{output} {what}"));
    for (name, tensor) in names.iter().zip([weights, bias]) {
        graph.constants.insert(name.clone(), Arc::new(tensor));
    }
    let node = &mut graph.nodes[index];
    node.inputs.truncate(1);
    node.inputs.extend(names);
}

fn scaled(graph: &Graph, index: usize) -> Option<(HostTensor, HostTensor)> {
    let inputs = &graph.nodes[index].inputs;
    let tensor = |at: usize| graph.constants.get(&inputs[at]);
    let weights = tensor(1)?;
    let (scale, shift) = (tensor(3)?.to_floats()?, tensor(4)?.to_floats()?);
    let channels = scale.len();
    let bias = match inputs[2].as_str() {
        "" => vec![0.0; channels],
        _ => tensor(2)?.to_floats()?,
    };
    let fits = weights.data_type == DataType::Fp32
        && weights.dims.first() == Some(&(channels as u64))
        && bias.len() == channels;
    if !fits || channels == 0 {
        return None;
    }
    let mut values = weights.to_floats()?;
    let each = values.len() / channels;
    for (line, scale) in values.chunks_exact_mut(each.max(1)).zip(&scale) {
        line.iter_mut().for_each(|value| *value *= scale);
    }
    let bias: Vec<f32> = (0..channels)
        .map(|at| bias[at] * scale[at] + shift[at])
        .collect();
    Some((
        HostTensor::floats(&weights.dims, &values),
        HostTensor::floats(&[channels as u64], &bias),
    ))
}

fn separate(graph: &mut Graph, index: usize) {
    let node = &mut graph.nodes[index];
    let vectors = node.inputs.split_off(3);
    let output = node.outputs[0].clone();
    let middle = format!("{output} before normalisation");
    node.outputs = vec![middle.clone()];
    let normalisation = Node {
        name: format!("{} normalisation", node.name),
        op_type: "BatchNormalization".to_owned(),
        inputs: [vec![middle], vectors].concat(),
        outputs: vec![output],
        attributes: Vec::new(),
        activation: Activation::None,
    };
    graph.nodes.insert(index + 1, normalisation);
}
