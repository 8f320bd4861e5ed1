//! Texts of different lengths: in parts one after the other, in arrays padded to the longest.
//!
//! The width of a NumPy array of texts is known only when all texts are there, but parts are written before. A part
//! stores each text as its length, four bytes, and its UTF-8; joining converts them to UTF-32 with one width.

use bytes::Bytes;

/// Bytes of a code point in an array.
pub(crate) const POINT_BYTES: usize = 4;

/// Bytes of an array that are produced at once.
const PIECE_BYTES: usize = 1 << 20;

/// Appends a text to a part; bytes that are not UTF-8 are replaced, as in JSON.
pub(crate) fn append(block: &mut Vec<u8>, text: &[u8]) {
    let text = String::from_utf8_lossy(text);
    // Answers are smaller than 4 GiB, as messages between processes are.
    block.extend_from_slice(&(text.len() as u32).to_le_bytes());
    block.extend_from_slice(text.as_bytes());
}

/// Code points of a text.
pub(crate) fn points(text: &[u8]) -> usize {
    String::from_utf8_lossy(text).chars().count()
}

/// The texts of a part's block; `None` for a block that nobody wrote.
#[cfg(feature = "parquet")]
pub(crate) fn all(block: Bytes) -> impl Iterator<Item = Option<String>> {
    let mut rest = block;
    std::iter::from_fn(move || {
        (!rest.is_empty()).then(|| {
            let text = take(&mut rest);
            if text.is_none() {
                rest.clear();
            }
            text
        })
    })
}

/// The texts of a part's block as elements of an array, each of `width` code points, in pieces; `None` for a block that
/// nobody wrote.
pub(crate) fn elements(block: Bytes, width: usize) -> impl Iterator<Item = Option<Bytes>> {
    let mut rest = block;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let mut piece = Vec::new();
        while !rest.is_empty() && piece.len() < PIECE_BYTES {
            let Some(text) = take(&mut rest) else {
                rest.clear();
                return Some(None);
            };
            let end = piece.len() + width * POINT_BYTES;
            let points = text.chars().take(width);
            piece.extend(points.flat_map(|point| u32::from(point).to_le_bytes()));
            piece.resize(end, 0);
        }
        Some(Some(piece.into()))
    })
}

fn take(rest: &mut Bytes) -> Option<String> {
    let length = u32::from_le_bytes(rest.get(..4)?.try_into().ok()?) as usize;
    let text = rest.get(4..4 + length)?;
    let text = std::str::from_utf8(text).ok()?.to_owned();
    *rest = rest.slice(4 + length..);
    Some(text)
}
