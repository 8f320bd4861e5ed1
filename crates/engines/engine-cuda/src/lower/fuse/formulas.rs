//! Recognises formulas that exporters split up.

use sextant_onnx::proto::AttributeProto;

use super::Links;
use crate::lower::{Graph, node::Node};

/// `(x - mean(x)) / sqrt(mean((x - mean(x))^2) + epsilon) * scale + shift` over the last dimension.
pub(super) fn layer_norms(graph: &mut Graph) {
    let links = Links::new(graph);
    for index in 0..graph.nodes.len() {
        if let Some(node) = layer_norm(graph, &links, index) {
            graph.nodes[index] = node;
        }
    }
}

/// The node that computes the formula whose last step is at `index`.
fn layer_norm(graph: &Graph, links: &Links, index: usize) -> Option<Node> {
    let last = &graph.nodes[index];
    let (scaled, shift) = with_constant(graph, last, "Add")?;
    let scaled = links.producer(graph, scaled, "Mul")?;
    let (normal, scale) = with_constant(graph, scaled, "Mul")?;
    let normal = links.producer(graph, normal, "Div")?;
    let [difference, deviation] = normal.inputs.as_slice() else {
        return None;
    };
    let x = centred(graph, links, difference)?;
    let epsilon = variance_of(graph, links, deviation, difference)?;
    // One scale for all elements is not one scale for each element.
    let vector = |name: &String| {
        let constant = graph.constants.get(name);
        constant.is_some_and(|it| it.dims.len() == 1 && it.dims[0] > 1)
    };
    if !vector(scale)
        || !vector(shift)
        || graph.constants[scale].dims != graph.constants[shift].dims
    {
        return None;
    }
    Some(Node {
        name: last.name.clone(),
        op_type: "LayerNormalization".to_owned(),
        inputs: vec![x, scale.clone(), shift.clone()],
        outputs: last.outputs.clone(),
        attributes: vec![
            AttributeProto::int("axis", -1),
            AttributeProto::float("epsilon", epsilon),
        ],
        activation: last.activation,
    })
}

/// The `x` of `x - mean(x)`.
fn centred(graph: &Graph, links: &Links, name: &str) -> Option<String> {
    let difference = links.producer(graph, name, "Sub")?;
    let [x, mean] = difference.inputs.as_slice() else {
        return None;
    };
    (mean_of(graph, links, mean)? == x).then(|| x.clone())
}

/// The epsilon of `sqrt(mean(difference^2) + epsilon)`.
fn variance_of(graph: &Graph, links: &Links, name: &str, difference: &str) -> Option<f32> {
    let root = links.producer(graph, name, "Sqrt")?;
    let sum = links.producer(graph, &root.inputs[0], "Add")?;
    let (variance, epsilon) = with_constant(graph, sum, "Add")?;
    let square = mean_of(graph, links, variance)?;
    let square = &graph.nodes[*links.producers.get(square)?];
    let same = |at: usize| square.inputs.get(at).is_some_and(|name| name == difference);
    let is_square = match square.op_type.as_str() {
        "Mul" => same(0) && same(1),
        "Pow" => same(0) && number(graph, square.inputs.get(1)?)? == 2.0,
        _ => false,
    };
    if !is_square {
        return None;
    }
    Some(number(graph, epsilon)? as f32)
}

/// The value whose mean over the last dimension `name` is.
fn mean_of<'a>(graph: &'a Graph, links: &Links, name: &str) -> Option<&'a String> {
    let mean = links.producer(graph, name, "ReduceMean")?;
    let axes = match mean.ints("axes") {
        Some(axes) => axes.to_vec(),
        None => graph.constants.get(mean.inputs.get(1)?)?.to_integers()?,
    };
    (axes == [-1] && mean.int("keepdims", 1) == 1).then(|| &mean.inputs[0])
}

/// `x / 2 * (1 + erf(x / sqrt(2)))`, with the half in either place.
pub(super) fn gelus(graph: &mut Graph) {
    let links = Links::new(graph);
    for index in 0..graph.nodes.len() {
        if let Some(node) = gelu(graph, &links, index) {
            graph.nodes[index] = node;
        }
    }
}

fn gelu(graph: &Graph, links: &Links, index: usize) -> Option<Node> {
    let last = &graph.nodes[index];
    let x = half_outside(graph, links, last).or_else(|| half_inside(graph, links, last))?;
    Some(Node {
        name: last.name.clone(),
        op_type: "Gelu".to_owned(),
        inputs: vec![x],
        outputs: last.outputs.clone(),
        attributes: Vec::new(),
        activation: last.activation,
    })
}

/// `(x * (1 + erf(..))) * 0.5`.
fn half_outside(graph: &Graph, links: &Links, last: &Node) -> Option<String> {
    let product = factor(graph, last, 0.5)?;
    let product = links.producer(graph, product, "Mul")?;
    either(product, |x, bell| {
        let found = bell_of(graph, links, bell)?;
        (found == *x).then_some(found)
    })
}

/// `(x * 0.5) * (1 + erf(..))`.
fn half_inside(graph: &Graph, links: &Links, last: &Node) -> Option<String> {
    if last.op_type != "Mul" {
        return None;
    }
    either(last, |half, bell| {
        let found = bell_of(graph, links, bell)?;
        let half = links.producer(graph, half, "Mul")?;
        (*factor(graph, half, 0.5)? == found).then_some(found)
    })
}

/// The `x` of `1 + erf(x / sqrt(2))`.
fn bell_of(graph: &Graph, links: &Links, name: &str) -> Option<String> {
    let sum = links.producer(graph, name, "Add")?;
    let (erf, one) = with_constant(graph, sum, "Add")?;
    if number(graph, one)? != 1.0 {
        return None;
    }
    let erf = links.producer(graph, erf, "Erf")?;
    let scaled = &graph.nodes[*links.producers.get(&erf.inputs[0])?];
    let root = std::f64::consts::SQRT_2;
    let near = |value: f64, wanted: f64| (value - wanted).abs() < 1e-4;
    match scaled.op_type.as_str() {
        "Div" if near(number(graph, &scaled.inputs[1])?, root) => Some(scaled.inputs[0].clone()),
        "Mul" => {
            let (x, factor) = with_constant(graph, scaled, "Mul")?;
            near(number(graph, factor)?, 1.0 / root).then(|| x.clone())
        }
        _ => None,
    }
}

/// The other factor of a product with a constant number.
fn factor<'a>(graph: &Graph, node: &'a Node, wanted: f64) -> Option<&'a String> {
    let (x, factor) = with_constant(graph, node, "Mul")?;
    (number(graph, factor)? == wanted).then_some(x)
}

/// The two inputs of a node, the constant one last.
fn with_constant<'a>(
    graph: &Graph,
    node: &'a Node,
    op_type: &str,
) -> Option<(&'a String, &'a String)> {
    let [a, b] = node.inputs.as_slice() else {
        return None;
    };
    let constant = |name: &String| graph.constants.contains_key(name);
    match (node.op_type == op_type, constant(a), constant(b)) {
        (true, false, true) => Some((a, b)),
        (true, true, false) => Some((b, a)),
        _ => None,
    }
}

fn number(graph: &Graph, name: &str) -> Option<f64> {
    graph.constants.get(name)?.scalar()
}

fn either<T>(node: &Node, test: impl Fn(&String, &String) -> Option<T>) -> Option<T> {
    let [a, b] = node.inputs.as_slice() else {
        return None;
    };
    test(a, b).or_else(|| test(b, a))
}
