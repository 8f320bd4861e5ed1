//! The name that a registry and its artefact store share.

use std::{fmt, str::FromStr};

/// The name that both a registry and its artefact store keep, so that each can recognise the other: 128 bits, as 32
/// hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StoreId(u128);

/// A text that is not a [`StoreId`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidStoreId;

impl StoreId {
    /// Makes the name with these bits.
    pub fn from_bits(bits: u128) -> Self {
        Self(bits)
    }
}

impl FromStr for StoreId {
    type Err = InvalidStoreId;

    fn from_str(text: &str) -> Result<Self, InvalidStoreId> {
        let is_one = text.len() == 32 && text.bytes().all(|it| it.is_ascii_hexdigit());
        let bits = u128::from_str_radix(text, 16).ok().filter(|_| is_one);
        bits.map(Self).ok_or(InvalidStoreId)
    }
}

impl fmt::Display for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Display for InvalidStoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it is not 32 hexadecimal digits")
    }
}

impl std::error::Error for InvalidStoreId {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_as_it_was_written() {
        for bits in [0, 1, u128::MAX, 0xab << 120] {
            let id = StoreId::from_bits(bits);
            assert_eq!(id.to_string().len(), 32);
            assert_eq!(id.to_string().parse(), Ok(id));
        }
        for text in ["", "+0000000000000000000000000000000", "ab"] {
            assert_eq!(text.parse::<StoreId>(), Err(InvalidStoreId), "{text}");
        }
    }
}
