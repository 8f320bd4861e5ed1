//! Reads arrays in files as records for a model.

use bytes::Bytes;
use sextant_formats::npy::{BEGINNING_BYTES, Header, Problem};
use sextant_objects::ObjectPath;
use sextant_types::{DataType, NamedTensor, Signature, TensorSpec, convert, offline::RecordFormat};

use crate::{Error, Files, archive};

/// An array in a file, for one input of a model.
#[derive(Debug, Clone)]
pub(crate) struct Array {
    pub(crate) input: String,
    /// The type of the model's input.
    taken: DataType,
    pub(crate) header: Header,
    /// Number of records.
    pub(crate) records: u64,
    /// Where the elements begin in the file, bytes.
    pub(crate) start: u64,
    /// Bytes of one record.
    pub(crate) record_bytes: u64,
}

/// Finds the arrays of a file and checks that they fit the model.
pub(crate) async fn arrays(
    files: &Files,
    path: &ObjectPath,
    (format, size): (RecordFormat, u64),
    signature: &Signature,
) -> Result<Vec<Array>, Error> {
    if format == RecordFormat::Npy {
        let [spec] = &signature.inputs[..] else {
            let names = names(&signature.inputs);
            let reason = format!("the model has the inputs {names}: save them as one `.npz`");
            return Err(Error::input(path, reason));
        };
        let array = array(files, path, (0, size), spec, signature.batched).await?;
        return Ok(vec![array]);
    }
    let members = archive::members(files, path, size).await?;
    let mut arrays = Vec::with_capacity(members.len());
    for member in &members {
        let name = member.name.strip_suffix(".npy").unwrap_or(&member.name);
        let spec = signature.inputs.iter().find(|spec| spec.name == name);
        let spec = spec.ok_or_else(|| {
            let names = names(&signature.inputs);
            let reason = format!("the model has no input `{name}`; it has {names}");
            Error::input(path, reason)
        })?;
        let place = (member.start, member.bytes);
        arrays.push(array(files, path, place, spec, signature.batched).await?);
    }
    for spec in &signature.inputs {
        if !arrays.iter().any(|array| array.input == spec.name) {
            let reason = format!("it has no array for input `{}`", spec.name);
            return Err(Error::input(path, reason));
        }
    }
    let counts: Vec<u64> = arrays.iter().map(|array| array.records).collect();
    if arrays.len() > signature.inputs.len() || counts.windows(2).any(|pair| pair[0] != pair[1]) {
        let reason = format!("its arrays need one length each: they have {counts:?}");
        return Err(Error::input(path, reason));
    }
    Ok(arrays)
}

fn names(specs: &[TensorSpec]) -> String {
    let names: Vec<String> = specs
        .iter()
        .map(|spec| format!("`{}`", spec.name))
        .collect();
    names.join(", ")
}

async fn array(
    files: &Files,
    path: &ObjectPath,
    (start, bytes): (u64, u64),
    spec: &TensorSpec,
    batched: bool,
) -> Result<Array, Error> {
    let refuse = |reason: String| Error::input(path, format!("input `{}`: {reason}", spec.name));
    let beginning = start..start + bytes.min(BEGINNING_BYTES);
    let beginning = match bytes {
        0 => Bytes::new(),
        _ => files.get_range(path, beginning).await?,
    };
    let header = Header::parse(&beginning).map_err(|problem| refuse(problem.to_string()))?;
    let Some(records) = header.shape.first().map(|records| *records as u64) else {
        let reason = "it has no dimension: the first one counts the records";
        return Err(refuse(reason.to_owned()));
    };
    let record_bytes = header.row_bytes().ok_or_else(|| {
        let shape = &header.shape;
        refuse(format!("shape {shape:?} is too large"))
    })?;
    let start_of_elements = header.start as u64;
    let needed = start_of_elements.saturating_add(records * record_bytes);
    if needed > bytes {
        return Err(refuse(format!(
            "the array is cut off: it needs {needed} bytes and has {bytes}"
        )));
    }
    let (given, taken) = (header.element.data_type(), spec.data_type);
    if !convert::is_possible(given, taken) {
        return Err(refuse(format!(
            "the array is {given} and the model takes {taken}: convert it with `.astype(..)`"
        )));
    }
    let shape = row_shape(&header, batched);
    if !spec.accepts(&shape) {
        let taken = spec.shape_text();
        return Err(refuse(format!(
            "a record has shape {shape:?} and the model takes {taken}"
        )));
    }
    Ok(Array {
        input: spec.name.clone(),
        taken,
        start: start + start_of_elements,
        records,
        record_bytes,
        header,
    })
}

fn row_shape(header: &Header, batched: bool) -> Vec<usize> {
    let row = header.shape.get(1..).unwrap_or_default();
    let batch: &[usize] = if batched { &[1] } else { &[] };
    [batch, row].concat()
}

impl Array {
    /// `count` records in the form of the model; a record whose elements do not fit the model's
    /// type is an error.
    pub(crate) fn decode(
        &self,
        bytes: &Bytes,
        count: usize,
        batched: bool,
    ) -> impl Iterator<Item = Result<NamedTensor, Problem>> {
        let shape = row_shape(&self.header, batched);
        let size = self.record_bytes as usize;
        (0..count).map(move |row| {
            let record = bytes.slice(row * size..(row + 1) * size);
            let tensor = self.header.element.tensor(shape.clone(), &record)?;
            let tensor = convert::input(&tensor, self.taken).map_err(Problem::Elements)?;
            Ok(NamedTensor::new(self.input.clone(), tensor))
        })
    }
}
