//! Reads the properties of a model that the service needs, and refuses models that no engine should get.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sextant_types::{Signature, TensorSpec};

use crate::{
    Error, decode, indices, integers,
    proto::{
        AttributeProto, Dimension, GraphProto, ModelProto, ValueInfoProto, data_type, dimension,
        type_proto,
    },
    tensor::{element_type, foreign_type},
    walk::{self, WalkItem},
};

/// The properties of a model, found without running it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelInfo {
    /// Version of the file format.
    pub ir_version: i64,
    /// Version of the standard operator set; 0 when the model uses only other sets.
    pub opset: i64,
    /// Version of every operator set by name; the standard one is `ai.onnx`.
    pub opsets: BTreeMap<String, i64>,
    /// Operators in use, those of other sets as `domain::Operator`; sorted. Operators inside
    /// control flow and local functions count.
    pub op_types: Vec<String>,
    /// Inputs that a caller supplies, and outputs.
    pub signature: Signature,
    /// Nodes, those of subgraphs and functions included.
    pub nodes: u64,
    /// Bytes of all constants.
    pub weights_bytes: u64,
    /// Elements of all floating-point constants.
    pub parameters: u64,
    /// Those of them with 16 bits.
    pub half_parameters: u64,
    /// An output of 64-bit integers that may need more than 32 bits, or of values that follow from such integers, if
    /// there is one.
    pub wide_output: Option<String>,
    /// A recurrent operator whose sequences begin with the batch (`layout` 1), which few engines know; its name.
    pub batch_first: Option<String>,
    /// Inputs that are looked up in tables of known sizes, and the numbers that they may hold.
    pub indices: Vec<(String, RangeInclusive<i64>)>,
}

/// Reads and checks a model.
///
/// A model counts as batched if the first dimension of every input and output is dynamic. It does not count as batched
/// if names say otherwise: the first dimensions of inputs have different symbols, or a batch symbol also names another
/// dimension of an input (an `[n, n]` matrix). It does not either if the file's metadata say so: `sextant.batched` is
/// `false` (see [`crate::adapt::unbatched`]).
///
/// # Errors
/// [`Error::NotOnnx`] for anything but a complete, consistent model; [`Error::ExternalData`] if any constant is in
/// another file; [`Error::UnsupportedValue`] for inputs or outputs that are not tensors of known type and rank.
pub fn inspect(bytes: &Bytes) -> Result<ModelInfo, Error> {
    let model = decode(bytes)?;
    let graph = model
        .graph
        .as_ref()
        .ok_or_else(|| not_onnx("it has no graph"))?;
    let opsets = opsets(&model)?;
    let counts = count(&model)?;
    let mut signature = signature(graph)?;
    signature.batched &= !crate::adapt::is_said_unbatched(&model);
    Ok(ModelInfo {
        ir_version: model.ir_version(),
        opset: opsets.get("ai.onnx").copied().unwrap_or(0),
        opsets,
        op_types: counts.op_types.into_iter().collect(),
        signature,
        nodes: counts.nodes,
        weights_bytes: counts.bytes,
        parameters: counts.parameters,
        half_parameters: counts.half_parameters,
        wide_output: integers::wide_output(graph),
        batch_first: counts.batch_first,
        indices: indices::ranges(graph),
    })
}

fn not_onnx(reason: &str) -> Error {
    Error::NotOnnx(reason.to_owned())
}

fn opsets(model: &ModelProto) -> Result<BTreeMap<String, i64>, Error> {
    let opsets: BTreeMap<_, _> = model
        .opset_import
        .iter()
        .map(|set| (domain(set.domain()).to_owned(), set.version()))
        .collect();
    match opsets.iter().find(|(_, version)| **version < 1) {
        Some((name, version)) => Err(Error::NotOnnx(format!(
            "operator set `{name}` has version {version}"
        ))),
        None if opsets.is_empty() => Err(not_onnx("it names no operator set")),
        None => Ok(opsets),
    }
}

fn domain(name: &str) -> &str {
    if name.is_empty() { "ai.onnx" } else { name }
}

#[derive(Default)]
struct Counts {
    op_types: BTreeSet<String>,
    nodes: u64,
    bytes: u64,
    parameters: u64,
    half_parameters: u64,
    batch_first: Option<String>,
}

fn count(model: &ModelProto) -> Result<Counts, Error> {
    let mut counts = Counts::default();
    walk::model(model, &mut |found| {
        match found {
            WalkItem::Node(node) => {
                if node.op_type().is_empty() {
                    return Err(Error::NotOnnx(format!(
                        "node `{}` has no operator",
                        node.name()
                    )));
                }
                counts.nodes += 1;
                let is_recurrent = ["GRU", "LSTM", "RNN"].iter().any(|kind| node.is(kind));
                let layout = node.attribute("layout").map_or(0, AttributeProto::i);
                if is_recurrent && layout != 0 {
                    counts
                        .batch_first
                        .get_or_insert_with(|| node.op_type().to_owned());
                }
                counts.op_types.insert(match domain(node.domain()) {
                    "ai.onnx" => node.op_type().to_owned(),
                    other => format!("{other}::{}", node.op_type()),
                });
            }
            WalkItem::Tensor(tensor) => {
                tensor.check()?;
                counts.bytes += tensor.data_bytes()?;
                if tensor.is_float() {
                    counts.parameters += tensor.elements()?;
                    if matches!(tensor.data_type(), data_type::FLOAT16 | data_type::BFLOAT16) {
                        counts.half_parameters += tensor.elements()?;
                    }
                }
            }
        }
        Ok(())
    })?;
    Ok(counts)
}

fn signature(graph: &GraphProto) -> Result<Signature, Error> {
    let constants: BTreeSet<&str> = graph.initializer.iter().map(|it| it.name()).collect();
    let inputs: Vec<_> = graph
        .input
        .iter()
        .filter(|input| !constants.contains(input.name()))
        .map(|input| Value::read("input", input))
        .collect::<Result<_, _>>()?;
    let outputs: Vec<_> = graph
        .output
        .iter()
        .map(|output| Value::read("output", output))
        .collect::<Result<_, _>>()?;
    if inputs.is_empty() {
        return Err(not_onnx("it has no inputs"));
    }
    if outputs.is_empty() {
        return Err(not_onnx("it has no outputs"));
    }
    let batched = is_batched(&inputs, &outputs);
    let specs = |values: Vec<Value>| values.into_iter().map(|value| value.spec).collect();
    let signature = Signature {
        inputs: specs(inputs),
        outputs: specs(outputs),
        batched,
    };
    refuse_duplicates(&signature.inputs)?;
    refuse_duplicates(&signature.outputs)?;
    Ok(signature)
}

fn refuse_duplicates(specs: &[TensorSpec]) -> Result<(), Error> {
    let mut seen = BTreeSet::new();
    match specs.iter().find(|spec| !seen.insert(spec.name.as_str())) {
        Some(twice) => Err(Error::NotOnnx(format!(
            "`{}` is declared twice",
            twice.name
        ))),
        None => Ok(()),
    }
}

fn is_batched(inputs: &[Value], outputs: &[Value]) -> bool {
    let dynamic = |value: &Value| value.spec.shape.first() == Some(&None);
    let symbols: BTreeSet<&str> = inputs.iter().filter_map(Value::batch_symbol).collect();
    inputs.iter().chain(outputs).all(dynamic)
        && symbols.len() <= 1
        && !inputs.iter().any(|input| {
            let mut others = input.symbols.iter().skip(1).flatten();
            others.any(|symbol| symbols.contains(symbol.as_str()))
        })
}

/// An input or output with the names of its dynamic dimensions.
struct Value {
    spec: TensorSpec,
    symbols: Vec<Option<String>>,
}

// === impl Value ===

impl Value {
    fn read(direction: &'static str, value: &ValueInfoProto) -> Result<Self, Error> {
        let name = value.name().to_owned();
        if name.is_empty() {
            return Err(Error::NotOnnx(format!("an {direction} has no name")));
        }
        let unsupported = |found: String| Error::UnsupportedValue {
            direction,
            name: name.clone(),
            found,
        };
        let tensor = match value.r#type.as_ref().and_then(|it| it.value.as_ref()) {
            Some(type_proto::Value::TensorType(tensor)) => tensor,
            other => return Err(unsupported(kind(other).to_owned())),
        };
        let known = element_type(tensor.elem_type());
        let foreign = || format!("of element type {}", foreign_type(tensor.elem_type()));
        let data_type = known.ok_or_else(|| unsupported(foreign()))?;
        let shape = tensor
            .shape
            .as_ref()
            .ok_or_else(|| unsupported("of unknown rank".to_owned()))?;
        let dims = shape.dim.iter().map(size).collect::<Result<_, _>>()?;
        Ok(Self {
            symbols: shape.dim.iter().map(symbol).collect(),
            spec: TensorSpec {
                name,
                data_type,
                shape: dims,
            },
        })
    }

    fn batch_symbol(&self) -> Option<&str> {
        self.symbols.first()?.as_deref()
    }
}

fn kind(value: Option<&type_proto::Value>) -> &'static str {
    match value {
        None => "without a type",
        Some(type_proto::Value::TensorType(_)) => "a tensor",
        Some(type_proto::Value::SequenceType(_)) => "a sequence",
        Some(type_proto::Value::MapType(_)) => "a map",
        Some(type_proto::Value::OptionalType(_)) => "optional",
        Some(type_proto::Value::SparseTensorType(_)) => "a sparse tensor",
        Some(type_proto::Value::OpaqueType(_)) => "opaque",
    }
}

/// `None` if dynamic; some exporters write -1 for that.
fn size(dim: &Dimension) -> Result<Option<u64>, Error> {
    match dim.value {
        Some(dimension::Value::DimValue(-1) | dimension::Value::DimParam(_)) | None => Ok(None),
        Some(dimension::Value::DimValue(size)) => u64::try_from(size)
            .map(Some)
            .map_err(|_| Error::NotOnnx(format!("a dimension is {size}"))),
    }
}

fn symbol(dim: &Dimension) -> Option<String> {
    match &dim.value {
        Some(dimension::Value::DimParam(symbol)) if !symbol.is_empty() => Some(symbol.clone()),
        _ => None,
    }
}
