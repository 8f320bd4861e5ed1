//! Collecting request bodies within a limit.

use std::time::Duration;

use axum::body::{Body, HttpBody};
use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt};
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

/// Most bytes that are read and thrown away behind a refusal: a client that is still sending
/// when the connection closes may never see the answer.
const DISCARD_BYTES: usize = 32 << 20;

/// Longest time for that.
pub const DISCARD_TIME: Duration = Duration::from_secs(2);

/// The whole body. A body of one piece, which is the usual case, is not copied.
pub async fn collect(mut body: Body, limit: BodyLimit) -> Result<Bytes, Problem> {
    let whole = tokio::time::timeout(limit.timeout, pieces(&mut body, limit.max_bytes));
    let result = whole.await.unwrap_or_else(|_| {
        let detail = format!("the body did not arrive within {:?}", limit.timeout);
        Err(Problem::new(Code::InvalidRequest, detail))
    });
    if result
        .as_ref()
        .is_err_and(|problem| problem.code() == Code::TooLarge)
    {
        discard(&mut body.into_data_stream()).await;
    }
    result
}

/// Reads what is left of a refused body, within reason.
pub async fn discard<E>(pieces: &mut (impl Stream<Item = Result<Bytes, E>> + Unpin)) {
    let read = async {
        let mut left = DISCARD_BYTES;
        while let Some(Ok(piece)) = pieces.next().await {
            let Some(rest) = left.checked_sub(piece.len()) else {
                break;
            };
            left = rest;
        }
    };
    // Past the time the connection closes as it would have at once.
    let _ = tokio::time::timeout(DISCARD_TIME, read).await;
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

async fn pieces(body: &mut Body, max_bytes: usize) -> Result<Bytes, Problem> {
    // A declared length over the limit is refused before anything is kept.
    if body.size_hint().lower() > max_bytes as u64 {
        return Err(too_large("the body", max_bytes as u64));
    }
    let Some(first) = next(body, 0, max_bytes).await? else {
        return Ok(Bytes::new());
    };
    let Some(second) = next(body, first.len(), max_bytes).await? else {
        return Ok(first);
    };
    let rest = usize::try_from(body.size_hint().lower()).unwrap_or(max_bytes);
    let mut whole = BytesMut::with_capacity(first.len() + second.len() + rest.min(max_bytes));
    whole.extend_from_slice(&first);
    whole.extend_from_slice(&second);
    while let Some(piece) = next(body, whole.len(), max_bytes).await? {
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
