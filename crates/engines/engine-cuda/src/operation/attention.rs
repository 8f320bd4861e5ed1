//! Attention of heads.

use super::{Element, Operand, Placed, Sizes};

/// `y = softmax(alpha * q * k' + mask) * v` for each head of each batch, along the keys.
///
/// Of all operands but the mask the dimensions are `[batch, heads, rows, depth]`, and the last has stride 1. A mask
/// that is not above the lowest finite number of the type stands for numbers that the type does not have: it takes
/// the score's place. A row whose keys are all hidden by negative infinity is no number, as of
/// [`Softmax`](super::Softmax).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Attention<S = Placed> {
    /// `[batch, heads, queries, depth]`.
    pub q: Operand<S>,
    /// `[batch, heads, keys, depth]`.
    pub k: Operand<S>,
    /// `[batch, heads, keys, depth]`.
    pub v: Operand<S>,
    /// `[batch, heads, queries, keys]`; may have strides of 0.
    pub mask: Option<Operand<S>>,
    /// `[batch, heads, queries, depth]`.
    pub y: Operand<S>,
    /// Sizes of the dimensions.
    pub heads: Heads,
    /// Factor of each score.
    pub alpha: f32,
    /// Type of all operands: a 16-bit float.
    pub element: Element,
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

// === impl Attention ===

impl<S> Attention<S> {
    /// Whether 16 bytes can be accessed at once wherever a row begins: rows of `q`, `k`, `v` and `y`.
    pub fn is_aligned(&self) -> bool
    where
        S: Copy,
    {
        let lanes = (16 / self.element.bytes()).cast_signed();
        let aligned = |it: &Operand<S>| {
            let [batch, head, row, column, ..] = it.strides;
            let steps = [batch, head, row].iter().all(|step| step % lanes == 0);
            steps && column == 1 && it.address.get().is_multiple_of(16)
        };
        [self.q, self.k, self.v, self.y].iter().all(aligned)
    }
}
