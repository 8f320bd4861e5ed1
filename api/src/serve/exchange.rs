//! Requests and answers of a connection. They report to [`Activity`] who waits for whom.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use axum::{
    Router,
    body::{Body, HttpBody},
    http::{HeaderValue, Request, Response, header},
};
use bytes::Bytes;
use hyper::body::{Frame, Incoming, SizeHint};
use tower::ServiceExt;

use super::activity::Activity;
use crate::sessions::EncryptedConnection;

/// How long a browser that came over an encrypted connection uses no other kind.
const ENCRYPTED_ONLY: &str = "max-age=31536000";

/// Answers the requests of a connection.
#[derive(Clone)]
pub(super) struct Exchange {
    pub router: Router,
    pub activity: Arc<Activity>,
    pub is_encrypted: bool,
}

/// The body of a request. It reports whether the handler waits for it.
struct RequestBody {
    body: Incoming,
    waits: Flag,
}

/// The body of an answer. It reports whether there is more than the client has taken.
pub(super) struct Answer {
    body: Body,
    offers: Flag,
    _request: InFlight,
}

/// A property of a body that is reported to [`Activity`]; it is reset when the body is dropped.
struct Flag {
    activity: Arc<Activity>,
    tell: fn(&Activity, bool),
    is_set: bool,
}

/// A request without a complete answer.
struct InFlight(Arc<Activity>);

// === impl Exchange ===

impl Exchange {
    /// Answers one request.
    pub fn answer(
        &self,
        request: Request<Incoming>,
    ) -> impl Future<Output = Result<Response<Answer>, Infallible>> + Send + use<> {
        let Self {
            router,
            activity,
            is_encrypted,
        } = self.clone();
        let in_flight = InFlight::new(&activity);
        let mut request = request.map(|body| RequestBody {
            body,
            waits: Flag::new(&activity, Activity::awaits),
        });
        if is_encrypted {
            request.extensions_mut().insert(EncryptedConnection);
        }
        async move {
            let mut response = router.oneshot(request).await?;
            if is_encrypted {
                let only = HeaderValue::from_static(ENCRYPTED_ONLY);
                let headers = response.headers_mut();
                headers.insert(header::STRICT_TRANSPORT_SECURITY, only);
            }
            Ok(response.map(|body| Answer {
                body,
                offers: Flag::new(&activity, Activity::offers),
                _request: in_flight,
            }))
        }
    }
}

// === impl RequestBody ===

impl HttpBody for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.body).poll_frame(cx);
        this.waits.set(polled.is_pending());
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

// === impl Answer ===

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        // The connection asks for more once it has sent what it had.
        this.offers.set(false);
        let frame = ready!(Pin::new(&mut this.body).poll_frame(cx));
        this.offers.set(frame.is_some());
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

// === impl Flag ===

impl Flag {
    fn new(activity: &Arc<Activity>, tell: fn(&Activity, bool)) -> Self {
        Self {
            activity: Arc::clone(activity),
            tell,
            is_set: false,
        }
    }

    fn set(&mut self, holds: bool) {
        if self.is_set != holds {
            self.is_set = holds;
            (self.tell)(&self.activity, holds);
        }
    }
}

impl Drop for Flag {
    fn drop(&mut self) {
        self.set(false);
    }
}

// === impl InFlight ===

impl InFlight {
    fn new(activity: &Arc<Activity>) -> Self {
        activity.asked();
        Self(Arc::clone(activity))
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.answered();
    }
}
