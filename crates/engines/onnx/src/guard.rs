//! Refuses files whose messages would take far more memory than the file itself.
//!
//! An empty node takes two bytes in a file and some hundred in memory, so a file of a few megabytes
//! could fill the machine. So the parts are counted before anything is decoded. Real models have
//! names and data in their parts. A file with fewer than [`FREE`] parts is not refused, nor one
//! with at least [`BYTES_PER_PART`] bytes for each part.

use crate::Error;

/// Parts that any file may have.
const FREE: usize = 65_536;

/// Bytes of the file that pay for one further part.
const BYTES_PER_PART: usize = 8;

/// Nesting that is followed; the decoder's limit is lower.
const DEPTH: usize = 100;

/// The kind of a field's message, for counting.
#[derive(Clone, Copy)]
enum Message {
    Model,
    Graph,
    Node,
    Attribute,
    Function,
    Training,
    /// Counted, not followed.
    Leaf,
}

/// Counts the parts of a file. Malformed files pass, because the decoder reports them.
pub(crate) fn check(file: &[u8]) -> Result<(), Error> {
    let allowed = FREE + file.len() / BYTES_PER_PART;
    let mut left = allowed;
    match count(Message::Model, file, DEPTH, &mut left) {
        Some(()) => Ok(()),
        None => Err(Error::NotOnnx(format!(
            "its {} bytes hold more than {allowed} parts",
            file.len()
        ))),
    }
}

/// `None` if there are more than `left` parts.
fn count(message: Message, mut bytes: &[u8], depth: usize, left: &mut usize) -> Option<()> {
    while let Some((number, content)) = field(&mut bytes) {
        let Some(inner) = content.and_then(|_| message.field(number)) else {
            continue;
        };
        *left = left.checked_sub(1)?;
        if let (Some(content), Some(deeper)) = (content, depth.checked_sub(1)) {
            count(inner, content, deeper, left)?;
        }
    }
    Some(())
}

// === impl Message ===

impl Message {
    fn field(self, number: u64) -> Option<Self> {
        Some(match (self, number) {
            (Self::Model, 7) | (Self::Attribute, 6 | 11) | (Self::Training, 1 | 2) => Self::Graph,
            (Self::Model, 20) => Self::Training,
            (Self::Model, 25) => Self::Function,
            (Self::Graph, 1) | (Self::Function, 7) => Self::Node,
            (Self::Node, 5) | (Self::Function, 11) => Self::Attribute,
            (Self::Graph, 5 | 11..=16)
            | (Self::Node, 9 | 10)
            | (Self::Attribute, 5 | 10 | 14 | 15 | 22 | 23)
            | (Self::Function, 9 | 12 | 14)
            | (Self::Model, 8 | 14 | 26) => Self::Leaf,
            _ => return None,
        })
    }
}

/// The next field's number and, if it is length-delimited, its content; `None` at the end or at
/// malformed bytes.
fn field<'a>(bytes: &mut &'a [u8]) -> Option<(u64, Option<&'a [u8]>)> {
    let key = varint(bytes)?;
    let content = match key & 7 {
        0 => {
            varint(bytes)?;
            None
        }
        1 => {
            take(bytes, 8)?;
            None
        }
        2 => {
            let length = usize::try_from(varint(bytes)?).ok()?;
            Some(take(bytes, length)?)
        }
        5 => {
            take(bytes, 4)?;
            None
        }
        _ => return None,
    };
    Some((key >> 3, content))
}

fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(count)?;
    *bytes = rest;
    Some(taken)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..70).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}
