//! Cross-origin requests by the scripts of other pages: the headers that browsers get (the Fetch standard, section
//! 3.2).

use std::time::Duration;

use axum::http::{HeaderName, HeaderValue, Method, header};
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};

/// How long a browser keeps the answer to a preflight request.
const REMEMBERED: Duration = Duration::from_secs(600);

/// Response headers that scripts may read in addition to the usual ones.
const EXPOSED: [HeaderName; 7] = [
    header::ETAG,
    header::LINK,
    header::LOCATION,
    header::RETRY_AFTER,
    HeaderName::from_static("inference-header-content-length"),
    HeaderName::from_static("traceparent"),
    HeaderName::from_static("x-request-id"),
];

/// Reads origins: each is `*`, or a scheme and a host with an optional port.
///
/// # Errors
/// The first text that is not an origin, and why.
pub fn origins(texts: &[String]) -> Result<Vec<HeaderValue>, String> {
    texts.iter().map(|text| origin(text)).collect()
}

fn origin(text: &str) -> Result<HeaderValue, String> {
    let host = ["http://", "https://"]
        .iter()
        .find_map(|scheme| text.strip_prefix(scheme));
    let is_host = |host: &str| !host.is_empty() && !host.contains(['/', '?', '#', '@', ' ', '*']);
    let is_origin = text == "*" || host.is_some_and(is_host);
    let value = HeaderValue::from_str(text).ok().filter(|_| is_origin);
    value.ok_or_else(|| {
        format!("`{text}` is no origin: write `https://app.example.com`, without a path, or `*`")
    })
}

/// The layer that answers for these origins; `None` if there are none.
pub(crate) fn layer(origins: &[HeaderValue]) -> Option<CorsLayer> {
    let origin = match origins {
        [] => return None,
        all if all.iter().any(|origin| origin == "*") => AllowOrigin::any(),
        some => AllowOrigin::list(some.iter().cloned()),
    };
    let layer = CorsLayer::new()
        .allow_origin(origin)
        .allow_methods([
            Method::GET,
            Method::HEAD,
            Method::POST,
            Method::PUT,
            Method::PATCH,
            Method::DELETE,
        ])
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers(EXPOSED)
        .max_age(REMEMBERED);
    Some(layer)
}
