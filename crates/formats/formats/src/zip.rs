//! ZIP archives of arrays (`.npz`): their directory, whose members may be read by ranges, and archives in memory.
//!
//! Members are stored without compression or deflated, as NumPy writes them. The large form of the format (more than 4
//! GiB) is supported; archives over several files and encrypted members are not.

use std::io::Read;

use bytes::Bytes;
use flate2::read::DeflateDecoder;

mod directory;
mod write;

pub use directory::{End, entries, large_end};
pub use write::{NewMember, directory_of};

/// The end of the directory with the longest comment, and the locator before it, bytes.
pub const TAIL_BYTES: u64 = 65_535 + directory::END_BYTES as u64 + directory::LOCATOR_BYTES as u64;
/// Bytes of the end of a large directory.
pub const LARGE_END_BYTES: u64 = 56;
/// Largest directory: an archive has a member for each input of a model.
pub const MAX_DIRECTORY_BYTES: u64 = 16 << 20;
/// Bytes of a member's header without its name.
pub const LOCAL_BYTES: u64 = 30;

const LOCAL: u32 = 0x0403_4b50;
const CENTRAL: u32 = 0x0201_4b50;
const END: u32 = 0x0605_4b50;
const END_64: u32 = 0x0606_4b50;
const LOCATOR_64: u32 = 0x0706_4b50;
/// Marks a size or offset that does not fit into four bytes: it is in an extra field.
const ELSEWHERE: u32 = u32::MAX;
/// Greatest ratio of inflated bytes to deflated ones.
const MOST_RATIO: u64 = 1032;
/// Least bytes that are allocated if a member is longer than it says.
const LEAST_ROOM: u64 = 1 << 16;
/// The tag of the extra field for large members.
const EXTRA_64: u16 = 1;

/// Why an archive or a member cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The file is not an archive, is cut short, or has very many members.
    #[error("its directory is missing, damaged or over 16 MiB")]
    Directory,
    /// A member is not where the directory says.
    #[error("a member lies beyond its end")]
    Beyond,
    /// A member needs a key.
    #[error("it is encrypted")]
    Encrypted,
    /// A method of compression other than NumPy's.
    #[error(
        "it is compressed by method {0}: save it with `numpy.savez` or `numpy.savez_compressed`"
    )]
    Method(u16),
    /// A member is damaged.
    #[error("it is damaged: {0}")]
    Damaged(String),
    /// A member is larger than the caller accepts.
    #[error("it is larger than {0} bytes")]
    TooLarge(u64),
}

/// How a member is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Without compression.
    Stored,
    /// Deflated.
    Deflated,
    /// Another method, which is not supported here.
    Other(u16),
}

/// A member, from the directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name; bytes that are not UTF-8 are replaced.
    pub name: String,
    /// Its method.
    pub method: Method,
    /// Whether it is encrypted.
    pub encrypted: bool,
    /// Bytes after unpacking; not to be trusted.
    pub bytes: u64,
    /// Bytes in the archive.
    pub packed_bytes: u64,
    /// Checksum of the unpacked bytes.
    pub crc: u32,
    /// Where its header begins, bytes.
    pub header_at: u64,
}

/// An archive in memory.
#[derive(Debug, Clone)]
pub struct Archive {
    file: Bytes,
    entries: Vec<Entry>,
}

/// Whether the bytes begin like an archive, an empty one included.
pub fn is_archive(bytes: &[u8]) -> bool {
    bytes.starts_with(&LOCAL.to_le_bytes()) || bytes.starts_with(&END.to_le_bytes())
}

impl Entry {
    /// Bytes of the member's header, from its first [`LOCAL_BYTES`]: the packed bytes follow it.
    pub fn header_bytes(header: &[u8]) -> Option<u64> {
        (number::<4>(header, 0)? == u64::from(LOCAL)).then_some(())?;
        Some(LOCAL_BYTES + number::<2>(header, 26)? + number::<2>(header, 28)?)
    }
}

impl Archive {
    /// Reads the directory.
    ///
    /// # Errors
    /// If there is none.
    pub fn open(file: Bytes) -> Result<Self, Problem> {
        let tail_at = (file.len() as u64).saturating_sub(TAIL_BYTES) as usize;
        let end = End::find(&file[tail_at..]).ok_or(Problem::Directory)?;
        let (start, bytes) = match end {
            End::Here { start, bytes } => Some((start, bytes)),
            End::Large { at } => slice(&file, at, LARGE_END_BYTES).and_then(large_end),
        }
        .ok_or(Problem::Directory)?;
        if bytes > MAX_DIRECTORY_BYTES {
            return Err(Problem::Directory);
        }
        let directory = slice(&file, start, bytes).ok_or(Problem::Directory)?;
        let entries = entries(directory).ok_or(Problem::Directory)?;
        Ok(Self { file, entries })
    }

    /// The members, in the order of the directory.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Unpacks a member of at most `limit` bytes. Memory is allocated for the unpacked bytes, and never for more than
    /// the limit, whatever size the directory says.
    ///
    /// # Errors
    /// If it cannot be read, is damaged, or is larger than the limit or says so.
    pub fn read(&self, entry: &Entry, limit: u64) -> Result<Bytes, Problem> {
        let packed = self.packed(entry)?;
        let unpacked = match entry.method {
            _ if entry.bytes > limit => return Err(Problem::TooLarge(limit)),
            Method::Stored if packed.len() as u64 > limit => return Err(Problem::TooLarge(limit)),
            Method::Stored => self.file.slice_ref(packed),
            Method::Deflated => inflate(packed, entry.bytes, limit)?,
            Method::Other(method) => return Err(Problem::Method(method)),
        };
        if crc32fast::hash(&unpacked) != entry.crc {
            return Err(Problem::Damaged("its checksum is another".to_owned()));
        }
        Ok(unpacked)
    }

    /// The first bytes of a member, at most `most`. The rest is not checked for damage.
    ///
    /// # Errors
    /// If it cannot be read, or is damaged there.
    pub fn beginning(&self, entry: &Entry, most: u64) -> Result<Bytes, Problem> {
        let packed = self.packed(entry)?;
        match entry.method {
            Method::Stored => {
                let most = usize::try_from(most).unwrap_or(usize::MAX);
                Ok(self.file.slice_ref(&packed[..packed.len().min(most)]))
            }
            Method::Deflated => {
                let (mut bytes, unpacked) = (Vec::new(), DeflateDecoder::new(packed));
                let read = unpacked.take(most).read_to_end(&mut bytes);
                read.map_err(|error| damaged(&error))?;
                Ok(bytes.into())
            }
            Method::Other(method) => Err(Problem::Method(method)),
        }
    }

    /// The packed bytes of a member.
    fn packed(&self, entry: &Entry) -> Result<&[u8], Problem> {
        if entry.encrypted {
            return Err(Problem::Encrypted);
        }
        let header = slice(&self.file, entry.header_at, LOCAL_BYTES).ok_or(Problem::Beyond)?;
        let start = Entry::header_bytes(header)
            .and_then(|bytes| entry.header_at.checked_add(bytes))
            .ok_or(Problem::Beyond)?;
        slice(&self.file, start, entry.packed_bytes).ok_or(Problem::Beyond)
    }
}

/// Stops one byte after the limit. Memory is first allocated for the declared size, or for what the packed bytes can
/// become if that is less; for a longer member it is doubled each time, up to the limit.
fn inflate(packed: &[u8], declared: u64, limit: u64) -> Result<Bytes, Problem> {
    let possible = (packed.len() as u64).saturating_mul(MOST_RATIO);
    let (mut bytes, mut unpacked) = (Vec::new(), DeflateDecoder::new(packed));
    // One more byte shows whether the member has ended.
    let mut room = declared.min(possible).min(limit) + 1;
    loop {
        bytes.reserve_exact(usize::try_from(room).unwrap_or(usize::MAX));
        let read = unpacked.by_ref().take(room).read_to_end(&mut bytes);
        let read = read.map_err(|error| damaged(&error))? as u64;
        let length = bytes.len() as u64;
        match length > limit {
            true => return Err(Problem::TooLarge(limit)),
            false if read < room => return Ok(bytes.into()),
            false => room = length.max(LEAST_ROOM).min(limit - length + 1),
        }
    }
}

fn damaged(error: &std::io::Error) -> Problem {
    Problem::Damaged(error.to_string())
}

fn slice(file: &[u8], start: u64, bytes: u64) -> Option<&[u8]> {
    let start = usize::try_from(start).ok()?;
    file.get(start..start.checked_add(usize::try_from(bytes).ok()?)?)
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    let mut wide = [0; 8];
    wide[..N].copy_from_slice(bytes.get(at..at.checked_add(N)?)?);
    Some(u64::from_le_bytes(wide))
}

#[cfg(test)]
mod tests;
