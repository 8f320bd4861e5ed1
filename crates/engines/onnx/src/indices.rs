//! The numbers that an input may hold if it is looked up in a table of the model.
//!
//! `Gather` and `GatherElements` accept numbers from the negative size of the table's axis to one below its size.
//! Engines differ in their treatment of other numbers: some fail, some answer zeros. Only inputs that reach the
//! operator unchanged are followed, and only tables whose size the file says.

use std::{collections::HashMap, ops::RangeInclusive};

use sextant_types::DataType;

use crate::{
    proto::{AttributeProto, GraphProto, NodeProto, ValueInfoProto, type_proto},
    tensor::element_type,
};

/// Operators that pass on every element of their first input.
const PASS_ON: [&str; 7] = [
    "Identity",
    "Cast",
    "Reshape",
    "Flatten",
    "Squeeze",
    "Unsqueeze",
    "Transpose",
];

/// Operators whose output has the shape of their first input.
const KEEP_SHAPE: [&str; 3] = ["Identity", "Cast", "DequantizeLinear"];

/// The numbers that each input may hold; an input may be looked up in several tables.
pub(crate) fn ranges(graph: &GraphProto) -> Vec<(String, RangeInclusive<i64>)> {
    let mut tables: HashMap<&str, &[i64]> = HashMap::new();
    for table in &graph.initializer {
        tables.insert(table.name(), &table.dims);
    }
    let is_given =
        |input: &&ValueInfoProto| is_integer(input) && !tables.contains_key(input.name());
    let inputs = graph.input.iter().filter(is_given);
    let mut origins: HashMap<&str, &str> = inputs.map(|it| (it.name(), it.name())).collect();
    let mut found = Vec::new();
    for node in &graph.node {
        let Some(output) = node.output.first() else {
            continue;
        };
        let table = node.input.first().and_then(|it| tables.get(&**it)).copied();
        if KEEP_SHAPE.iter().any(|kind| node.is(kind)) {
            tables.extend(table.map(|it| (&**output, it)));
        }
        if node.is("Constant") {
            let value = node.attribute("value").and_then(|it| it.t.as_deref());
            tables.extend(value.map(|it| (&**output, &it.dims[..])));
        }
        if PASS_ON.iter().any(|kind| node.is(kind)) {
            let origin = node.input.first().and_then(|it| origins.get(&**it));
            origins.extend(origin.copied().map(|it| (&**output, it)));
        }
        if node.is("Gather") || node.is("GatherElements") {
            let origin = node.input.get(1).and_then(|it| origins.get(&**it));
            let size = table.and_then(|dims| size_of(node, dims));
            let range = origin.zip(size);
            found.extend(range.map(|(it, size)| ((*it).to_owned(), -size..=size - 1)));
        }
    }
    found
}

/// The size of the axis that is looked up.
fn size_of(node: &NodeProto, dims: &[i64]) -> Option<i64> {
    let axis = node.attribute("axis").map_or(0, AttributeProto::i);
    let axis = match axis < 0 {
        true => axis.checked_add_unsigned(dims.len() as u64)?,
        false => axis,
    };
    let size = dims.get(usize::try_from(axis).ok()?)?;
    (*size > 0).then_some(*size)
}

fn is_integer(value: &ValueInfoProto) -> bool {
    let kind = value.r#type.as_ref().and_then(|it| it.value.as_ref());
    let element = match kind {
        Some(type_proto::Value::TensorType(tensor)) => tensor.elem_type.and_then(element_type),
        _ => None,
    };
    matches!(element, Some(DataType::Int32 | DataType::Int64))
}
