//! The queue of messages to send.
//!
//! A sender puts a message into the queue and goes on. The transport takes frames out of it. Each frame takes all
//! waiting messages, so under load many messages share one frame and one system call. Without load a message is sent at
//! once. Only directly after another frame, the sender first lets other ready tasks run, because they may have messages
//! to send too. The queue is bounded in messages and bytes. Beyond the bound the link breaks: a peer that is so far
//! behind is of no use, and its callers are told.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use futures::{Stream, task::AtomicWaker};
use parking_lot::{Mutex, MutexGuard};
use tonic::Status;

use crate::{
    grpc::{Fence, Limits, wire::Wire},
    link::Broken,
};

/// Messages are added to a frame up to this size, bytes. A larger message is sent alone.
const FRAME_BYTES: usize = 1 << 18;

/// A frame that follows another one within this time waits for one turn of the other tasks.
const BURST: Duration = Duration::from_micros(50);

/// Tells both halves of a link that it is broken.
#[derive(Default)]
pub(crate) struct Breaker {
    broken: AtomicBool,
    receiver: AtomicWaker,
}

/// The end into which messages are put.
pub(crate) struct Outbox<W> {
    shared: Arc<Shared<W>>,
    limits: Limits,
}

/// The end from which frames are taken. The transport drops it when it cannot send any more.
pub(crate) struct Frames<W: Wire> {
    shared: Arc<Shared<W>>,
    fence: Fence,
    /// The messages of the frame that is being made; its memory is reused.
    batch: VecDeque<QueuedMessage<W>>,
    /// When the last frame was made.
    made: Option<Instant>,
    /// Whether the other tasks have had their turn.
    waited: bool,
}

/// Frames as the answer of a server.
pub(crate) struct Answers<W: Wire>(pub(crate) Frames<W>);

struct Shared<W> {
    queue: Mutex<Queue<W>>,
    breaker: Arc<Breaker>,
}

struct Queue<W> {
    waiting: VecDeque<QueuedMessage<W>>,
    bytes: usize,
    /// Whether the queue accepts no more messages. Those that wait are still sent.
    closed: bool,
    sender: Option<Waker>,
}

struct QueuedMessage<W> {
    message: W,
    bytes: usize,
}

/// Makes a queue and the end that yields its frames.
pub(crate) fn outbox<W: Wire>(
    limits: Limits,
    fence: Fence,
    breaker: Arc<Breaker>,
) -> (Outbox<W>, Frames<W>) {
    let shared = Arc::new(Shared {
        queue: Mutex::new(Queue {
            waiting: VecDeque::new(),
            bytes: 0,
            closed: false,
            sender: None,
        }),
        breaker,
    });
    let frames = Frames {
        shared: Arc::clone(&shared),
        fence,
        batch: VecDeque::new(),
        made: None,
        waited: false,
    };
    (Outbox { shared, limits }, frames)
}

// === impl Outbox ===

impl<W: Wire> Outbox<W> {
    /// Puts a message at the end of the queue.
    pub(crate) fn send(&self, mut message: W) -> Result<(), Broken> {
        let mut bytes = message.weight_bytes();
        if bytes > self.limits.message_bytes {
            let most = self.limits.message_bytes;
            tracing::warn!(
                bytes,
                most,
                "a message is too large and goes without tensors"
            );
            message.strip(&format!(
                "the tensors take {bytes} bytes, over the limit of {most} for one message"
            ));
            bytes = message.weight_bytes();
        }
        let mut queue = self.shared.lock();
        if queue.closed {
            return Err(Broken);
        }
        let full = queue.waiting.len() >= self.limits.queued_messages
            || queue.bytes.saturating_add(bytes) > self.limits.queued_bytes;
        if full {
            tracing::warn!(
                messages = queue.waiting.len(),
                bytes = queue.bytes,
                "a link breaks: its peer does not keep up"
            );
            queue.discard();
            let sender = queue.sender.take();
            drop(queue);
            wake(sender);
            self.shared.breaker.trip();
            return Err(Broken);
        }
        queue.bytes += bytes;
        queue.waiting.push_back(QueuedMessage { message, bytes });
        let sender = queue.sender.take();
        drop(queue);
        wake(sender);
        Ok(())
    }
}

impl<W> Drop for Outbox<W> {
    fn drop(&mut self) {
        let mut queue = self.shared.lock();
        queue.closed = true;
        let sender = queue.sender.take();
        drop(queue);
        wake(sender);
    }
}

// === impl Frames ===

impl<W: Wire> Stream for Frames<W> {
    type Item = W::Frame;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<W::Frame>> {
        let frames = self.get_mut();
        let mut queue = frames.shared.lock();
        if queue.waiting.is_empty() {
            if queue.closed {
                return Poll::Ready(None);
            }
            queue.sender = Some(context.waker().clone());
            return Poll::Pending;
        }
        let now = Instant::now();
        let burst = frames.made.is_some_and(|made| now - made < BURST);
        if burst && !frames.waited {
            frames.waited = true;
            drop(queue);
            // Puts this task at the end of the runtime's queue.
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        (frames.made, frames.waited) = (Some(now), false);
        queue.take(&mut frames.batch);
        drop(queue);
        let messages = frames.batch.drain(..).map(|it| it.message);
        Poll::Ready(Some(W::pack(messages, frames.fence.token())))
    }
}

impl<W: Wire> Drop for Frames<W> {
    fn drop(&mut self) {
        self.shared.lock().discard();
        self.shared.breaker.trip();
    }
}

impl<W: Wire> Stream for Answers<W> {
    type Item = Result<W::Frame, Status>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<W::Frame, Status>>> {
        Pin::new(&mut self.0)
            .poll_next(context)
            .map(|it| it.map(Ok))
    }
}

// === impl Shared ===

impl<W> Shared<W> {
    fn lock(&self) -> MutexGuard<'_, Queue<W>> {
        self.queue.lock()
    }
}

// === impl Queue ===

impl<W> Queue<W> {
    /// Moves the messages that fit into one frame to the empty `batch`.
    fn take(&mut self, batch: &mut VecDeque<QueuedMessage<W>>) {
        if self.bytes <= FRAME_BYTES {
            self.bytes = 0;
            std::mem::swap(&mut self.waiting, batch);
            return;
        }
        let mut bytes = 0;
        while let Some(next) = self.waiting.front() {
            if !batch.is_empty() && bytes + next.bytes > FRAME_BYTES {
                break;
            }
            bytes += next.bytes;
            batch.extend(self.waiting.pop_front());
        }
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// Drops all messages: nothing is sent any more.
    fn discard(&mut self) {
        self.closed = true;
        self.waiting = VecDeque::new();
        self.bytes = 0;
    }
}

// === impl Breaker ===

impl Breaker {
    /// Breaks the link.
    pub(crate) fn trip(&self) {
        self.broken.store(true, Ordering::Release);
        self.receiver.wake();
    }

    /// Whether it is broken. If it is not, the receiver is woken when it breaks.
    pub(crate) fn is_broken(&self, context: &Context<'_>) -> bool {
        if self.broken.load(Ordering::Acquire) {
            return true;
        }
        self.receiver.register(context.waker());
        self.broken.load(Ordering::Acquire)
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}
