//! Merges additions into the product or the convolution before them, so that a residual connection costs no pass over
//! memory of its own.

use super::{Draft, uses::Uses};
use crate::operation::{Activation, Address, Binary, BinaryFunction, Method, Operation, Symbolic};

/// Lets products and convolutions take over additions of which they are the only source.
pub(super) fn merge(draft: &mut Draft) {
    let uses = Uses::new(draft);
    let mut taken = Vec::new();
    for index in 0..draft.operations.len() {
        let Operation::Binary(addition) = draft.operations[index] else {
            continue;
        };
        if !is_whole(&addition) {
            continue;
        }
        let operands = [(addition.a, addition.b), (addition.b, addition.a)];
        let merged = operands.into_iter().find_map(|(own, other)| {
            let producer = uses.only_producer(own.address)?;
            let with = with(
                &draft.operations[producer],
                &addition,
                own.address,
                other.address,
            )?;
            Some((producer, with))
        });
        if let Some((producer, with)) = merged {
            draft.operations[index] = with;
            taken.push(producer);
        }
    }
    taken.sort_unstable();
    for index in taken.into_iter().rev() {
        draft.operations.remove(index);
    }
}

/// Whether it adds two tensors of floats with the same layout.
fn is_whole(it: &Binary<Symbolic>) -> bool {
    let contiguous = it.sizes.rank == 1 && it.a.strides[0] == 1 && it.b.strides[0] == 1;
    it.function == BinaryFunction::Add
        && it.element.is_float()
        && contiguous
        && it.a.address != it.b.address
}

/// The operation with the addition merged into it.
fn with(
    operation: &Operation<Symbolic>,
    addition: &Binary<Symbolic>,
    own: Address<Symbolic>,
    other: Address<Symbolic>,
) -> Option<Operation<Symbolic>> {
    let count = addition.sizes.count();
    match *operation {
        Operation::Gemm(mut it) => {
            let packed =
                it.c.row_stride == it.n && (it.batch == 1 || it.c.batch_stride == it.m * it.n);
            let fits = packed
                && it.activation == Activation::None
                && it.addend.is_none()
                && it.c.address == own
                && it.m * it.n * it.batch == count;
            it.addend = Some(other);
            it.c.address = addition.y;
            it.activation = addition.activation;
            fits.then_some(Operation::Gemm(it))
        }
        Operation::Convolution(mut it) => {
            let fits = it.channels_last
                && it.method == Method::Library
                && it.activation == Activation::None
                && it.addend.is_none()
                && it.bias.is_some()
                && it.y == own
                && it.batch * it.out_channels * it.window.out_count() == count;
            it.addend = Some(other);
            it.y = addition.y;
            it.activation = addition.activation;
            fits.then_some(Operation::Convolution(it))
        }
        _ => None,
    }
}
