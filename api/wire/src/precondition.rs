//! `ETag`, `If-Match`, `If-None-Match`: a caller changes only the state that it has seen.
//!
//! A tag is made of the document that the caller sees, so every front end makes the same tag, also after a restart.

use axum::{
    body::Body,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;
use sextant_types::Code;
use sha2::{Digest, Sha256};

use crate::problem::Problem;

/// Digits of a tag.
const DIGITS: usize = 32;

/// Distinguishes one state of something from another; in quotes.
pub struct Tag(String);

/// The document of something, and its tag.
pub struct TaggedDocument {
    document: Vec<u8>,
    tag: Tag,
}

/// Whether a header lists the tag, or is `*`; `None` without the header.
fn names(headers: &HeaderMap, name: HeaderName, tag: &str) -> Option<bool> {
    let mut values = headers.get_all(name).iter().peekable();
    values.peek()?;
    let texts = values.filter_map(|value| value.to_str().ok());
    let mut tags = texts.flat_map(|text| text.split(',')).map(str::trim);
    Some(tags.any(|one| one == "*" || one == tag))
}

// === impl Tag ===

impl Tag {
    /// The tag of a document.
    pub fn of(seen: &[u8]) -> Self {
        let mut digits = hex::encode(Sha256::digest(seen));
        digits.truncate(DIGITS);
        Self(format!("\"{digits}\""))
    }

    /// Whether the caller has this state: `If-None-Match` lists its tag, plain or weak.
    pub fn is_known(&self, headers: &HeaderMap) -> bool {
        [&self.0, &self.weak()]
            .into_iter()
            .any(|tag| names(headers, header::IF_NONE_MATCH, tag) == Some(true))
    }

    /// The weak tag, for an answer that may come in several encodings.
    fn weak(&self) -> String {
        format!("W/{}", self.0)
    }

    /// Whether the caller's `Range` applies to this state: `If-Range` is absent or has this tag. A date never matches.
    pub fn is_in_range(&self, headers: &HeaderMap) -> bool {
        headers
            .get(header::IF_RANGE)
            .is_none_or(|tag| tag.as_bytes() == self.0.as_bytes())
    }

    /// Refuses a change if `If-Match` does not list this tag: the caller has seen another state.
    pub fn check(&self, headers: &HeaderMap) -> Result<(), Problem> {
        match names(headers, header::IF_MATCH, &self.0) {
            None | Some(true) => Ok(()),
            Some(false) => {
                let detail = format!(
                    "`If-Match` does not name the present `ETag`, `{}`: read it again, and see what has changed",
                    self.0
                );
                Err(Problem::new(Code::PreconditionFailed, detail).field("if-match"))
            }
        }
    }

    /// The answer to a caller that has this state.
    pub fn not_modified(&self) -> Response {
        let mut response = StatusCode::NOT_MODIFIED.into_response();
        self.mark(response.headers_mut());
        response
    }

    /// Sets the header of an answer that may be compressed later.
    pub fn mark_encodable(&self, headers: &mut HeaderMap) {
        if let Ok(tag) = HeaderValue::from_str(&self.weak()) {
            headers.insert(header::ETAG, tag);
        }
    }

    /// Sets the header of an answer.
    pub fn mark(&self, headers: &mut HeaderMap) {
        if let Ok(tag) = HeaderValue::from_str(&self.0) {
            headers.insert(header::ETAG, tag);
        }
    }
}

// === impl TaggedDocument ===

impl TaggedDocument {
    /// A document and its tag.
    pub fn new(body: &impl Serialize) -> Self {
        // The body has strings and numbers: writing them into a vector cannot fail.
        let document = serde_json::to_vec(body).unwrap_or_default();
        let tag = Tag::of(&document);
        Self { document, tag }
    }

    /// The tag alone.
    pub fn tag(self) -> Tag {
        self.tag
    }

    /// The same document with the tag of a part of it.
    pub fn tagged(self, tag: Tag) -> Self {
        Self { tag, ..self }
    }

    /// Refuses a change if `If-Match` does not list this tag: the caller has seen another state.
    pub fn check(&self, headers: &HeaderMap) -> Result<(), Problem> {
        self.tag.check(headers)
    }

    /// The answer to a `GET`, without a body if the caller has this state.
    pub fn answer(self, headers: &HeaderMap) -> Response {
        match self.tag.is_known(headers) {
            true => self.tag.not_modified(),
            false => self.with(StatusCode::OK),
        }
    }

    /// The whole answer.
    pub fn with(self, status: StatusCode) -> Response {
        let mut headers = HeaderMap::new();
        self.tag.mark(&mut headers);
        let json = HeaderValue::from_static("application/json");
        headers.insert(header::CONTENT_TYPE, json);
        (status, headers, Body::from(self.document)).into_response()
    }
}
