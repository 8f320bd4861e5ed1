//! One call: its caller, its messages, its timeout.

use std::{
    pin::pin,
    time::{Duration, Instant},
};

use axum::{
    body::Body,
    extract::Request,
    http::{HeaderMap, HeaderValue},
    response::Response,
};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use prost::Message;
use serde_json::json;
use sextant_registry::Audit;
use sextant_types::{Code, time::unix_ms};

use super::{
    frame::{self, Encoding},
    status,
};
use crate::{
    ApiState,
    auth::{Caller, Subject},
    extract::digits,
    problem::Problem,
};

/// Longest timeout that is heeded: a call with a longer one waits for ever.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// Most bytes of memory that a byte of a message takes. An empty string takes two bytes in a message and 24 in a list,
/// and a full list is copied to one of twice its size.
const MESSAGE_TIMES: usize = 36;

/// A call whose messages have not been read.
pub struct Call {
    /// Who calls and how.
    pub context: Context,
    /// The messages.
    pub body: Body,
    /// The compression of the messages.
    pub encoding: Encoding,
}

/// Who calls and how.
#[derive(Clone)]
pub struct Context {
    /// The state of the front end.
    pub state: ApiState,
    /// The metadata of the call.
    pub headers: HeaderMap,
    /// The client's timeout, from the head of the call on; `None`: for ever.
    patience: Option<Duration>,
    began: Instant,
    caller: Option<Caller>,
}

// === impl Call ===

impl Call {
    /// Reads the head of a request.
    pub fn new(state: ApiState, request: Request) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        if !status::is_call(&parts.headers) {
            let detail = "this path takes gRPC calls, whose content type is `application/grpc`";
            return Err(Problem::new(Code::InvalidRequest, detail).field("content-type"));
        }
        Ok(Self {
            encoding: Encoding::of_request(&parts.headers)?,
            context: Context {
                patience: patience(&parts.headers)?,
                began: Instant::now(),
                caller: parts.extensions.get::<Caller>().cloned(),
                headers: parts.headers,
                state,
            },
            body,
        })
    }

    /// Answers a call of one message with one message; `about` returns the subject of a change.
    pub async fn answer<M, R, F>(
        self,
        run: impl FnOnce(Context, M) -> F,
        about: fn(&M) -> &str,
    ) -> Result<Response, Problem>
    where
        M: Message + Default,
        R: Message,
        F: Future<Output = Result<R, Problem>>,
    {
        let state = self.context.state.clone();
        let mut held = state.collect(self.body).await?;
        let (head, bytes) = frame::only(held.bytes())?;
        let encoding = head.compressed.then_some(self.encoding);
        let room = (held.taken(), state.limits().max_body_bytes);
        let weigh = |message: &[u8]| MESSAGE_TIMES * message.len();
        let message = frame::decode(bytes, encoding, room, weigh)?;
        let subject = Subject(about(&message).to_owned());
        let answering = self.encoding.of_answer(&self.context.headers);
        let left = self.context.left_at(Instant::now());
        let reply = within(left, run(self.context, message)).await?;
        let mut response = one(&reply, answering);
        if !subject.0.is_empty() {
            response.extensions_mut().insert(subject);
        }
        Ok(response)
    }
}

/// A response of one message.
pub fn one(reply: &impl Message, encoding: Encoding) -> Response {
    of_frame(frame::encode(reply, encoding).into(), encoding)
}

/// The same for a message that is already encoded.
pub fn of_frame(frame: Bytes, encoding: Encoding) -> Response {
    let message = Full::new(frame);
    let trailers = std::future::ready(Some(Ok(status::trailers(Ok(())))));
    with_messages(Body::new(message.with_trailers(trailers)), encoding)
}

/// A response of these messages.
pub fn with_messages(body: Body, encoding: Encoding) -> Response {
    let mut response = status::head().map(|_| body);
    let headers = response.headers_mut();
    headers.insert(frame::ACCEPTS, frame::ACCEPTED);
    if encoding != Encoding::Identity {
        let name = HeaderValue::from_static(encoding.name());
        headers.insert(frame::ENCODING, name);
    }
    response
}

/// Runs until the client's timeout is over.
pub async fn within<T>(
    patience: Option<Duration>,
    run: impl Future<Output = Result<T, Problem>>,
) -> Result<T, Problem> {
    let run = pin!(run);
    match patience {
        None => run.await,
        Some(patience) => tokio::time::timeout(patience, run)
            .await
            .unwrap_or_else(|_| Err(too_late(patience))),
    }
}

fn too_late(patience: Duration) -> Problem {
    let detail = format!("there was no answer within the call's timeout of {patience:?}");
    Problem::new(Code::DeadlineExceeded, detail)
}

/// `grpc-timeout`: up to eight digits and a unit.
fn patience(headers: &HeaderMap) -> Result<Option<Duration>, Problem> {
    let Some(value) = headers.get("grpc-timeout") else {
        return Ok(None);
    };
    let read = || {
        let (number, unit) = value.to_str().ok()?.split_at_checked(value.len() - 1)?;
        let number = digits(number).filter(|_| (1..=8).contains(&number.len()))?;
        Some(match unit {
            "H" => Duration::from_secs(number * 3600),
            "M" => Duration::from_secs(number * 60),
            "S" => Duration::from_secs(number),
            "m" => Duration::from_millis(number),
            "u" => Duration::from_micros(number),
            "n" => Duration::from_nanos(number),
            _ => return None,
        })
    };
    let patience = (!value.is_empty()).then(read).flatten();
    let patience = patience.ok_or_else(|| {
        let detail = "`grpc-timeout` must be up to eight digits and one of H M S m u n";
        Problem::new(Code::InvalidRequest, detail).field("grpc-timeout")
    })?;
    Ok((patience < LONGEST).then_some(patience))
}

// === impl Context ===

impl Context {
    /// The caller; a call that needs no key has none.
    pub fn caller(&self) -> Result<&Caller, Problem> {
        self.caller.as_ref().ok_or_else(|| {
            // A call that did not pass the guard has no caller, and is refused.
            Problem::new(Code::Unauthenticated, "nobody asked who you are")
        })
    }

    /// Writes an audit entry, for calls of which only some change anything.
    pub async fn record(&self, action: &str, subject: &str) -> Result<(), Problem> {
        let actor = self.caller()?.name();
        let entry = Audit::new(unix_ms(), actor, action, subject, json!({}));
        Ok(self.state.registry().record(&entry).await?)
    }

    /// The time until the client gives up; an error if it has given up.
    pub fn still_waits_at(&self, now: Instant) -> Result<Option<Duration>, Problem> {
        match self.left_at(now) {
            Some(Duration::ZERO) => Err(too_late(self.patience.unwrap_or_default())),
            left => Ok(left),
        }
    }

    /// The problem of a failed call: [`Code::DeadlineExceeded`] if the client has given up meanwhile, else `problem`.
    pub fn unless_too_late(&self, problem: Problem) -> Problem {
        match self.still_waits_at(Instant::now()) {
            Err(late) => late,
            Ok(_) => problem,
        }
    }

    /// The time until the client gives up.
    pub fn left_at(&self, now: Instant) -> Option<Duration> {
        let waited = now.saturating_duration_since(self.began);
        Some(self.patience?.saturating_sub(waited))
    }
}
