//! Models whose large tensors stay in a file.
//!
//! [`outline`] reads a model's file without the data of its large tensors. The result is a model like any other, except
//! that those tensors say where in the file their data is, at [`WEIGHTS`]. It is rewritten as other models are, and
//! engines map the file instead of holding it. [`compose`] is the reverse: the parts of a file, some of which are
//! copied from other files.

use std::ops::Range;

use bytes::{Buf, Bytes};
use prost::{Message, encoding::encode_varint};

use crate::{
    Error, decode,
    external::{each_tensor, fill, place},
    proto::{EXTERNAL, GraphProto, ModelProto, StringStringEntryProto, TensorProto},
};

/// The name that the tensors of an outline use for the file that was read.
pub const WEIGHTS: &str = "sextant-weights";

/// Data of tensors of at least this size stays in the file, bytes: rewritings read smaller data.
pub const LEAST_BYTES: u64 = 64 << 10;

/// Alignment of the data of a tensor in a composed file, bytes: engines read it in place.
const ALIGNMENT: u64 = 64;

/// Most bytes of an outline: the format's limit for a file whose data is all in other files.
const MOST_BYTES: u64 = 2 << 30;

/// Bytes that are read at a time.
const WINDOW: u64 = 64 << 10;

/// Numbers of fields.
const MODEL_GRAPH: u64 = 7;
const GRAPH_INITIALIZER: u64 = 5;
const TENSOR_RAW_DATA: u64 = 9;
const TENSOR_DOC_STRING: u64 = 12;
const TENSOR_EXTERNAL_DATA: u64 = 13;
const TENSOR_DATA_LOCATION: u64 = 14;

/// The wire type of fields with a length.
const WITH_LENGTH: u64 = 2;

/// A part of a composed file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// These bytes.
    Bytes(Bytes),
    /// A part of another file, by the name that a tensor uses.
    Stored {
        /// The file.
        location: String,
        /// Where in it, bytes.
        range: Range<u64>,
    },
}

impl Part {
    /// How long it is, bytes.
    pub fn length(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Stored { range, .. } => range.end - range.start,
        }
    }
}

/// The model in a file of `size` bytes, of which `read` returns a range: initialisers of the main graph with raw data
/// of [`LEAST_BYTES`] or more refer to the data in the file.
///
/// # Errors
/// [`Error::NotOnnx`] if the bytes are not a model, are cut short, or cannot be read.
pub fn outline(size: u64, read: impl Fn(Range<u64>) -> Option<Bytes>) -> Result<Bytes, Error> {
    let mut file = File {
        read: &read,
        window: (0, Bytes::new()),
        copied: 0,
        size,
    };
    let mut model = Vec::new();
    file.rewrite(0..size, MODEL_GRAPH, &mut model, &mut |file, content| {
        let mut graph = Vec::new();
        file.rewrite(content, GRAPH_INITIALIZER, &mut graph, &mut File::tensor)?;
        Ok(graph)
    })?;
    let model = Bytes::from(model);
    decode(&model)?;
    Ok(model)
}

/// The parts of the file of a model whose tensors have their data in one or many other files. Data of initialisers of
/// the main graph of at least [`LEAST_BYTES`] stays where it is until the parts are assembled; `read` reads other data
/// at once.
///
/// # Errors
/// [`Error::NotOnnx`] if the bytes are not a model or a tensor does not say where its data is, [`Error::ExternalData`]
/// if `read` does not return it.
pub fn compose(
    model: &Bytes,
    read: impl Fn(&str, Range<u64>) -> Option<Bytes>,
) -> Result<Vec<Part>, Error> {
    let mut model = decode(model)?;
    let mut graph = model.graph.take().unwrap_or_default();
    let (large, small) = std::mem::take(&mut graph.initializer)
        .into_iter()
        .partition(is_large);
    graph.initializer = small;
    model.graph = Some(graph);
    each_tensor(&mut model, &mut |tensor| match tensor.is_external() {
        true => take(tensor, &read),
        false => Ok(()),
    })?;
    let graph = model.graph.take().unwrap_or_default();
    let large: Vec<LargeTensor> = large
        .into_iter()
        .map(LargeTensor::of)
        .collect::<Result<_, _>>()?;
    Ok(laid_out(&model, &graph, large))
}

/// The outline of a file that has not been assembled: the result of [`outline`] for it. `read` is that of [`compose`].
///
/// # Errors
/// Those of [`outline`].
pub fn of_parts(
    parts: &[Part],
    read: impl Fn(&str, Range<u64>) -> Option<Bytes>,
) -> Result<Bytes, Error> {
    let starts = parts.iter().scan(0, |at, part| {
        let start = *at;
        *at += part.length();
        Some(start)
    });
    let starts: Vec<u64> = starts.collect();
    let size = parts.iter().map(Part::length).sum();
    outline(size, |range| {
        let mut bytes = Vec::new();
        let first = starts.partition_point(|start| *start <= range.start);
        for (part, start) in parts.iter().zip(&starts).skip(first.saturating_sub(1)) {
            let from = range.start.saturating_sub(*start).min(part.length());
            let to = range.end.saturating_sub(*start).min(part.length());
            if from >= to {
                break;
            }
            match part {
                Part::Bytes(all) => bytes.extend_from_slice(&all[from as usize..to as usize]),
                Part::Stored { location, range } => {
                    bytes.extend(read(location, range.start + from..range.start + to)?);
                }
            }
        }
        Some(bytes.into())
    })
}

/// The file of an outline, in memory once.
///
/// # Errors
/// Those of [`compose`]; [`Error::NotOnnx`] if `read` does not return the parts.
pub fn filled(model: &Bytes, read: impl Fn(Range<u64>) -> Option<Bytes>) -> Result<Bytes, Error> {
    let read = |location: &str, range| read(range).filter(|_| location == WEIGHTS);
    let parts = compose(model, read)?;
    let size = parts.iter().map(Part::length).sum::<u64>();
    let mut whole = Vec::with_capacity(usize::try_from(size).map_err(|_| cut_short())?);
    for part in parts {
        match part {
            Part::Bytes(bytes) => whole.extend_from_slice(&bytes),
            Part::Stored { location, range } => {
                whole.extend_from_slice(&read(&location, range).ok_or_else(cut_short)?);
            }
        }
    }
    Ok(whole.into())
}

/// Whether engines can read all data of an outline in place, as that of composed files.
///
/// # Errors
/// [`Error::NotOnnx`] if the bytes are not a model, or a tensor does not say where its data is.
pub fn is_aligned(model: &Bytes) -> Result<bool, Error> {
    let mut model = decode(model)?;
    let mut is_aligned = true;
    each_tensor(&mut model, &mut |tensor| {
        if tensor.is_outlined() {
            is_aligned &= place(tensor)?.0.is_multiple_of(ALIGNMENT);
        }
        Ok(())
    })?;
    Ok(is_aligned)
}

/// The outline with the file under another name.
///
/// # Errors
/// [`Error::NotOnnx`] when the bytes are no model.
pub fn located(model: &Bytes, name: &str) -> Result<Bytes, Error> {
    let mut model = decode(model)?;
    each_tensor(&mut model, &mut |tensor| {
        if tensor.is_outlined() {
            let entries = tensor.external_data.iter_mut();
            for entry in entries.filter(|entry| entry.key() == "location") {
                entry.value = Some(name.to_owned());
            }
        }
        Ok(())
    })?;
    Ok(crate::encode(&model))
}

/// Whether tensors have data at [`WEIGHTS`].
pub fn is_outline(model: &ModelProto) -> bool {
    let initializers = model.graph.iter().flat_map(|graph| &graph.initializer);
    initializers.into_iter().any(TensorProto::is_outlined)
}

fn is_large(tensor: &TensorProto) -> bool {
    match &tensor.raw_data {
        Some(raw) => raw.len() as u64 >= LEAST_BYTES,
        None => tensor.is_external() && tensor.data_bytes().is_ok_and(|bytes| bytes >= LEAST_BYTES),
    }
}

fn take(
    tensor: &mut TensorProto,
    read: &dyn Fn(&str, Range<u64>) -> Option<Bytes>,
) -> Result<(), Error> {
    let (offset, length) = place(tensor)?;
    let location = tensor.location().unwrap_or_default().to_owned();
    let end = offset.checked_add(length);
    let data = end.and_then(|end| read(&location, offset..end));
    fill(tensor, data.ok_or_else(|| tensor.external())?)
}

/// The entries that say where the data of a tensor is.
fn reference(name: &str, range: &Range<u64>) -> Vec<StringStringEntryProto> {
    let entry = |key: &str, value: String| StringStringEntryProto {
        key: Some(key.to_owned()),
        value: Some(value),
    };
    vec![
        entry("location", name.to_owned()),
        entry("offset", range.start.to_string()),
        entry("length", (range.end - range.start).to_string()),
    ]
}

// === Reading ===

/// A file that is read from its beginning to its end.
struct File<'a> {
    read: &'a dyn Fn(Range<u64>) -> Option<Bytes>,
    /// The bytes that were read last, and their offset.
    window: (u64, Bytes),
    /// Bytes of the outline so far.
    copied: u64,
    size: u64,
}

/// A field: its number, its content, and where the next one begins.
struct Field {
    number: u64,
    content: Option<Range<u64>>,
    end: u64,
}

type Inner<'i, 'f> = dyn FnMut(&mut File<'f>, Range<u64>) -> Result<Vec<u8>, Error> + 'i;

impl<'f> File<'f> {
    /// Copies a message; `inner` replaces the fields with a number.
    fn rewrite(
        &mut self,
        message: Range<u64>,
        number: u64,
        to: &mut Vec<u8>,
        inner: &mut Inner<'_, 'f>,
    ) -> Result<(), Error> {
        let mut at = message.start;
        while at < message.end {
            let field = self.field(at, message.end)?;
            match field.content.filter(|_| field.number == number) {
                Some(content) => put(to, number, &inner(self, content)?),
                None => to.extend_from_slice(&self.copy(at..field.end)?),
            }
            at = field.end;
        }
        Ok(())
    }

    /// A tensor, without its raw data if that is large.
    fn tensor(&mut self, content: Range<u64>) -> Result<Vec<u8>, Error> {
        if content.end - content.start < LEAST_BYTES {
            return Ok(self.copy(content)?.to_vec());
        }
        let (mut tensor, mut at, mut data) = (Vec::new(), content.start, None);
        while at < content.end {
            let field = self.field(at, content.end)?;
            let length = |range: &Range<u64>| range.end - range.start;
            match field.content {
                Some(range) if field.number == TENSOR_RAW_DATA && length(&range) >= LEAST_BYTES => {
                    data = Some(range);
                }
                // The tensor has data and says that its data is elsewhere: it is not known which counts.
                _ if matches!(field.number, TENSOR_EXTERNAL_DATA | TENSOR_DATA_LOCATION) => {
                    return Ok(self.copy(content)?.to_vec());
                }
                _ => tensor.extend_from_slice(&self.copy(at..field.end)?),
            }
            at = field.end;
        }
        if let Some(range) = data {
            let place = TensorProto {
                data_location: Some(EXTERNAL),
                external_data: reference(WEIGHTS, &range),
                ..TensorProto::default()
            };
            // Fields of a message may be appended one after the other.
            tensor.extend(place.encode_to_vec());
        }
        Ok(tensor)
    }

    fn field(&mut self, at: u64, end: u64) -> Result<Field, Error> {
        let mut head = self.head(at, end)?;
        let before = head.remaining();
        let varint =
            |head: &mut Bytes| prost::encoding::decode_varint(head).map_err(|_| cut_short());
        let key = varint(&mut head)?;
        let length = match key & 7 {
            0 => {
                varint(&mut head)?;
                0
            }
            1 => 8,
            WITH_LENGTH => varint(&mut head)?,
            5 => 4,
            _ => return Err(Error::NotOnnx("it has a field of no known kind".to_owned())),
        };
        let start = at + (before - head.remaining()) as u64;
        let next = start.checked_add(length).filter(|next| *next <= end);
        let next = next.ok_or_else(cut_short)?;
        Ok(Field {
            number: key >> 3,
            content: (key & 7 == WITH_LENGTH).then_some(start..next),
            end: next,
        })
    }

    /// Enough bytes for the head of a field.
    fn head(&mut self, at: u64, end: u64) -> Result<Bytes, Error> {
        self.bytes(at..end.min(at + 20))
    }

    /// Bytes of the outline.
    fn copy(&mut self, range: Range<u64>) -> Result<Bytes, Error> {
        self.copied += range.end - range.start;
        if self.copied > MOST_BYTES {
            return Err(Error::NotOnnx(format!(
                "it has more than {MOST_BYTES} bytes beside the raw data of its initialisers"
            )));
        }
        self.bytes(range)
    }

    fn bytes(&mut self, range: Range<u64>) -> Result<Bytes, Error> {
        let (start, window) = &self.window;
        let held = *start..start + window.len() as u64;
        if !(held.contains(&range.start) && range.end <= held.end) {
            let length = range.end - range.start;
            let end = self.size.min(range.start + length.max(WINDOW));
            let read = (self.read)(range.start..end);
            let whole = |bytes: &Bytes| bytes.len() as u64 == end - range.start;
            let read = read.filter(whole).ok_or_else(cut_short)?;
            self.window = (range.start, read);
        }
        let (start, window) = &self.window;
        let from = (range.start - start) as usize;
        Ok(window.slice(from..from + (range.end - range.start) as usize))
    }
}

fn cut_short() -> Error {
    Error::NotOnnx("it is cut short".to_owned())
}

/// Appends a field with a length.
fn put(to: &mut Vec<u8>, number: u64, content: &[u8]) {
    encode_varint(number << 3 | WITH_LENGTH, to);
    encode_varint(content.len() as u64, to);
    to.extend_from_slice(content);
}

fn varint(value: u64) -> u64 {
    prost::encoding::encoded_len_varint(value) as u64
}

// === Writing ===

/// A tensor and its data.
struct LargeTensor {
    /// Everything but the data.
    head: Vec<u8>,
    data: Part,
}

impl LargeTensor {
    fn of(mut tensor: TensorProto) -> Result<Self, Error> {
        let data = match tensor.raw_data.take() {
            Some(raw) => {
                // Checked while the data is at hand.
                tensor.raw_data = Some(raw.clone());
                tensor.check()?;
                tensor.raw_data = None;
                Part::Bytes(raw)
            }
            None => {
                let (offset, length) = place(&tensor)?;
                let end = offset
                    .checked_add(length)
                    .ok_or_else(|| tensor.external())?;
                if length != tensor.data_bytes()? {
                    let dims = &tensor.dims;
                    return Err(Error::NotOnnx(format!(
                        "tensor `{}` has {length} bytes, which is not what {dims:?} needs",
                        tensor.name()
                    )));
                }
                Part::Stored {
                    location: tensor.location().unwrap_or_default().to_owned(),
                    range: offset..end,
                }
            }
        };
        tensor.external_data.clear();
        tensor.data_location = None;
        tensor.doc_string = None;
        Ok(Self {
            head: tensor.encode_to_vec(),
            data,
        })
    }

    /// Its length as a field of the graph, with `padding` bytes of padding.
    fn length(&self, padding: u64) -> u64 {
        let content = self.content(padding);
        1 + varint(content) + content
    }

    fn content(&self, padding: u64) -> u64 {
        let data = self.data.length();
        self.head.len() as u64 + 2 + padding + 1 + varint(data) + data
    }

    /// The padding that aligns the data, if the field begins at `at`.
    fn padding(&self, at: u64) -> u64 {
        let data = self.data.length();
        let begins = |padding: &u64| (at + self.length(*padding) - data).is_multiple_of(ALIGNMENT);
        // The length's own length may change just there: then the data is not aligned.
        (0..2 * ALIGNMENT - 1).find(begins).unwrap_or(0)
    }

    /// The field up to its data. The padding is text that nothing reads.
    fn write(&self, padding: u64, to: &mut Vec<u8>) {
        encode_varint(GRAPH_INITIALIZER << 3 | WITH_LENGTH, to);
        encode_varint(self.content(padding), to);
        to.extend_from_slice(&self.head);
        put(to, TENSOR_DOC_STRING, &vec![b' '; padding as usize]);
        encode_varint(TENSOR_RAW_DATA << 3 | WITH_LENGTH, to);
        encode_varint(self.data.length(), to);
    }
}

/// The file: the model without its graph, the graph without its large tensors, and the large tensors.
fn laid_out(model: &ModelProto, graph: &GraphProto, large: Vec<LargeTensor>) -> Vec<Part> {
    let mut before = model.encode_to_vec();
    encode_varint(MODEL_GRAPH << 3 | WITH_LENGTH, &mut before);
    let graph = graph.encode_to_vec();
    let (paddings, length) = paddings(before.len() as u64, graph.len() as u64, &large);
    encode_varint(length, &mut before);
    before.extend_from_slice(&graph);
    let mut parts = Vec::with_capacity(2 * large.len() + 1);
    for (tensor, padding) in large.into_iter().zip(paddings) {
        tensor.write(padding, &mut before);
        parts.push(Part::Bytes(std::mem::take(&mut before).into()));
        parts.push(tensor.data);
    }
    if !before.is_empty() {
        parts.push(Part::Bytes(before.into()));
    }
    parts
}

/// The paddings of tensors, and the length of the graph, which begins with that length at `at`.
fn paddings(at: u64, graph: u64, large: &[LargeTensor]) -> (Vec<u64>, u64) {
    let bare = graph + large.iter().map(|it| it.length(0)).sum::<u64>();
    // The length's own length depends on the paddings, which depend on it.
    for taken in [varint(bare), varint(bare) + 1] {
        let begin = at + taken;
        let mut end = begin + graph;
        let padded = large.iter().map(|tensor| {
            let padding = tensor.padding(end);
            end += tensor.length(padding);
            padding
        });
        let padded: Vec<u64> = padded.collect();
        if varint(end - begin) == taken {
            return (padded, end - begin);
        }
    }
    (vec![0; large.len()], bare)
}
