//! Host memory that records which of its bytes were written.

use std::{marker::PhantomData, ops::Range};

use sextant_engine::Error;

use super::fault;
use crate::operation::{Address, Placed, Stage};

/// Bytes at addresses from 0.
#[derive(Debug, Clone)]
pub struct Memory<S = Placed> {
    bytes: Vec<u8>,
    /// 1 for each byte that was written, else 0.
    written: Vec<u8>,
    stage: PhantomData<S>,
}

impl<S: Stage> Default for Memory<S> {
    fn default() -> Self {
        Self::new(0)
    }
}

impl<S: Stage> Memory<S> {
    /// Memory that was never written.
    pub fn new(bytes: usize) -> Self {
        Self {
            bytes: vec![0; bytes],
            written: vec![0; bytes],
            stage: PhantomData,
        }
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether the memory has no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The bytes of a range.
    ///
    /// # Errors
    /// [`Error::Failed`] when the range reaches beyond the end or any byte was never written.
    pub fn read(&self, range: Range<Address<S>>) -> Result<&[u8], Error> {
        let at = self.range(&range)?;
        if self.written[at.clone()].contains(&0) {
            return Err(fault(&format!("it reads {at:?}, not all written")));
        }
        Ok(&self.bytes[at])
    }

    /// Writes bytes.
    ///
    /// # Errors
    /// [`Error::Failed`] when they reach beyond the end.
    pub fn write(&mut self, at: Address<S>, bytes: &[u8]) -> Result<(), Error> {
        let range = self.range(&(at..at + bytes.len() as u64))?;
        self.bytes[range.clone()].copy_from_slice(bytes);
        self.written[range].fill(1);
        Ok(())
    }

    /// Marks the range as never written.
    pub fn forget(&mut self, range: &Range<Address<S>>) {
        if let Ok(range) = self.range(range) {
            self.written[range].fill(0);
        }
    }

    fn range(&self, range: &Range<Address<S>>) -> Result<Range<usize>, Error> {
        let range = range.start.get()..range.end.get();
        let inside = range.start <= range.end && range.end <= self.bytes.len() as u64;
        if !inside {
            return Err(fault(&format!("{range:?} of {} bytes", self.bytes.len())));
        }
        Ok(range.start as usize..range.end as usize)
    }
}
