//! Ends uploads that are too slow.

use std::{
    pin::{Pin, pin},
    task::{Context, Poll},
    time::Duration,
};

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use sextant_types::Code;
use tokio::time::{Instant, Sleep, sleep};

use crate::{
    Limits,
    problem::{Problem, Refusal},
};

/// A body that ends with a coded refusal if the client sends too slowly. Only the time in which the reader waits for
/// the body counts: the client does not pay for a slow store.
pub struct PacedBody {
    body: Body,
    min_bytes_per_s: u64,
    grace: Duration,
    /// Bytes of the present span. A span ends when the waits in it are as long as the grace.
    bytes: u64,
    /// Time that the reader has waited in this span, without the present wait.
    waited: Duration,
    waits_since: Option<Instant>,
    look_again: Option<Pin<Box<Sleep>>>,
    is_over: bool,
}

/// The body of an upload, held to the limits.
pub fn paced(body: Body, limits: &Limits) -> Body {
    if limits.min_transfer_bytes_per_s == 0 {
        return body;
    }
    Body::new(PacedBody {
        body,
        min_bytes_per_s: limits.min_transfer_bytes_per_s,
        grace: limits.transfer_grace,
        bytes: 0,
        waited: Duration::ZERO,
        waits_since: None,
        look_again: None,
        is_over: false,
    })
}

// === impl PacedBody ===

impl PacedBody {
    /// Ready if the reader has waited for the body for too long.
    fn poll_too_slow(&mut self, cx: &mut Context<'_>) -> Poll<Refusal> {
        loop {
            let since = *self.waits_since.get_or_insert_with(Instant::now);
            let waited = self.waited + since.elapsed();
            if waited >= self.grace {
                let wanted = self.min_bytes_per_s as f64 * waited.as_secs_f64();
                if (self.bytes as f64) < wanted {
                    return Poll::Ready(self.refusal());
                }
                self.begin_span();
                continue;
            }
            let until = Instant::now() + (self.grace - waited);
            let look_again = self
                .look_again
                .get_or_insert_with(|| Box::pin(sleep(Duration::ZERO)));
            look_again.as_mut().reset(until);
            if look_again.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }

    fn begin_span(&mut self) {
        self.bytes = 0;
        self.waited = Duration::ZERO;
        self.waits_since = Some(Instant::now());
    }

    fn refusal(&self) -> Refusal {
        let (least, grace) = (self.min_bytes_per_s, self.grace);
        let detail = format!(
            "the upload brought less than `{least}` bytes a second over {grace:?} and was ended"
        );
        Refusal(Problem::new(Code::InvalidRequest, detail))
    }
}

impl HttpBody for PacedBody {
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
        let Poll::Ready(frame) = pin!(&mut this.body).poll_frame(cx) else {
            return this.poll_too_slow(cx).map(|refused| {
                this.is_over = true;
                Some(Err(axum::Error::new(refused)))
            });
        };
        if let Some(since) = this.waits_since.take() {
            this.waited += since.elapsed();
        }
        if let Some(Ok(frame)) = &frame {
            let bytes = frame.data_ref().map_or(0, Bytes::len);
            this.bytes += bytes as u64;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.is_over || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
