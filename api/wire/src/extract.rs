//! Extractors whose refusals have codes.

use std::str::FromStr;

use axum::{
    extract::{FromRequestParts, Path, Query},
    http::request::Parts,
};
use serde::de::DeserializeOwned;
use sextant_types::{Code, InvalidId};

use crate::problem::Problem;

/// The one name in a path.
pub struct Name<T>(pub T);

/// The parameters after the `?`.
pub struct Params<T>(pub T);

impl<S, T> FromRequestParts<S> for Name<T>
where
    S: Send + Sync,
    T: FromStr<Err = InvalidId>,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let text = text(parts, state).await?;
        Ok(Self(text.parse()?))
    }
}

/// The one text in a path, with its escapes resolved.
pub async fn text<S: Send + Sync>(parts: &mut Parts, state: &S) -> Result<String, Problem> {
    Path::<String>::from_request_parts(parts, state)
        .await
        .map(|Path(text)| text)
        .map_err(|error| Problem::new(Code::InvalidRequest, error.body_text()))
}

impl<S, T> FromRequestParts<S> for Params<T>
where
    S: Send + Sync,
    T: DeserializeOwned,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Query::try_from_uri(&parts.uri)
            .map(|Query(params)| Self(params))
            .map_err(|error| Problem::new(Code::InvalidRequest, error.body_text()))
    }
}

/// Longest id of a query, in characters; that of requests is the same.
const LONGEST_QUERY_ID: usize = 128;

/// Refuses an id of a query that is too long or has control characters: it is echoed and logged.
pub fn check_query_id(id: &str) -> Result<(), Problem> {
    let is_fit = id.chars().count() <= LONGEST_QUERY_ID && !id.chars().any(char::is_control);
    match is_fit {
        true => Ok(()),
        false => {
            let detail = format!(
                "the `id` of a query has at most `{LONGEST_QUERY_ID}` characters and no control characters"
            );
            Err(Problem::new(Code::InvalidRequest, detail).field("id"))
        }
    }
}

/// A whole number in digits alone: `parse` accepts a sign as well.
pub fn digits(text: &str) -> Option<u64> {
    let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    is_digits.then(|| text.parse().ok()).flatten()
}
