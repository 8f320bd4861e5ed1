//! `/`, `/docs`, `/openapi.json` and the pages of the error codes.

use axum::{
    Json, Router,
    body::{Body, to_bytes},
    extract::{FromRequestParts, Path, Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    middleware::{Next, from_fn},
    response::{IntoResponse, Response},
};
use serde::Serialize;
use sextant_types::Code;
use tower_http::compression::CompressionLayer;
use utoipa::ToSchema;

use crate::{
    ApiState,
    pages::{self, Viewer},
    precondition::Tag,
    problem::{Problem, pages as error_pages},
};

/// What the pages below `/docs` may load: their own files, and the styles that the interactive description sets on its
/// elements. They send requests to this service alone, and no page may put them in a frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; \
                      img-src 'self' data:; font-src 'self'; connect-src 'self'; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'";

/// Sets the headers that restrict what browsers do with the pages.
pub fn protect(path: &str, headers: &mut HeaderMap) {
    let is_page = path
        .strip_prefix("/docs")
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    if !is_page {
        return;
    }
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

/// Serves pages and documents that are part of the program. A client that has one asks whether it has changed; another
/// client gets it compressed if it accepts that.
pub fn unchanging<S: Clone + Send + Sync + 'static>(router: Router<S>) -> Router<S> {
    router.layer(from_fn(tag)).layer(CompressionLayer::new())
}

async fn tag(request: Request, next: Next) -> Response {
    let asked = request.headers().clone();
    let (mut parts, body) = next.run(request).await.into_parts();
    // The body is in memory.
    let bytes = match to_bytes(body, usize::MAX).await {
        Ok(bytes) => bytes,
        Err(error) => return Problem::internal("a page", &error).into_response(),
    };
    if parts.status == StatusCode::OK {
        let tag = Tag::of(&bytes);
        tag.mark_encodable(&mut parts.headers);
        let again = HeaderValue::from_static("no-cache");
        parts.headers.insert(header::CACHE_CONTROL, again);
        if tag.is_known(&asked) {
            parts.status = StatusCode::NOT_MODIFIED;
            parts.headers.remove(header::CONTENT_LENGTH);
            return Response::from_parts(parts, Body::empty());
        }
    }
    Response::from_parts(parts, bytes.into())
}

/// Where to go from here; for browsers, which accept `text/html`, the page *Is everybody served?*.
#[utoipa::path(get, operation_id = "index", path = "/", tag = "documentation",
    responses((status = 200, description = "The service's name and main routes", body = IndexBody)))]
pub async fn index(State(state): State<ApiState>, request: Request) -> Response {
    let (mut parts, _) = request.into_parts();
    if pages::prefers_page(&parts.headers) {
        return match Viewer::from_request_parts(&mut parts, &state).await {
            Ok(viewer) => pages::served(&state, &viewer).await,
            Err(elsewhere) => elsewhere,
        };
    }
    let vary = [(header::VARY, "accept")];
    (vary, Json(IndexBody::new())).into_response()
}

impl IndexBody {
    fn new() -> Self {
        Self {
            name: "sextant",
            version: env!("CARGO_PKG_VERSION"),
            documentation: "/docs",
            openapi: "/openapi.json",
            applications: "/v1/applications",
            queries: "/v1/queries",
            open_inference_protocol: "/v2",
            health: "/health/ready",
            metrics: "/metrics",
        }
    }
}

/// The service's name, its version, and paths.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Index)]
pub struct IndexBody {
    /// `sextant`.
    name: &'static str,
    /// The version that runs.
    version: &'static str,
    /// The interactive description.
    documentation: &'static str,
    /// The description of the interface.
    openapi: &'static str,
    /// Applications.
    applications: &'static str,
    /// Where queries are asked.
    queries: &'static str,
    /// The Open Inference Protocol.
    open_inference_protocol: &'static str,
    /// Whether requests are taken.
    health: &'static str,
    /// What is counted.
    metrics: &'static str,
}

/// The page of an error code: meaning, cause, action.
#[utoipa::path(get, operation_id = "error_page", path = "/docs/errors/{code}", tag = "documentation",
    params(("code" = String, Path, description = "stable error code")),
    responses((status = 200, description = "The page, Markdown; for browsers, which accept `text/html`, as such",
        body = String, content_type = "text/markdown")))]
pub async fn error_page(headers: HeaderMap, Path(code): Path<String>) -> Result<Response, Problem> {
    let Some(code) = Code::parse(&code) else {
        let detail = format!("there is no error code `{}`", crate::codec::short(&code));
        return Err(Problem::new(Code::RouteNotFound, detail));
    };
    let markdown = error_pages::page(code);
    let (kind, page) = match pages::prefers_page(&headers) {
        true => ("text/html; charset=utf-8", pages::manual(markdown)?),
        false => ("text/markdown; charset=utf-8", markdown.to_owned()),
    };
    let headers = [(header::CONTENT_TYPE, kind), (header::VARY, "accept")];
    Ok((headers, page).into_response())
}
