//! ZIP archives of arrays (`.npz`): their directory, whose members may be read by ranges, and archives
//! that lie in memory.
//!
//! Members are stored as they are or deflated, as NumPy writes them; the large form of the format
//! (more than 4 GiB) is known, archives over several files and encrypted members are not.

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
/// A size or place that does not fit into four bytes: it stands in an extra field.
const ELSEWHERE: u32 = u32::MAX;
/// The tag of the extra field for large members.
const EXTRA_64: u16 = 1;

/// Why an archive or a member cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The archive is no archive, is cut short, or has very many members.
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
    /// A member is not what was packed.
    #[error("it is damaged: {0}")]
    Damaged(String),
    /// A member is larger than the caller takes.
    #[error("it is larger than {0} bytes")]
    TooLarge(u64),
}

/// How a member is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// As it is.
    Stored,
    /// Deflated.
    Deflated,
    /// Another way, which is not read here.
    Other(u16),
}

/// A member, as the directory tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name; what is not UTF-8 is replaced.
    pub name: String,
    /// How it is packed.
    pub method: Method,
    /// Whether it takes a key to read it.
    pub encrypted: bool,
    /// Bytes once unpacked; not to be believed.
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
    /// Bytes of the member's header, from its first [`LOCAL_BYTES`]: behind them lies what was packed.
    pub fn header_bytes(header: &[u8]) -> Option<u64> {
        (number::<4>(header, 0)? == u64::from(LOCAL)).then_some(())?;
        Some(LOCAL_BYTES + number::<2>(header, 26)? + number::<2>(header, 28)?)
    }
}

impl Archive {
    /// Reads the directory.
    ///
    /// # Errors
    /// When there is none.
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

    /// Unpacks a member of at most `limit` bytes, whatever the directory says about its size.
    ///
    /// # Errors
    /// When it cannot be read, is damaged, or is larger.
    pub fn read(&self, entry: &Entry, limit: u64) -> Result<Bytes, Problem> {
        if entry.encrypted {
            return Err(Problem::Encrypted);
        }
        let header = slice(&self.file, entry.header_at, LOCAL_BYTES).ok_or(Problem::Beyond)?;
        let start = Entry::header_bytes(header)
            .and_then(|bytes| entry.header_at.checked_add(bytes))
            .ok_or(Problem::Beyond)?;
        let packed = slice(&self.file, start, entry.packed_bytes).ok_or(Problem::Beyond)?;
        let unpacked = match entry.method {
            Method::Stored if packed.len() as u64 > limit => return Err(Problem::TooLarge(limit)),
            Method::Stored => self.file.slice_ref(packed),
            Method::Deflated => inflate(packed, limit)?,
            Method::Other(method) => return Err(Problem::Method(method)),
        };
        if crc32fast::hash(&unpacked) != entry.crc {
            return Err(Problem::Damaged("its checksum is another".to_owned()));
        }
        Ok(unpacked)
    }
}

/// Stops one byte past the limit.
fn inflate(packed: &[u8], limit: u64) -> Result<Bytes, Problem> {
    let mut bytes = Vec::new();
    let mut unpacked = DeflateDecoder::new(packed).take(limit.saturating_add(1));
    let read = unpacked.read_to_end(&mut bytes);
    let read = read.map_err(|error| Problem::Damaged(error.to_string()))?;
    match read as u64 > limit {
        true => Err(Problem::TooLarge(limit)),
        false => Ok(bytes.into()),
    }
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
