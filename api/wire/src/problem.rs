//! Errors as clients see them: RFC 9457 problem documents with stable codes.
//!
//! A handler returns a [`Problem`]; it becomes a bare response that carries the problem, and the
//! outermost layer renders it, because only there the path of the request is known.

use std::fmt;

use axum::{
    body::Body,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use sextant_rpc::{Candidate, QueryError};
use sextant_types::{Code, ErrorKind, InvalidId, InvalidTarget, InvalidTensor, Targets};

use crate::trace;

mod body;
pub mod pages;
mod sources;

pub use body::{CandidateBody, ProblemBody};
pub use sources::{Refusal, refusal};

/// Longest detail that is sent, in characters: details quote what the client sent.
const MAX_DETAIL_CHARS: usize = 2_000;

/// One error for a client. Small: the content is boxed.
#[derive(Clone)]
pub struct Problem(Box<Content>);

#[derive(Clone)]
struct Content {
    code: Code,
    detail: String,
    retry_after_ms: Option<u64>,
    closest: Vec<Candidate>,
    targets: Targets,
    position: Option<Position>,
    field: Option<String>,
}

/// A position in a JSON body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// From 1.
    pub line: usize,
    /// From 1, in bytes.
    pub column: usize,
}

/// The media type of a problem document (RFC 9457).
pub const PROBLEM_JSON: &str = "application/problem+json";

/// The media type of the problems under a path: the Open Inference Protocol's errors are plain JSON.
pub fn media_type(path: &str) -> &'static str {
    match path == "/v2" || path.starts_with("/v2/") {
        true => "application/json",
        false => PROBLEM_JSON,
    }
}

/// The HTTP status of an error kind.
pub fn status_of_kind(kind: ErrorKind) -> StatusCode {
    match kind {
        ErrorKind::Invalid => StatusCode::BAD_REQUEST,
        ErrorKind::Unauthenticated => StatusCode::UNAUTHORIZED,
        ErrorKind::Forbidden => StatusCode::FORBIDDEN,
        ErrorKind::NotFound => StatusCode::NOT_FOUND,
        ErrorKind::Conflict => StatusCode::CONFLICT,
        ErrorKind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        ErrorKind::Infeasible => StatusCode::UNPROCESSABLE_ENTITY,
        ErrorKind::Overloaded => StatusCode::TOO_MANY_REQUESTS,
        ErrorKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        ErrorKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        ErrorKind::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        ErrorKind::StorageFull => StatusCode::INSUFFICIENT_STORAGE,
    }
}

/// The HTTP status of a code: that of its kind, except 405 for a wrong method, 412 for something that has changed
/// meanwhile, and 416 for a range beyond a file.
pub fn status(code: Code) -> StatusCode {
    match code {
        Code::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
        Code::PreconditionFailed => StatusCode::PRECONDITION_FAILED,
        Code::RangeNotSatisfiable => StatusCode::RANGE_NOT_SATISFIABLE,
        code => status_of_kind(code.kind()),
    }
}

// === impl Problem ===

impl Problem {
    /// A problem with the standard members alone.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self(Box::new(Content {
            code,
            detail: detail.into(),
            retry_after_ms: None,
            closest: Vec::new(),
            targets: Targets::default(),
            position: None,
            field: None,
        }))
    }

    /// A fault of the service: the cause goes to the log, not to the client.
    pub fn internal(context: &str, cause: &dyn fmt::Display) -> Self {
        let trace = trace::current();
        let request_id = trace.as_ref().map(trace::Trace::request_id);
        tracing::error!(request_id, context, error = %cause, "request failed");
        Self::new(
            Code::Internal,
            format!("{context} failed; the log has the cause"),
        )
    }

    /// Adds when a new attempt makes sense, in milliseconds.
    pub fn retry_after_ms(mut self, milliseconds: u64) -> Self {
        self.0.retry_after_ms = Some(milliseconds);
        self
    }

    /// Adds the position of the error in the body.
    pub fn at(mut self, position: Position, field: Option<String>) -> Self {
        self.0.position = Some(position);
        self.0.field = field;
        self
    }

    /// Appends text to the detail.
    pub fn adding(mut self, text: &str) -> Self {
        self.0.detail.push_str("; ");
        self.0.detail.push_str(text);
        self
    }

    /// Adds the query's targets, which the closest variants are compared with.
    pub fn asked(mut self, targets: Targets) -> Self {
        self.0.targets = targets;
        self
    }

    /// Adds the field that is wrong.
    pub fn field(mut self, field: impl Into<String>) -> Self {
        self.0.field = Some(field.into());
        self
    }

    /// The stable code.
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// What happened.
    pub fn detail(&self) -> &str {
        &self.0.detail
    }

    /// What happened, shortened to what is sent.
    pub fn told(&self) -> String {
        self.0.detail.chars().take(MAX_DETAIL_CHARS).collect()
    }

    /// When a new attempt makes sense, milliseconds.
    pub fn retries_after_ms(&self) -> Option<u64> {
        self.0.retry_after_ms
    }

    /// The document. `instance` is the path of the request, `request_id` its name in the log. Problems of the protocol
    /// also have `error`, which clients of the Open Inference Protocol require.
    pub fn document(
        &self,
        instance: &str,
        protocol: bool,
        request_id: Option<&str>,
    ) -> ProblemBody {
        let content = self.0.as_ref();
        let closest = content.closest.iter();
        let closest = closest.map(|one| CandidateBody::missing(one, &content.targets));
        let detail = self.told();
        ProblemBody {
            r#type: format!("/docs/errors/{}", content.code),
            title: pages::title(content.code),
            status: status(content.code).as_u16(),
            error: protocol.then(|| detail.clone()),
            detail,
            instance: instance.to_owned(),
            request_id: request_id.map(str::to_owned),
            code: content.code.as_str(),
            retry_after_ms: content.retry_after_ms,
            field: content.field.clone(),
            line: content.position.map(|position| position.line),
            column: content.position.map(|position| position.column),
            closest: Some(closest.collect()).filter(|closest: &Vec<_>| !closest.is_empty()),
        }
    }

    /// The complete response.
    pub fn render(&self, instance: &str, protocol: bool, request_id: Option<&str>) -> Response {
        // The document has strings and numbers: writing them into a vector cannot fail.
        let document =
            serde_json::to_vec(&self.document(instance, protocol, request_id)).unwrap_or_default();
        let mut response = Response::new(Body::from(document));
        *response.status_mut() = status(self.0.code);
        let headers = response.headers_mut();
        let content_type = HeaderValue::from_static(media_type(instance));
        headers.insert(header::CONTENT_TYPE, content_type);
        if let Some(milliseconds) = self.0.retry_after_ms {
            let seconds = milliseconds.div_ceil(1000).max(1);
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

impl fmt::Debug for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.code, self.0.detail)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = status(self.0.code).into_response();
        response.extensions_mut().insert(self);
        response
    }
}

impl From<QueryError> for Problem {
    fn from(error: QueryError) -> Self {
        let mut problem = Self::new(error.code, error.message);
        problem.0.retry_after_ms = error.retry_after_ms;
        problem.0.closest = error.closest;
        problem
    }
}

impl From<InvalidId> for Problem {
    fn from(error: InvalidId) -> Self {
        Self::new(Code::InvalidName, error.to_string())
    }
}

impl From<InvalidTarget> for Problem {
    fn from(error: InvalidTarget) -> Self {
        Self::new(Code::InvalidTarget, error.to_string())
    }
}

impl From<InvalidTensor> for Problem {
    fn from(error: InvalidTensor) -> Self {
        Self::new(Code::InvalidTensor, error.to_string())
    }
}
