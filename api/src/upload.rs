//! Bytes on their way into the artefact store, counted as they pass.

use std::{error::Error, io, sync::Arc};

use axum::body::Bytes;
use futures::{Stream, TryStreamExt, stream};
use sextant_objects::{ByteStream, ObjectInfo, ObjectPath, ObjectStore};

use crate::{
    body::too_large,
    problem::{Problem, Refused},
};

/// Bytes of a stored file that are held in memory at once.
const PIECE_BYTES: u64 = 1 << 20;

/// A stream for the store that ends with a coded refusal when it grows over `max_bytes`.
pub fn limited<'a, E>(
    bytes: impl Stream<Item = Result<Bytes, E>> + Send + 'a,
    what: &'static str,
    max_bytes: u64,
) -> ByteStream<'a>
where
    E: Error + Send + Sync + 'static,
{
    let mut passed = 0u64;
    Box::pin(bytes.map_err(io::Error::other).and_then(move |piece| {
        passed += piece.len() as u64;
        let piece = if passed > max_bytes {
            Err(io::Error::other(Refused(too_large(what, max_bytes))))
        } else {
            Ok(piece)
        };
        std::future::ready(piece)
    }))
}

/// Bytes `start .. end` of a stored file, piece by piece.
pub fn stored(
    objects: Arc<dyn ObjectStore>,
    path: ObjectPath,
    start: u64,
    end: u64,
) -> impl Stream<Item = Result<Bytes, sextant_objects::Error>> + Send + 'static {
    stream::unfold(
        (objects, path, start),
        move |(objects, path, at)| async move {
            if at >= end {
                return None;
            }
            let piece = objects
                .get_range(&path, at..end.min(at + PIECE_BYTES))
                .await;
            let next = match &piece {
                Ok(piece) if !piece.is_empty() => at + piece.len() as u64,
                // Shorter than it was, or failed: this piece is the last.
                _ => end,
            };
            Some((piece, (objects, path, next)))
        },
    )
}

/// Size and time of a file that must exist.
pub async fn existing(objects: &dyn ObjectStore, path: &ObjectPath) -> Result<ObjectInfo, Problem> {
    let found = objects.stat(path).await?;
    found.ok_or_else(|| {
        let detail = format!("there is no artefact `{path}`");
        Problem::new(sextant_types::Code::ArtefactNotFound, detail)
    })
}
