//! Tensors on the wire: as JSON, and as bytes after it.
//!
//! JSON has no form for numbers that are not finite and for strings that are not UTF-8; they need
//! the binary extension. 16-bit floats are sent as numbers.

pub(crate) mod elements;
pub(crate) mod read;
pub(crate) mod write;
