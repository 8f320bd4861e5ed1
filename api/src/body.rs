//! Collecting request bodies within a limit.

use std::time::Duration;

use axum::body::{Body, HttpBody};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use sextant_types::Code;

use crate::problem::Problem;

/// What a body may cost.
#[derive(Debug, Clone, Copy)]
pub struct BodyLimit {
    /// Most bytes.
    pub max_bytes: usize,
    /// Longest time until its last byte.
    pub timeout: Duration,
}

/// The whole body. A body of one piece, which is the usual case, is not copied.
pub async fn collect(body: Body, limit: BodyLimit) -> Result<Bytes, Problem> {
    // A declared length over the limit is refused before anything is read.
    if body.size_hint().lower() > limit.max_bytes as u64 {
        return Err(too_large("the body", limit.max_bytes as u64));
    }
    tokio::time::timeout(limit.timeout, pieces(body, limit.max_bytes))
        .await
        .map_err(|_| {
            let detail = format!("the body did not arrive within {:?}", limit.timeout);
            Problem::new(Code::InvalidRequest, detail)
        })?
}

/// The refusal of something larger than `max_bytes`.
pub fn too_large(what: &str, max_bytes: u64) -> Problem {
    let detail = format!("{what} is larger than `{max_bytes}` bytes");
    Problem::new(Code::TooLarge, detail)
}

/// The refusal of a body that broke off.
pub fn broken(error: &axum::Error) -> Problem {
    let detail = format!("the body could not be read to its end: {error}");
    Problem::new(Code::InvalidRequest, detail)
}

async fn pieces(mut body: Body, max_bytes: usize) -> Result<Bytes, Problem> {
    let Some(first) = next(&mut body, 0, max_bytes).await? else {
        return Ok(Bytes::new());
    };
    let Some(second) = next(&mut body, first.len(), max_bytes).await? else {
        return Ok(first);
    };
    let hint = usize::try_from(body.size_hint().lower()).unwrap_or(max_bytes);
    let room = first.len() + second.len() + hint.min(max_bytes);
    let mut whole = BytesMut::with_capacity(room);
    whole.extend_from_slice(&first);
    whole.extend_from_slice(&second);
    while let Some(piece) = next(&mut body, whole.len(), max_bytes).await? {
        whole.extend_from_slice(&piece);
    }
    Ok(whole.freeze())
}

async fn next(body: &mut Body, have: usize, max_bytes: usize) -> Result<Option<Bytes>, Problem> {
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| broken(&error))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        if have + data.len() > max_bytes {
            return Err(too_large("the body", max_bytes as u64));
        }
        if !data.is_empty() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}
