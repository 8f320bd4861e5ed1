//! Problems in gRPC: a status, a message, and the stable code in a metadata entry.

use std::fmt::Write;

use axum::{
    body::Body,
    http::{HeaderMap, HeaderName, HeaderValue, header},
    response::Response,
};
use sextant_types::{Code, ErrorKind};
use tonic::Code as Status;

use crate::problem::Problem;

/// The stable code of a problem, whose page is `/docs/errors/{code}`.
const CODE: HeaderName = HeaderName::from_static("sextant-code");

/// When a client that tries again by itself should do so, milliseconds.
const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// The type of every request and answer.
pub const CONTENT_TYPE: &str = "application/grpc";

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

/// The status of a code: that of its kind, except where gRPC distinguishes more.
pub fn status(code: Code) -> Status {
    match code {
        Code::RouteNotFound | Code::MethodNotAllowed => Status::Unimplemented,
        Code::InUse => Status::FailedPrecondition,
        code => status_of_kind(code.kind()),
    }
}

/// The status of an error kind.
fn status_of_kind(kind: ErrorKind) -> Status {
    match kind {
        ErrorKind::Invalid => Status::InvalidArgument,
        ErrorKind::Unauthenticated => Status::Unauthenticated,
        ErrorKind::Forbidden => Status::PermissionDenied,
        ErrorKind::NotFound => Status::NotFound,
        ErrorKind::Conflict => Status::AlreadyExists,
        ErrorKind::TooLarge | ErrorKind::Overloaded | ErrorKind::StorageFull => {
            Status::ResourceExhausted
        }
        ErrorKind::Infeasible => Status::FailedPrecondition,
        ErrorKind::Internal => Status::Internal,
        ErrorKind::Unavailable => Status::Unavailable,
        ErrorKind::DeadlineExceeded => Status::DeadlineExceeded,
    }
}

/// Whether a request is a gRPC call, whose problems are sent as gRPC sends them.
pub fn is_call(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE);
    let rest = kind.and_then(|kind| kind.as_bytes().strip_prefix(CONTENT_TYPE.as_bytes()));
    // `application/grpc+proto` is a gRPC call; `application/grpc-web` is not, nor is one whose messages are JSON.
    let rest = rest.map(|rest| rest.strip_prefix(b"+proto").unwrap_or(rest));
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b';')))
}

/// The response to a call that failed before its first message.
pub fn render(problem: &Problem) -> Response {
    let mut response = head();
    response.headers_mut().extend(trailers(Err(problem)));
    response
}

/// A response whose messages and trailers are still to come.
pub fn head() -> Response {
    let mut response = Response::new(Body::empty());
    let kind = HeaderValue::from_static(CONTENT_TYPE);
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// The trailers of a call.
pub fn trailers(ended: Result<(), &Problem>) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    let Err(problem) = ended else {
        trailers.insert(STATUS, HeaderValue::from_static("0"));
        return trailers;
    };
    let code = problem.code();
    trailers.insert(STATUS, HeaderValue::from(status(code) as i32));
    trailers.insert(CODE, HeaderValue::from_static(code.as_str()));
    if let Ok(message) = HeaderValue::from_str(&escaped(&problem.told())) {
        trailers.insert(MESSAGE, message);
    }
    if let Some(milliseconds) = problem.retries_after_ms() {
        trailers.insert(PUSHBACK, HeaderValue::from(milliseconds));
    }
    trailers
}

/// Text in the form of a header: a byte that is not printable ASCII becomes `%` and two hexadecimal digits.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'%' | ..b' ' | b'\x7f'.. => {
                // Writing into a string cannot fail.
                let _ = write!(escaped, "%{byte:02X}");
            }
            byte => escaped.push(char::from(byte)),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_status_that_is_no_success() {
        for code in Code::ALL {
            assert_ne!(status(*code), Status::Ok, "{code}");
            assert_ne!(status(*code), Status::Unknown, "{code}");
        }
    }

    #[test]
    fn messages_are_escaped_byte_by_byte() {
        assert_eq!(escaped("a b%\n"), "a b%25%0A");
        assert_eq!(escaped("ü~\x7f"), "%C3%BC~%7F");
    }

    #[test]
    fn calls_are_told_by_their_content_type() {
        for (kind, wanted) in [
            ("application/grpc", true),
            ("application/grpc+proto", true),
            ("application/grpc;x=1", true),
            ("application/grpc+proto;x=1", true),
            ("application/grpc+json", false),
            ("application/grpc-web", false),
            ("application/json", false),
        ] {
            let value = HeaderValue::from_static(kind);
            let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, value)]);
            assert_eq!(is_call(&headers), wanted, "{kind}");
        }
        assert!(!is_call(&HeaderMap::new()));
    }
}
