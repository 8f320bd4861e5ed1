//! The bytes of a connection. The socket reports traffic, and delays the end of what the client sends while the client
//! may still wait for an answer.
//!
//! A client that has sent its request may close its sending side (`nc -N`) and read. The server cannot tell it from a
//! client that has closed the connection: TCP tells the two apart only when the server sends something. So the server
//! goes on for a while with an answer that it has begun; then it takes the client for gone. A client that resets the
//! connection is gone at once.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep},
};

use super::activity::Activity;

/// Longest wait for the answer to a client that has closed its sending side.
const HALF_CLOSED: Duration = Duration::from_secs(5);

/// The same if the handler waits for the rest of a body: time enough to read the bytes that have arrived.
const CUT_OFF: Duration = Duration::from_millis(100);

/// A stream of bytes that reports its traffic.
pub(super) struct Socket<S> {
    inner: S,
    activity: Arc<Activity>,
    /// Whether the protocol is HTTP/1.1. Only then does the next byte begin a head, and only then is the end delayed.
    is_http1: bool,
    ended: Option<DelayedEnd>,
}

/// The end of what the client sends, while it is held back.
struct DelayedEnd {
    at: Instant,
    look_again: Pin<Box<Sleep>>,
    reader: Waker,
}

// === impl Socket ===

impl<S> Socket<S> {
    pub fn new(inner: S, activity: Arc<Activity>, is_http1: bool) -> Self {
        Self {
            inner,
            activity,
            is_http1,
            ended: None,
        }
    }

    /// Ready when the reader may see the end.
    fn end(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.is_http1 || !self.activity.is_busy() {
            return Poll::Ready(());
        }
        let ended = self.ended.get_or_insert_with(|| DelayedEnd {
            at: Instant::now(),
            look_again: Box::pin(sleep(CUT_OFF)),
            reader: cx.waker().clone(),
        });
        ended.reader.clone_from(cx.waker());
        while ended.look_again.as_mut().poll(cx).is_ready() {
            let waited = ended.at.elapsed();
            if waited >= HALF_CLOSED || self.activity.is_awaiting() {
                return Poll::Ready(());
            }
            let until = Instant::now() + CUT_OFF;
            ended.look_again.as_mut().reset(until);
        }
        Poll::Pending
    }

    /// Reports whether the client took what was written. If that completed the last answer, it wakes the reader, which
    /// may now see the end.
    fn told<T>(&self, written: &Poll<T>) {
        self.activity.blocks(written.is_pending());
        if let (Some(ended), true) = (&self.ended, written.is_ready()) {
            ended.reader.wake_by_ref();
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Socket<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.ended.is_some() {
            return this.end(cx).map(Ok);
        }
        let (before, room) = (buffer.filled().len(), buffer.remaining());
        ready!(Pin::new(&mut this.inner).poll_read(cx, buffer))?;
        let has_ended = room > 0 && buffer.filled().len() == before;
        if has_ended {
            return this.end(cx).map(Ok);
        }
        if this.is_http1 {
            this.activity.heard();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Socket<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.inner).poll_write(cx, bytes);
        this.told(&written);
        if let Poll::Ready(Ok(count)) = written {
            this.activity.wrote(count);
        }
        written
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.inner).poll_write_vectored(cx, pieces);
        this.told(&written);
        if let Poll::Ready(Ok(count)) = written {
            this.activity.wrote(count);
        }
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.inner).poll_flush(cx);
        this.told(&flushed);
        flushed
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(cx)
    }
}
