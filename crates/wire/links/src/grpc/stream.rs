//! A link over the two directions of one streaming call.

use std::{collections::VecDeque, future::poll_fn, pin::Pin, sync::Arc, task::Poll};

use async_trait::async_trait;
use futures::Stream;
use tokio::sync::Mutex;
use tonic::Streaming;

use crate::{
    grpc::{
        Fence, Limits,
        outbox::{Breaker, Frames, Outbox, outbox},
        wire::Wire,
    },
    link::{Broken, Link},
};

/// What a frame must satisfy before its messages are accepted.
#[async_trait]
pub(crate) trait Gate<In: Wire>: Send + Sync {
    /// Whether the frame satisfies it; `None` if the store must be asked.
    fn check(&self, frame: &In::Frame) -> Option<Result<(), String>>;

    /// Asks the store. May be cancelled and called again.
    async fn ask(&self, frame: &In::Frame) -> Result<(), String>;
}

/// One end of a link. Dropping it ends the call.
pub(crate) struct StreamLink<Out: Wire, In: Wire> {
    /// The peer, for the log.
    peer: String,
    outbox: Outbox<Out>,
    inbox: Mutex<Inbox<In>>,
    breaker: Arc<Breaker>,
}

struct Inbox<In: Wire> {
    frames: Streaming<In::Frame>,
    gate: Option<Box<dyn Gate<In>>>,
    /// The frame about which the gate is being asked. It is kept because a caller may stop waiting.
    held: Option<In::Frame>,
    /// Messages of the last frame.
    ready: VecDeque<In>,
    ended: bool,
}

/// The sending half, before there is anything to receive from.
pub(crate) struct SendHalf<Out: Wire> {
    outbox: Outbox<Out>,
    breaker: Arc<Breaker>,
}

/// The sending half, and its frames for the transport.
pub(crate) fn sending<Out: Wire>(limits: Limits, fence: Fence) -> (SendHalf<Out>, Frames<Out>) {
    let breaker = Arc::<Breaker>::default();
    let (outbox, frames) = outbox(limits, fence, Arc::clone(&breaker));
    (SendHalf { outbox, breaker }, frames)
}

impl<Out: Wire> SendHalf<Out> {
    /// The whole link.
    pub(crate) fn receiving<In: Wire>(
        self,
        peer: String,
        frames: Streaming<In::Frame>,
        gate: Option<Box<dyn Gate<In>>>,
    ) -> StreamLink<Out, In> {
        StreamLink {
            peer,
            outbox: self.outbox,
            inbox: Mutex::new(Inbox {
                frames,
                gate,
                held: None,
                ready: VecDeque::new(),
                ended: false,
            }),
            breaker: self.breaker,
        }
    }
}

#[async_trait]
impl<Out: Wire + Sync, In: Wire + Sync> Link<Out, In> for StreamLink<Out, In> {
    fn send(&self, message: Out) -> Result<(), Broken> {
        self.outbox.send(message)
    }

    async fn receive(&self) -> Result<In, Broken> {
        let mut inbox = self.inbox.lock().await;
        loop {
            if let Some(message) = inbox.ready.pop_front() {
                return Ok(message);
            }
            if let Err(reason) = inbox.fill(&self.breaker).await {
                if let Some(reason) = reason {
                    tracing::warn!(peer = %self.peer, %reason, "a link breaks");
                }
                inbox.ended = true;
                self.breaker.trip();
                return Err(Broken);
            }
        }
    }
}

impl<In: Wire> Inbox<In> {
    /// Waits for the next frame. Fails with the reason to log, if there is one.
    async fn fill(&mut self, breaker: &Breaker) -> Result<(), Option<String>> {
        if self.ended {
            return Err(None);
        }
        if self.held.is_none() {
            let frame = poll_fn(|context| match breaker.is_broken(context) {
                true => Poll::Ready(None),
                false => Pin::new(&mut self.frames).poll_next(context),
            });
            self.held = match frame.await {
                Some(Ok(frame)) => Some(frame),
                Some(Err(status)) => {
                    tracing::debug!(reason = %status.message(), "a call ended");
                    return Err(None);
                }
                None => return Err(None),
            };
        }
        if let (Some(gate), Some(frame)) = (&self.gate, &self.held) {
            match gate.check(frame) {
                Some(checked) => checked?,
                None => gate.ask(frame).await?,
            }
        }
        let Some(frame) = self.held.take() else {
            return Ok(());
        };
        let unpacked = In::unpack(frame, &mut self.ready);
        unpacked.map_err(|error| Some(error.to_string()))
    }
}
