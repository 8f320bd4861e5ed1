//! What a query takes up on its way, taken from the room before it is made.
//!
//! There are three steps. Reading takes what the elements of the inputs become. Asking takes what the engine makes of
//! them, and the outputs whose size the signature tells. The answer takes the outputs as they are and the text that they
//! are written in; what was taken for the inputs is given back with them.

use std::borrow::Cow;

use bytes::Bytes;
use sextant_types::{NamedTensor, Signature, Tensor, TensorSpec};

use crate::{
    codec::{Reader, write},
    problem::Problem,
    room::{Reservation, Room},
};

/// What one query takes up beside its body.
pub struct Footprint<'a> {
    taken: Reservation,
    signature: Option<Cow<'a, Signature>>,
}

// === impl Footprint ===

impl<'a> Footprint<'a> {
    /// Nothing yet, of a query for a model with this signature, where that is known.
    pub fn new(room: &Room, signature: Option<Cow<'a, Signature>>) -> Self {
        Self {
            taken: room.take(),
            signature,
        }
    }

    /// What the inputs are read into.
    pub fn reader(&mut self) -> Reader<'_> {
        Reader {
            taken: &mut self.taken,
            signature: self.signature.as_deref(),
        }
    }

    /// Takes what is made of inputs that have been read.
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

    /// Takes the outputs and what they are written in, and gives back the rest: the inputs are no more.
    ///
    /// # Errors
    /// There is no room for it.
    pub fn answers(&mut self, outputs: &[NamedTensor], binary: bool) -> Result<(), Problem> {
        let one = |output: &NamedTensor| {
            let tensor = &output.tensor;
            let written = match binary {
                // Texts are put together before they are copied.
                true => 2 * tensor.held_bytes(),
                false => write::most_bytes(tensor),
            };
            tensor.held_bytes() + written
        };
        let all = outputs.iter().map(one).fold(0, usize::saturating_add);
        self.taken.resize(all)
    }

    /// The part of the answer that was written: the outputs are no more.
    ///
    /// # Errors
    /// There is no room for it.
    pub fn written(mut self, bytes: usize) -> Result<Reservation, Problem> {
        self.taken.resize(bytes)?;
        Ok(self.taken)
    }

    /// The part itself, for an answer that is yet to be written.
    pub fn taken(self) -> Reservation {
        self.taken
    }

    /// The same with the answer itself.
    ///
    /// # Errors
    /// As [`Footprint::written`] has them.
    pub fn keep(self, answer: Vec<u8>) -> Result<Bytes, Problem> {
        Ok(self.written(answer.len())?.keep(answer))
    }
}

/// What becomes of an input: a batch is put together of copies, in the model's type, and engines hold strings in a form
/// of their own.
fn joined(input: &NamedTensor, signature: Option<&Signature>) -> usize {
    let tensor = &input.tensor;
    let spec = signature.and_then(|it| it.inputs.iter().find(|spec| spec.name == input.name));
    let wider = spec.and_then(|spec| spec.data_type.size());
    let wider = wider.map_or(0, |size| size.saturating_mul(tensor.len()));
    tensor.held_bytes().max(wider) + tensor.engine_bytes()
}

/// An output of so many rows in the engine, beside it and as text; nothing where its size is not known.
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
