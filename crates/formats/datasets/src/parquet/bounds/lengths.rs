//! Lengths of texts that a page holds as differences, in blocks. A few bytes may stand for any number of lengths, so
//! they are added up without keeping them.

use super::levels::{bits_of, number, take};

/// Bytes of memory of a length.
const LENGTH_BYTES: u64 = 4;

/// Most bits of a difference.
const MAX_BITS: usize = 32;

/// The header of a list of lengths.
struct Head {
    /// Parts of a block; the differences of a part have the same number of bits.
    parts: usize,
    /// Differences in a part.
    size: usize,
    /// Number of lengths.
    count: u64,
    first: i32,
}

/// Bytes of memory that the lengths at the front of `bytes` take; `None` if they are broken or more than `most`.
pub(super) fn memory(mut bytes: &[u8], most: u64) -> Option<u64> {
    let head = Head::take(&mut bytes, most)?;
    Some(head.count * LENGTH_BYTES)
}

/// Takes the lengths from the front of `bytes`. Returns the bytes of memory for the lengths and for texts of these
/// lengths, or any number over `limit` if that is less. `None` if the lengths are broken or more than `most`.
pub(super) fn take_sum(bytes: &mut &[u8], (most, limit): (u64, u64)) -> Option<u64> {
    let head = Head::take(bytes, most)?;
    if head.count == 0 {
        return Some(0);
    }
    let (mut last, mut left) = (head.first, head.count - 1);
    let mut sum = memory_of(last);
    while left > 0 && sum <= limit {
        let least = signed(number(bytes)?)?;
        let widths = take(bytes, head.parts);
        if widths.len() < head.parts {
            return None;
        }
        for width in widths {
            if left == 0 {
                // Parts after the last length have no bytes, whatever their width says.
                break;
            }
            let bits = usize::from(*width);
            if bits > MAX_BITS {
                return None;
            }
            let part = take(bytes, (head.size / 8).checked_mul(bits)?);
            let count = left.min(head.size as u64);
            for at in 0..count as usize {
                let more = bits_of(part, at * bits, bits) as i32;
                last = last.wrapping_add(least).wrapping_add(more);
                sum = sum.saturating_add(memory_of(last));
                if sum > limit {
                    return Some(sum);
                }
            }
            left -= count;
        }
    }
    Some(sum)
}

fn memory_of(length: i32) -> u64 {
    LENGTH_BYTES + u64::try_from(length).unwrap_or(0)
}

// === impl Head ===

impl Head {
    fn take(bytes: &mut &[u8], most: u64) -> Option<Self> {
        let size = usize::try_from(number(bytes)?).ok()?;
        let parts = usize::try_from(number(bytes)?).ok()?;
        let count = number(bytes)?;
        let head = Self {
            parts,
            size: size.checked_div(parts)?,
            count,
            first: signed(number(bytes)?)?,
        };
        let is_whole = head.size > 0 && head.size.is_multiple_of(8);
        (is_whole && count <= most).then_some(head)
    }
}

/// A number whose last bit is its sign.
fn signed(number: u64) -> Option<i32> {
    let size = (number >> 1) as i64;
    let sign = -((number & 1) as i64);
    i32::try_from(size ^ sign).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lengths 0, 5, 5 and 7: a head, then a block of 128 differences in four parts, of which the first has three
    /// bits for each.
    const LENGTHS: [u8; 22] = [
        0x80, 1, 4, 4, 0, 0, 3, 0, 0, 0, 0x85, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ];

    fn sum(mut bytes: &[u8], most: u64) -> Option<u64> {
        take_sum(&mut bytes, (most, 1 << 20))
    }

    #[test]
    fn lengths_are_added_up() {
        assert_eq!(sum(&LENGTHS, 4), Some(17 + 4 * LENGTH_BYTES));
        assert_eq!(memory(&LENGTHS, 4), Some(4 * LENGTH_BYTES));
        let mut more = LENGTHS.to_vec();
        more.extend(*b"more");
        let mut left = &more[..];
        take_sum(&mut left, (4, 1 << 20)).expect("lengths");
        assert_eq!(left, b"more");
        // A thousand of 10 in blocks without bits.
        let mut even = vec![0x80, 0x01, 4, 0xe8, 0x07, 20];
        even.resize(even.len() + 8 * 5, 0);
        assert_eq!(sum(&even, 1000), Some(1000 * (10 + LENGTH_BYTES)));
        assert_eq!(sum(&[0x80, 0x01, 4, 0, 0], 0), Some(0));
    }

    #[test]
    fn adding_ends_past_the_limit() {
        // A block of a billion.
        let many = [
            0x80, 0x80, 0x80, 0x80, 4, 1, 0x81, 0x80, 0x80, 0x80, 4, 0, 0, 0,
        ];
        let sum = sum(&many, u64::MAX).expect("lengths");
        assert!(sum > 1 << 20 && sum < 2 << 20, "{sum}");
    }

    #[test]
    fn broken_lengths_are_refused() {
        assert_eq!(sum(&LENGTHS, 3), None);
        assert_eq!(memory(&LENGTHS, 3), None);
        for cut in 0..10 {
            assert_eq!(sum(&LENGTHS[..cut], 4), None, "{cut}");
        }
        for head in [[0, 4, 4, 0], [8, 0, 4, 0], [4, 4, 4, 0]] {
            assert_eq!(sum(&head, 4), None, "{head:?}");
        }
        let mut wide = LENGTHS;
        wide[6] = 33;
        assert_eq!(sum(&wide, 4), None);
    }
}
