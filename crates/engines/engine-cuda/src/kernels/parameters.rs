//! Kernel parameters as bytes.

use crate::operation::Address;

/// Parameters of a kernel in one buffer, each at the next multiple of its size, as the driver's interface lays them
/// out. A structure among them must consist of fields with the alignment of its first field.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Parameters {
    bytes: Vec<u8>,
    pointers: Vec<usize>,
}

impl Parameters {
    /// An address in the arena.
    pub fn address(mut self, address: Address) -> Self {
        self.align(8);
        self.pointers.push(self.bytes.len());
        self.u64(address.get())
    }

    /// An address in the arena, or the null pointer.
    pub fn optional(self, address: Option<Address>) -> Self {
        match address {
            Some(address) => self.address(address),
            None => self.u64(0),
        }
    }

    /// A number of 64 bits.
    pub fn u64(self, value: u64) -> Self {
        self.put(&value.to_le_bytes())
    }

    /// Numbers of 64 bits.
    pub fn u64s(self, values: &[u64]) -> Self {
        values.iter().fold(self, |all, value| all.u64(*value))
    }

    /// A signed number of 32 bits.
    pub fn i32(self, value: i32) -> Self {
        self.put(&value.to_le_bytes())
    }

    /// A number of 32 bits.
    pub fn u32(self, value: u32) -> Self {
        self.put(&value.to_le_bytes())
    }

    /// A float.
    pub fn f32(self, value: f32) -> Self {
        self.put(&value.to_le_bytes())
    }

    /// The buffer, with addresses relative to the arena.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The offsets in the buffer at which addresses stand.
    pub fn pointers(&self) -> &[usize] {
        &self.pointers
    }

    /// The buffer for an arena that begins at `base`.
    pub fn relocated(&self, base: u64) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        for at in &self.pointers {
            let place = &mut bytes[*at..*at + 8];
            let mut address = [0; 8];
            address.copy_from_slice(place);
            place.copy_from_slice(&(base + u64::from_le_bytes(address)).to_le_bytes());
        }
        bytes
    }

    fn put(mut self, value: &[u8]) -> Self {
        self.align(value.len());
        self.bytes.extend_from_slice(value);
        self
    }

    /// Pads the buffer to a multiple of `to`. A structure with 64-bit fields needs this whatever its first field.
    pub(super) fn align(&mut self, to: usize) {
        self.bytes.resize(self.bytes.len().next_multiple_of(to), 0);
    }
}
