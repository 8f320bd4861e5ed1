//! Inputs by number, the emulated engine's right answers to them, and the seeded random numbers
//! from which everything is drawn.

use crate::digits::PIXELS;

/// Number of values of an answer.
pub const SCORES: usize = 10;

/// Seeded random numbers: splitmix64.
#[derive(Debug, Clone)]
pub struct Draw(u64);

impl Draw {
    /// A separate sequence for each seed and purpose.
    pub fn new(seed: u64, purpose: u64) -> Self {
        Self(mix(seed) ^ mix(!purpose))
    }

    /// Any number.
    pub fn any(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(1);
        mix(self.0)
    }

    /// A number from 0 to below 1.
    pub fn unit(&mut self) -> f64 {
        (self.any() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A number of a range that is not empty.
    pub fn within(&mut self, range: std::ops::Range<u64>) -> u64 {
        range.start + self.any() % (range.end - range.start)
    }

    /// One of several.
    pub fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.within(0..all.len() as u64) as usize]
    }

    /// The time until the next arrival of a Poisson process, milliseconds.
    pub fn gap_ms(&mut self, per_second: f64) -> f64 {
        -(1.0 - self.unit()).ln() * 1000.0 / per_second
    }
}

/// The input of a query or record, by its number: no two have the same.
pub fn inputs(seed: u64, number: u64) -> Vec<f32> {
    let byte = |at: u64| (mix(seed ^ mix(number << 8 | at)) % 256) as f32;
    let named = [(number % 65_536) as f32, (number / 65_536) as f32];
    let rest = (0..PIXELS as u64).map(byte).skip(named.len());
    named.into_iter().chain(rest).collect()
}

/// The answer of the engine `emulated` to an input of [`inputs`], as its documentation defines it:
/// a hash of the row, and of the place of each value.
pub fn answer(seed: u64, number: u64) -> Vec<f32> {
    let bytes: Vec<u8> = inputs(seed, number)
        .into_iter()
        .flat_map(f32::to_le_bytes)
        .collect();
    let row = bytes.chunks(8).fold(mix(bytes.len() as u64), |hash, word| {
        let word = word.iter().rev();
        mix(hash ^ word.fold(0, |value, byte| value << 8 | u64::from(*byte)))
    });
    let value = |at| (mix(row ^ mix(at)) >> 40) as f32 / (1u64 << 24) as f32;
    (0..SCORES as u64).map(value).collect()
}

/// The finaliser of splitmix64, after its increment.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_and_answers_differ_by_number() {
        let all: Vec<_> = (0..200).map(|number| answer(7, number)).collect();
        for (at, one) in all.iter().enumerate() {
            assert!(one.iter().all(|value| (0.0..1.0).contains(value)));
            assert!(!all[..at].contains(one), "{at} is answered as another");
        }
        assert_ne!(inputs(7, 1), inputs(7, 65_537));
    }

    #[test]
    fn draws_repeat_and_differ_by_purpose() {
        let some = |seed, purpose| {
            let mut draw = Draw::new(seed, purpose);
            [draw.any(), draw.within(3..9), draw.any()]
        };
        assert_eq!(some(1, 2), some(1, 2));
        assert_ne!(some(1, 2), some(1, 3));
        assert_ne!(some(1, 2), some(2, 2));
    }
}
