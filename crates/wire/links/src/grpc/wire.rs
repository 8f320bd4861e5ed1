//! The messages of links and the frames that carry them, as protobuf.

use std::collections::VecDeque;

use bytes::Bytes;
use prost::Message;
use sextant_rpc::Ticket;
use sextant_types::InvalidId;

use crate::{
    front::{FromDispatcher, ToDispatcher},
    grpc::proto,
    link::{FromWorker, Stamp, ToWorker},
    mailbox::{FromMailbox, ToMailbox},
};

mod dispatcher;
mod errors;
mod mailbox;
mod stats;
mod tensors;
mod variant;
mod worker;

/// Approximate bytes of a message on the wire in addition to its tensors.
const ENVELOPE_BYTES: usize = 128;

/// A message and the frames that carry it.
pub(crate) trait Wire: Sized + Send + Unpin + 'static {
    /// A frame: several messages in one.
    type Frame: Message + Default + Send + 'static;

    /// Puts messages into a frame, with the fencing token under which they are sent.
    fn pack(messages: impl ExactSizeIterator<Item = Self>, token: u64) -> Self::Frame;

    /// Takes the messages out of a frame, in order.
    fn unpack(frame: Self::Frame, into: &mut VecDeque<Self>) -> Result<(), MalformedFrame>;

    /// Its approximate size on the wire, bytes.
    fn weight_bytes(&self) -> usize;

    /// Removes the tensors of a message that is too large to be sent. The waiting caller then gets an answer: that they
    /// are missing.
    fn strip(&mut self, reason: &str);
}

/// A frame that cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MalformedFrame {
    /// A required field is missing.
    #[error("`{0}` is missing or unknown")]
    Field(&'static str),
    /// An invalid name.
    #[error(transparent)]
    Name(#[from] InvalidId),
}

fn field<T>(value: Option<T>, name: &'static str) -> Result<T, MalformedFrame> {
    value.ok_or(MalformedFrame::Field(name))
}

impl From<Stamp> for proto::Stamp {
    fn from(stamp: Stamp) -> Self {
        Self {
            sent_at_ns: stamp.sent_at_ns,
            least_delta_ns: stamp.least_delta_ns,
        }
    }
}

impl From<proto::Stamp> for Stamp {
    fn from(stamp: proto::Stamp) -> Self {
        Self {
            sent_at_ns: stamp.sent_at_ns,
            least_delta_ns: stamp.least_delta_ns,
        }
    }
}

impl From<Ticket> for proto::Ticket {
    fn from(ticket: Ticket) -> Self {
        Self {
            holder: ticket.holder,
            query: ticket.query,
            attempt: ticket.attempt,
        }
    }
}

impl From<proto::Ticket> for Ticket {
    fn from(ticket: proto::Ticket) -> Self {
        Self {
            holder: ticket.holder,
            query: ticket.query,
            attempt: ticket.attempt,
        }
    }
}

/// Reads bytes as a frame, whose kind is the first byte. A valid frame is written and read again, and must then be the
/// same. For fuzzing.
///
/// # Panics
/// If it is not the same.
#[doc(hidden)]
pub fn check_frame(bytes: &[u8]) {
    let Some((kind, frame)) = bytes.split_first() else {
        return;
    };
    let frame = Bytes::copy_from_slice(frame);
    match kind % 6 {
        0 => check::<ToWorker>(&frame),
        1 => check::<FromWorker>(&frame),
        2 => check::<ToDispatcher>(&frame),
        3 => check::<FromDispatcher>(&frame),
        4 => check::<ToMailbox>(&frame),
        _ => check::<FromMailbox>(&frame),
    }
}

fn check<W: Wire>(frame: &Bytes) {
    let Some(messages) = unpacked::<W>(frame) else {
        return;
    };
    let written = W::pack(messages.into_iter(), 7).encode_to_vec().into();
    let again = unpacked::<W>(&written).expect("what was written can be read");
    let again = W::pack(again.into_iter(), 7).encode_to_vec();
    assert!(again == written, "{written:?} is read as {again:?}");
}

fn unpacked<W: Wire>(frame: &Bytes) -> Option<VecDeque<W>> {
    let mut messages = VecDeque::new();
    let frame = W::Frame::decode(frame.clone()).ok()?;
    W::unpack(frame, &mut messages).ok()?;
    Some(messages)
}

#[cfg(test)]
mod tests;
