//! Elements of a buffer as dimensions with strides, and the same elements on the other side of a copy.

use super::layout;
use crate::operation::{Address, MAX_RANK, Operand, Sizes, Symbolic};

/// A dimension of elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Dim {
    pub size: u64,
    pub stride: i64,
}

/// Elements addressed by three indices: matrix, row and column. Each index runs over some dimensions, the outermost
/// first; dimensions of size 1 are left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Matrices {
    pub address: Address<Symbolic>,
    pub indices: [Vec<Dim>; 3],
}

/// The layout of elements on both sides of an operation.
pub(super) struct Sides<'a> {
    pub sizes: &'a Sizes,
    /// The strides on the known side.
    pub from: &'a [i64; MAX_RANK],
    /// The other side.
    pub to: &'a Operand<Symbolic>,
}

/// A dimension on both sides.
#[derive(Debug, Clone, Copy)]
struct Step {
    size: u64,
    from: u64,
    to: i64,
}

// === impl Matrices ===

impl Matrices {
    pub fn new(address: Address<Symbolic>, dims: [(u64, u64); 3]) -> Self {
        let index = |(size, stride): (u64, u64)| match size {
            1 => Vec::new(),
            _ => vec![Dim {
                size,
                stride: stride.cast_signed(),
            }],
        };
        Self {
            address,
            indices: dims.map(index),
        }
    }

    /// The same elements on the other side. `None` unless the known side is a dense tensor from its start on, all of
    /// whose elements are meant, and each index can be written with strides on the other side.
    pub fn through(&self, sides: &Sides<'_>) -> Option<Self> {
        let parts = apart(&self.indices.concat(), sides)?;
        let mut rest = parts.as_slice();
        let indices = self.indices.each_ref().map(|dims| {
            let (own, others) = rest.split_at(dims.len());
            rest = others;
            merged(&own.concat())
        });
        Some(Self {
            address: sides.to.address,
            indices,
        })
    }

    /// The stride of an index, if it has a single one.
    pub fn stride(&self, index: usize) -> Option<i64> {
        match merged(&self.indices[index])[..] {
            [] => Some(0),
            [dim] => Some(dim.stride),
            _ => None,
        }
    }
}

/// Splits each dimension into the dimensions on the other side that it runs over, the outermost first; `None` if this
/// is impossible.
pub(super) fn apart(dims: &[Dim], sides: &Sides<'_>) -> Option<Vec<Vec<Dim>>> {
    let steps = steps(sides)?;
    let parts = dims.iter().map(|dim| split(*dim, &steps));
    is_regular(dims).then(|| parts.collect())?
}

/// Whether no dimension reaches into the next larger one, so that each can be split on its own.
fn is_regular(dims: &[Dim]) -> bool {
    let mut dims = dims.to_vec();
    dims.sort_by_key(|dim| dim.stride);
    let positive = dims.first().is_none_or(|dim| dim.stride > 0);
    let follows = |pair: &[Dim]| {
        let reach = pair[0].stride * pair[0].size.cast_signed();
        pair[1].stride % reach == 0
    };
    positive && dims.windows(2).all(follows)
}

/// The dimensions from the outermost of `from` to the innermost; `None` if the elements are not contiguous there.
fn steps(sides: &Sides<'_>) -> Option<Vec<Step>> {
    let dims = 0..sides.sizes.rank;
    let dims = dims.filter(|dim| sides.sizes.sizes[*dim] != 1);
    let step = |dim: usize| {
        let from = u64::try_from(sides.from[dim]).ok()?;
        let (size, to) = (sides.sizes.sizes[dim], sides.to.strides[dim]);
        (to >= 0).then_some(Step { size, from, to })
    };
    let mut steps: Vec<Step> = dims.map(step).collect::<Option<_>>()?;
    steps.sort_by_key(|step| std::cmp::Reverse(step.from));
    let sizes: Vec<u64> = steps.iter().map(|step| step.size).collect();
    let own = layout::strides(&sizes).into_iter();
    let dense = own
        .zip(&steps)
        .all(|(own, step)| own.cast_unsigned() == step.from);
    dense.then_some(steps)
}

/// A dimension as the dimensions on the other side that it runs over.
fn split(dim: Dim, steps: &[Step]) -> Option<Vec<Dim>> {
    let (mut left, mut at) = (dim.size, dim.stride.cast_unsigned());
    let mut parts = Vec::new();
    for step in steps.iter().rev() {
        if left == 1 || at >= step.from * step.size {
            continue;
        }
        let every = at / step.from;
        if at % step.from != 0 || every == 0 || step.size % every != 0 {
            return None;
        }
        let size = left.min(step.size / every);
        if left % size != 0 {
            return None;
        }
        parts.push(Dim {
            size,
            stride: every.cast_signed() * step.to,
        });
        left /= size;
        at *= size;
    }
    parts.reverse();
    (left == 1).then_some(parts)
}

/// Joins neighbouring dimensions that can be walked as one.
pub(super) fn merged(dims: &[Dim]) -> Vec<Dim> {
    let mut merged: Vec<Dim> = Vec::new();
    for dim in dims {
        match merged.last_mut() {
            Some(outer) if outer.stride == dim.stride * dim.size.cast_signed() => {
                outer.size *= dim.size;
                outer.stride = dim.stride;
            }
            _ => merged.push(*dim),
        }
    }
    merged
}
