//! The memory of a query, reserved before it is allocated.
//!
//! There are three steps. Reading reserves the memory of the inputs' elements. Asking reserves the memory that the
//! engine needs for them, and the outputs whose size follows from the signature. The answer reserves the outputs as
//! they are and the text that they become; the reservation of the inputs is given back with them.

use std::borrow::Cow;

use bytes::Bytes;
use sextant_types::{NamedTensor, Signature, Tensor, TensorSpec};

use crate::{
    codec::{Reader, write},
    problem::Problem,
    room::{Reservation, Room},
};

/// The memory of one query in addition to its body.
pub struct Footprint<'a> {
    taken: Reservation,
    signature: Option<Cow<'a, Signature>>,
}

// === impl Footprint ===

impl<'a> Footprint<'a> {
    /// The empty footprint of a query for a model with this signature, if that is known.
    pub fn new(room: &Room, signature: Option<Cow<'a, Signature>>) -> Self {
        Self {
            taken: room.take(),
            signature,
        }
    }

    /// The reader of the inputs.
    pub fn reader(&mut self) -> Reader<'_> {
        Reader {
            taken: &mut self.taken,
            signature: self.signature.as_deref(),
        }
    }

    /// Reserves the memory for what is made of inputs that have been read.
    ///
    /// # Errors
    /// There is no room for it.
    pub fn asks(&mut self, inputs: &[NamedTensor]) -> Result<(), Problem> {
        let signature = self.signature.as_deref();
        let rows = inputs.first().map_or(1, |input| input.tensor.rows());
        let inputs = inputs.iter().map(|input| joined(input, signature));
        let outputs = signature.iter().flat_map(|it| {
            let batched = it.batched;
            it.outputs.iter().map(move |spec| made(spec, batched, rows))
        });
        let all = inputs.chain(outputs).fold(0, usize::saturating_add);
        self.taken.grow(all)
    }

    /// Reserves the outputs and the text that they become, and gives back the rest: the inputs have been dropped.
    ///
    /// # Errors
    /// There is no room for it.
    pub fn answers(&mut self, outputs: &[NamedTensor], binary: bool) -> Result<(), Problem> {
        let one = |output: &NamedTensor| {
            let tensor = &output.tensor;
            let written = match binary {
                // Texts are assembled before they are copied.
                true => 2 * tensor.held_bytes(),
                false => write::most_bytes(tensor),
            };
            tensor.held_bytes() + written
        };
        let all = outputs.iter().map(one).fold(0, usize::saturating_add);
        self.taken.resize(all)
    }

    /// The reservation of the written answer: the outputs have been dropped.
    ///
    /// # Errors
    /// There is no room for it.
    pub fn written(mut self, bytes: usize) -> Result<Reservation, Problem> {
        self.taken.resize(bytes)?;
        Ok(self.taken)
    }

    /// The reservation, for an answer that is not written yet.
    pub fn taken(self) -> Reservation {
        self.taken
    }

    /// The same with the answer itself.
    ///
    /// # Errors
    /// Those of [`Footprint::written`].
    pub fn keep(self, answer: Vec<u8>) -> Result<Bytes, Problem> {
        Ok(self.written(answer.len())?.keep(answer))
    }
}

/// Bytes of what an input becomes: a batch is joined from copies in the model's type, and engines hold strings in a
/// form of their own.
fn joined(input: &NamedTensor, signature: Option<&Signature>) -> usize {
    let tensor = &input.tensor;
    let spec = signature.and_then(|it| it.inputs.iter().find(|spec| spec.name == input.name));
    let wider = spec.and_then(|spec| spec.data_type.size());
    let wider = wider.map_or(0, |size| size.saturating_mul(tensor.len()));
    tensor.held_bytes().max(wider) + tensor.engine_bytes()
}

/// Bytes of an output with `rows` rows in the engine, outside it and as text; 0 if its size is not known.
fn made(spec: &TensorSpec, batched: bool, rows: usize) -> usize {
    let mut sizes = spec
        .shape
        .iter()
        .enumerate()
        .map(|(axis, size)| match axis {
            0 if batched => Some(rows),
            _ => size.and_then(|size| usize::try_from(size).ok()),
        });
    let count = sizes.try_fold(1usize, |all, size| Some(all.saturating_mul(size?)));
    let count = count.unwrap_or(0);
    let element = match spec.data_type.size() {
        Some(size) => 2 * size,
        None => Tensor::ENGINE_TEXT_BYTES * 2 / 3,
    };
    let text = write::most_bytes_of(spec.data_type, 1);
    count.saturating_mul(element + text)
}
