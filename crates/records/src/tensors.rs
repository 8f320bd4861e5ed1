//! Arrays in files as records for a model.

use bytes::Bytes;
use sextant_objects::ObjectPath;
use sextant_rpc::offline::RecordFormat;
use sextant_types::{DataType, InvalidTensor, NamedTensor, Signature, Tensor, TensorSpec};

use crate::{
    Error, Files, archive,
    npy::{Element, HEADER_BYTES, Header},
};

/// An array in a file, for one input of a model.
#[derive(Debug, Clone)]
pub(crate) struct Array {
    pub(crate) input: String,
    pub(crate) header: Header,
    /// Where the elements begin in the file, bytes.
    pub(crate) start: u64,
    /// Bytes of one record.
    pub(crate) record_bytes: u64,
}

/// Finds the arrays of a file and checks that they are what the model takes.
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
    let counts: Vec<u64> = arrays.iter().map(|array| array.header.records()).collect();
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
    let beginning = start..start + bytes.min(HEADER_BYTES);
    let beginning = match bytes {
        0 => Bytes::new(),
        _ => files.get_range(path, beginning).await?,
    };
    let header = Header::parse(&beginning).map_err(refuse)?;
    let record_bytes = header.record_bytes().map_err(refuse)?;
    let needed = header.start.saturating_add(header.records() * record_bytes);
    if needed > bytes {
        return Err(refuse(format!(
            "the array is cut off: it needs {needed} bytes and has {bytes}"
        )));
    }
    let (given, taken) = (header.element.data_type(), spec.data_type);
    if given != taken {
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
        start: start + header.start,
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
    /// `count` records as they lie in the file.
    pub(crate) fn decode(
        &self,
        bytes: &Bytes,
        count: usize,
        batched: bool,
    ) -> Result<Vec<NamedTensor>, InvalidTensor> {
        let shape = row_shape(&self.header, batched);
        let size = self.record_bytes as usize;
        (0..count)
            .map(|row| {
                let record = bytes.slice(row * size..(row + 1) * size);
                let tensor = self.record(&record, shape.clone())?;
                Ok(NamedTensor::new(self.input.clone(), tensor))
            })
            .collect()
    }

    fn record(&self, bytes: &Bytes, shape: Vec<usize>) -> Result<Tensor, InvalidTensor> {
        match self.header.element {
            Element::Plain(DataType::Bool) => {
                let flags: Vec<u8> = bytes.iter().map(|byte| u8::from(*byte != 0)).collect();
                Tensor::from_bytes(DataType::Bool, shape, flags.into())
            }
            Element::Plain(data_type) => Tensor::from_bytes(data_type, shape, bytes.clone()),
            Element::Text(size) => {
                let texts = bytes
                    .chunks(size)
                    .map(|text| bytes.slice_ref(unfilled(text)));
                Tensor::from_strings(shape, texts.collect())
            }
            Element::Unicode(count) => {
                let texts = bytes.chunks(count * 4).map(unicode);
                Tensor::from_strings(shape, texts.collect())
            }
        }
    }
}

/// Without the zeros at the end.
fn unfilled(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|byte| *byte != 0);
    &text[..end.map_or(0, |last| last + 1)]
}

fn unicode(text: &[u8]) -> Bytes {
    let characters = text.as_chunks::<4>().0.iter().map(|character| {
        char::from_u32(u32::from_le_bytes(*character)).unwrap_or(char::REPLACEMENT_CHARACTER)
    });
    let text: String = characters.collect();
    Bytes::from(text.trim_end_matches('\0').to_owned())
}
