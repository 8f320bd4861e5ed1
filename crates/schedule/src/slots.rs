//! A set of small numbers whose least member is found at once.

/// A bitmap with one summary bit per 64 members: insert and remove in O(1), the least member after
/// a look at one summary word per 4,096.
#[derive(Debug, Clone, Default)]
pub struct SlotSet {
    words: Vec<u64>,
    summary: Vec<u64>,
    len: u32,
}

impl SlotSet {
    /// The least member.
    #[inline]
    pub fn first(&self) -> Option<u32> {
        let (at, summary) = self
            .summary
            .iter()
            .enumerate()
            .find(|(_, word)| **word != 0)?;
        let word = at * 64 + summary.trailing_zeros() as usize;
        Some(word as u32 * 64 + self.words[word].trailing_zeros())
    }

    /// Whether `slot` is a member.
    #[inline]
    pub fn contains(&self, slot: u32) -> bool {
        let word = self.words.get(slot as usize / 64);
        word.is_some_and(|word| word >> (slot % 64) & 1 == 1)
    }

    /// Adds `slot`.
    pub fn insert(&mut self, slot: u32) {
        let word = slot as usize / 64;
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
            self.summary.resize(word / 64 + 1, 0);
        }
        self.len += u32::from(!self.contains(slot));
        self.words[word] |= 1 << (slot % 64);
        self.summary[word / 64] |= 1 << (word % 64);
    }

    /// Removes `slot`.
    pub fn remove(&mut self, slot: u32) {
        if !self.contains(slot) {
            return;
        }
        let word = slot as usize / 64;
        self.len -= 1;
        self.words[word] &= !(1 << (slot % 64));
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
