//! Messages of links and the frames that carry them.
//!
//! What a query crosses is protobuf; what is rare (loads, states, statistics, refusals) is one JSON
//! document inside, so that it grows without a second description of its fields.

use std::collections::VecDeque;

use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};
use sextant_rpc::{Ticket, link::wire::Stamp};
use sextant_types::InvalidId;

use crate::proto;

mod dispatcher;
mod mailbox;
mod tensors;
mod worker;

/// Bytes that a message takes on the wire beside its tensors, about.
const ENVELOPE_BYTES: usize = 128;

/// A message and the frames that carry it.
pub(crate) trait Wire: Sized + Send + Unpin + 'static {
    /// Several messages in one.
    type Frame: prost::Message + Default + Send + 'static;

    /// Puts messages into a frame, with the fencing token under which they are sent.
    fn pack(messages: impl ExactSizeIterator<Item = Self>, token: u64) -> Self::Frame;

    /// Takes the messages of a frame out, in order.
    fn unpack(frame: Self::Frame, into: &mut VecDeque<Self>) -> Result<(), Malformed>;

    /// Bytes that it takes on the wire, about.
    fn weight_bytes(&self) -> usize;

    /// Takes the tensors out of a message that is too large to be sent, so that whoever waits for
    /// its answer gets one: that they are missing.
    fn strip(&mut self, reason: &str);
}

/// A frame that cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Malformed {
    /// A field without which the message means nothing.
    #[error("`{0}` is missing or unknown")]
    Field(&'static str),
    /// Not a name.
    #[error(transparent)]
    Name(#[from] InvalidId),
    /// Not the JSON document that it should be.
    #[error("a document cannot be read: {0}")]
    Document(#[from] serde_json::Error),
}

fn field<T>(value: Option<T>, name: &'static str) -> Result<T, Malformed> {
    value.ok_or(Malformed::Field(name))
}

/// A rare part of a message. Plain data always becomes JSON; were it not so, the receiver would say.
fn document(value: &impl Serialize) -> Bytes {
    serde_json::to_vec(value).unwrap_or_default().into()
}

fn read<T: DeserializeOwned>(document: &Bytes) -> Result<T, Malformed> {
    Ok(serde_json::from_slice(document)?)
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

#[cfg(test)]
mod tests;
