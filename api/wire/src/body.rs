//! Reading request bodies within limits.

use std::{ops::Deref, time::Duration};

use axum::body::{Body, HttpBody};
use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt};
use http_body_util::BodyExt;
use sextant_types::Code;

use crate::{
    problem::Problem,
    room::{Reservation, Room},
};

/// The limits of a body.
#[derive(Debug, Clone, Copy)]
pub struct BodyLimit<'a> {
    /// Most bytes.
    pub max_bytes: usize,
    /// Longest time until its last byte has arrived.
    pub timeout: Duration,
    /// The room in which its bytes are counted.
    pub room: &'a Room,
}

/// A whole body and its reservation, which is given back when this is dropped.
#[derive(Debug)]
pub struct ReservedBody {
    bytes: Bytes,
    taken: Reservation,
}

/// Most bytes that are read and discarded after a refusal: a client that is still sending when the
/// connection closes may never see the answer.
pub const DISCARD_BYTES: usize = 32 << 20;

/// Most bytes that are allocated for a body because its head declares them.
const BELIEVED_BYTES: usize = 1 << 20;

/// Longest time for that.
pub const DISCARD_TIME: Duration = Duration::from_secs(2);

/// The whole body. A body of one piece, which is the usual case, is not copied.
pub async fn collect(mut body: Body, limit: BodyLimit<'_>) -> Result<ReservedBody, Problem> {
    let mut pieces = Pieces::of(&mut body, limit);
    let whole = tokio::time::timeout(limit.timeout, pieces.collect());
    let result = whole.await.unwrap_or_else(|_| {
        let detail = format!("the body did not arrive within {:?}", limit.timeout);
        Err(Problem::new(Code::InvalidRequest, detail))
    });
    let taken = pieces.taken;
    match result {
        Ok(bytes) => Ok(ReservedBody { bytes, taken }),
        Err(problem) => {
            drop(taken);
            if matches!(problem.code(), Code::TooLarge | Code::Overloaded) {
                discard(&mut body.into_data_stream()).await;
            }
            Err(problem)
        }
    }
}

/// Reads the rest of a refused body, within limits.
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
    // After the time limit the connection closes, as it would have done at once.
    let _ = tokio::time::timeout(DISCARD_TIME, read).await;
}

/// What a refusal calls a body.
const BODY: &str = "the body";

/// The refusal of something that is larger than `max_bytes`, a limit that no setting changes.
pub fn too_large(what: &str, max_bytes: u64) -> Problem {
    let detail = format!("{what} is larger than the `{max_bytes}` bytes that it may have");
    Problem::new(Code::TooLarge, detail)
}

/// The refusal of a body, or of something that counts as a body.
pub fn body_too_large(what: &str, max_bytes: u64) -> Problem {
    beyond_setting(what, max_bytes, "limits.max_body_bytes")
}

/// The refusal of a file.
pub fn file_too_large(what: &str, max_bytes: u64) -> Problem {
    beyond_setting(what, max_bytes, "limits.max_model_bytes")
}

fn beyond_setting(what: &str, max_bytes: u64, setting: &str) -> Problem {
    let detail = format!("{what} is larger than `{max_bytes}` bytes, which `{setting}` allows");
    Problem::new(Code::TooLarge, detail)
}

/// The refusal of a body that ended too early.
pub fn broken(error: &axum::Error) -> Problem {
    let detail = format!("the body could not be read to its end: {error}");
    Problem::new(Code::InvalidRequest, detail)
}

/// The pieces of a body as they arrive.
struct Pieces<'a> {
    body: &'a mut Body,
    max_bytes: usize,
    taken: Reservation,
}

// === impl Pieces ===

impl<'a> Pieces<'a> {
    fn of(body: &'a mut Body, limit: BodyLimit<'_>) -> Self {
        Self {
            body,
            max_bytes: limit.max_bytes,
            taken: limit.room.take_body(),
        }
    }

    async fn collect(&mut self) -> Result<Bytes, Problem> {
        // A declared length above the limit is refused before anything is kept.
        if self.body.size_hint().lower() > self.max_bytes as u64 {
            return Err(body_too_large(BODY, self.max_bytes as u64));
        }
        let Some(first) = self.next().await? else {
            return Ok(Bytes::new());
        };
        let Some(second) = self.next().await? else {
            return Ok(first);
        };
        // No more memory is allocated for a declared length than has arrived already.
        let rest = usize::try_from(self.body.size_hint().lower()).unwrap_or(self.max_bytes);
        let rest = rest.min(self.max_bytes).min(BELIEVED_BYTES);
        let mut whole = BytesMut::with_capacity(first.len() + second.len() + rest);
        whole.extend_from_slice(&first);
        whole.extend_from_slice(&second);
        while let Some(piece) = self.next().await? {
            whole.extend_from_slice(&piece);
        }
        Ok(whole.freeze())
    }

    async fn next(&mut self) -> Result<Option<Bytes>, Problem> {
        while let Some(frame) = self.body.frame().await {
            let frame = frame.map_err(|error| broken(&error))?;
            let Ok(data) = frame.into_data() else {
                continue;
            };
            if self.taken.bytes() + data.len() > self.max_bytes {
                return Err(body_too_large(BODY, self.max_bytes as u64));
            }
            if !data.is_empty() {
                self.taken.grow(data.len())?;
                return Ok(Some(data));
            }
        }
        Ok(None)
    }
}

// === impl ReservedBody ===

impl ReservedBody {
    /// The body, shared.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Its reservation.
    pub fn taken(&mut self) -> &mut Reservation {
        &mut self.taken
    }
}

impl Deref for ReservedBody {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}
