//! Elements in typed fields: `InferTensorContents` of the protocol.
//!
//! The generated code would make a value of 32 bytes of each string, which takes as few as two bytes on the wire.

use bytes::{Buf, BufMut, Bytes};
use prost::{
    DecodeError, Message,
    encoding::{self, DecodeContext, WireType, bool, double, float, int32, int64, uint32, uint64},
};
use sextant_types::{Texts, TextsBuilder};

use super::frame::{Value, fields};

/// Elements of a tensor; only the field of its type has any.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Contents {
    /// `BOOL`.
    pub bool_contents: Vec<bool>,
    /// `INT8`, `INT16`, `INT32`.
    pub int_contents: Vec<i32>,
    /// `INT64`.
    pub int64_contents: Vec<i64>,
    /// `UINT8`, `UINT16`, `UINT32`.
    pub uint_contents: Vec<u32>,
    /// `UINT64`.
    pub uint64_contents: Vec<u64>,
    /// `FP32`.
    pub fp32_contents: Vec<f32>,
    /// `FP64`.
    pub fp64_contents: Vec<f64>,
    /// `BYTES`.
    pub bytes_contents: TextsBuilder,
}

/// The number of the field of strings.
const BYTES: u32 = 8;

// === impl Contents ===

impl Message for Contents {
    fn encode_raw(&self, buf: &mut impl BufMut) {
        bool::encode_packed(1, &self.bool_contents, buf);
        int32::encode_packed(2, &self.int_contents, buf);
        int64::encode_packed(3, &self.int64_contents, buf);
        uint32::encode_packed(4, &self.uint_contents, buf);
        uint64::encode_packed(5, &self.uint64_contents, buf);
        float::encode_packed(6, &self.fp32_contents, buf);
        double::encode_packed(7, &self.fp64_contents, buf);
        for text in self.bytes_contents.iter() {
            encoding::encode_key(BYTES, WireType::LengthDelimited, buf);
            encoding::encode_varint(text.len() as u64, buf);
            buf.put_slice(text);
        }
    }

    fn merge_field(
        &mut self,
        tag: u32,
        wire: WireType,
        buf: &mut impl Buf,
        ctx: DecodeContext,
    ) -> Result<(), DecodeError> {
        match tag {
            1 => bool::merge_repeated(wire, &mut self.bool_contents, buf, ctx),
            2 => int32::merge_repeated(wire, &mut self.int_contents, buf, ctx),
            3 => int64::merge_repeated(wire, &mut self.int64_contents, buf, ctx),
            4 => uint32::merge_repeated(wire, &mut self.uint_contents, buf, ctx),
            5 => uint64::merge_repeated(wire, &mut self.uint64_contents, buf, ctx),
            6 => float::merge_repeated(wire, &mut self.fp32_contents, buf, ctx),
            7 => double::merge_repeated(wire, &mut self.fp64_contents, buf, ctx),
            BYTES => {
                let mut text = Bytes::new();
                encoding::bytes::merge(wire, &mut text, buf, ctx)?;
                if self.bytes_contents.is_empty() {
                    self.bytes_contents = with_room(text.len(), buf.chunk());
                }
                // Above 4 GiB there is no room: the tensor then has fewer elements than its shape, and is refused.
                self.bytes_contents.push(&text).unwrap_or_default();
                Ok(())
            }
            _ => encoding::skip_field(wire, tag, buf, ctx),
        }
    }

    fn encoded_len(&self) -> usize {
        let head = |text: &[u8]| {
            encoding::key_len(BYTES) + encoding::encoded_len_varint(text.len() as u64)
        };
        let strings = self
            .bytes_contents
            .iter()
            .map(|text| head(text) + text.len());
        strings.sum::<usize>()
            + bool::encoded_len_packed(1, &self.bool_contents)
            + int32::encoded_len_packed(2, &self.int_contents)
            + int64::encoded_len_packed(3, &self.int64_contents)
            + uint32::encoded_len_packed(4, &self.uint_contents)
            + uint64::encoded_len_packed(5, &self.uint64_contents)
            + float::encoded_len_packed(6, &self.fp32_contents)
            + double::encoded_len_packed(7, &self.fp64_contents)
    }

    fn clear(&mut self) {
        *self = Self::default();
    }
}

/// Room for a string of `bytes` bytes and for all strings that follow it. A list that grows is copied, and takes twice
/// as much memory meanwhile.
fn with_room(bytes: usize, rest: &[u8]) -> TextsBuilder {
    let following = fields(rest).map_while(|field| match field {
        (8, Value::Bytes(text)) => Some(text.len()),
        _ => None,
    });
    let (count, bytes) = following.fold((1, bytes), |(count, bytes), length| {
        (count + 1, bytes + length)
    });
    TextsBuilder::with_capacity(count, bytes)
}

/// Most bytes of memory that an `InferTensorContents` takes when it is read.
pub fn most_bytes(message: &[u8]) -> usize {
    let of_field = |(number, value): (u64, Value<'_>)| {
        let (elements, size) = match (number, value) {
            (8, Value::Bytes(text)) => return text.len() + Texts::ELEMENT_BYTES,
            (6, Value::Bytes(packed)) => (packed.len() / 4, 4),
            (7, Value::Bytes(packed)) => (packed.len() / 8, 8),
            (1, Value::Bytes(packed)) => (varints(packed), 1),
            (2 | 4, Value::Bytes(packed)) => (varints(packed), 4),
            (_, Value::Bytes(packed)) => (varints(packed), 8),
            (_, Value::Number) => (1, 8),
        };
        // A list may have room for twice its elements, and they are copied into the tensor.
        3 * size * elements
    };
    fields(message).map(of_field).sum()
}

/// The number of varints: each ends with a byte below 128.
fn varints(packed: &[u8]) -> usize {
    packed.iter().filter(|byte| **byte < 0x80).count()
}
