//! The outermost layer: it renders problems, counts them, and turns a panic into one.

use std::panic::AssertUnwindSafe;

use axum::{
    extract::{MatchedPath, Request, State},
    http::{HeaderValue, Method, StatusCode, Uri, Version, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use futures::FutureExt;
use sextant_types::Code;
use tracing::{Instrument, Span, info_span};

use crate::{
    ApiState,
    auth::HEADERS,
    changes, docs,
    problem::Problem,
    trace::{self, Trace},
    v2::grpc,
};

/// Most bytes of the headers of an HTTP/2 request, names and values.
pub const MAX_HEADER_BYTES: usize = 16 << 10;

/// Bytes that HTTP/2 counts for a header in addition to its text.
const HEADER_BYTES: usize = 32;

/// Runs a request and renders its problem if it has one.
pub async fn finish(State(state): State<ApiState>, request: Request, next: Next) -> Response {
    let (uri, version) = (request.uri().clone(), request.version());
    let method = request.method().clone();
    let matched = request.extensions().get::<MatchedPath>().cloned();
    let is_call = grpc::is_call(request.headers());
    let route = matched.as_ref().map_or("none", MatchedPath::as_str);
    let trace = Trace::of(request.headers());
    let span = span(route, &trace);
    let answered = async move {
        match refuse_headers(&request) {
            Err(problem) => problem.into_response(),
            Ok(()) => next.run(request).await,
        }
    };
    let run = trace::within(trace.clone(), answered).instrument(span);
    let response = AssertUnwindSafe(run).catch_unwind().await;
    let response = response.unwrap_or_else(|panic| {
        tracing::error!(
            request_id = trace.request_id(),
            path = uri.path(),
            panic = changes::text(&panic),
            "handler panicked"
        );
        let detail = "the request failed unexpectedly; the log has the cause";
        Problem::new(Code::Internal, detail).into_response()
    });
    let mut response = render(&state, (&uri, is_call), route, &trace, response);
    let status = response.status();
    state.metrics().request(route, &method, status);
    trace.mark(response.headers_mut());
    docs::protect(uri.path(), response.headers_mut());
    if state.is_draining() && version < Version::HTTP_2 {
        // The client sends its next request over a new connection, to another process.
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(header::CONNECTION, close);
    }
    response
}

/// Refuses an HTTP/2 request whose headers take too much; those of HTTP/1.1 have a limit of their own.
fn refuse_headers(request: &Request) -> Result<(), Problem> {
    if request.version() < Version::HTTP_2 {
        return Ok(());
    }
    let headers = request.headers().iter();
    let bytes: usize = headers
        .map(|(name, value)| name.as_str().len() + value.len() + HEADER_BYTES)
        .sum();
    if bytes <= MAX_HEADER_BYTES {
        return Ok(());
    }
    let detail = format!(
        "the headers of the request (the metadata of a call) take `{bytes}` bytes, at most `{MAX_HEADER_BYTES}` are \
         taken: send less with it"
    );
    Err(Problem::new(Code::TooLarge, detail))
}

/// The span that names a request in its log lines. A query has none: it logs only a failure, which names the request.
fn span(route: &str, trace: &Trace) -> Span {
    if route == "/v1/queries" || route.ends_with("/infer") || route.ends_with("Infer") {
        return Span::none();
    }
    info_span!(
        "request",
        request_id = trace.request_id(),
        trace_id = trace.trace_id()
    )
}

/// The response. A problem becomes a document, or the status of a gRPC call, and is counted.
fn render(
    state: &ApiState,
    (uri, is_call): (&Uri, bool),
    route: &str,
    trace: &Trace,
    response: Response,
) -> Response {
    let Some(problem) = response.extensions().get::<Problem>() else {
        return response;
    };
    state.metrics().problem(route, problem.code());
    tracing::debug!(path = uri.path(), ?problem, "refused");
    let protocol = uri.path().starts_with("/v2");
    let mut rendered = match is_call {
        true => grpc::render(problem),
        false => problem.render(uri.path(), protocol, Some(trace.request_id())),
    };
    let kept = [header::ALLOW, header::CONTENT_RANGE];
    for name in kept.iter().chain(&HEADERS) {
        if let Some(value) = response.headers().get(name) {
            rendered.headers_mut().insert(name, value.clone());
        }
    }
    rendered
}

/// The answer for a path that is not served.
pub async fn not_found(method: Method, uri: Uri) -> Problem {
    let path = uri.path();
    let meant = match path {
        "/health" | "/healthz" | "/livez" | "/ping" => Some("/health/live"),
        "/readyz" => Some("/health/ready"),
        _ => path.strip_suffix('/').filter(|bare| !bare.is_empty()),
    };
    let meant = meant.map_or_else(String::new, |meant| format!(": did you mean `{meant}`?"));
    let detail = format!("there is no route `{method} {path}`{meant}");
    Problem::new(Code::RouteNotFound, detail)
}

/// The answer for a method that a path does not take.
pub async fn method_not_allowed(method: Method, uri: Uri) -> Problem {
    debug_assert_eq!(
        crate::problem::status(Code::MethodNotAllowed),
        StatusCode::METHOD_NOT_ALLOWED
    );
    let detail = format!("`{}` does not take `{method}`", uri.path());
    Problem::new(Code::MethodNotAllowed, detail)
}

#[cfg(test)]
mod tests {
    use sextant_api_core::query;

    use super::*;
    use crate::auth;

    /// Bytes of the future that a handler returns.
    fn size<A, B, C, F>(_: impl FnOnce(A, B, C) -> F) -> usize {
        size_of::<F>()
    }

    /// Each layer moves the future of the layer below it: moving tens of kilobytes takes longer than the query.
    #[test]
    fn the_futures_on_the_way_of_a_query_are_small() {
        for (name, bytes) in [
            ("create", size(query::create)),
            ("guard", size(auth::guard)),
            ("finish", size(finish)),
        ] {
            assert!(bytes <= 4096, "{name}: {bytes} bytes; box what is rare");
        }
    }
}
