//! Attention of heads.

use super::{Address, Element, Operand, Placed, Sizes};

/// `y = softmax(alpha * q * k' + mask) * v` for each head of each batch, along the keys.
///
/// A mask value at or below the lowest finite number of the type stands for numbers that the type cannot represent: it
/// replaces the score. A row whose keys are all hidden by negative infinity gives NaN, as in
/// [`Softmax`](super::Softmax).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Attention<S = Placed> {
    /// `[batch, heads, queries, depth]`.
    pub q: Rows<S>,
    /// `[batch, heads, keys, depth]`.
    pub k: Rows<S>,
    /// `[batch, heads, keys, depth]`.
    pub v: Rows<S>,
    /// `[batch, heads, queries, keys]`; may have strides of 0.
    pub mask: Option<Operand<S>>,
    /// `[batch, heads, queries, depth]`.
    pub y: Rows<S>,
    /// Sizes of the dimensions.
    pub heads: Heads,
    /// Factor of each score.
    pub alpha: f32,
    /// Type of all operands: a 16-bit float.
    pub element: Element,
}

/// `[batch, heads, rows, depth]`; the elements of a row are contiguous.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rows<S = Placed> {
    /// First element.
    pub address: Address<S>,
    /// Elements from one batch, head and row to the next one.
    pub strides: [i64; 3],
}

/// Sizes of attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heads {
    /// Independent sequences.
    pub batch: u64,
    /// Heads of each.
    pub heads: u64,
    /// Rows of `q` and of the output.
    pub queries: u64,
    /// Rows of `k` and `v`, at least 1.
    pub keys: u64,
    /// Elements of a row: a multiple of 8, at most [`MAX_DEPTH`].
    pub depth: u64,
}

/// Largest depth of a head.
pub const MAX_DEPTH: u64 = 128;

// === impl Heads ===

impl Heads {
    /// Sizes of the queries and of the output.
    pub fn of_queries(&self) -> Sizes {
        sizes([self.batch, self.heads, self.queries, self.depth])
    }

    /// Sizes of the keys and of the values.
    pub fn of_keys(&self) -> Sizes {
        sizes([self.batch, self.heads, self.keys, self.depth])
    }

    /// Sizes of the mask.
    pub fn of_scores(&self) -> Sizes {
        sizes([self.batch, self.heads, self.queries, self.keys])
    }
}

fn sizes([a, b, c, d]: [u64; 4]) -> Sizes {
    Sizes {
        rank: 4,
        sizes: [a, b, c, d, 1, 1],
    }
}

// === impl Rows ===

impl<S: Copy> Rows<S> {
    /// The same rows as an operand with four strides.
    pub fn operand(&self) -> Operand<S> {
        let [batch, head, row] = self.strides;
        Operand {
            address: self.address,
            strides: [batch, head, row, 1, 0, 0],
        }
    }

    /// Whether 16 bytes of 16-bit elements can be accessed at once from the start of each row on.
    pub fn is_aligned(&self) -> bool {
        const LANES: i64 = 8;
        let steps = self.strides.iter().all(|step| step % LANES == 0);
        steps && self.address.get().is_multiple_of(16)
    }
}
