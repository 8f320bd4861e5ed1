//! Messages on the wire: a byte that says whether the message is compressed, its length in four bytes, and the message.

use std::io::{Read, Write};

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use bytes::{BufMut, Bytes};
use flate2::{
    Compression,
    read::{GzDecoder, ZlibDecoder},
    write::{GzEncoder, ZlibEncoder},
};
use prost::Message;
use sextant_types::Code;

use crate::{body::body_too_large, problem::Problem, room::Reservation};

/// Bytes before a message.
pub const HEAD_BYTES: usize = 5;

/// Most fields that the outermost part of a message may have: an empty tensor of a few bytes becomes a structure of
/// some hundred bytes.
const MOST_FIELDS: usize = 4096;

/// Bytes that are taken at once from a compressed message.
const PIECE_BYTES: usize = 64 << 10;

pub const ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
pub const ACCEPTS: HeaderName = HeaderName::from_static("grpc-accept-encoding");

/// The compressions that [`Encoding`] knows, as the value of a header.
pub const ACCEPTED: HeaderValue = HeaderValue::from_static("identity,gzip,deflate");

/// How messages are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// Not at all.
    Identity,
    /// RFC 1952.
    Gzip,
    /// RFC 1950, the format of zlib.
    Deflate,
}

/// The head of a message.
#[derive(Debug, Clone, Copy)]
pub struct Head {
    /// Whether it is compressed.
    pub compressed: bool,
    /// Its bytes.
    pub length: usize,
}

/// The one message that a body holds.
pub fn only(body: &Bytes) -> Result<(Head, Bytes), Problem> {
    let refuse = |detail| Err(Problem::new(Code::InvalidRequest, detail));
    let Some(head) = Head::read(body)? else {
        return refuse("the call has no message");
    };
    match body.len() - HEAD_BYTES {
        there if there < head.length => refuse("the message is cut short"),
        there if there > head.length => {
            refuse("there is something behind the only message of the call")
        }
        _ => Ok((head, body.slice(HEAD_BYTES..))),
    }
}

/// Reads a message. `taken` grows by the decompressed bytes, and by the memory that the message takes, which `weigh`
/// returns, before the message is read.
pub fn decode<M: Message + Default>(
    bytes: Bytes,
    encoding: Option<Encoding>,
    (taken, max_bytes): (&mut Reservation, usize),
    weigh: fn(&[u8]) -> usize,
) -> Result<M, Problem> {
    let refuse = |detail: String| Problem::new(Code::InvalidRequest, detail);
    let bytes = match encoding {
        None => bytes,
        Some(Encoding::Identity) => {
            let detail =
                "the message says that it is compressed, and `grpc-encoding` does not say how";
            return Err(refuse(detail.to_owned()));
        }
        Some(Encoding::Gzip) => inflate(GzDecoder::new(&bytes[..]), taken, max_bytes)?,
        Some(Encoding::Deflate) => inflate(ZlibDecoder::new(&bytes[..]), taken, max_bytes)?,
    };
    if fields(&bytes).nth(MOST_FIELDS).is_some() {
        return Err(refuse(format!(
            "the message has more than `{MOST_FIELDS}` fields"
        )));
    }
    taken.grow(weigh(&bytes))?;
    M::decode(bytes).map_err(|error| refuse(format!("the message cannot be read: {error}")))
}

/// An encoded message, with its head.
pub fn encode(message: &impl Message, encoding: Encoding) -> Vec<u8> {
    let length = message.encoded_len();
    if encoding == Encoding::Identity {
        let mut out = Vec::with_capacity(HEAD_BYTES + length);
        put_head(&mut out, false, length);
        // The vector has room for the whole message.
        message.encode_raw(&mut out);
        return out;
    }
    let plain = message.encode_to_vec();
    // Writing into a vector cannot fail.
    let small = match encoding {
        Encoding::Gzip => {
            let mut to = GzEncoder::new(Vec::new(), Compression::fast());
            to.write_all(&plain).and_then(|()| to.finish())
        }
        _ => {
            let mut to = ZlibEncoder::new(Vec::new(), Compression::fast());
            to.write_all(&plain).and_then(|()| to.finish())
        }
    };
    let (compressed, bytes) = small.map_or((false, plain), |small| (true, small));
    let mut out = Vec::with_capacity(HEAD_BYTES + bytes.len());
    put_head(&mut out, compressed, bytes.len());
    out.extend_from_slice(&bytes);
    out
}

fn put_head(out: &mut Vec<u8>, compressed: bool, length: usize) {
    out.put_u8(compressed.into());
    // An answer is as large as the engine's outputs; none reaches 4 GiB.
    out.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
}

/// Decompresses all bytes, to at most `max_bytes`.
fn inflate(
    mut from: impl Read,
    taken: &mut Reservation,
    max_bytes: usize,
) -> Result<Bytes, Problem> {
    let mut out = Vec::new();
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let count = from.read(&mut piece).map_err(|error| {
            let detail = format!("the message is not compressed as `{ENCODING}` says: {error}");
            Problem::new(Code::InvalidRequest, detail)
        })?;
        if count == 0 {
            return Ok(out.into());
        }
        if out.len() + count > max_bytes {
            return Err(body_too_large("the message", max_bytes as u64));
        }
        taken.grow(count)?;
        out.extend_from_slice(&piece[..count]);
    }
}

/// The value of a field.
#[derive(Debug, Clone, Copy)]
pub enum Value<'a> {
    /// A number, of any width.
    Number,
    /// A message, a string, or a packed list of numbers.
    Bytes(&'a [u8]),
}

/// The fields of the outermost part of a message, by number. It ends where the message is malformed; decoding the
/// message reports that.
pub fn fields(bytes: &[u8]) -> impl Iterator<Item = (u64, Value<'_>)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let (field, next) = field(bytes, at)?;
        at = next;
        Some(field)
    })
}

/// The field that begins at `at`, and where it ends.
fn field(bytes: &[u8], at: usize) -> Option<((u64, Value<'_>), usize)> {
    let (key, at) = varint(bytes, at)?;
    let (value, end) = match key & 7 {
        0 => (Value::Number, varint(bytes, at)?.1),
        1 => (Value::Number, at.checked_add(8)?),
        2 => {
            let (length, at) = varint(bytes, at)?;
            let end = at.checked_add(usize::try_from(length).ok()?)?;
            (Value::Bytes(bytes.get(at..end)?), end)
        }
        5 => (Value::Number, at.checked_add(4)?),
        _ => return None,
    };
    (end <= bytes.len()).then_some(((key >> 3, value), end))
}

fn varint(bytes: &[u8], mut at: usize) -> Option<(u64, usize)> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.get(at)?;
        at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some((value, at));
        }
    }
    None
}

// === impl Head ===

impl Head {
    /// The head at the beginning of `bytes`; `None` if not all of it is there.
    pub fn read(bytes: &[u8]) -> Result<Option<Self>, Problem> {
        let Some((&[flag, a, b, c, d], _)) = bytes.split_first_chunk::<HEAD_BYTES>() else {
            return Ok(None);
        };
        if flag > 1 {
            let detail =
                format!("a message begins with `{flag}`: 0 and 1 say whether it is compressed");
            return Err(Problem::new(Code::InvalidRequest, detail));
        }
        Ok(Some(Self {
            compressed: flag == 1,
            length: u32::from_be_bytes([a, b, c, d]) as usize,
        }))
    }
}

// === impl Encoding ===

impl Encoding {
    /// The compression of those messages of a call whose heads say that they are compressed.
    pub fn of_request(headers: &HeaderMap) -> Result<Self, Problem> {
        let Some(value) = headers.get(ENCODING) else {
            return Ok(Self::Identity);
        };
        let known = value.to_str().ok().and_then(Self::parse);
        known.ok_or_else(|| {
            let detail = format!("`{ENCODING}` is not known: use `identity`, `gzip` or `deflate`");
            Problem::new(Code::InvalidRequest, detail).field(ENCODING.as_str())
        })
    }

    /// The compression of the answers of a call: that of the requests if the client accepts it, else none.
    pub fn of_answer(self, headers: &HeaderMap) -> Self {
        let accepted = headers.get_all(ACCEPTS).iter();
        let mut accepted = accepted
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','));
        match accepted.any(|name| Self::parse(name.trim()) == Some(self)) {
            true => self,
            false => Self::Identity,
        }
    }

    /// Its name in headers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
        }
    }

    fn parse(name: &str) -> Option<Self> {
        let all = [Self::Identity, Self::Gzip, Self::Deflate];
        all.into_iter().find(|encoding| encoding.name() == name)
    }
}
