//! Takes large weights out of a model, so that several sessions can share one copy.

use std::collections::BTreeMap;

use bytes::Bytes;
use sextant_types::DataType;

use crate::{
    Error, decode, encode,
    external::{each_tensor, fill, place},
    proto::{EXTERNAL, ModelProto, StringStringEntryProto, TensorProto},
};

/// The file that skeletons name in place of the weights. It never exists: ONNX Runtime accepts the
/// reference because the weights are handed in by name (`AddExternalInitializers`, in the `ort`
/// crate `with_external_initializer`) before the model is built.
pub const SHARED_LOCATION: &str = "shared-weights";

/// One weight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Weight {
    /// Name of the initialiser.
    pub name: String,
    /// Element type; never strings.
    pub data_type: DataType,
    /// Dimensions.
    pub dims: Vec<usize>,
    /// Little-endian, row-major elements. A slice of the model's own buffer if the file keeps them as raw bytes: not
    /// aligned to the element size.
    pub bytes: Bytes,
}

/// A model and its large weights, separated.
#[derive(Debug, Clone)]
pub struct Split {
    /// The model with a reference to [`SHARED_LOCATION`] in place of each weight.
    pub skeleton: Bytes,
    /// The weights, in the graph's order.
    pub weights: Vec<Weight>,
}

/// Takes the main graph's initialisers of at least `min_bytes` out of a model. Constants that cannot be shared
/// (strings, types without a fixed width in whole bytes, subgraphs' own constants) stay in.
///
/// Values below 128 bytes are better left in: ONNX Runtime reads small ones while it infers shapes.
///
/// # Errors
/// [`Error::NotOnnx`] if the bytes are not a model.
pub fn split_weights(model: &Bytes, min_bytes: usize) -> Result<Split, Error> {
    let mut model = decode(model)?;
    let weights = take(&mut model, min_bytes);
    Ok(Split {
        skeleton: encode(&model),
        weights,
    })
}

/// The same for a model whose large tensors are in a file beside it. Each weight is read, passed to `each` and then
/// dropped, so that they are never all in memory. Weights that [`split_weights`] would leave in are put into the model;
/// the result is the skeleton.
///
/// # Errors
/// [`Error::NotOnnx`] if the bytes are not a model, or a tensor does not say where its data is; [`Error::ExternalData`]
/// if `read` cannot return the data.
pub fn stored_weights(
    model: &Bytes,
    read: impl Fn(u64, u64) -> Option<Bytes>,
    mut each: impl FnMut(Weight),
) -> Result<Bytes, Error> {
    let mut model = decode(model)?;
    let fetch = |tensor: &mut TensorProto| {
        let (offset, length) = place(tensor)?;
        let data = read(offset, length).ok_or_else(|| tensor.external())?;
        fill(tensor, data)?;
        Ok::<_, Error>(offset)
    };
    let initializers = model.graph.iter_mut().flat_map(|it| &mut it.initializer);
    for tensor in initializers.filter(|tensor| tensor.is_external()) {
        let offset = fetch(tensor)?;
        if let Some(weight) = weight(tensor) {
            *tensor = reference(tensor, offset, weight.bytes.len());
            each(weight);
        }
    }
    each_tensor(&mut model, &mut |tensor| {
        if tensor.is_external() && tensor.location() != Some(SHARED_LOCATION) {
            fetch(tensor)?;
        }
        Ok(())
    })?;
    Ok(encode(&model))
}

fn take(model: &mut ModelProto, min_bytes: usize) -> Vec<Weight> {
    let Some(graph) = &mut model.graph else {
        return Vec::new();
    };
    let mut uses = BTreeMap::<String, usize>::new();
    for tensor in &graph.initializer {
        *uses.entry(tensor.name().to_owned()).or_default() += 1;
    }
    let mut offset = 0;
    let mut weights = Vec::new();
    for tensor in &mut graph.initializer {
        let unique = uses.get(tensor.name()) == Some(&1);
        let Some(weight) = weight(tensor).filter(|it| unique && it.bytes.len() >= min_bytes) else {
            continue;
        };
        *tensor = reference(tensor, offset, weight.bytes.len());
        offset += weight.bytes.len() as u64;
        weights.push(weight);
    }
    weights
}

fn weight(tensor: &TensorProto) -> Option<Weight> {
    if tensor.name().is_empty() {
        return None;
    }
    let (data_type, bytes) = tensor.to_bytes()?;
    Some(Weight {
        name: tensor.name().to_owned(),
        data_type,
        dims: tensor.dims.iter().map(|dim| *dim as usize).collect(),
        bytes,
    })
}

fn reference(tensor: &TensorProto, offset: u64, length: usize) -> TensorProto {
    let entry = |key: &str, value: String| StringStringEntryProto {
        key: Some(key.to_owned()),
        value: Some(value),
    };
    TensorProto {
        name: tensor.name.clone(),
        data_type: tensor.data_type,
        dims: tensor.dims.clone(),
        data_location: Some(EXTERNAL),
        external_data: vec![
            entry("location", SHARED_LOCATION.to_owned()),
            entry("offset", offset.to_string()),
            entry("length", length.to_string()),
        ],
        ..TensorProto::default()
    }
}
