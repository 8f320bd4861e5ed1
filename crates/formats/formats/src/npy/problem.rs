//! Why a file is not an array that can be read.

/// What is wrong with an array, as a sentence about it, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// Not a file of NumPy.
    #[error("it is not a NumPy array: it does not begin with `\\x93NUMPY`")]
    NotNumpy,
    /// An unknown version of the format.
    #[error("version {0}.{1} of NumPy's format is not known")]
    Version(u8, u8),
    /// The file ends within its header.
    #[error("its header is cut short")]
    CutShort,
    /// The header is longer than any that NumPy writes.
    #[error("its header is too long")]
    HeaderTooLong,
    /// The header is not the expected dictionary.
    #[error("its header cannot be read: {0}")]
    Header(String),
    /// Elements with fields.
    #[error("it is a structured array, `{0}`: save each field as an array")]
    Structured(String),
    /// Pickled Python objects.
    #[error("it holds Python objects, which are never unpickled: give it a dtype")]
    Objects,
    /// The element type has no counterpart in a tensor.
    #[error("its dtype `{0}` is not supported: use a bool, integer, float or string dtype")]
    Dtype(String),
    /// The array is stored column by column, and must be read record by record.
    #[error("it is in Fortran order: save `numpy.ascontiguousarray(..)` instead")]
    FortranOrder,
    /// The data's length differs from that of the header's shape.
    #[error("its shape {shape:?} needs {expected} bytes, and {given} are there")]
    Length {
        /// The shape in the header.
        shape: Vec<usize>,
        /// Bytes that the shape needs.
        expected: u64,
        /// Bytes that are there.
        given: u64,
    },
    /// An element is not valid for its type, or the shape does not fit a tensor.
    #[error("{0}")]
    Elements(String),
}
