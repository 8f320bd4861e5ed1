//! Makes a file from an exporter a model that can be served.
//!
//! Each rewriting does nothing if it is not needed:
//!
//! - [`plain`] turns outputs that are not tensors into tensors. scikit-learn, LightGBM, XGBoost and CatBoost end their
//!   classifiers in `ZipMap`: a sequence with one map for each row, from class to probability. The tensor of
//!   probabilities exists before it, with a column for each class, and the operator's labels say which class a column
//!   is. Any other output that is not a tensor is left out, with everything that only it needs. Inputs with a default
//!   value, and those whose value is declared, become constants; optional inputs and outputs become the tensors that
//!   they hold. It also gives `StringNormalizer`, with which text pipelines of scikit-learn begin, a locale that
//!   exists: its default, American English, is missing in most containers.
//! - [`widen`] gives a batch dimension to a model that is declared without one: exports with a fixed batch of 1, and
//!   outputs with a wrong one. The file does not show whether the model can be run so; the caller must run batches of
//!   several sizes and compare.
//! - [`lone`] removes a batch dimension that is none: records in one batch are not answered as they are alone.
//! - [`unbatched`] records that none of a model's dynamic first dimensions is a batch: a vector of any length is one
//!   record. The records show that; the file does not.

use std::collections::BTreeSet;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sextant_types::{Constants, DataType, Signature, TensorSpec};

use crate::{
    Error, decode, encode,
    make::Dim,
    proto::{
        AttributeProto, Dimension, GraphProto, ModelProto, NodeProto, OperatorSetIdProto,
        StringStringEntryProto, TensorShapeProto, ValueInfoProto, data_type, dimension, type_proto,
    },
    rows::names_a_count,
};

mod constants;
pub(crate) mod dead;
mod optional;
mod reshapes;

/// The symbol of a batch dimension that a rewriting adds.
const BATCH: &str = "batch";

/// The standard operator set of a model that names none; any has `Cast`.
const OPSET: i64 = 13;

/// The locale that needs no installation.
const ANY_LOCALE: &str = "C.UTF-8";

/// The key in a model's metadata whose value `false` says that it takes no batches.
const BATCHED: &str = "sextant.batched";

/// A model owner's declarations about its inputs and outputs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DeclaredSignature {
    /// The outputs to serve, in this order; empty for all.
    pub outputs: Vec<String>,
    /// Inputs with the same value in every query.
    pub constants: Constants,
}

/// The result of [`plain`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plain {
    /// The file; the given one if nothing was changed. It is left out of the JSON.
    #[serde(skip)]
    pub model: Bytes,
    /// The class of each column of an output, by the output's name.
    pub classes: Vec<(String, Vec<String>)>,
    /// What was changed, in words.
    pub changes: Vec<String>,
}

/// Makes every input and output a tensor that is always present, and texts independent of installed locales. If outputs
/// are declared, only those are kept; inputs that are declared constants become constants.
///
/// # Errors
/// [`Error::NotOnnx`] if the bytes are not a model, [`Error::NoSuchOutput`] and [`Error::NoSuchInput`] if it has none
/// with a name, [`Error::Constant`] if an input cannot have its value, [`Error::UnsupportedValue`] if no selected
/// output can be made a tensor.
pub fn plain(bytes: &Bytes, declared: &DeclaredSignature) -> Result<Plain, Error> {
    let mut model = decode(bytes)?;
    let outputs = &declared.outputs;
    let mut plain = Plain {
        model: bytes.clone(),
        classes: Vec::new(),
        changes: Vec::new(),
    };
    constants::fix(&mut model, &declared.constants, &mut plain)?;
    optional::fix_defaults(&mut model, &mut plain);
    let Some(graph) = &mut model.graph else {
        return Err(Error::NotOnnx("it has no graph".to_owned()));
    };
    let all = graph.output.len();
    choose(graph, outputs, &mut plain)?;
    optional::hold_always(graph, &mut plain);
    for at in 0..graph.output.len() {
        unzip(graph, at, &mut plain);
    }
    leave_out(graph, outputs, &mut plain);
    if graph.output.len() < all {
        dead::take_out(graph);
    }
    normalize_anywhere(graph, &mut plain);
    if plain.changes.is_empty() {
        return Ok(plain);
    }
    ensure_standard_operators(&mut model);
    plain.model = encode(&model);
    Ok(plain)
}

/// Keeps the outputs with these names.
fn choose(graph: &mut GraphProto, outputs: &[String], plain: &mut Plain) -> Result<(), Error> {
    if outputs.is_empty() {
        return Ok(());
    }
    let find = |name: &String| {
        let found = graph.output.iter().find(|output| output.name() == name);
        found.cloned().ok_or_else(|| {
            let names = graph.output.iter().map(|it| format!("`{}`", it.name()));
            Error::NoSuchOutput {
                given: name.chars().take(64).collect(),
                known: names.collect::<Vec<_>>().join(", "),
            }
        })
    };
    let kept: Vec<ValueInfoProto> = outputs.iter().map(find).collect::<Result<_, _>>()?;
    let names = |outputs: &[ValueInfoProto]| -> Vec<String> {
        outputs.iter().map(|it| it.name().to_owned()).collect()
    };
    if names(&kept) != names(&graph.output) {
        let kept = outputs.join("`, `");
        plain
            .changes
            .push(format!("of its outputs, `{kept}` are kept"));
    }
    graph.output = kept;
    Ok(())
}

/// Replaces a `ZipMap` that makes this output by the tensor that it reads.
fn unzip(graph: &mut GraphProto, at: usize, plain: &mut Plain) {
    let name = graph.output[at].name().to_owned();
    let makes = |node: &NodeProto| node.output.first() == Some(&name) && is_zip_map(node);
    let Some(index) = graph.node.iter().position(makes) else {
        return;
    };
    let zip = &graph.node[index];
    let Some(source) = zip.input.first().cloned() else {
        return;
    };
    let classes = labels(zip);
    // Probabilities of models with 64-bit inputs are 64-bit floats; the map's were not.
    let to = AttributeProto::int("to", i64::from(data_type::FLOAT));
    let cast = NodeProto::new("Cast", zip.name(), &[&source], &[&name]).with(to);
    let rows = graph.input.first().and_then(first_dimension);
    graph.node[index] = cast;
    let mut value = ValueInfoProto::tensor(
        &name,
        DataType::Fp32,
        &[Dim::Dynamic(BATCH), Dim::Fixed(classes.len() as u64)],
    );
    if let (Some(rows), Some(shape)) = (rows, shape_mut(&mut value)) {
        shape.dim[0] = rows;
    }
    graph.output[at] = value;
    plain.changes.push(format!(
        "output `{name}` was a map from class to probability and is a tensor with a column for each \
         of `{}` classes",
        classes.len()
    ));
    plain.classes.push((name, classes));
}

fn is_zip_map(node: &NodeProto) -> bool {
    node.op_type() == "ZipMap" && node.domain() == "ai.onnx.ml"
}

/// The classes of a `ZipMap`, in the order of the columns.
fn labels(zip: &NodeProto) -> Vec<String> {
    let texts = zip.attribute("classlabels_strings");
    let texts = texts.map(|it| it.strings.iter().map(text).collect::<Vec<_>>());
    let numbers = || {
        let numbers = zip.attribute("classlabels_int64s")?;
        Some(numbers.ints.iter().map(i64::to_string).collect::<Vec<_>>())
    };
    let named = texts.filter(|texts| !texts.is_empty());
    named.or_else(numbers).unwrap_or_default()
}

fn text(bytes: &Bytes) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Leaves out outputs that are not tensors, if no output was selected and something else remains.
fn leave_out(graph: &mut GraphProto, outputs: &[String], plain: &mut Plain) {
    let is_tensor = |output: &ValueInfoProto| tensor(output).is_some();
    if !outputs.is_empty() || !graph.output.iter().any(is_tensor) {
        return;
    }
    for output in graph.output.iter().filter(|output| !is_tensor(output)) {
        let name = output.name();
        let change = format!("output `{name}` is not a tensor and is left out");
        plain.changes.push(change);
    }
    graph.output.retain(is_tensor);
}

/// Upper and lower case in American English are those of Unicode, which the locale of every C library has.
fn normalize_anywhere(graph: &mut GraphProto, plain: &mut Plain) {
    for node in graph
        .node
        .iter_mut()
        .filter(|node| node.is("StringNormalizer"))
    {
        let locale = node.attribute("locale").and_then(|it| it.s.clone());
        if locale.is_some_and(|locale| !locale.starts_with(b"en_US")) {
            continue;
        }
        node.attribute.retain(|it| it.name() != "locale");
        node.attribute
            .push(AttributeProto::string("locale", ANY_LOCALE));
        plain.changes.push(format!(
            "text is normalised in the locale `{ANY_LOCALE}` by node `{}`",
            node.name()
        ));
    }
}

fn ensure_standard_operators(model: &mut ModelProto) {
    let is_standard = |set: &OperatorSetIdProto| matches!(set.domain(), "" | "ai.onnx");
    if !model.opset_import.iter().any(is_standard) {
        model.opset_import.push(OperatorSetIdProto {
            domain: None,
            version: Some(OPSET),
        });
    }
}

/// The size of the batch with which a model was exported: the first dimension of each of its inputs. `None` if they
/// differ, or are not fixed.
pub fn fixed_batch(signature: &Signature) -> Option<u64> {
    let mut firsts = signature
        .inputs
        .iter()
        .map(|input| input.shape.first().copied().flatten());
    let size = firsts.next()??;
    firsts.all(|other| other == Some(size)).then_some(size)
}

/// Advice about inputs of one number that keep a model from taking batches, beside other inputs of any size: nothing in
/// them could count records. `None` if there are none.
pub fn advice_on_single_numbers(signature: &Signature) -> Option<String> {
    let is_single = |input: &&TensorSpec| {
        input.shape.iter().all(|dim| *dim == Some(1)) && input.data_type != DataType::Bytes
    };
    let is_any_size = |input: &TensorSpec| input.shape.contains(&None);
    if signature.batched || !signature.inputs.iter().any(is_any_size) {
        return None;
    }
    let name = &signature.inputs.iter().find(is_single)?.name;
    Some(format!(
        "input `{name}` has one value for all records; where it is the same in every query, `--constant {name}=VALUE` \
         may make batches possible"
    ))
}

/// Whether a model's metadata say that it takes no batches.
pub(crate) fn is_said_unbatched(model: &ModelProto) -> bool {
    let mut said = model.metadata_props.iter();
    said.any(|it| it.key.as_deref() == Some(BATCHED) && it.value.as_deref() == Some("false"))
}

/// Writes into a model's metadata that it takes no batches.
///
/// # Errors
/// [`Error::NotOnnx`] if the bytes are not a model.
pub fn unbatched(bytes: &Bytes) -> Result<Bytes, Error> {
    let mut model = decode(bytes)?;
    let said = &mut model.metadata_props;
    said.retain(|it| it.key.as_deref() != Some(BATCHED));
    said.push(StringStringEntryProto {
        key: Some(BATCHED.to_owned()),
        value: Some("false".to_owned()),
    });
    Ok(encode(&model))
}

/// Declares the first dimension of every input and output as 1 if it is dynamic: the model takes one record at a time.
/// The dimension of an output stays dynamic if its name says that it counts something else.
///
/// # Errors
/// [`Error::NotOnnx`] if the bytes are not a model.
pub fn lone(bytes: &Bytes) -> Result<Bytes, Error> {
    let mut model = decode(bytes)?;
    if let Some(graph) = &mut model.graph {
        let of_inputs: BTreeSet<String> = graph
            .input
            .iter()
            .filter_map(|input| Some(symbol(&first_dimension(input)?)?.to_owned()))
            .collect();
        let counts_others = |dim: &Dimension| {
            let named = symbol(dim).filter(|name| !of_inputs.contains(*name));
            named.is_some_and(names_a_count)
        };
        for value in graph.input.iter_mut().chain(&mut graph.output) {
            let first = shape_mut(value).and_then(|shape| shape.dim.first_mut());
            if let Some(first) = first.filter(|first| is_free(first) && !counts_others(first)) {
                first.value = Some(dimension::Value::DimValue(1));
            }
        }
    }
    Ok(encode(&model))
}

/// Declares a batch dimension first in every input and output, and removes the exported size of the batch from the
/// shapes of `Reshape`. `None` if that makes no sense: first dimensions are fixed at different sizes, or the symbol of
/// one also names another dimension of an input.
///
/// # Errors
/// [`Error::NotOnnx`] if the bytes are not a model.
pub fn widen(bytes: &Bytes) -> Result<Option<Bytes>, Error> {
    let mut model = decode(bytes)?;
    let Some(graph) = &mut model.graph else {
        return Ok(None);
    };
    let constants: BTreeSet<String> = graph
        .initializer
        .iter()
        .map(|it| it.name().to_owned())
        .collect();
    let (inputs, outputs) = (&mut graph.input, &mut graph.output);
    let mut given: Vec<&mut ValueInfoProto> = inputs
        .iter_mut()
        .filter(|input| !constants.contains(input.name()))
        .collect();
    if given.is_empty() || names_another(&given) {
        return Ok(None);
    }
    // A sample of several rows is a batch that the exporter took for a fixed size.
    let sizes = given
        .iter()
        .map(|input| first_dimension(input).and_then(|it| fixed(&it)));
    let sizes: BTreeSet<Option<i64>> = sizes.collect();
    let mut others = given.iter().flat_map(|input| {
        let shape = tensor(input).and_then(|tensor| tensor.shape.as_ref());
        shape
            .into_iter()
            .flat_map(|shape| shape.dim.iter().skip(1))
            .filter_map(fixed)
    });
    let sample = match sizes.len() {
        1 => sizes.into_iter().next().flatten(),
        _ => None,
    };
    // In a square it is not known which side is the batch.
    let sample = sample.filter(|size| !others.any(|other| other == *size));
    for value in given.iter_mut().map(|it| &mut **it).chain(outputs) {
        let Some(first) = shape_mut(value).and_then(|shape| shape.dim.first_mut()) else {
            return Ok(None);
        };
        if !is_free(first) && fixed(first) != sample {
            return Ok(None);
        }
        *first = Dimension::from(Dim::Dynamic(BATCH));
    }
    // The declarations in between are for the earlier sizes.
    graph.value_info.clear();
    reshapes::free(graph, sample.unwrap_or(1));
    Ok(Some(encode(&model)))
}

/// Whether the symbol of a first dimension names another dimension of an input.
fn names_another(inputs: &[&mut ValueInfoProto]) -> bool {
    let symbols = |skip: usize, take: usize| {
        let all = inputs
            .iter()
            .filter_map(|input| tensor(input)?.shape.as_ref());
        let dims = all.flat_map(move |shape| shape.dim.iter().skip(skip).take(take));
        dims.filter_map(symbol).collect::<BTreeSet<&str>>()
    };
    !symbols(0, 1).is_disjoint(&symbols(1, usize::MAX))
}

fn symbol(dim: &Dimension) -> Option<&str> {
    match &dim.value {
        Some(dimension::Value::DimParam(symbol)) if !symbol.is_empty() => Some(symbol),
        _ => None,
    }
}

/// Dynamic, or one row.
fn is_free(dim: &Dimension) -> bool {
    match dim.value {
        Some(dimension::Value::DimValue(size)) => size == 1 || size == -1,
        Some(dimension::Value::DimParam(_)) | None => true,
    }
}

fn fixed(dim: &Dimension) -> Option<i64> {
    match dim.value {
        Some(dimension::Value::DimValue(size)) if size > 0 => Some(size),
        _ => None,
    }
}

/// The declared type of a value that is a tensor.
pub(crate) fn tensor(value: &ValueInfoProto) -> Option<&type_proto::Tensor> {
    match value.r#type.as_ref()?.value.as_ref()? {
        type_proto::Value::TensorType(tensor) => Some(tensor),
        _ => None,
    }
}

/// The declared shape of a value that is a tensor.
pub(crate) fn shape_mut(value: &mut ValueInfoProto) -> Option<&mut TensorShapeProto> {
    match value.r#type.as_mut()?.value.as_mut()? {
        type_proto::Value::TensorType(tensor) => tensor.shape.as_mut(),
        _ => None,
    }
}

fn first_dimension(value: &ValueInfoProto) -> Option<Dimension> {
    tensor(value)?.shape.as_ref()?.dim.first().cloned()
}
