//! Finds outputs that follow from 64-bit integers that need more than 32 bits.
//!
//! Some engines compute such integers in 32 bits. That is enough for positions, classes and counts, which models output
//! as integers, and for inputs that fit and are passed on. Sums and products of inputs, and floats that are converted
//! to integers, may not fit, and would silently be wrong. A small integer that follows from such a sum is wrong as
//! well: a remainder, a comparison, the position of the greatest. The greatest possible size of each value is followed
//! from the inputs on, node by node; an unknown value can have any size. Floats that follow from such sums are wrong as
//! well (`follow`).

mod follow;

use std::collections::{HashMap, HashSet};

use sextant_types::{DataType, Tensor, convert};

use crate::{
    proto::{AttributeProto, GraphProto, NodeProto, TensorProto, ValueInfoProto, type_proto},
    tensor::element_type,
};

/// Largest magnitude of a positive number in 32 bits.
const MOST: f64 = i32::MAX as f64;

/// The assumed size of a value that follows from an integer that may have been cut.
const CUT: f64 = i64::MAX as f64;

/// The assumed size of a dimension, and so of a position or a count: larger ones would belong to tensors that no query
/// has.
const POSITION: f64 = (1 << 20) as f64;

/// Constants with more elements are not examined.
const MOST_ELEMENTS: u64 = 1 << 16;

/// Operators that pass on the elements of their inputs, with any sign.
const PASS_ON: [&str; 13] = [
    "Identity",
    "Cast",
    "Flatten",
    "Transpose",
    "Concat",
    "Max",
    "Min",
    "MaxPool",
    "Abs",
    "Neg",
    "Floor",
    "Ceil",
    "Round",
];

/// Operators that pass on the elements of the first input; the others are shapes, axes or positions.
const PASS_ON_FIRST: [&str; 13] = [
    "Reshape",
    "Squeeze",
    "Unsqueeze",
    "Slice",
    "Split",
    "Gather",
    "GatherElements",
    "GatherND",
    "Expand",
    "Tile",
    "Compress",
    "ReduceMax",
    "ReduceMin",
];

/// Operators that output positions, sizes or counts.
const POSITIONS: [&str; 7] = [
    "ArgMax",
    "ArgMin",
    "NonZero",
    "Shape",
    "Size",
    "NonMaxSuppression",
    "Multinomial",
];

/// Operators that output nothing beyond 1.
const UNITS: [&str; 18] = [
    "Not",
    "And",
    "Or",
    "Xor",
    "Equal",
    "Less",
    "LessOrEqual",
    "Greater",
    "GreaterOrEqual",
    "IsNaN",
    "IsInf",
    "Sign",
    "Sigmoid",
    "HardSigmoid",
    "Softmax",
    "Tanh",
    "Sin",
    "Cos",
];

/// Operators that output small integers, however large their inputs are.
const SMALL: [&str; 5] = ["Mod", "Clip", "ArgMax", "ArgMin", "NonZero"];

/// The smallest and the largest possible magnitude of a value's elements.
#[derive(Debug, Clone, Copy)]
struct Range {
    least: f64,
    most: f64,
}

const ANY: Range = Range {
    least: 0.0,
    most: f64::INFINITY,
};

/// The first output of 64-bit integers that may need more than 32 bits, or of values that follow from such integers.
pub(crate) fn wide_output(graph: &GraphProto) -> Option<String> {
    let wide = |value: &ValueInfoProto| {
        matches!(
            declared(value),
            Some(DataType::Int64 | DataType::Uint64 | DataType::Uint32)
        )
    };
    let whole =
        |value: &ValueInfoProto| matches!(declared(value), Some(DataType::Int32 | DataType::Int64));
    // Most models have neither.
    if !graph.output.iter().any(wide) && !graph.input.iter().any(whole) {
        return None;
    }
    let (known, floats) = magnitudes(graph);
    let cut = follow::cut(graph, &known, &floats);
    let found = graph.output.iter().find(|output| {
        let most = known.get(output.name()).copied().unwrap_or(ANY).most;
        match wide(output) {
            true => most > MOST,
            false => cut.contains(output.name()),
        }
    });
    found.map(|output| output.name().to_owned())
}

fn declared(value: &ValueInfoProto) -> Option<DataType> {
    match value.r#type.as_ref()?.value.as_ref()? {
        type_proto::Value::TensorType(tensor) => element_type(tensor.elem_type?),
        _ => None,
    }
}

/// The possible magnitudes of each value of the main graph, and the values that are floats; nodes come in the order in
/// which they run.
fn magnitudes(graph: &GraphProto) -> (HashMap<&str, Range>, HashSet<&str>) {
    let mut known = HashMap::new();
    let mut floats: HashSet<&str> = HashSet::new();
    for input in &graph.input {
        let data_type = declared(input);
        let most = of_type(data_type);
        known.insert(input.name(), Range { least: 0.0, most });
        if data_type.is_some_and(convert::is_float) {
            floats.insert(input.name());
        }
    }
    for constant in &graph.initializer {
        known.insert(constant.name(), of_constant(constant));
        if constant.is_float() {
            floats.insert(constant.name());
        }
    }
    for node in &graph.node {
        let is_standard = matches!(node.domain(), "" | "ai.onnx");
        let are_floats = makes_floats(node, &floats);
        for (at, output) in node.output.iter().enumerate() {
            let range = match is_standard {
                true if node.is("Constant") => of_attributes(node),
                true => Range {
                    least: 0.0,
                    most: of_node(node, at, (&known, &floats)),
                },
                false => ANY,
            };
            known.insert(output.as_str(), range);
            if are_floats {
                floats.insert(output.as_str());
            }
        }
    }
    (known, floats)
}

/// Whether a node outputs floats: a node that gets some and does not convert them.
fn makes_floats(node: &NodeProto, floats: &HashSet<&str>) -> bool {
    match node.attribute("to").filter(|_| node.is("Cast")) {
        Some(to) => i32::try_from(to.i())
            .ok()
            .and_then(element_type)
            .is_some_and(convert::is_float),
        None => {
            let mut inputs = node.input.iter();
            !POSITIONS.contains(&node.op_type()) && inputs.any(|it| floats.contains(it.as_str()))
        }
    }
}

/// Engines refuse integers of inputs that do not fit.
fn of_type(data_type: Option<DataType>) -> f64 {
    match data_type {
        Some(DataType::Bool) => 1.0,
        Some(DataType::Int8 | DataType::Uint8) => f64::from(u8::MAX),
        Some(DataType::Int16 | DataType::Uint16) => f64::from(u16::MAX),
        Some(DataType::Int32 | DataType::Int64) => MOST,
        _ => f64::INFINITY,
    }
}

fn of_constant(tensor: &TensorProto) -> Range {
    let is_small = tensor.elements().is_ok_and(|count| count <= MOST_ELEMENTS);
    if !is_small || tensor.is_external() {
        return ANY;
    }
    let Some((data_type, bytes)) = tensor.to_bytes() else {
        return ANY;
    };
    let dims = vec![bytes.len() / data_type.size().unwrap_or(1)];
    let read = Tensor::from_bytes(data_type, dims, bytes).ok();
    let numbers = read.as_ref().and_then(convert::numbers);
    let Some(numbers) = numbers else {
        return ANY;
    };
    let none = Range {
        least: f64::INFINITY,
        most: 0.0,
    };
    numbers.fold(none, |range, number| {
        let magnitude = number.real().abs();
        match magnitude.is_nan() {
            true => ANY,
            false => Range {
                least: range.least.min(magnitude),
                most: range.most.max(magnitude),
            },
        }
    })
}

fn of_node(
    node: &NodeProto,
    output: usize,
    (known, floats): (&HashMap<&str, Range>, &HashSet<&str>),
) -> f64 {
    let range = |at: usize| {
        let name = node.input.get(at).filter(|name| !name.is_empty());
        name.map(|name| known.get(name.as_str()).copied().unwrap_or(ANY))
    };
    let of = |at: usize| range(at).map(|range| range.most);
    let given = |from: usize| (from..node.input.len()).filter_map(of);
    let any = |from: usize| of(from).unwrap_or(f64::INFINITY);
    let most = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, f64::max);
    let is_cut = |at: usize| {
        let name = node.input.get(at);
        let is_integer = name.is_some_and(|name| !floats.contains(name.as_str()));
        is_integer && of(at).is_some_and(|most| most > MOST && most.is_finite())
    };
    match node.op_type() {
        op if SMALL.contains(&op) && is_cut(0) => CUT,
        op if UNITS.contains(&op) && (is_cut(0) || is_cut(1)) => CUT,
        op if POSITIONS.contains(&op) => POSITION,
        op if UNITS.contains(&op) => 1.0,
        "ConstantOfShape" => node
            .attribute("value")
            .map_or(0.0, |it| of_attribute(it).most),
        "TopK" if output == 1 => POSITION,
        "TopK" => any(0),
        // The first is the condition.
        "Where" if is_cut(0) => CUT,
        "Where" => most(&mut given(1)),
        op if PASS_ON_FIRST.contains(&op) => any(0),
        "ScatterElements" | "ScatterND" => any(0).max(any(2)),
        "Pad" => any(0).max(of(2).unwrap_or(0.0)),
        op if PASS_ON.contains(&op) => most(&mut given(0)),
        "Clip" => match (of(1), of(2)) {
            (Some(least), Some(greatest)) => any(0).min(least.max(greatest)),
            _ => any(0),
        },
        "Add" | "Sub" => any(0) + any(1),
        "Sum" => given(0).sum(),
        "Mul" if any(0) == 0.0 || any(1) == 0.0 => 0.0,
        "Mul" => any(0) * any(1),
        "Div" if range(1).is_some_and(|divisor| divisor.least >= 1.0) => any(0),
        // With the dividend's sign (`fmod`), or with the divisor's: then -1 leaves one less than the divisor.
        "Mod" if node.attribute("fmod").is_some_and(|it| it.i() != 0) => any(0).min(any(1)),
        "Mod" => any(1),
        "ReduceSum" | "CumSum" => any(0) * POSITION,
        "Range" => any(0).max(any(1)),
        _ => f64::INFINITY,
    }
}

fn of_attributes(node: &NodeProto) -> Range {
    node.attribute.first().map_or(ANY, of_attribute)
}

fn of_attribute(attribute: &AttributeProto) -> Range {
    if let Some(tensor) = &attribute.t {
        return of_constant(tensor);
    }
    match attribute.name() {
        "value_int" | "value_ints" => {
            let all = attribute.ints.iter().chain(&attribute.i);
            let all = all.map(|value| (*value as f64).abs());
            Range {
                least: all.clone().fold(f64::INFINITY, f64::min),
                most: all.fold(0.0, f64::max),
            }
        }
        _ => ANY,
    }
}
