//! Products of matrices, and lookups of rows in tables.

use super::{Activation, Address, Element, Placed};

/// How products of 32-bit floats are computed. In both ways, half types are multiplied exactly and summed in 32 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Arithmetic {
    /// In full 32-bit floats.
    Full,
    /// On tensor cores, factors rounded to 10-bit mantissas (TF32).
    Tf32,
}

/// `c[i] = activation(alpha * op(a[i]) * op(b[i]) + bias + addend[i])` for `i` in `0..batch`: `op(a)` is
/// `m x k`, `op(b)` `k x n`, `c` `m x n`, all row-major, `bias` one value for each of the n columns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gemm<S = Placed> {
    /// Left factor: `m x k`, or `k x m` where transposed.
    pub a: Matrix<S>,
    /// Right factor: `k x n`, or `n x k` where transposed.
    pub b: Matrix<S>,
    /// Product; never transposed.
    pub c: Matrix<S>,
    /// `n` values.
    pub bias: Option<Address<S>>,
    /// A tensor with the layout of `c`.
    pub addend: Option<Address<S>>,
    /// Rows of the product.
    pub m: u64,
    /// Columns of the product.
    pub n: u64,
    /// Length of the sums.
    pub k: u64,
    /// Products, at least 1.
    pub batch: u64,
    /// Factor of each product.
    pub alpha: f32,
    /// Applied last.
    pub activation: Activation,
    /// Type of all operands: a float.
    pub element: Element,
    /// For 32-bit floats.
    pub arithmetic: Arithmetic,
}

/// A matrix, or a batch of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Matrix<S = Placed> {
    /// First element.
    pub address: Address<S>,
    /// Elements from one stored row to the next.
    pub row_stride: u64,
    /// Elements from one matrix of the batch to the next; 0 if all products use the same one.
    pub batch_stride: u64,
    /// Whether it is stored transposed.
    pub transposed: bool,
}

/// `y[o][i][..] = table[o][index(i) - first_row][..]` for the indices that fall into the rows of this part of the
/// table; other elements of `y` keep their values. Negative indices count from `all_rows`. An index outside
/// `0..all_rows` gives zeros if `first_row` is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gather<S = Placed> {
    /// `[outer, rows, inner]`.
    pub table: Address<S>,
    /// `count` integers.
    pub indices: Address<S>,
    /// `[outer, count, inner]`.
    pub y: Address<S>,
    /// Product of the dimensions before the axis.
    pub outer: u64,
    /// Rows of this part of the table.
    pub rows: u64,
    /// Product of the dimensions after the axis.
    pub inner: u64,
    /// Indices.
    pub count: u64,
    /// Index of this part's first row; 0 unless the table is spread over several pages.
    pub first_row: u64,
    /// Rows of all parts.
    pub all_rows: u64,
    /// Type of table and output: any.
    pub element: Element,
    /// `I32` or `I64`.
    pub index: Element,
}
