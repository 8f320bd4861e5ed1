//! A worker in another process: the messages, and the two halves that make a channel of messages a [`Work`].
//!
//! Entry points: [`RemoteWorker::connect`] where batches are sent, [`serve_worker`] where they run. Between the two is
//! a [`Link`]: anything that carries messages in order. Times travel as nanoseconds on the sender's [`Clock`], and the
//! receiver converts them to its own. Every message carries the time at which it was sent and the least delta that the
//! sender has seen. So both sides know how far apart their clocks are (Clockwork's controller and workers do the same):
//! it is half the difference of the two least deltas, in which equal delays in both directions cancel out.
//!
//! **Invariant:** nothing is retried or sent twice. Each call has one answer, also if the link breaks.
//!
//! [`Work`]: sextant_rpc::Work

use async_trait::async_trait;

mod client;
mod clock;
mod local;
mod messages;
mod pending;
mod server;

pub use client::{Connection, Options, RemoteWorker};
pub use clock::Clock;
pub(crate) use clock::Peer;
pub use local::{Ends, pair};
pub use messages::{
    Batch, Done, FromWorker, Outputs, Report, Request, Stamp, State, Steps, ToWorker, Window,
};
pub use server::serve_worker;

/// A link that carries no more messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the link is broken")]
pub struct Broken;

/// One end of a channel that sends `Out` and receives `In`.
///
/// Contract: a message that was sent arrives at most once, unchanged and in the order of sending, or the link breaks. A
/// broken link stays broken. `send` never blocks. `receive` may be cancelled without losing a message. Only one task at
/// a time calls it.
#[async_trait]
pub trait Link<Out, In>: Send + Sync {
    /// Sends a message.
    fn send(&self, message: Out) -> Result<(), Broken>;

    /// The next message.
    async fn receive(&self) -> Result<In, Broken>;
}
