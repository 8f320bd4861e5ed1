//! Where the memory of queries is counted.
//!
//! A small query may become large between its steps: a file of one kilobyte a picture of a hundred megabytes, a thousand
//! boxes as many cuts. So what a step makes is taken from a store of bytes before it is made, and given back when the query
//! has its answer. What does not fit is refused, and nobody waits for room while holding some.

use sextant_rpc::QueryError;

/// A store of bytes.
pub trait Memory: Send + Sync {
    /// Takes so many bytes until what is returned is dropped.
    ///
    /// # Errors
    /// Where others have them, or there will never be as many.
    fn take(&self, bytes: u64) -> Result<Part, QueryError>;
}

/// Bytes that were taken.
pub type Part = Box<dyn Send + Sync>;

/// As much as the machine has.
#[derive(Debug, Clone, Copy)]
pub struct UnboundedMemory;

impl Memory for UnboundedMemory {
    fn take(&self, _: u64) -> Result<Part, QueryError> {
        Ok(Box::new(()))
    }
}
