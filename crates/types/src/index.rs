//! Numbers of entries in a table. Each kind of entry has its own type, so that the number of a pool cannot be used as
//! that of a queue.

use std::{
    marker::PhantomData,
    ops::{Index, IndexMut},
};

/// The number of an entry of one kind: its position in a table of them.
pub trait Number: Copy + Ord {
    /// The number of the entry at a position.
    fn new(at: u32) -> Self;

    /// Its position.
    fn get(self) -> u32;
}

impl Number for u32 {
    fn new(at: u32) -> Self {
        at
    }

    fn get(self) -> u32 {
        self
    }
}

/// A type for the numbers of one kind of entry.
macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(u32);

        impl $name {
            /// The number of the entry at a position.
            pub const fn new(at: u32) -> Self {
                Self(at)
            }

            /// Its position.
            pub const fn get(self) -> u32 {
                self.0
            }

            /// The first `N` numbers.
            pub const fn first<const N: usize>() -> [Self; N] {
                let mut numbers = [Self(0); N];
                let mut at = 0;
                while at < N {
                    numbers[at] = Self(at as u32);
                    at += 1;
                }
                numbers
            }
        }

        impl Number for $name {
            fn new(at: u32) -> Self {
                Self(at)
            }

            fn get(self) -> u32 {
                self.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number! {
    /// A variant, as the decisions know it.
    VariantIx
}

number! {
    /// A device, and the worker that owns it.
    DeviceIx
}

number! {
    /// A kind of device: all of a kind run and load a variant alike.
    KindIx
}

number! {
    /// A pool of a scheduler: devices that are alike and have the same variants ready.
    PoolIx
}

number! {
    /// A slot: room on a device for one batch.
    SlotIx
}

number! {
    /// A queue of a scheduler, where queries of one variant (and size) wait.
    QueueIx
}

number! {
    /// An application.
    ApplicationIx
}

number! {
    /// The tenant of a queue: an application, if device time is shared out.
    TenantIx
}

impl From<ApplicationIx> for TenantIx {
    fn from(application: ApplicationIx) -> Self {
        Self(application.0)
    }
}

/// A table whose rows are found only by numbers of the type `I`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexVec<I, T> {
    list: Vec<T>,
    numbers: PhantomData<fn(I)>,
}

// === impl IndexVec ===

impl<I, T> Default for IndexVec<I, T> {
    fn default() -> Self {
        Self {
            list: Vec::new(),
            numbers: PhantomData,
        }
    }
}

impl<I: Number, T> IndexVec<I, T> {
    /// The number of rows.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The row, if there is one.
    #[inline]
    pub fn get(&self, number: I) -> Option<&T> {
        self.list.get(number.get() as usize)
    }

    /// The row, if there is one.
    #[inline]
    pub fn get_mut(&mut self, number: I) -> Option<&mut T> {
        self.list.get_mut(number.get() as usize)
    }

    /// The row. Default rows are added up to it if the table is shorter.
    #[inline]
    pub fn grown(&mut self, number: I) -> &mut T
    where
        T: Default,
    {
        let at = number.get() as usize;
        if self.list.len() <= at {
            self.list.resize_with(at + 1, T::default);
        }
        &mut self.list[at]
    }

    /// Adds a row. Returns its number.
    pub fn push(&mut self, row: T) -> I {
        let number = I::new(self.list.len() as u32);
        self.list.push(row);
        number
    }

    /// The numbers of all rows.
    pub fn numbers(&self) -> impl Iterator<Item = I> + use<I, T> {
        (0..self.list.len() as u32).map(I::new)
    }

    /// The rows.
    pub fn iter(&self) -> std::slice::Iter<'_, T> {
        self.list.iter()
    }

    /// The rows.
    pub fn iter_mut(&mut self) -> std::slice::IterMut<'_, T> {
        self.list.iter_mut()
    }

    /// The rows with their numbers.
    pub fn numbered(&self) -> impl Iterator<Item = (I, &T)> {
        self.numbers().zip(&self.list)
    }
}

impl<I: Number, T> IndexVec<I, Option<T>> {
    /// The row at a number, if it exists.
    #[inline]
    pub fn known(&self, number: I) -> Option<&T> {
        self.get(number)?.as_ref()
    }

    /// The row at a number, if it exists.
    #[inline]
    pub fn known_mut(&mut self, number: I) -> Option<&mut T> {
        self.get_mut(number)?.as_mut()
    }
}

impl<I, T> FromIterator<T> for IndexVec<I, T> {
    fn from_iter<R: IntoIterator<Item = T>>(rows: R) -> Self {
        Self {
            list: rows.into_iter().collect(),
            numbers: PhantomData,
        }
    }
}

impl<I: Number, T> Index<I> for IndexVec<I, T> {
    type Output = T;

    #[inline]
    fn index(&self, number: I) -> &T {
        &self.list[number.get() as usize]
    }
}

impl<I: Number, T> IndexMut<I> for IndexVec<I, T> {
    #[inline]
    fn index_mut(&mut self, number: I) -> &mut T {
        &mut self.list[number.get() as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_grows_up_to_the_row_that_is_asked_for() {
        let mut table: IndexVec<PoolIx, u64> = IndexVec::default();
        assert!(table.is_empty());
        *table.grown(PoolIx::new(2)) = 7;
        assert_eq!(table.len(), 3);
        assert_eq!((table[PoolIx::new(1)], table[PoolIx::new(2)]), (0, 7));
        assert_eq!(table.get(PoolIx::new(3)), None);
    }

    #[test]
    fn a_row_that_is_added_has_the_next_number() {
        let mut table: IndexVec<PoolIx, &str> = IndexVec::default();
        let numbers = [table.push("a"), table.push("b")];
        assert_eq!(table.numbers().collect::<Vec<_>>(), numbers);
        assert_eq!(table[numbers[1]], "b");
    }
}
