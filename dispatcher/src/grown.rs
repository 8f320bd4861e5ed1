//! Tables that grow while others read them without a lock.

use std::{
    marker::PhantomData,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use sextant_types::index::Number;

/// Rows of the first part of a table, a power of two. Each further part has twice as many rows as the part before.
const FIRST: u64 = 32;

/// Parts of a table: enough for all row numbers.
const PARTS: usize = 28;

/// A table in parts that never move. A new row makes at most one part and touches no existing row.
pub(crate) struct AppendTable<I, T> {
    parts: [OnceLock<Box<[T]>>; PARTS],
    numbers: PhantomData<fn(I)>,
}

/// A set that one thread changes and others read: a bitmap with one summary bit per 64 members.
pub(crate) struct Members<I> {
    words: AppendTable<u32, AtomicU64>,
    summary: AppendTable<u32, AtomicU64>,
    /// Words of the summary.
    len: AtomicU64,
    numbers: PhantomData<fn(I)>,
}

/// Bits of a word.
const BITS: u32 = 64;

/// The part that has a row, and the position of the row in it.
#[inline]
fn place(number: u32) -> (usize, usize) {
    let shifted = u64::from(number) + FIRST;
    let part = shifted.ilog2() - FIRST.ilog2();
    (part as usize, (shifted - (FIRST << part)) as usize)
}

/// The positions of the bits that are set, lowest first.
fn bits(word: u64) -> impl Iterator<Item = u32> + Clone {
    let without_first = |word: &u64| Some(word & (word - 1)).filter(|rest| *rest != 0);
    let words = std::iter::successors((word != 0).then_some(word), without_first);
    words.map(u64::trailing_zeros)
}

// === impl AppendTable ===

impl<I: Number, T: Default> AppendTable<I, T> {
    /// The row, if the table reaches that far.
    #[inline]
    pub(crate) fn get(&self, number: I) -> Option<&T> {
        let (part, at) = place(number.get());
        self.parts[part].get()?.get(at)
    }

    /// The row. The table grows if it does not reach that far.
    pub(crate) fn at(&self, number: I) -> &T {
        let (part, at) = place(number.get());
        let rows = || (0..FIRST << part).map(|_| T::default()).collect();
        &self.parts[part].get_or_init(rows)[at]
    }
}

impl<I, T> Default for AppendTable<I, T> {
    fn default() -> Self {
        Self {
            parts: [const { OnceLock::new() }; PARTS],
            numbers: PhantomData,
        }
    }
}

// === impl Members ===

impl<I: Number> Members<I> {
    /// Adds a number to the set or removes it. Called by one thread at a time.
    pub(crate) fn set(&self, number: I, is_member: bool) {
        let at = number.get() / BITS;
        let before = self.words.get(at).map_or(0, load);
        let bit = 1 << (number.get() % BITS);
        let word = if is_member {
            before | bit
        } else {
            before & !bit
        };
        if word == before {
            return;
        }
        self.words.at(at).store(word, Ordering::Relaxed);
        if (word == 0) == (before == 0) {
            return;
        }
        let (over, bit) = (at / BITS, 1 << (at % BITS));
        let summary = self.summary.at(over);
        let is_empty = word == 0;
        let known = load(summary);
        let known = if is_empty { known & !bit } else { known | bit };
        summary.store(known, Ordering::Relaxed);
        self.len.fetch_max(u64::from(over) + 1, Ordering::Relaxed);
    }

    /// The members, lowest first. A member that is added or removed meanwhile may appear or not.
    pub(crate) fn iter(&self) -> impl Iterator<Item = I> + Clone + '_ {
        let summaries = 0..self.len.load(Ordering::Relaxed) as u32;
        let words = summaries.flat_map(move |over| {
            let summary = self.summary.get(over).map_or(0, load);
            bits(summary).map(move |bit| over * BITS + bit)
        });
        words.flat_map(move |at| {
            let word = self.words.get(at).map_or(0, load);
            bits(word).map(move |bit| I::new(at * BITS + bit))
        })
    }
}

impl<I> Default for Members<I> {
    fn default() -> Self {
        Self {
            words: AppendTable::default(),
            summary: AppendTable::default(),
            len: AtomicU64::new(0),
            numbers: PhantomData,
        }
    }
}

fn load(word: &AtomicU64) -> u64 {
    word.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use sextant_types::index::TenantIx;

    use super::*;

    #[test]
    fn a_row_stays_where_it_is_while_others_come() {
        let table: AppendTable<TenantIx, AtomicU64> = AppendTable::default();
        let numbers = [0, 31, 32, 33, 95, 96, 10_000, 1_000_000].map(TenantIx::new);
        let rows = numbers.map(|number| table.at(number));
        for (row, at) in rows.iter().zip(1..) {
            row.store(at, Ordering::Relaxed);
        }
        for ((number, row), at) in numbers.iter().zip(rows).zip(1..) {
            let found = table.get(*number).expect("it was made");
            assert!(std::ptr::eq(found, row), "{number}");
            assert_eq!(load(found), at, "{number}");
        }
        assert!(table.get(TenantIx::new(3_000_000)).is_none());
    }

    #[test]
    fn members_are_those_that_were_taken_in_and_not_out() {
        let mut random = ChaCha8Rng::seed_from_u64(7);
        let members: Members<TenantIx> = Members::default();
        let mut expected = BTreeSet::new();
        for _ in 0..5_000 {
            let number = TenantIx::new(random.random_range(0..10_000));
            let is_member = random.random_range(0..3) > 0;
            members.set(number, is_member);
            match is_member {
                true => expected.insert(number),
                false => expected.remove(&number),
            };
            if random.random_range(0..50) == 0 {
                assert!(members.iter().eq(expected.iter().copied()));
            }
        }
        for number in std::mem::take(&mut expected) {
            members.set(number, false);
        }
        assert_eq!(members.iter().next(), None);
    }
}
