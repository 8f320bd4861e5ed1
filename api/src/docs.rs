//! `/`, `/docs`, `/openapi.json` and the pages of the error codes.

use axum::{
    extract::Path,
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use sextant_types::Code;

use crate::{
    problem::{Problem, pages},
    query::json_response,
};

/// Where to go from here.
#[utoipa::path(get, operation_id = "index", path = "/", tag = "documentation",
    responses((status = 200, description = "The service's name and main routes", body = Object)))]
pub async fn index() -> Response {
    let body = serde_json::json!({
        "name": "sextant",
        "version": env!("CARGO_PKG_VERSION"),
        "documentation": "/docs",
        "openapi": "/openapi.json",
        "applications": "/v1/applications",
        "queries": "/v1/queries",
        "open_inference_protocol": "/v2",
        "health": "/health/ready",
        "metrics": "/metrics",
    });
    json_response(body.to_string().into_bytes())
}

/// The page of an error code: meaning, cause, action.
#[utoipa::path(get, operation_id = "error_page", path = "/docs/errors/{code}", tag = "documentation",
    params(("code" = String, Path, description = "stable error code")),
    responses((status = 200, description = "The page, Markdown", body = String,
        content_type = "text/markdown")))]
pub async fn error_page(Path(code): Path<String>) -> Result<Response, Problem> {
    let Some(code) = Code::parse(&code) else {
        let detail = format!("there is no error code `{}`", crate::codec::short(&code));
        return Err(Problem::new(Code::RouteNotFound, detail));
    };
    let mut response = pages::page(code).into_response();
    let markdown = HeaderValue::from_static("text/markdown; charset=utf-8");
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, markdown);
    Ok(response)
}
