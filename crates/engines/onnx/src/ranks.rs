//! Inputs and outputs that are declared without a shape.
//!
//! The file does not even show the number of their dimensions: exporters leave shapes out where their own inference
//! fails. The data that comes with a model shows the shapes of inputs, and a run shows those of outputs: [`probe`]
//! makes a model that answers with the shapes of those outputs, and [`declare`] writes the shapes into the file.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sextant_types::DataType;

use crate::{
    Error, decode, encode,
    make::Dim,
    proto::{
        Dimension, GraphProto, ModelProto, NodeProto, TensorShapeProto, ValueInfoProto, dimension,
        type_proto,
    },
};

/// The symbol of a batch dimension that was found.
const BATCH: &str = "batch";

/// Appended to the name of an output whose shape is requested.
const SHAPE: &str = "/shape";

/// Shapes by the names of inputs and outputs; `None` for a dimension that may be anything.
pub type Shapes = BTreeMap<String, Vec<Option<u64>>>;

/// The tensors of a model whose rank is not known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unknown {
    /// Inputs that callers supply, by name, in order.
    pub inputs: Vec<String>,
    /// Outputs, by name, in order.
    pub outputs: Vec<String>,
}

/// The inputs and outputs that are declared without a shape.
///
/// # Errors
/// [`Error::NotOnnx`] if the bytes are not a model.
pub fn unknown(bytes: &Bytes) -> Result<Unknown, Error> {
    let model = decode(bytes)?;
    let Some(graph) = &model.graph else {
        return Ok(Unknown::default());
    };
    let is_constant =
        |value: &ValueInfoProto| graph.initializer.iter().any(|it| it.name() == value.name());
    let names = |values: &[ValueInfoProto]| {
        let shapeless = values.iter().filter(|value| is_shapeless(value));
        let given = shapeless.filter(|value| !is_constant(value));
        given.map(|value| value.name().to_owned()).collect()
    };
    Ok(Unknown {
        inputs: names(&graph.input),
        outputs: names(&graph.output),
    })
}

/// Declares shapes of inputs and outputs that have none.
///
/// # Errors
/// [`Error::NotOnnx`] when the bytes are no model.
pub fn declare(bytes: &Bytes, shapes: &Shapes) -> Result<Bytes, Error> {
    let mut model = decode(bytes)?;
    if let Some(graph) = &mut model.graph {
        for value in graph.input.iter_mut().chain(&mut graph.output) {
            let found = shapes.get(value.name()).filter(|_| is_shapeless(value));
            if let (Some(shape), Some(tensor)) = (found, tensor_mut(value)) {
                tensor.shape = Some(shape_of(shape));
            }
        }
    }
    Ok(encode(&model))
}

/// Removes the shapes of these outputs, so that [`probe`] asks for them.
///
/// # Errors
/// [`Error::NotOnnx`] if the bytes are not a model.
pub fn forget(bytes: &Bytes, outputs: &[String]) -> Result<Bytes, Error> {
    let mut model = decode(bytes)?;
    let declared = model.graph.iter_mut().flat_map(|graph| &mut graph.output);
    for value in declared.filter(|it| outputs.iter().any(|name| name == it.name())) {
        if let Some(tensor) = tensor_mut(value) {
            tensor.shape = None;
        }
    }
    Ok(encode(&model))
}

/// The model whose outputs are the shapes of those of its outputs that have none declared, in order: integers, one for
/// each dimension.
///
/// # Errors
/// [`Error::NotOnnx`] if the bytes are not a model.
pub fn probe(bytes: &Bytes) -> Result<Bytes, Error> {
    let mut model: ModelProto = decode(bytes)?;
    if let Some(graph) = &mut model.graph {
        ask(graph);
    }
    Ok(encode(&model))
}

fn ask(graph: &mut GraphProto) {
    let shapeless = graph.output.iter().filter(|value| is_shapeless(value));
    let names: Vec<String> = shapeless.map(|value| value.name().to_owned()).collect();
    graph.output.clear();
    for name in names {
        let shape = format!("{name}{SHAPE}");
        let node = NodeProto::new("Shape", &shape, &[&name], &[&shape]);
        graph.node.push(node);
        let dims = [Dim::Dynamic("dimensions")];
        let value = ValueInfoProto::tensor(&shape, DataType::Int64, &dims);
        graph.output.push(value);
    }
}

fn shape_of(shape: &[Option<u64>]) -> TensorShapeProto {
    let dim = |(at, size): (usize, &Option<u64>)| match (size, at) {
        (Some(size), _) => Dimension::from(Dim::Fixed(*size)),
        (None, 0) => Dimension::from(Dim::Dynamic(BATCH)),
        (None, _) => Dimension {
            value: None::<dimension::Value>,
            denotation: None,
        },
    };
    TensorShapeProto {
        dim: shape.iter().enumerate().map(dim).collect(),
    }
}

/// Whether a value is a tensor without a shape.
fn is_shapeless(value: &ValueInfoProto) -> bool {
    let kind = value.r#type.as_ref().and_then(|it| it.value.as_ref());
    matches!(kind, Some(type_proto::Value::TensorType(tensor)) if tensor.shape.is_none())
}

fn tensor_mut(value: &mut ValueInfoProto) -> Option<&mut type_proto::Tensor> {
    match value.r#type.as_mut()?.value.as_mut()? {
        type_proto::Value::TensorType(tensor) => Some(tensor),
        _ => None,
    }
}
