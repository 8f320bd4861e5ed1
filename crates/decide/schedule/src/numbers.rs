//! A set of small numbers whose least member is found at once.

use std::marker::PhantomData;

use sextant_types::index::Number;

/// A bitmap with one summary bit per 64 members. Insert and remove are O(1). Finding the least
/// member looks at one summary word per 4,096 numbers.
#[derive(Debug, Clone)]
pub struct NumberSet<I> {
    words: Vec<u64>,
    summary: Vec<u64>,
    len: u32,
    numbers: PhantomData<fn(I)>,
}

// === impl NumberSet ===

impl<I> Default for NumberSet<I> {
    fn default() -> Self {
        Self {
            words: Vec::new(),
            summary: Vec::new(),
            len: 0,
            numbers: PhantomData,
        }
    }
}

impl<I: Number> NumberSet<I> {
    /// The least member.
    #[inline]
    pub fn first(&self) -> Option<I> {
        let (at, summary) = self
            .summary
            .iter()
            .enumerate()
            .find(|(_, word)| **word != 0)?;
        let word = at * 64 + summary.trailing_zeros() as usize;
        let at = word as u32 * 64 + self.words[word].trailing_zeros();
        Some(I::new(at))
    }

    /// Whether `number` is a member.
    #[inline]
    pub fn contains(&self, number: I) -> bool {
        let word = self.words.get(number.get() as usize / 64);
        word.is_some_and(|word| word >> (number.get() % 64) & 1 == 1)
    }

    /// Adds `number`.
    pub fn insert(&mut self, number: I) {
        let word = number.get() as usize / 64;
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
            self.summary.resize(word / 64 + 1, 0);
        }
        self.len += u32::from(!self.contains(number));
        self.words[word] |= 1 << (number.get() % 64);
        self.summary[word / 64] |= 1 << (word % 64);
    }

    /// Removes `number`.
    pub fn remove(&mut self, number: I) {
        if !self.contains(number) {
            return;
        }
        let word = number.get() as usize / 64;
        self.len -= 1;
        self.words[word] &= !(1 << (number.get() % 64));
        if self.words[word] == 0 {
            self.summary[word / 64] &= !(1 << (word % 64));
        }
    }

    /// Whether it has no member.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}
