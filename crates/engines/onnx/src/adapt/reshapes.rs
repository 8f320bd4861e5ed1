//! Batch sizes that exporters write into `Reshape`: a file that was traced with one record asks for one row wherever it
//! changes a shape.

use std::collections::BTreeSet;

use sextant_types::DataType;

use crate::proto::{AttributeProto, GraphProto, NodeProto, TensorProto};

/// A shape without the size of the batch.
enum FreeShape {
    /// Its first dimension follows from the others.
    Following(Vec<i64>),
    /// Its first dimension is the number of the inputs' rows; these follow it.
    BehindRows(Vec<i64>),
}

/// Removes the size of the batch, `sample`, from the constant shapes of `Reshape` if the reshaped value depends on the
/// inputs: the first dimension then follows from the others, or is that of the first input. So for inputs with as many
/// rows as the sample, every shape is unchanged. The reshaped value does not show the rows: its own first dimension may
/// be any other. The file does not show whether the model then takes batches. Returns the number of changed nodes.
pub(super) fn free(graph: &mut GraphProto, sample: i64) -> usize {
    let constants: BTreeSet<&str> = graph.initializer.iter().map(|it| it.name()).collect();
    let given = graph.input.iter().map(|it| it.name());
    let given = given.filter(|name| !constants.contains(name));
    let given: Vec<String> = given.map(str::to_owned).collect();
    let mut decided: BTreeSet<String> = given.iter().cloned().collect();
    let mut freed = Vec::new();
    for (at, node) in graph.node.iter().enumerate() {
        if !node.input.iter().any(|it| decided.contains(it)) || node.is("Shape") || node.is("Size")
        {
            continue;
        }
        decided.extend(node.output.iter().cloned());
        let shape = free_shape(graph, node, sample, &decided);
        freed.extend(shape.map(|shape| (at, shape)));
    }
    let count = freed.len();
    if let Some(input) = given.first() {
        put(graph, input, freed);
    }
    count
}

/// Gives each `Reshape`, by its position, its new shape.
fn put(graph: &mut GraphProto, input: &str, freed: Vec<(usize, FreeShape)>) {
    let rows = format!("{input}/batch_rows");
    let needs_rows = |(_, shape): &(usize, FreeShape)| matches!(shape, FreeShape::BehindRows(_));
    let before = std::mem::take(&mut graph.node);
    if freed.iter().any(needs_rows) {
        count_rows(graph, input, &rows);
    }
    let mut freed = freed.into_iter().peekable();
    for (at, mut node) in before.into_iter().enumerate() {
        if let Some((_, shape)) = freed.next_if(|(of, _)| *of == at) {
            let name = format!("{}/{at}", node.input[1]);
            match shape {
                FreeShape::Following(sizes) => graph.initializer.push(list(&name, &sizes)),
                FreeShape::BehindRows(sizes) => join(graph, &rows, (&name, &sizes)),
            }
            node.input[1] = name;
        }
        graph.node.push(node);
    }
}

/// Adds nodes that output the number of an input's rows, as a list of one number.
fn count_rows(graph: &mut GraphProto, input: &str, rows: &str) {
    let [shape, first] = ["shape", "first"].map(|part| format!("{input}/batch_{part}"));
    graph.initializer.push(list(&first, &[0]));
    graph.node.extend([
        NodeProto::new("Shape", &shape, &[input], &[&shape]),
        NodeProto::new("Gather", rows, &[&shape, &first], &[rows]),
    ]);
}

/// Adds a node that puts the number of rows before sizes.
fn join(graph: &mut GraphProto, rows: &str, (name, sizes): (&str, &[i64])) {
    let rest = format!("{name}/rest");
    graph.initializer.push(list(&rest, sizes));
    let node = NodeProto::new("Concat", name, &[rows, &rest], &[name]);
    graph.node.push(node.with(AttributeProto::int("axis", 0)));
}

fn list(name: &str, values: &[i64]) -> TensorProto {
    TensorProto::from_elements(name, &[values.len()], values)
}

/// The new shape for a `Reshape` of a value that depends on inputs; `None` if it need not change.
fn free_shape(
    graph: &GraphProto,
    node: &NodeProto,
    sample: i64,
    decided: &BTreeSet<String>,
) -> Option<FreeShape> {
    let [data, shape] = node.input.as_slice() else {
        return None;
    };
    if !node.is("Reshape") || !decided.contains(data) {
        return None;
    }
    let sizes = integers(constant(graph, shape)?)?;
    let (first, rest) = sizes.split_first()?;
    let follows = !rest.contains(&-1) && !rest.contains(&0);
    match (*first, follows) {
        (size, _) if size <= 0 => None,
        (_, true) => Some(FreeShape::Following([&[-1][..], rest].concat())),
        (size, false) if size == sample => Some(FreeShape::BehindRows(rest.to_vec())),
        _ => None,
    }
}

fn constant<'a>(graph: &'a GraphProto, name: &str) -> Option<&'a TensorProto> {
    let stored = graph.initializer.iter().find(|it| it.name() == name);
    stored.or_else(|| {
        let mut made = graph.node.iter().filter(|node| node.is("Constant"));
        let made = made.find(|node| node.output.iter().any(|it| it == name))?;
        made.attribute("value")?.t.as_deref()
    })
}

fn integers(tensor: &TensorProto) -> Option<Vec<i64>> {
    let (data_type, bytes) = tensor.to_bytes()?;
    let whole = bytes.chunks_exact(8);
    let whole = whole.filter_map(|it| Some(i64::from_le_bytes(it.try_into().ok()?)));
    (data_type == DataType::Int64 && !bytes.is_empty()).then(|| whole.collect())
}
