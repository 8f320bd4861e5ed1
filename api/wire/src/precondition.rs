//! `ETag`, `If-Match`, `If-None-Match`: a change of what the caller has seen, and of nothing else.
//!
//! A tag is made of what the caller is shown, so every front end and every later start gives the same.

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

/// What tells one state of something from another, in quotes.
pub struct Tag(String);

/// What something is shown as, and its tag.
pub struct TaggedDocument {
    document: Vec<u8>,
    tag: Tag,
}

/// A list of tags in a header, or `*`.
fn names(headers: &HeaderMap, name: HeaderName, tag: &str) -> Option<bool> {
    let mut values = headers.get_all(name).iter().peekable();
    values.peek()?;
    let texts = values.filter_map(|value| value.to_str().ok());
    let mut tags = texts.flat_map(|text| text.split(',')).map(str::trim);
    Some(tags.any(|one| one == "*" || one == tag))
}

// === impl Tag ===

impl Tag {
    /// Of what is seen of something.
    pub fn of(seen: &[u8]) -> Self {
        let mut digits = hex::encode(Sha256::digest(seen));
        digits.truncate(DIGITS);
        Self(format!("\"{digits}\""))
    }

    /// Whether the caller has it already: `If-None-Match` names it, as it is or in another encoding.
    pub fn is_known(&self, headers: &HeaderMap) -> bool {
        [&self.0, &self.weak()]
            .into_iter()
            .any(|tag| names(headers, header::IF_NONE_MATCH, tag) == Some(true))
    }

    /// The tag of what may come in several encodings.
    fn weak(&self) -> String {
        format!("W/{}", self.0)
    }

    /// Whether the caller's `Range` is one of this: `If-Range` names nothing else. Dates are none of our tags.
    pub fn is_in_range(&self, headers: &HeaderMap) -> bool {
        headers
            .get(header::IF_RANGE)
            .is_none_or(|tag| tag.as_bytes() == self.0.as_bytes())
    }

    /// Refuses a change of something else than the caller has seen: `If-Match` does not name it.
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

    /// The answer to whoever has it already.
    pub fn not_modified(&self) -> Response {
        let mut response = StatusCode::NOT_MODIFIED.into_response();
        self.mark(response.headers_mut());
        response
    }

    /// Puts it among the headers of an answer that may be encoded on its way.
    pub fn mark_encodable(&self, headers: &mut HeaderMap) {
        if let Ok(tag) = HeaderValue::from_str(&self.weak()) {
            headers.insert(header::ETAG, tag);
        }
    }

    /// Puts it among the headers of an answer.
    pub fn mark(&self, headers: &mut HeaderMap) {
        if let Ok(tag) = HeaderValue::from_str(&self.0) {
            headers.insert(header::ETAG, tag);
        }
    }
}

// === impl TaggedDocument ===

impl TaggedDocument {
    /// A document as it is shown.
    pub fn new(body: &impl Serialize) -> Self {
        // Strings and numbers: writing them into a vector cannot fail.
        let document = serde_json::to_vec(body).unwrap_or_default();
        let tag = Tag::of(&document);
        Self { document, tag }
    }

    /// Its tag alone.
    pub fn tag(self) -> Tag {
        self.tag
    }

    /// The same under the tag of a part of it.
    pub fn tagged(self, tag: Tag) -> Self {
        Self { tag, ..self }
    }

    /// Refuses a change of something else than the caller has seen: `If-Match` does not name it.
    pub fn check(&self, headers: &HeaderMap) -> Result<(), Problem> {
        self.tag.check(headers)
    }

    /// The answer to a `GET`: without a body where the caller has it already.
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
