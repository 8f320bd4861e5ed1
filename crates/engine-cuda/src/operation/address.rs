//! Giving an operation other addresses.

use super::{Address, Operation};

/// The same operation with every address replaced.
pub(super) fn map(operation: &Operation, mut place: impl FnMut(Address) -> Address) -> Operation {
    let mut operation = *operation;
    each(&mut operation, &mut |address| *address = place(*address));
    operation
}

fn each(operation: &mut Operation, visit: &mut dyn FnMut(&mut Address)) {
    match operation {
        Operation::Gemm(it) => {
            visit(&mut it.a.address);
            visit(&mut it.b.address);
            visit(&mut it.c.address);
            it.bias.iter_mut().for_each(visit);
        }
        Operation::Convolution(it) => {
            visit(&mut it.x);
            visit(&mut it.weights);
            visit(&mut it.y);
            it.bias.iter_mut().for_each(visit);
        }
        Operation::Im2col(it) => [&mut it.x, &mut it.y].into_iter().for_each(visit),
        Operation::Affine(it) => {
            visit(&mut it.x);
            visit(&mut it.y);
            it.scale.iter_mut().chain(&mut it.shift).for_each(visit);
        }
        Operation::Pool(it) => [&mut it.x, &mut it.y].into_iter().for_each(visit),
        Operation::Unary(it) => [&mut it.x, &mut it.y].into_iter().for_each(visit),
        Operation::Binary(it) => {
            let addresses = [&mut it.a.address, &mut it.b.address, &mut it.y];
            addresses.into_iter().for_each(visit);
        }
        Operation::Select(it) => {
            visit(&mut it.condition.address);
            visit(&mut it.a.address);
            visit(&mut it.b.address);
            visit(&mut it.y);
        }
        Operation::Reduce(it) => [&mut it.x, &mut it.y].into_iter().for_each(visit),
        Operation::Arg(it) => [&mut it.x, &mut it.y].into_iter().for_each(visit),
        Operation::Softmax(it) => [&mut it.x, &mut it.y].into_iter().for_each(visit),
        Operation::LayerNorm(it) => {
            visit(&mut it.x);
            visit(&mut it.y);
            it.scale.iter_mut().chain(&mut it.shift).for_each(visit);
        }
        Operation::Gather(it) => {
            let addresses = [&mut it.table, &mut it.indices, &mut it.y];
            addresses.into_iter().for_each(visit);
        }
        Operation::Copy(it) => {
            let addresses = [&mut it.x.address, &mut it.y.address];
            addresses.into_iter().for_each(visit);
        }
        Operation::Fill(it) => visit(&mut it.y.address),
    }
}
