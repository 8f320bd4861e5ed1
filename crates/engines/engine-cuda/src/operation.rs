//! The operations that a device can compute.
//!
//! Every parameter is static: addresses are byte offsets into the arena once they are [`Placed`], shapes and strides
//! are numbers. So an [`Operation`] that was prepared once can be captured into a graph and replayed without the host.
//!
//! There are few, general operations: one strided [`Copy`](struct@Copy) serves transposing, slicing, expanding,
//! joining, padding and conversion. Operators that only change a shape cost nothing and have no operation. Arithmetic,
//! sums included, uses 32-bit floats whatever the storage type; a result is rounded once, when it is stored. Integers
//! are computed in 64 bits.
//!
//! Contract of all operations: tensors are row-major and contiguous unless strides are given; addresses are multiples
//! of their element's size; an output range overlaps no input range and no other output; an operation with a count of
//! zero computes nothing.

use std::ops::Range;

mod address;
mod along;
mod attention;
mod elementwise;
mod extent;
mod images;
mod linear;

pub use address::{Address, Placed, Planned, Stage, Staging, Symbolic};
pub use along::{Arg, LayerNorm, Reduce, ReduceFunction, Softmax, Span};
pub use attention::{Attention, Heads, MAX_DEPTH, Rows};
pub use elementwise::{
    Binary, BinaryFunction, Copy, Fill, MAX_RANK, Operand, Select, Sizes, Unary, UnaryFunction,
};
pub use images::{Affine, Convolution, Im2col, Method, Pool, PoolFunction, Window};
pub use linear::{Arithmetic, Gather, Gemm, Matrix};

/// Type of an element in the arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Element {
    /// 32-bit float.
    F32,
    /// IEEE half.
    F16,
    /// Brain float.
    Bf16,
    /// Signed 64-bit.
    I64,
    /// Signed 32-bit.
    I32,
    /// Signed 8-bit.
    I8,
    /// Unsigned 8-bit.
    U8,
    /// One byte, 0 or 1.
    Bool,
}

/// The function that is applied to a result before it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Activation {
    /// Nothing.
    None,
    /// `max(x, 0)`.
    Relu,
}

/// One computation.
#[derive(Debug, Clone, Copy, PartialEq)]
#[expect(missing_docs, reason = "each variant's type says it")]
pub enum Operation<S = Placed> {
    Gemm(Gemm<S>),
    Convolution(Convolution<S>),
    Im2col(Im2col<S>),
    Affine(Affine<S>),
    Pool(Pool<S>),
    Unary(Unary<S>),
    Binary(Binary<S>),
    Select(Select<S>),
    Reduce(Reduce<S>),
    Arg(Arg<S>),
    Softmax(Softmax<S>),
    LayerNorm(LayerNorm<S>),
    Attention(Attention<S>),
    Gather(Gather<S>),
    Copy(Copy<S>),
    Fill(Fill<S>),
}

// === impl Element ===

impl Element {
    /// Bytes of one element.
    pub fn bytes(self) -> u64 {
        match self {
            Self::I64 => 8,
            Self::F32 | Self::I32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::I8 | Self::U8 | Self::Bool => 1,
        }
    }

    /// Whether it is a floating-point type.
    pub fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F16 | Self::Bf16)
    }
}

// === impl Operation ===

impl<S: Stage> Operation<S> {
    /// Byte ranges of the arena that the operation reads, gaps between strided elements included.
    pub fn reads(&self) -> Vec<Range<Address<S>>> {
        extent::reads(self)
    }

    /// Byte range of the arena that the operation writes, gaps between strided elements included.
    pub fn writes(&self) -> Range<Address<S>> {
        extent::writes(self)
    }

    /// The same operation with addresses of another stage.
    pub fn map_addresses<T: Stage>(
        &self,
        place: impl Fn(Address<S>) -> Address<T>,
    ) -> Operation<T> {
        address::map(self, &place)
    }

    /// The operation's name: `Gemm`, `Copy`, ..
    pub fn name(&self) -> &'static str {
        match self {
            Self::Gemm(_) => "Gemm",
            Self::Convolution(_) => "Convolution",
            Self::Im2col(_) => "Im2col",
            Self::Affine(_) => "Affine",
            Self::Pool(_) => "Pool",
            Self::Unary(_) => "Unary",
            Self::Binary(_) => "Binary",
            Self::Select(_) => "Select",
            Self::Reduce(_) => "Reduce",
            Self::Arg(_) => "Arg",
            Self::Softmax(_) => "Softmax",
            Self::LayerNorm(_) => "LayerNorm",
            Self::Attention(_) => "Attention",
            Self::Gather(_) => "Gather",
            Self::Copy(_) => "Copy",
            Self::Fill(_) => "Fill",
        }
    }
}
