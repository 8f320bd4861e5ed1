//! Messages between a process and its child: the length of a head in 4 bytes, little-endian, the head as
//! JSON, and the bytes that the head announces.

use std::io::{self, Read, Write};

use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};

/// Most bytes of a head.
const MOST_HEAD_BYTES: u32 = 16 << 20;

/// Most bytes that are written in one piece with their head.
const SMALL_BYTES: usize = 64 << 10;

/// Writes a head and the bytes that it announces.
///
/// # Errors
/// If the other side is gone, or the head is too long.
pub fn write(to: &mut impl Write, head: &impl Serialize, blobs: &[Bytes]) -> io::Result<()> {
    let mut piece = vec![0; 4];
    serde_json::to_writer(&mut piece, head)?;
    let length = u32::try_from(piece.len() - 4).map_err(io::Error::other)?;
    piece[..4].copy_from_slice(&length.to_le_bytes());
    for blob in blobs {
        if piece.len() + blob.len() <= SMALL_BYTES {
            piece.extend_from_slice(blob);
            continue;
        }
        to.write_all(&piece)?;
        to.write_all(blob)?;
        piece.clear();
    }
    to.write_all(&piece)?;
    to.flush()
}

/// Reads the next head; `None` at the end.
///
/// # Errors
/// If the other side is gone, or writes something else.
pub fn read_head<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<Option<T>> {
    let mut length = [0; 4];
    match from.read_exact(&mut length) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let length = u32::from_le_bytes(length);
    if length > MOST_HEAD_BYTES {
        return Err(io::Error::other("a message is too long"));
    }
    let text = read_bytes(from, length.into())?;
    Ok(Some(serde_json::from_slice(&text)?))
}

/// Reads `length` bytes. Memory is allocated as they arrive, not as they are announced.
///
/// # Errors
/// If the other side is gone before all have arrived.
pub fn read_bytes(from: &mut impl Read, length: u64) -> io::Result<Bytes> {
    read_into(from, length, Vec::new())
}

/// Reads `length` bytes into memory of just that size. The announcement must be trusted: a child trusts its parent.
///
/// # Errors
/// If the other side is gone before all have arrived.
pub fn read_whole(from: &mut impl Read, length: u64) -> io::Result<Bytes> {
    let bytes = usize::try_from(length).map_err(io::Error::other)?;
    read_into(from, length, Vec::with_capacity(bytes))
}

fn read_into(from: &mut impl Read, length: u64, mut bytes: Vec<u8>) -> io::Result<Bytes> {
    let read = from.take(length).read_to_end(&mut bytes)?;
    if read as u64 != length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(bytes.into())
}
