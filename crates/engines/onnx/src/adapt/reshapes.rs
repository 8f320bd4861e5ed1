//! Sizes of the batch that exporters write into `Reshape`: a file that was traced with one record asks for one row
//! wherever it changes a shape.

use std::collections::BTreeSet;

use sextant_types::DataType;

use crate::proto::{AttributeProto, GraphProto, NodeProto, TensorProto};

/// Takes the size of the batch, `sample`, out of the shapes that `Reshape` is given as constants, where it changes what
/// inputs decide: the first dimension follows from the others, or is that of what is reshaped. Whether the model then takes
/// batches is not known from the file. Returns how many were changed.
pub(super) fn free(graph: &mut GraphProto, sample: i64) -> usize {
    let mut decided: BTreeSet<String> = {
        let constants: BTreeSet<&str> = graph.initializer.iter().map(|it| it.name()).collect();
        let given = graph.input.iter().map(|it| it.name());
        let given = given.filter(|name| !constants.contains(name));
        given.map(str::to_owned).collect()
    };
    let mut freed = Vec::new();
    for at in 0..graph.node.len() {
        let node = &graph.node[at];
        if !node.input.iter().any(|it| decided.contains(it)) || node.is("Shape") || node.is("Size")
        {
            continue;
        }
        decided.extend(node.output.iter().cloned());
        let Some(shape) = free_shape(graph, node, sample, &decided) else {
            continue;
        };
        let name = format!("{}/{at}", node.input[1]);
        freed.push((
            at,
            TensorProto::from_elements(&name, &[shape.len()], &shape),
        ));
    }
    let count = freed.len();
    for (at, shape) in freed {
        graph.node[at].input[1] = shape.name().to_owned();
        graph.initializer.push(shape);
    }
    count
}

/// The shape that a `Reshape` of what inputs decide should have; `None` where it may stay.
fn free_shape(
    graph: &GraphProto,
    node: &NodeProto,
    sample: i64,
    decided: &BTreeSet<String>,
) -> Option<Vec<i64>> {
    let [data, shape] = node.input.as_slice() else {
        return None;
    };
    let zero_is_zero = node.attribute("allowzero").map_or(0, AttributeProto::i) != 0;
    if !node.is("Reshape") || !decided.contains(data) {
        return None;
    }
    let mut sizes = integers(constant(graph, shape)?)?;
    let (first, rest) = sizes.split_first_mut()?;
    let follows = !rest.contains(&-1) && !rest.contains(&0);
    *first = match (*first, follows) {
        (size, _) if size <= 0 => return None,
        (_, true) => -1,
        (size, false) if size == sample && !zero_is_zero => 0,
        _ => return None,
    };
    Some(sizes)
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
