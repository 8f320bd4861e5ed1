//! Finds attention as exporters write it and makes it one operation. It consists of the product of queries and keys, a
//! mask, softmax, the product with the values, and the copies that move heads before tokens and back.
//!
//! The search runs over operations, where every shape is known and operators that only change a shape are gone.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::{
    ALIGNMENT, Buffer, Content, Draft, OFFSET_BITS, Target, Weights, layout,
    strided::{Dim, Matrices, Sides, merged},
    uses::{Uses, buffer, drop_unread},
};
use crate::operation::{
    Activation, Address, Attention, BinaryFunction, Element, Gemm, Heads, MAX_DEPTH, MAX_RANK,
    Matrix, Operand, Operation, Rows, Symbolic,
};

mod masks;

use masks::Choice;

/// A match of the search.
struct AttentionMatch {
    attention: Attention<Symbolic>,
    /// The operation that the attention replaces.
    last: usize,
    /// The choice from which its mask must be made, if there is no mask yet.
    choice: Option<Choice>,
    /// The other operations that it takes over.
    taken: Vec<usize>,
    /// The buffer that nothing writes any more, if the output goes to another buffer.
    moved: Option<u64>,
}

/// Scores before softmax.
struct Scores {
    product: Gemm<Symbolic>,
    mask: Option<Matrices>,
    choice: Option<Choice>,
    taken: Vec<usize>,
}

/// A draft with the uses of its buffers.
struct Search<'a> {
    draft: &'a Draft,
    weights: &'a Weights,
    uses: Uses,
    /// The buffers that nothing writes once the matches so far have taken over their operations.
    moved: BTreeSet<u64>,
}

/// Replaces operations that make up attention by one operation.
pub(super) fn fuse(draft: &mut Draft, target: &Target, weights: &Weights) {
    if !target.attention {
        return;
    }
    let mut search = Search {
        uses: Uses::new(draft),
        draft,
        weights,
        moved: BTreeSet::new(),
    };
    let mut found = Vec::new();
    // The loop follows the order of operations, so a result is written before it is read.
    for index in 0..draft.operations.len() {
        if let Some(it) = search.find(index) {
            search.moved.extend(it.moved);
            found.push(it);
        }
    }
    if found.is_empty() {
        return;
    }
    let mut taken = Vec::new();
    let mut zero = None;
    for mut it in found {
        if let (Some(choice), Some(mask)) = (it.choice, &mut it.attention.mask) {
            let zero = *zero.get_or_insert_with(|| constant(draft, Bytes::from_static(&[0; 2])));
            mask.address = made(draft, &choice, zero);
        }
        draft.operations[it.last] = Operation::Attention(it.attention);
        taken.extend(it.taken);
    }
    taken.sort_unstable();
    for index in taken.into_iter().rev() {
        draft.operations.remove(index);
    }
    drop_unread(draft);
}

/// A constant that comes with each batch.
fn constant(draft: &mut Draft, bytes: Bytes) -> Address<Symbolic> {
    let at = draft.buffers[0].bytes;
    draft.buffers[0].bytes = at + ALIGNMENT;
    draft.constants.push((at, bytes));
    Address::new(at)
}

/// Makes the mask of a choice, in place of the choice.
fn made(draft: &mut Draft, choice: &Choice, zero: Address<Symbolic>) -> Address<Symbolic> {
    let y = Address::new((draft.buffers.len() as u64) << OFFSET_BITS);
    draft.buffers.push(Buffer {
        bytes: choice.sizes.count() * choice.element.bytes(),
        content: Content::Activation,
    });
    draft.operations[choice.index] = Operation::Select(choice.select(y, zero));
    y
}

// === impl Search ===

impl Search<'_> {
    /// The attention around the softmax at `index`.
    fn find(&self, index: usize) -> Option<AttentionMatch> {
        let Operation::Softmax(softmax) = self.draft.operations[index] else {
            return None;
        };
        let span = softmax.span;
        if softmax.logarithm || span.inner != 1 || softmax.element == Element::F32 {
            return None;
        }
        let scores = self.scores(softmax.x)?;
        let product = &scores.product;
        let next = self.uses.only_reader(softmax.y)?;
        let Operation::Gemm(weighted) = self.draft.operations[next] else {
            return None;
        };
        let shapes = [product.batch, product.m, product.n]
            == [weighted.batch, weighted.m, weighted.k]
            && span.outer == product.batch * product.m
            && span.length == product.n
            && weighted.n == product.k;
        let fits = shapes
            && is_plain(&weighted)
            && weighted.alpha == 1.0
            && weighted.a.address == softmax.y
            && is_dense(&weighted.a, [weighted.m, weighted.k], weighted.batch);
        if !fits {
            return None;
        }
        let (y, last) = self.output(&weighted, next);
        let attention = self.attention(&scores, &weighted, &y)?;
        let choice = scores.choice;
        let mut taken = [scores.taken, vec![index, next]].concat();
        taken.retain(|it| *it != last);
        let moved = (last != next).then(|| buffer(weighted.c.address));
        Some(AttentionMatch {
            attention,
            last,
            choice,
            taken,
            moved,
        })
    }

    /// The product that gives the scores, and the mask that is added to them.
    fn scores(&self, x: Address<Symbolic>) -> Option<Scores> {
        let before = self.uses.only_producer(x)?;
        match &self.draft.operations[before] {
            Operation::Gemm(product) if product.c.address == x && is_plain(product) => {
                Some(Scores {
                    product: *product,
                    mask: None,
                    choice: None,
                    taken: vec![before],
                })
            }
            Operation::Binary(it) if it.y == x => {
                let ways = [(&it.a, &it.b), (&it.b, &it.a)];
                let scores = |(own, other)| self.masked(it, own, other, before);
                ways.into_iter().find_map(scores)
            }
            Operation::Select(it) if it.y == x => {
                let ways = [false, true].into_iter();
                let mut scores = ways.map(|where_true| self.chosen(it, where_true, before));
                scores.find_map(|found| found)
            }
            _ => None,
        }
    }

    /// Where the output goes: to the target of a copy if that copy is its only reader.
    fn output(&self, weighted: &Gemm<Symbolic>, index: usize) -> (Matrices, usize) {
        let own = dense(weighted.c.address, [weighted.batch, weighted.m, weighted.n]);
        let copied = || {
            let reader = self.uses.only_reader(own.address)?;
            self.uses.only_writer(own.address)?;
            let Operation::Copy(copy) = &self.draft.operations[reader] else {
                return None;
            };
            let whole = copy.sizes.count() == weighted.batch * weighted.m * weighted.n;
            let sides = Sides {
                sizes: &copy.sizes,
                from: &copy.x.strides,
                to: &copy.y,
            };
            let there = own.through(&sides)?;
            let fits = whole
                && copy.x.address == own.address
                && copy.x_element == copy.y_element
                && is_readable(&there);
            fits.then_some((there, reader))
        };
        copied().unwrap_or_else(|| (own.clone(), index))
    }

    fn attention(
        &self,
        scores: &Scores,
        weighted: &Gemm<Symbolic>,
        y: &Matrices,
    ) -> Option<Attention<Symbolic>> {
        let product = &scores.product;
        let Gemm { batch, m, n, k, .. } = *product;
        if k % 8 != 0 || k > MAX_DEPTH || n == 0 {
            return None;
        }
        let before = |it: &Matrices| self.before(it);
        let (q, q_scale) = source(factor(&product.a, batch, [m, k]), before)?;
        let turned = Matrix {
            transposed: !product.b.transposed,
            ..product.b
        };
        let (keys, k_scale) = source(factor(&turned, batch, [n, k]), before)?;
        let v = factor(&weighted.b, batch, [n, k]);
        let (v, _) = source(v, |it| Some((self.copied(it)?, 1.0)))?;
        let all = [
            Some(&q),
            Some(&keys),
            Some(&v),
            Some(y),
            scores.mask.as_ref(),
        ];
        let heads = heads(all.into_iter().flatten())?;
        let mask = match &scores.mask {
            Some(mask) => Some(operand(mask, heads)?),
            None => None,
        };
        Some(Attention {
            q: rows(&q, heads)?,
            k: rows(&keys, heads)?,
            v: rows(&v, heads)?,
            mask,
            y: rows(y, heads)?,
            heads: Heads {
                batch: batch / heads,
                heads,
                queries: m,
                keys: n,
                depth: k,
            },
            alpha: product.alpha * q_scale * k_scale,
            element: product.element,
        })
    }

    /// The same elements before they were copied or scaled, and the scale.
    fn before(&self, it: &Matrices) -> Option<(Matrices, f32)> {
        let copied = self.copied(it).map(|before| (before, 1.0));
        copied.or_else(|| self.unscaled(it))
    }

    /// The same elements before they were copied, if they are still written there.
    fn copied(&self, it: &Matrices) -> Option<Matrices> {
        let writer = self.uses.only_writer(it.address)?;
        let Operation::Copy(copy) = &self.draft.operations[writer] else {
            return None;
        };
        let alike = copy.x_element == copy.y_element && copy.y.address == it.address;
        let sides = Sides {
            sizes: &copy.sizes,
            from: &copy.y.strides,
            to: &copy.x,
        };
        let is_there = !self.moved.contains(&buffer(copy.x.address));
        it.through(&sides).filter(|_| alike && is_there)
    }

    fn unscaled(&self, it: &Matrices) -> Option<(Matrices, f32)> {
        let writer = self.uses.only_writer(it.address)?;
        let Operation::Binary(product) = &self.draft.operations[writer] else {
            return None;
        };
        let (x, scale) = match (product.function, self.number(product.element, &product.b)) {
            (BinaryFunction::Mul, Some(scale)) => (&product.a, scale),
            (BinaryFunction::Div, Some(scale)) => (&product.a, 1.0 / scale),
            (BinaryFunction::Mul, None) => (&product.b, self.number(product.element, &product.a)?),
            _ => return None,
        };
        let fits = product.activation == Activation::None && product.y == it.address;
        let mut own = [0; MAX_RANK];
        let strides = layout::strides(product.sizes.dims());
        own[..strides.len()].copy_from_slice(&strides);
        let sides = Sides {
            sizes: &product.sizes,
            from: &own,
            to: x,
        };
        let before = it.through(&sides).filter(|_| fits)?;
        Some((before, scale))
    }
}

/// The source of elements, as far back as their rows can be read, and the factor by which they were multiplied since.
/// `before` goes back one step.
fn source(
    it: Matrices,
    before: impl Fn(&Matrices) -> Option<(Matrices, f32)>,
) -> Option<(Matrices, f32)> {
    let mut readable = is_readable(&it).then(|| (it.clone(), 1.0));
    let (mut here, mut scale) = (it, 1.0);
    while let Some((next, factor)) = before(&here) {
        scale *= factor;
        if is_readable(&next) {
            readable = Some((next.clone(), scale));
        }
        here = next;
    }
    readable
}

/// Whether the product has no bias, addend or activation and its rows are contiguous.
fn is_plain(it: &Gemm<Symbolic>) -> bool {
    it.activation == Activation::None
        && it.bias.is_none()
        && it.addend.is_none()
        && is_dense(&it.c, [it.m, it.n], it.batch)
}

fn is_dense(it: &Matrix<Symbolic>, [rows, columns]: [u64; 2], batch: u64) -> bool {
    !it.transposed
        && (rows == 1 || it.row_stride == columns)
        && (batch == 1 || it.batch_stride == rows * columns)
}

fn dense(address: Address<Symbolic>, [batch, rows, columns]: [u64; 3]) -> Matrices {
    let dims = [(batch, rows * columns), (rows, columns), (columns, 1)];
    Matrices::new(address, dims)
}

/// The rows and columns of a factor after undoing its transposition.
fn factor(it: &Matrix<Symbolic>, batch: u64, [rows, columns]: [u64; 2]) -> Matrices {
    let steps = match it.transposed {
        true => [1, it.row_stride],
        false => [it.row_stride, 1],
    };
    let dims = [
        (batch, it.batch_stride),
        (rows, steps[0]),
        (columns, steps[1]),
    ];
    Matrices::new(it.address, dims)
}

/// Whether attention can read heads there: two strides for batch and head, and contiguous rows that begin at multiples
/// of 16 bytes.
fn is_readable(it: &Matrices) -> bool {
    const LANES: i64 = 8;
    let batch = merged(&it.indices[0]);
    let row = it.stride(1);
    batch.len() <= 2
        && batch.iter().all(|dim| dim.stride % LANES == 0)
        && row.is_some_and(|stride| stride % LANES == 0)
        && it.stride(2) == Some(1)
        && it.address.get().is_multiple_of(16)
}

/// The number of heads of a sequence: the inner size where an operand splits the batch into two dimensions. All such
/// operands must agree.
fn heads<'a>(all: impl Iterator<Item = &'a Matrices>) -> Option<u64> {
    let mut heads = None;
    for it in all {
        match merged(&it.indices[0])[..] {
            [] | [_] => {}
            [_, inner] if heads.is_none_or(|heads| heads == inner.size) => heads = Some(inner.size),
            _ => return None,
        }
    }
    Some(heads.unwrap_or(1))
}

/// Strides of batch, head, row and column.
fn operand(it: &Matrices, heads: u64) -> Option<Operand<Symbolic>> {
    let [batch, head] = match merged(&it.indices[0])[..] {
        [] => [0, 0],
        [Dim { stride, .. }] => [stride * heads.cast_signed(), stride],
        [outer, inner] => [outer.stride, inner.stride],
        _ => return None,
    };
    Some(Operand {
        address: it.address,
        strides: [batch, head, it.stride(1)?, it.stride(2)?, 0, 0],
    })
}

/// The same as rows, if the elements of a row are contiguous.
fn rows(it: &Matrices, heads: u64) -> Option<Rows<Symbolic>> {
    let Operand { address, strides } = operand(it, heads)?;
    let [batch, head, row, column, ..] = strides;
    let rows = Rows {
        address,
        strides: [batch, head, row],
    };
    (column == 1 && rows.is_aligned()).then_some(rows)
}
