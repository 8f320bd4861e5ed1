//! Merges copies of copies: a part that is taken out of a tensor and transposed is moved only once.

use super::{
    Draft, layout,
    strided::{Dim, Sides, apart},
    uses::{Uses, drop_unread},
};
use crate::operation::{Copy, Operand, Operation, Symbolic};

/// Lets copies read the source of the copies before them.
pub(super) fn merge(draft: &mut Draft) {
    let uses = Uses::new(draft);
    let mut merged = false;
    for index in 0..draft.operations.len() {
        while let Some(copy) = through(draft, &uses, index) {
            draft.operations[index] = Operation::Copy(copy);
            merged = true;
        }
    }
    if merged {
        drop_unread(draft);
    }
}

/// The copy at `index`, reading from the source of the copy before it.
fn through(draft: &Draft, uses: &Uses, index: usize) -> Option<Copy<Symbolic>> {
    let Operation::Copy(copy) = &draft.operations[index] else {
        return None;
    };
    let Operation::Copy(before) = &draft.operations[uses.only_writer(copy.x.address)?] else {
        return None;
    };
    if before.x_element != before.y_element || before.y.address != copy.x.address {
        return None;
    }
    let dims = 0..copy.sizes.rank;
    let dims = dims.filter(|dim| copy.sizes.sizes[*dim] != 1);
    let (own, to): (Vec<Dim>, Vec<i64>) = dims
        .map(|dim| {
            let (size, stride) = (copy.sizes.sizes[dim], copy.x.strides[dim]);
            (Dim { size, stride }, copy.y.strides[dim])
        })
        .unzip();
    let sides = Sides {
        sizes: &before.sizes,
        from: &before.y.strides,
        to: &before.x,
    };
    let (mut sizes, mut x, mut y) = (Vec::new(), Vec::new(), Vec::new());
    for (parts, mut stride) in apart(&own, &sides)?.iter().zip(to) {
        let start = sizes.len();
        for part in parts.iter().rev() {
            sizes.insert(start, part.size);
            x.insert(start, part.stride);
            y.insert(start, stride);
            stride *= part.size.cast_signed();
        }
    }
    let (sizes, [x, y]) = layout::merge(&sizes, [&x, &y])?;
    let operand = |address, strides| Operand { address, strides };
    Some(Copy {
        x: operand(before.x.address, x),
        y: operand(copy.y.address, y),
        sizes,
        ..*copy
    })
}
