//! Signs in a file against batches: rows of a batch that change each other's answers.
//!
//! - [`mixes_rows`] finds operators that compute a value from all rows together. `DynamicQuantizeLinear` and similar
//!   operators use one scale for the whole batch, and so does a maximum or minimum over everything, from which people
//!   build such scales by hand. One row with large values then lowers the precision of all others, which no validation
//!   set shows.
//! - [`counted_output`] reads the names of dimensions: if inputs say `batch` and an output says `num_dets`, the output
//!   counts something else.

use std::collections::BTreeSet;

use bytes::Bytes;

use crate::{
    Error, decode,
    proto::{
        AttributeProto, Dimension, GraphProto, NodeProto, ValueInfoProto, dimension, type_proto,
    },
    turn::is_batch_name,
    walk::{self, WalkItem},
};

/// Operators that use one scale for all of their first input, by set and name.
const SCALED: [(&str, &str); 4] = [
    ("", "DynamicQuantizeLinear"),
    ("com.microsoft", "DynamicQuantizeLinear"),
    ("com.microsoft", "DynamicQuantizeMatMul"),
    ("com.microsoft", "DynamicQuantizeLSTM"),
];

/// Operators whose result does not depend on values.
const OF_SHAPES: [&str; 2] = ["Shape", "Size"];

/// Names of a first dimension that count records, in addition to those of a batch.
const RECORDS: [&str; 8] = [
    "sample", "row", "record", "example", "instance", "item", "image", "query",
];

/// Parts of names that exporters and shape inference generate.
const MADE_UP: [&str; 5] = ["unk", "dim", "dyn", "sym", "none"];

/// An output whose first dimension counts something other than the batch, by the file's own names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountedOutput {
    /// The output's name.
    pub output: String,
    /// The name of its first dimension.
    pub counts: String,
    /// The name of the inputs' first dimension, if there is one.
    pub batch: Option<String>,
}

/// The first operator that computes a value from all rows of a batch together, in words; `None` if there is none.
///
/// # Errors
/// [`Error::NotOnnx`] if the bytes are not a model.
pub fn mixes_rows(bytes: &Bytes) -> Result<Option<String>, Error> {
    let model = decode(bytes)?;
    let constants = constants(model.graph.as_ref());
    let found = walk::model(&model, &mut |found| match found {
        WalkItem::Node(node) if is_scaled(node) && !is_constant(node, &constants) => {
            let operator = node.op_type();
            Err(format!(
                "`{operator}` finds one scale for all rows of a batch"
            ))
        }
        _ => Ok(()),
    });
    let of_extremes = || model.graph.as_ref().and_then(extreme_of_all);
    Ok(found.err().or_else(of_extremes))
}

/// The output that cannot be divided among records, by the file's own names.
///
/// # Errors
/// [`Error::NotOnnx`] if the bytes are not a model.
pub fn counted_output(bytes: &Bytes) -> Result<Option<CountedOutput>, Error> {
    let model = decode(bytes)?;
    let Some(graph) = &model.graph else {
        return Ok(None);
    };
    let constants: BTreeSet<&str> = graph.initializer.iter().map(|it| it.name()).collect();
    let given = graph.input.iter();
    let given = given.filter(|input| !constants.contains(input.name()));
    let firsts: Vec<&Dimension> = given.filter_map(first_dimension).collect();
    let symbols: BTreeSet<&str> = firsts.iter().filter_map(|dim| symbol(dim)).collect();
    let batch = symbols.iter().copied().find(|name| is_batch_name(name));
    let is_lone = !firsts.is_empty() && firsts.iter().all(|dim| is_one(dim));
    if batch.is_none() && !is_lone {
        return Ok(None);
    }
    let counted = graph.output.iter().find_map(|output| {
        let counts = first_dimension(output).and_then(symbol)?;
        (!symbols.contains(counts) && names_a_count(counts)).then(|| CountedOutput {
            output: output.name().to_owned(),
            counts: counts.to_owned(),
            batch: batch.map(str::to_owned),
        })
    });
    Ok(counted)
}

fn is_scaled(node: &NodeProto) -> bool {
    let set = match node.domain() {
        "ai.onnx" => "",
        set => set,
    };
    SCALED.contains(&(set, node.op_type()))
}

/// Names of the values that are the same in every run: initialisers, and outputs of `Constant`.
fn constants(graph: Option<&GraphProto>) -> BTreeSet<&str> {
    let Some(graph) = graph else {
        return BTreeSet::new();
    };
    let stored = graph.initializer.iter().map(|it| it.name());
    let made = graph.node.iter().filter(|node| node.is("Constant"));
    let made = made.flat_map(|node| node.output.iter().map(String::as_str));
    stored.chain(made).collect()
}

fn is_constant(node: &NodeProto, constants: &BTreeSet<&str>) -> bool {
    let first = node.input.first();
    first.is_some_and(|input| constants.contains(input.as_str()))
}

/// A maximum or minimum over a whole tensor that depends on inputs.
fn extreme_of_all(graph: &GraphProto) -> Option<String> {
    let constants = constants(Some(graph));
    let given = graph.input.iter().map(|input| input.name());
    let mut decided: BTreeSet<&str> = given.filter(|it| !constants.contains(it)).collect();
    for node in &graph.node {
        let reads_them = node.input.iter().any(|it| decided.contains(it.as_str()));
        if !reads_them || OF_SHAPES.iter().any(|it| node.is(it)) {
            continue;
        }
        let is_extreme = node.is("ReduceMax") || node.is("ReduceMin");
        if is_extreme && is_over_all(node) {
            let operator = node.op_type();
            return Some(format!(
                "`{operator}` takes one value of all rows of a batch"
            ));
        }
        decided.extend(node.output.iter().map(String::as_str));
    }
    None
}

/// Whether a reduction names no axes.
fn is_over_all(node: &NodeProto) -> bool {
    let has_axes = node.attribute("axes").is_some_and(|it| !it.ints.is_empty())
        || node.input.get(1).is_some_and(|axes| !axes.is_empty());
    let does_nothing = node
        .attribute("noop_with_empty_axes")
        .map_or(0, AttributeProto::i)
        != 0;
    !has_axes && !does_nothing
}

/// Whether a name says that a dimension counts something other than records.
pub(crate) fn names_a_count(symbol: &str) -> bool {
    let name = symbol.to_lowercase();
    let has = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
    let is_word = name.len() > 2 && name.chars().all(|it| it.is_ascii_alphabetic() || it == '_');
    is_word && !is_batch_name(symbol) && !has(&RECORDS) && !has(&MADE_UP)
}

fn first_dimension(value: &ValueInfoProto) -> Option<&Dimension> {
    match value.r#type.as_ref()?.value.as_ref()? {
        type_proto::Value::TensorType(tensor) => tensor.shape.as_ref()?.dim.first(),
        _ => None,
    }
}

fn symbol(dim: &Dimension) -> Option<&str> {
    match &dim.value {
        Some(dimension::Value::DimParam(symbol)) if !symbol.is_empty() => Some(symbol),
        _ => None,
    }
}

fn is_one(dim: &Dimension) -> bool {
    matches!(dim.value, Some(dimension::Value::DimValue(1)))
}
