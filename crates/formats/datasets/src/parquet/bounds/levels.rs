//! Counts the elements of a column's rows, by its levels of repetition: 0 begins a row, any other level continues it.

/// Bits of a byte that belong to a number; the last bit says whether another byte follows.
const NUMBER_BITS: u32 = 7;

/// The rows of a column so far.
#[derive(Debug, Default)]
pub(super) struct Records {
    /// Elements of the last row so far.
    open: u64,
    /// Elements of the longest row.
    longest: u64,
}

impl Records {
    /// Elements of the longest row.
    pub(super) fn longest(&self) -> u64 {
        self.longest
    }

    /// Elements of the last row so far.
    pub(super) fn open(&self) -> u64 {
        self.open
    }

    /// Counts `count` elements with the same level.
    pub(super) fn add(&mut self, level: u64, count: u64) {
        self.open = match (level, count) {
            (_, 0) => return,
            (0, _) => 1,
            _ => self.open.saturating_add(count),
        };
        self.longest = self.longest.max(self.open);
    }

    /// Counts the elements of a page. Their levels are a mixture of runs of one level and of groups of eight levels
    /// with a few bits each. The decoder refuses a page with missing bytes.
    pub(super) fn count(&mut self, mut levels: &[u8], max_level: i16, mut left: u64) {
        let bits = bits(max_level);
        while left > 0
            && let Some(head) = number(&mut levels)
        {
            let size = head >> 1;
            left -= match head & 1 {
                0 => self.run(&mut levels, bits, size.min(left)),
                _ => self.packed(&mut levels, bits, (size, left)),
            };
        }
    }

    fn run(&mut self, levels: &mut &[u8], bits: usize, count: u64) -> u64 {
        let level = take(levels, bits.div_ceil(8));
        self.add(bits_of(level, 0, bits), count);
        count
    }

    fn packed(&mut self, levels: &mut &[u8], bits: usize, (groups, left): (u64, u64)) -> u64 {
        let bytes = usize::try_from(groups).unwrap_or(usize::MAX);
        let group = take(levels, bytes.saturating_mul(bits));
        let there = (group.len() * 8 / bits.max(1)) as u64;
        let count = there.min(left);
        for at in 0..count as usize {
            self.add(bits_of(group, at * bits, bits), 1);
        }
        count
    }
}

/// Bits of a level.
pub(super) fn bits(max_level: i16) -> usize {
    (u16::BITS - max_level.unsigned_abs().leading_zeros()) as usize
}

/// Takes a number from the front.
pub(super) fn number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for shift in (0..u64::BITS).step_by(NUMBER_BITS as usize) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// Takes `count` bytes from the front, or all that there are.
pub(super) fn take<'a>(bytes: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (taken, rest) = bytes.split_at(count.min(bytes.len()));
    *bytes = rest;
    taken
}

/// The number of at most 32 bits that begins at a bit.
pub(super) fn bits_of(bytes: &[u8], first: usize, bits: usize) -> u64 {
    let count = (first % 8 + bits).div_ceil(8);
    let bytes = bytes.iter().skip(first / 8).take(count).rev();
    let whole = bytes.fold(0u64, |whole, byte| (whole << 8) | u64::from(*byte));
    (whole >> (first % 8)) & ((1u64 << bits) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn longest(levels: &[u8], max_level: i16, count: u64) -> u64 {
        let mut records = Records::default();
        records.count(levels, max_level, count);
        records.longest()
    }

    #[test]
    fn rows_are_counted_in_runs_and_in_groups() {
        // A run of 0, three long, and one of 1, two long.
        assert_eq!(longest(&[6, 0, 4, 1], 1, 5), 3);
        // Eight, of which the first and the fourth begin rows, and a run that begins none.
        assert_eq!(longest(&[3, 0b1111_0110, 10, 1], 1, 13), 10);
        // Two bits each: 0, 2, 1, 0, 2, 2, 2, 0.
        assert_eq!(longest(&[3, 0b0001_1000, 0b0010_1010], 2, 8), 4);
        // Two billion in six bytes.
        assert_eq!(
            longest(&[0x80, 0xd0, 0xac, 0xf3, 0x0e, 1], 1, 2_000_000_000),
            2_000_000_000
        );
        // Cut off.
        assert_eq!(longest(&[3], 1, 8), 0);
        assert_eq!(longest(&[0x80], 1, 8), 0);
        assert_eq!(longest(&[0xff; 20], 1, 8), 0);
    }

    #[test]
    fn a_row_goes_on_with_the_next_page() {
        let mut records = Records::default();
        records.count(&[2, 0, 4, 1], 1, 3);
        records.count(&[6, 1, 2, 0], 1, 4);
        assert_eq!(records.longest(), 6);
    }
}
