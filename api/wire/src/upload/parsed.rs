//! A body for a parser that keeps what it cannot parse yet.
//!
//! The parser of forms reads as long as there are bytes, and looks at them afterwards: a client that sends quickly, or
//! a part whose head has no end, would fill the memory. This body pauses after each piece, so that the parser parses
//! it, and ends if too many bytes remain unparsed.

use std::{
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use sextant_types::Code;

use crate::{
    body::DISCARD_BYTES,
    problem::{Problem, Refusal},
};

/// Most bytes that are passed on and not parsed: those of a part's head, and the pieces of the body.
const MOST_UNPARSED_BYTES: usize = 1 << 20;

/// How much of a body its parser has parsed.
#[derive(Debug, Clone, Default)]
pub struct Progress(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    unparsed_bytes: AtomicUsize,
    is_unwanted: AtomicBool,
}

/// A body that waits for its parser.
struct ThrottledBody {
    body: Body,
    progress: Progress,
    /// Whether a piece was passed on last.
    has_given: bool,
    /// Bytes that were discarded.
    discarded: usize,
    is_over: bool,
}

/// The body of a form, and the progress that its parser reports to.
pub fn parsed(body: Body) -> (Body, Progress) {
    let progress = Progress::default();
    let body = Body::new(ThrottledBody {
        body,
        progress: progress.clone(),
        has_given: false,
        discarded: 0,
        is_over: false,
    });
    (body, progress)
}

// === impl Progress ===

impl Progress {
    /// The bytes so far are parsed, except for a part of the last piece.
    pub fn made(&self) {
        self.0.unparsed_bytes.store(0, Ordering::Relaxed);
    }

    /// The rest is not needed: it is read and discarded.
    pub fn unwanted(&self) {
        self.0.is_unwanted.store(true, Ordering::Relaxed);
    }

    fn is_unwanted(&self) -> bool {
        self.0.is_unwanted.load(Ordering::Relaxed)
    }

    /// Counts a piece; `false` if too many bytes are not parsed.
    fn takes(&self, bytes: usize) -> bool {
        let before = self.0.unparsed_bytes.fetch_add(bytes, Ordering::Relaxed);
        // The first piece is accepted whatever its size, because it is in memory already.
        before == 0 || before + bytes <= MOST_UNPARSED_BYTES
    }
}

fn refusal() -> Refusal {
    let detail = format!(
        "more than `{MOST_UNPARSED_BYTES}` bytes of the form belong to no part of it: a part's head or the text \
         between two parts is longer than that"
    );
    Refusal(Problem::new(Code::TooLarge, detail))
}

// === impl ThrottledBody ===

impl HttpBody for ThrottledBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        if this.is_over {
            return Poll::Ready(None);
        }
        if std::mem::take(&mut this.has_given) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let Poll::Ready(frame) = pin!(&mut this.body).poll_frame(cx) else {
            return Poll::Pending;
        };
        let bytes = match &frame {
            Some(Ok(frame)) => frame.data_ref().map_or(0, Bytes::len),
            _ => return Poll::Ready(frame),
        };
        this.has_given = true;
        if this.progress.is_unwanted() {
            this.discarded += bytes;
            this.is_over = this.discarded > DISCARD_BYTES;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if this.progress.takes(bytes) {
            return Poll::Ready(frame);
        }
        this.is_over = true;
        Poll::Ready(Some(Err(axum::Error::new(refusal()))))
    }

    fn is_end_stream(&self) -> bool {
        self.is_over || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
