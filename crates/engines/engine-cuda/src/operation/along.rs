//! Operations along one dimension.

use super::{Address, Element, Placed};

/// Reduces the middle dimension of `[outer, length, inner]` to `[outer, inner]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reduce<S = Placed> {
    /// What is computed.
    pub function: ReduceFunction,
    /// Input.
    pub x: Address<S>,
    /// Output.
    pub y: Address<S>,
    /// The dimensions.
    pub span: Span,
    /// Type of both: a float or an integer of 32 or 64 bits.
    pub element: Element,
}

/// A tensor as seen by operations along one dimension: `[outer, length, inner]`, contiguous.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Product of the dimensions before.
    pub outer: u64,
    /// The dimension, at least 1.
    pub length: u64,
    /// Product of the dimensions after.
    pub inner: u64,
}

/// A function of many values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the names say it")]
pub enum ReduceFunction {
    Sum,
    Mean,
    Max,
    Min,
    Product,
    /// Root of the sum of squares.
    L2,
    SumSquare,
}

/// The index of an extreme value along the middle dimension: `[outer, length, inner]` to
/// `[outer, inner]` of `I64`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arg<S = Placed> {
    /// Whether the largest value is looked for, else the smallest.
    pub largest: bool,
    /// Whether the last of equal values counts, else the first.
    pub last: bool,
    /// Input.
    pub x: Address<S>,
    /// Output, `I64`.
    pub y: Address<S>,
    /// The dimensions.
    pub span: Span,
    /// Type of the input: a float or an integer of 32 or 64 bits.
    pub element: Element,
}

/// Softmax along the middle dimension; the largest value is subtracted first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Softmax<S = Placed> {
    /// Whether the logarithm is stored.
    pub logarithm: bool,
    /// Input.
    pub x: Address<S>,
    /// Output.
    pub y: Address<S>,
    /// The dimensions.
    pub span: Span,
    /// Type of both: a float.
    pub element: Element,
}

/// `y = (x - mean) / sqrt(variance + epsilon) * scale + shift` over each row; the variance is that of
/// the population.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LayerNorm<S = Placed> {
    /// Input `[rows, length]`.
    pub x: Address<S>,
    /// Output `[rows, length]`.
    pub y: Address<S>,
    /// `length` values.
    pub scale: Option<Address<S>>,
    /// `length` values.
    pub shift: Option<Address<S>>,
    /// Rows.
    pub rows: u64,
    /// Elements of a row.
    pub length: u64,
    /// Added to the variance.
    pub epsilon: f32,
    /// Type of all operands: a float.
    pub element: Element,
}

// === impl Span ===

impl Span {
    /// Elements before the reduction.
    pub fn count(&self) -> u64 {
        self.outer * self.length * self.inner
    }

    /// Elements after the reduction.
    pub fn reduced(&self) -> u64 {
        self.outer * self.inner
    }
}
