//! Archives of arrays (`.npz`): a ZIP file whose members are stored as they are, so that they can
//! be read by ranges.

use bytes::Bytes;
use sextant_objects::ObjectPath;

use crate::{Error, Files};

/// Where a member's bytes lie in the archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) start: u64,
    pub(crate) bytes: u64,
}

const LOCAL: u32 = 0x0403_4b50;
const CENTRAL: u32 = 0x0201_4b50;
const END: u32 = 0x0605_4b50;
const END_64: u32 = 0x0606_4b50;
const LOCATOR_64: u32 = 0x0706_4b50;
const END_BYTES: usize = 22;
const LOCATOR_BYTES: usize = 20;
/// The end of the directory with the longest comment, and the locator before it.
const TAIL_BYTES: u64 = 65_535 + END_BYTES as u64 + LOCATOR_BYTES as u64;
/// Largest directory: an archive has a member for each input of a model.
const MAX_DIRECTORY_BYTES: u64 = 16 << 20;
/// A size or place that does not fit into four bytes: it stands in an extra field.
const ELSEWHERE: u32 = u32::MAX;
/// The version of the format that knows large members.
const VERSION: u16 = 45;
/// 1 January 1980: the same records make the same bytes whenever they are written.
const DATE: u32 = 0x0021_0000;
/// The tag of the extra field for large members.
const EXTRA_64: u16 = 1;

/// The members of an archive, in the order of its directory.
pub(crate) async fn members(
    files: &Files,
    path: &ObjectPath,
    size: u64,
) -> Result<Vec<Member>, Error> {
    let broken = |reason: &str| Error::input(path, format!("it is no readable archive: {reason}"));
    let tail_start = size.saturating_sub(TAIL_BYTES);
    let tail = files.get_range(path, tail_start..size).await?;
    let (start, bytes) = match directory(&tail).ok_or_else(|| broken("it has no directory"))? {
        Directory::Here { start, bytes } => (start, bytes),
        Directory::Large { end_at } => {
            let end = files
                .get_range(path, end_at..end_at.saturating_add(56))
                .await?;
            large_directory(&end).ok_or_else(|| broken("its directory is damaged"))?
        }
    };
    if bytes > MAX_DIRECTORY_BYTES || start.checked_add(bytes).is_none_or(|end| end > size) {
        return Err(broken("its directory is damaged or over 16 MiB"));
    }
    let directory = files.get_range(path, start..start + bytes).await?;
    let entries = entries(&directory).ok_or_else(|| broken("its directory is damaged"))?;
    let mut members = Vec::with_capacity(entries.len());
    for entry in entries {
        if entry.method != 0 || entry.encrypted {
            let advice =
                "its members are compressed: save it with `numpy.savez`, not `savez_compressed`";
            return Err(Error::input(path, advice));
        }
        let at = entry.header_at;
        let local = files.get_range(path, at..at.saturating_add(30)).await?;
        let start = local_bytes(&local)
            .and_then(|bytes| at.checked_add(bytes))
            .filter(|start| {
                start
                    .checked_add(entry.bytes)
                    .is_some_and(|end| end <= size)
            })
            .ok_or_else(|| broken("a member lies beyond its end"))?;
        members.push(Member {
            name: entry.name,
            start,
            bytes: entry.bytes,
        });
    }
    Ok(members)
}

enum Directory {
    Here { start: u64, bytes: u64 },
    Large { end_at: u64 },
}

fn directory(tail: &[u8]) -> Option<Directory> {
    let last = tail.len().checked_sub(END_BYTES)?;
    let at = (0..=last)
        .rev()
        .find(|at| number::<4>(tail, *at) == Some(u64::from(END)))?;
    let (bytes, start) = (number::<4>(tail, at + 12)?, number::<4>(tail, at + 16)?);
    let locator = at.checked_sub(LOCATOR_BYTES);
    let locator = locator.filter(|at| number::<4>(tail, *at) == Some(u64::from(LOCATOR_64)));
    match locator {
        Some(locator) => Some(Directory::Large {
            end_at: number::<8>(tail, locator + 8)?,
        }),
        None => Some(Directory::Here { start, bytes }),
    }
}

fn large_directory(end: &[u8]) -> Option<(u64, u64)> {
    (number::<4>(end, 0)? == u64::from(END_64)).then_some(())?;
    Some((number::<8>(end, 48)?, number::<8>(end, 40)?))
}

struct Entry {
    name: String,
    method: u64,
    encrypted: bool,
    bytes: u64,
    header_at: u64,
}

fn entries(mut directory: &[u8]) -> Option<Vec<Entry>> {
    let mut entries = Vec::new();
    while !directory.is_empty() {
        (number::<4>(directory, 0)? == u64::from(CENTRAL)).then_some(())?;
        let length = |at| number::<2>(directory, at).map(|length| length as usize);
        let (name, extra, comment) = (length(28)?, length(30)?, length(32)?);
        let text = directory.get(46..46 + name)?;
        let mut large = Large::of(directory.get(46 + name..46 + name + extra)?);
        // In this order they stand in the extra field.
        let size = large.or(number::<4>(directory, 24)?)?;
        large.or(number::<4>(directory, 20)?)?;
        let header_at = large.or(number::<4>(directory, 42)?)?;
        entries.push(Entry {
            name: String::from_utf8_lossy(text).into_owned(),
            method: number::<2>(directory, 10)?,
            encrypted: number::<2>(directory, 8)? & 1 == 1,
            bytes: size,
            header_at,
        });
        directory = directory.get(46 + name + extra + comment..)?;
    }
    Some(entries)
}

/// The numbers of an extra field for large members, in their order.
struct Large<'a>(&'a [u8]);

impl<'a> Large<'a> {
    fn of(mut extra: &'a [u8]) -> Self {
        while let (Some(tag), Some(length)) = (number::<2>(extra, 0), number::<2>(extra, 2)) {
            let Some(field) = extra.get(4..4 + length as usize) else {
                break;
            };
            if tag == u64::from(EXTRA_64) {
                return Self(field);
            }
            extra = &extra[4 + field.len()..];
        }
        Self(&[])
    }

    fn or(&mut self, short: u64) -> Option<u64> {
        if short != u64::from(ELSEWHERE) {
            return Some(short);
        }
        let value = number::<8>(self.0, 0)?;
        self.0 = &self.0[8..];
        Some(value)
    }
}

/// Bytes of a member's header.
fn local_bytes(header: &[u8]) -> Option<u64> {
    (number::<4>(header, 0)? == u64::from(LOCAL)).then_some(())?;
    Some(30 + number::<2>(header, 26)? + number::<2>(header, 28)?)
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    let mut wide = [0; 8];
    wide[..N].copy_from_slice(bytes.get(at..at.checked_add(N)?)?);
    Some(u64::from_le_bytes(wide))
}

/// A member that is about to be written; its checksum is known before its bytes are.
#[derive(Debug, Clone)]
pub(crate) struct NewMember {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    pub(crate) crc: u32,
}

impl NewMember {
    /// What stands before its bytes.
    pub(crate) fn header(&self) -> Bytes {
        let mut out = Vec::new();
        out.extend_from_slice(&LOCAL.to_le_bytes());
        out.extend_from_slice(&VERSION.to_le_bytes());
        self.common(&mut out);
        out.extend_from_slice(&ELSEWHERE.to_le_bytes());
        out.extend_from_slice(&ELSEWHERE.to_le_bytes());
        out.extend_from_slice(&(self.name.len() as u16).to_le_bytes());
        out.extend_from_slice(&20u16.to_le_bytes());
        out.extend_from_slice(self.name.as_bytes());
        extra(&mut out, &[self.bytes, self.bytes]);
        Bytes::from(out)
    }

    /// Flags, method, time, checksum.
    fn common(&self, out: &mut Vec<u8>) {
        // Names are UTF-8.
        out.extend_from_slice(&0x0800u16.to_le_bytes());
        out.extend_from_slice(&0u16.to_le_bytes());
        out.extend_from_slice(&DATE.to_le_bytes());
        out.extend_from_slice(&self.crc.to_le_bytes());
    }

    fn entry(&self, header_at: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(&CENTRAL.to_le_bytes());
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&VERSION.to_le_bytes());
        self.common(out);
        out.extend_from_slice(&ELSEWHERE.to_le_bytes());
        out.extend_from_slice(&ELSEWHERE.to_le_bytes());
        out.extend_from_slice(&(self.name.len() as u16).to_le_bytes());
        out.extend_from_slice(&28u16.to_le_bytes());
        // No comment, disk 0, no attributes.
        out.extend_from_slice(&[0; 10]);
        out.extend_from_slice(&ELSEWHERE.to_le_bytes());
        out.extend_from_slice(self.name.as_bytes());
        extra(out, &[self.bytes, self.bytes, header_at]);
    }
}

fn extra(out: &mut Vec<u8>, numbers: &[u64]) {
    out.extend_from_slice(&EXTRA_64.to_le_bytes());
    out.extend_from_slice(&(numbers.len() as u16 * 8).to_le_bytes());
    for number in numbers {
        out.extend_from_slice(&number.to_le_bytes());
    }
}

/// What stands behind the last member.
pub(crate) fn directory_of(members: &[NewMember]) -> Bytes {
    let mut out = Vec::new();
    let mut at = 0;
    for member in members {
        member.entry(at, &mut out);
        at += member.header().len() as u64 + member.bytes;
    }
    let (count, bytes) = (members.len() as u64, out.len() as u64);
    out.extend_from_slice(&END_64.to_le_bytes());
    out.extend_from_slice(&44u64.to_le_bytes());
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&[0; 8]);
    for number in [count, count, bytes, at] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    out.extend_from_slice(&LOCATOR_64.to_le_bytes());
    out.extend_from_slice(&0u32.to_le_bytes());
    out.extend_from_slice(&(at + bytes).to_le_bytes());
    out.extend_from_slice(&1u32.to_le_bytes());
    out.extend_from_slice(&END.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&[0xff; 4]);
    out.extend_from_slice(&ELSEWHERE.to_le_bytes());
    out.extend_from_slice(&ELSEWHERE.to_le_bytes());
    out.extend_from_slice(&[0; 2]);
    Bytes::from(out)
}
