//! Computes every [`Operation`] by its definition, in host memory.
//!
//! Entry points: [`compute`], [`Memory`]. The recording driver computes with this module in place of a device, and
//! planning folds constants with it, so that each operator has one implementation.
//!
//! The code is written to be read, not to be fast. Storage types round as on a device; arithmetic is that of 32-bit
//! floats and 64-bit integers.

use sextant_engine::Error;

use crate::operation::{Address, Element, Operation};

mod along;
mod attention;
mod elementwise;
mod functions;
mod images;
mod linear;
mod memory;
mod values;

pub use memory::Memory;

/// Computes an operation.
///
/// # Errors
/// [`Error::Failed`] when the operation reads bytes that were never written or anything outside the memory, or when its
/// parameters contradict the contract of [`crate::operation`].
pub fn compute(operation: &Operation, memory: &mut Memory) -> Result<(), Error> {
    check(operation)?;
    match operation {
        Operation::Gemm(it) => linear::gemm(it, memory),
        Operation::Convolution(it) => images::convolution(it, memory),
        Operation::Im2col(it) => images::im2col(it, memory),
        Operation::Affine(it) => along::affine(it, memory),
        Operation::Pool(it) => images::pool(it, memory),
        Operation::Unary(it) => elementwise::unary(it, memory),
        Operation::Binary(it) => elementwise::binary(it, memory),
        Operation::Select(it) => elementwise::select(it, memory),
        Operation::Reduce(it) => along::reduce(it, memory),
        Operation::Arg(it) => along::arg(it, memory),
        Operation::Softmax(it) => along::softmax(it, memory),
        Operation::LayerNorm(it) => along::layer_norm(it, memory),
        Operation::Attention(it) => attention::attention(it, memory),
        Operation::Gather(it) => linear::gather(it, memory),
        Operation::Copy(it) => elementwise::copy(it, memory),
        Operation::Fill(it) => elementwise::fill(it, memory),
    }
}

/// Checks that the output of an operation does not overlap its inputs.
fn check(operation: &Operation) -> Result<(), Error> {
    let writes = operation.writes();
    let reads = operation.reads();
    let overlaps = |read: &&std::ops::Range<Address>| {
        read.start < writes.end && writes.start < read.end && !read.is_empty()
    };
    match reads.iter().find(overlaps) {
        Some(read) => Err(fault(&format!(
            "{} writes {writes:?} and reads {read:?}",
            operation.name()
        ))),
        None => Ok(()),
    }
}

fn fault(text: &str) -> Error {
    Error::Failed(format!("the planned operation is wrong: {text}"))
}

fn float_only(element: Element) -> Result<(), Error> {
    if element.is_float() {
        return Ok(());
    }
    Err(fault(&format!("{element:?} where a float is needed")))
}
