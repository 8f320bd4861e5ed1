//! Tensors whose data is in files beside the model, as PyTorch's exporter writes them by default.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use bytes::Bytes;

use crate::{
    Error, decode, encode,
    proto::{GraphProto, ModelProto, TensorProto},
    walk::{self, WalkItem},
};

/// Files by the names under which they were supplied.
pub type Files = BTreeMap<String, Bytes>;

/// The files that a model's tensors name, by those names; none if all data is in the file itself.
///
/// # Errors
/// [`Error::NotOnnx`] if the bytes are not a model.
pub fn locations(bytes: &Bytes) -> Result<BTreeSet<String>, Error> {
    let model = decode(bytes)?;
    let mut locations = BTreeSet::new();
    walk::model::<Error>(&model, &mut |found| {
        if let WalkItem::Tensor(tensor) = found
            && tensor.is_external()
        {
            locations.extend(tensor.location().map(str::to_owned));
        }
        Ok(())
    })?;
    Ok(locations)
}

/// Puts the data of files beside the model into the model. `None` if all its data is in it already.
///
/// A file is found by the name that a tensor uses or, if that is a path, by its last part. Nothing is opened: a name
/// can reach only the files that were supplied.
///
/// # Errors
/// [`Error::ExternalData`] if a file was not supplied, [`Error::NotOnnx`] if a tensor names bytes beyond a file's end.
pub fn embed(bytes: &Bytes, files: &Files) -> Result<Option<Bytes>, Error> {
    let mut model = decode(bytes)?;
    let mut embedded = 0;
    each_tensor(&mut model, &mut |tensor| {
        if tensor.is_external() {
            take(tensor, files)?;
            embedded += 1;
        }
        Ok(())
    })?;
    Ok((embedded > 0).then(|| encode(&model)))
}

/// Where the data of a tensor begins in the file that it names, and its length, bytes.
///
/// # Errors
/// [`Error::NotOnnx`] if either is not a number, or the tensor cannot be so long.
pub(crate) fn place(tensor: &TensorProto) -> Result<(u64, u64), Error> {
    let number = |key: &str| {
        let value = tensor.external_entry(key)?;
        Some(value.trim().parse().ok())
    };
    let offset = number("offset").unwrap_or(Some(0));
    let offset =
        offset.ok_or_else(|| invalid(tensor, "has an offset that is no number in its part"))?;
    let length = match number("length") {
        Some(length) => {
            length.ok_or_else(|| invalid(tensor, "has a length that is no number in its part"))?
        }
        None => tensor.data_bytes()?,
    };
    Ok((offset, length))
}

fn invalid(tensor: &TensorProto, what: &str) -> Error {
    let location = file_name(tensor.location().unwrap_or_default());
    Error::NotOnnx(format!("tensor `{}` {what} of `{location}`", tensor.name()))
}

/// Puts the data into a tensor.
pub(crate) fn fill(tensor: &mut TensorProto, data: Bytes) -> Result<(), Error> {
    tensor.raw_data = Some(data);
    tensor.external_data.clear();
    tensor.data_location = None;
    tensor.check()
}

/// The last part of a path.
pub fn file_name(location: &str) -> &str {
    location.rsplit(['/', '\\']).next().unwrap_or(location)
}

/// The model in which each tensor names its file as it was supplied, with all of its data in that file. `size` returns
/// the length of a file, bytes; `None` if there is none with that name.
///
/// # Errors
/// Those of [`embed`].
pub fn resolve(bytes: &Bytes, size: impl Fn(&str) -> Option<u64>) -> Result<Bytes, Error> {
    let mut model = decode(bytes)?;
    each_tensor(&mut model, &mut |tensor| {
        if !tensor.is_external() {
            return Ok(());
        }
        let (name, _) = range(tensor, &size)?;
        let entries = tensor.external_data.iter_mut();
        for entry in entries.filter(|entry| entry.key() == "location") {
            entry.value = Some(name.clone());
        }
        Ok(())
    })?;
    Ok(encode(&model))
}

/// The supplied file that a tensor names, and the range of the data in it.
fn range(
    tensor: &TensorProto,
    size: impl Fn(&str) -> Option<u64>,
) -> Result<(String, Range<u64>), Error> {
    let location = tensor.location().unwrap_or_default();
    let names = [location, file_name(location)];
    let found = names.iter().find_map(|name| Some((*name, size(name)?)));
    let (name, has) = found.ok_or_else(|| tensor.external())?;
    let (offset, length) = place(tensor)?;
    let end = offset.checked_add(length).filter(|end| *end <= has);
    let end = end.ok_or_else(|| {
        invalid(
            tensor,
            &format!("needs {length} bytes from {offset} on, beyond the {has} bytes"),
        )
    })?;
    Ok((name.to_owned(), offset..end))
}

fn take(tensor: &mut TensorProto, files: &Files) -> Result<(), Error> {
    let size = |name: &str| Some(files.get(name)?.len() as u64);
    let (name, range) = range(tensor, size)?;
    let file = files.get(&name).ok_or_else(|| tensor.external())?;
    let data = file.slice(range.start as usize..range.end as usize);
    fill(tensor, data)
}

type Each<'a> = dyn FnMut(&mut TensorProto) -> Result<(), Error> + 'a;

/// Every constant of the main graph, its subgraphs and local functions. Depth is bounded by the decoder.
pub(crate) fn each_tensor(model: &mut ModelProto, each: &mut Each<'_>) -> Result<(), Error> {
    if let Some(graph) = &mut model.graph {
        of_graph(graph, each)?;
    }
    for function in &mut model.functions {
        of_nodes(&mut function.node, each)?;
    }
    Ok(())
}

fn of_graph(graph: &mut GraphProto, each: &mut Each<'_>) -> Result<(), Error> {
    graph.initializer.iter_mut().try_for_each(&mut *each)?;
    for sparse in &mut graph.sparse_initializer {
        sparse.values.iter_mut().try_for_each(&mut *each)?;
        sparse.indices.iter_mut().try_for_each(&mut *each)?;
    }
    of_nodes(&mut graph.node, each)
}

fn of_nodes(nodes: &mut [crate::proto::NodeProto], each: &mut Each<'_>) -> Result<(), Error> {
    for attribute in nodes.iter_mut().flat_map(|node| &mut node.attribute) {
        attribute.t.iter_mut().try_for_each(|tensor| each(tensor))?;
        attribute.tensors.iter_mut().try_for_each(&mut *each)?;
        attribute
            .g
            .iter_mut()
            .try_for_each(|graph| of_graph(graph, each))?;
        attribute
            .graphs
            .iter_mut()
            .try_for_each(|graph| of_graph(graph, each))?;
    }
    Ok(())
}
