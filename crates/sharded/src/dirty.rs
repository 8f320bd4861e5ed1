//! Which of many values have changed.

use crate::sync::{AtomicU64, Ordering};

/// A set of numbers that threads add to and one thread empties, in two levels of bits: finding the
/// changed ones costs a word per 4,096 numbers, and a word per group of 64 in which one changed.
#[derive(Debug)]
pub struct DirtySet {
    /// By number / 64.
    words: Box<[AtomicU64]>,
    /// By number / 4096: which words may have bits.
    summary: Box<[AtomicU64]>,
}

impl DirtySet {
    /// For numbers below `count`.
    pub fn new(count: u32) -> Self {
        let words = (count as usize).div_ceil(64);
        let zeros = |count: usize| (0..count).map(|_| AtomicU64::new(0)).collect();
        Self {
            words: zeros(words),
            summary: zeros(words.div_ceil(64)),
        }
    }

    /// Adds a number below the count. A number is to be added by one thread only.
    #[inline]
    pub fn mark(&self, number: u32) {
        let word = number as usize / 64;
        let before = self.words[word].fetch_or(bit(number), Ordering::AcqRel);
        // With the bit set already the summary was set after it, by this very thread; if it has
        // been taken since, its taker has yet to look at the word and will see what was written.
        if before & bit(number) == 0 {
            self.summary[word / 64].fetch_or(bit(word as u32), Ordering::AcqRel);
        }
    }

    /// Empties the set. What is added meanwhile is seen now or the next time.
    pub fn drain(&self, mut each: impl FnMut(u32)) {
        for (at, summary) in self.summary.iter().enumerate() {
            if summary.load(Ordering::Relaxed) == 0 {
                continue;
            }
            for word in bits(summary.swap(0, Ordering::AcqRel)) {
                let word = at * 64 + word as usize;
                for number in bits(self.words[word].swap(0, Ordering::AcqRel)) {
                    each(word as u32 * 64 + number);
                }
            }
        }
    }

    /// Whether there is nothing to drain.
    pub fn is_empty(&self) -> bool {
        let mut summary = self.summary.iter();
        summary.all(|word| word.load(Ordering::Acquire) == 0)
    }
}

fn bit(number: u32) -> u64 {
    1 << (number % 64)
}

fn bits(mut word: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let least = word.trailing_zeros();
        word &= word.wrapping_sub(1);
        (least < 64).then_some(least)
    })
}
