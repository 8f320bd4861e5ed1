//! Counts the memory of queries.
//!
//! A small query may become large between its steps: a file of one kilobyte becomes a picture of a hundred megabytes, a
//! thousand boxes become as many cuts. So a step takes memory from a store of bytes before it makes its outputs, and
//! the store gets the memory back when the query has its answer. The store refuses what does not fit. Nobody waits for
//! memory while holding some.

use sextant_rpc::QueryError;

/// A store of bytes.
pub trait Memory: Send + Sync {
    /// Takes `bytes` bytes. Dropping the returned part gives them back.
    ///
    /// # Errors
    /// Where others hold the bytes, or the store never has as many.
    fn take(&self, bytes: u64) -> Result<Part, QueryError>;
}

/// Bytes that were taken; they are given back on drop.
pub type Part = Box<dyn Send + Sync>;

/// A store without a limit of its own.
#[derive(Debug, Clone, Copy)]
pub struct UnboundedMemory;

impl Memory for UnboundedMemory {
    fn take(&self, _: u64) -> Result<Part, QueryError> {
        Ok(Box::new(()))
    }
}
