//! The directory at an archive's end.

use super::{CENTRAL, ELSEWHERE, END, END_64, EXTRA_64, Entry, LOCATOR_64, Method, number};

pub(super) const END_BYTES: usize = 22;
pub(super) const LOCATOR_BYTES: usize = 20;

/// The end of an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The directory's place and size, bytes.
    Here {
        /// Where it begins.
        start: u64,
        /// Its size.
        bytes: u64,
    },
    /// Another record has them: see [`large_end`].
    Large {
        /// Where that record begins.
        at: u64,
    },
}

impl End {
    /// Finds the end in the last [`TAIL_BYTES`](super::TAIL_BYTES) of an archive.
    pub fn find(tail: &[u8]) -> Option<Self> {
        let last = tail.len().checked_sub(END_BYTES)?;
        let is_end = |at: &usize| number::<4>(tail, *at) == Some(u64::from(END));
        let at = (0..=last).rev().find(is_end)?;
        let (bytes, start) = (number::<4>(tail, at + 12)?, number::<4>(tail, at + 16)?);
        let locator = at.checked_sub(LOCATOR_BYTES);
        let locator = locator.filter(|at| number::<4>(tail, *at) == Some(u64::from(LOCATOR_64)));
        match locator {
            Some(locator) => Some(Self::Large {
                at: number::<8>(tail, locator + 8)?,
            }),
            None => Some(Self::Here { start, bytes }),
        }
    }
}

/// Where a large directory begins, and its size, bytes; from the record of
/// [`LARGE_END_BYTES`](super::LARGE_END_BYTES).
pub fn large_end(end: &[u8]) -> Option<(u64, u64)> {
    (number::<4>(end, 0)? == u64::from(END_64)).then_some(())?;
    Some((number::<8>(end, 48)?, number::<8>(end, 40)?))
}

/// The members of a directory, in its order.
pub fn entries(mut directory: &[u8]) -> Option<Vec<Entry>> {
    let mut entries = Vec::new();
    while !directory.is_empty() {
        (number::<4>(directory, 0)? == u64::from(CENTRAL)).then_some(())?;
        let length = |at| number::<2>(directory, at).map(|length| length as usize);
        let (name, extra, comment) = (length(28)?, length(30)?, length(32)?);
        let text = directory.get(46..46 + name)?;
        let mut large = LargeFields::of(directory.get(46 + name..46 + name + extra)?);
        // The extra field has them in this order.
        let bytes = large.or(number::<4>(directory, 24)?)?;
        let packed_bytes = large.or(number::<4>(directory, 20)?)?;
        let header_at = large.or(number::<4>(directory, 42)?)?;
        entries.push(Entry {
            name: String::from_utf8_lossy(text).into_owned(),
            method: match number::<2>(directory, 10)? {
                0 => Method::Stored,
                8 => Method::Deflated,
                other => Method::Other(other as u16),
            },
            encrypted: number::<2>(directory, 8)? & 1 == 1,
            bytes,
            packed_bytes,
            crc: number::<4>(directory, 16)? as u32,
            header_at,
        });
        directory = directory.get(46 + name + extra + comment..)?;
    }
    Some(entries)
}

/// The numbers of an extra field for large members, in their order.
struct LargeFields<'a>(&'a [u8]);

impl<'a> LargeFields<'a> {
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
