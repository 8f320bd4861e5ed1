//! Members of an archive in a file, of which only the directory and the requested members are read.

use std::io::{self, Read, Seek, SeekFrom};

use crate::zip::{
    self, End, Entry, LARGE_END_BYTES, LOCAL_BYTES, MAX_DIRECTORY_BYTES, Method, TAIL_BYTES,
};

/// The members of an archive; `None` where its directory is missing or damaged.
pub fn list(file: &mut (impl Read + Seek)) -> io::Result<Option<Vec<Entry>>> {
    let size = file.seek(SeekFrom::End(0))?;
    let tail = part(file, size.saturating_sub(TAIL_BYTES), TAIL_BYTES)?;
    let place = match End::find(&tail) {
        None => None,
        Some(End::Here { start, bytes }) => Some((start, bytes)),
        Some(End::Large { at }) => zip::large_end(&part(file, at, LARGE_END_BYTES)?),
    };
    let Some((start, bytes)) = place.filter(|(_, bytes)| *bytes <= MAX_DIRECTORY_BYTES) else {
        return Ok(None);
    };
    Ok(zip::entries(&part(file, start, bytes)?))
}

/// A member that is stored without compression and has at most `limit` bytes; `None` for any other.
pub fn read(
    file: &mut (impl Read + Seek),
    entry: &Entry,
    limit: u64,
) -> io::Result<Option<Vec<u8>>> {
    let is_plain = entry.method == Method::Stored && !entry.encrypted;
    if !is_plain || entry.packed_bytes > limit {
        return Ok(None);
    }
    let header = part(file, entry.header_at, LOCAL_BYTES)?;
    match Entry::header_bytes(&header).and_then(|bytes| entry.header_at.checked_add(bytes)) {
        Some(start) => part(file, start, entry.packed_bytes).map(Some),
        None => Ok(None),
    }
}

/// At most `bytes` bytes from `start` on.
pub fn part(file: &mut (impl Read + Seek), start: u64, bytes: u64) -> io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(start))?;
    let mut part = Vec::new();
    file.by_ref().take(bytes).read_to_end(&mut part)?;
    Ok(part)
}
