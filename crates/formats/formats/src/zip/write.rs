//! Archives of members without compression.

use bytes::Bytes;

use super::{CENTRAL, ELSEWHERE, END, END_64, EXTRA_64, LOCAL, LOCATOR_64};

/// The version of the format that knows large members.
const VERSION: u16 = 45;
/// 1 January 1980: the same records make the same bytes at any time.
const DATE: u32 = 0x0021_0000;

/// A member to be written; its checksum must be known before its bytes.
#[derive(Debug, Clone)]
pub struct NewMember {
    /// Its name.
    pub name: String,
    /// Its size, bytes.
    pub bytes: u64,
    /// Its checksum.
    pub crc: u32,
}

impl NewMember {
    /// The header before its bytes.
    pub fn header(&self) -> Bytes {
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

/// The directory after the last member.
pub fn directory_of(members: &[NewMember]) -> Bytes {
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
