//! Bytes that are streamed into the artefact store, counted as they pass.

use std::{error::Error, io, ops::Range, sync::Arc};

use axum::body::Bytes;
use futures::{Stream, StreamExt, TryStreamExt, stream};
use sextant_objects::{ByteStream, ObjectInfo, ObjectPath, ObjectStore};
use sextant_types::{Code, Digest};
use sha2::{Digest as _, Sha256};

use crate::{
    body::file_too_large,
    problem::{Problem, Refusal},
};

mod pace;
mod parsed;

pub use pace::paced;
pub use parsed::{Progress, parsed};

/// Bytes of a stored file that are held in memory at once.
const PIECE_BYTES: u64 = 1 << 20;

/// A stream for the store that ends with a coded refusal if it exceeds `max_bytes`.
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
            Err(io::Error::other(Refusal(file_too_large(what, max_bytes))))
        } else {
            Ok(piece)
        };
        std::future::ready(piece)
    }))
}

/// Bytes `start .. end` of a stored file, piece by piece. Before the last piece, the stream checks that the file is
/// still the same: if it was overwritten meanwhile, a refusal ends the stream in place of that piece.
pub fn stored(
    objects: Arc<dyn ObjectStore>,
    file: ObjectInfo,
    (start, end): (u64, u64),
) -> impl Stream<Item = Result<Bytes, Refusal>> + Send + 'static {
    let (store, path) = (objects.clone(), file.path.clone());
    let pieces = pieces(start, end, move |range| {
        let (store, path) = (store.clone(), path.clone());
        async move { store.get_range(&path, range).await }
    });
    let mut left = end.saturating_sub(start);
    let pieces = pieces.map_err(|error| Refusal(error.into()));
    pieces.and_then(move |piece| {
        left = left.saturating_sub(piece.len() as u64);
        let is_last = left == 0 || piece.is_empty();
        let (objects, file) = (objects.clone(), file.clone());
        async move {
            match is_last {
                true => check_same(objects.as_ref(), &file)
                    .await
                    .map(|()| piece)
                    .map_err(Refusal),
                false => Ok(piece),
            }
        }
    })
}

/// Refuses a file that was replaced by another one.
async fn check_same(objects: &dyn ObjectStore, file: &ObjectInfo) -> Result<(), Problem> {
    match objects.stat(&file.path).await? {
        Some(now) if now != *file => {
            let detail = format!(
                "artefact `{}` was written over while it was read: read it again",
                file.path
            );
            Err(Problem::new(Code::Unavailable, detail).retry_after_ms(1000))
        }
        _ => Ok(()),
    }
}

/// The bytes of a blob of `size` bytes, piece by piece. Before the last piece, the stream compares the digest of all
/// bytes with the blob's: if they differ, an error ends the stream in place of that piece.
pub fn stored_blob(
    objects: Arc<dyn ObjectStore>,
    digest: Digest,
    size: u64,
) -> impl Stream<Item = Result<Bytes, sextant_objects::Error>> + Send + 'static {
    let (mut hash, mut passed) = (Sha256::new(), 0);
    let pieces = pieces(0, size, move |range| {
        let objects = objects.clone();
        async move { objects.get_blob_range(&digest, range).await }
    });
    pieces.map(move |piece| {
        let piece = piece?;
        hash.update(&piece);
        passed += piece.len() as u64;
        let is_last = passed >= size || piece.is_empty();
        let actual = is_last.then(|| Digest::from_bytes(hash.finalize_reset().into()));
        match actual.filter(|actual| *actual != digest) {
            None => Ok(piece),
            Some(actual) => {
                let expected = digest;
                let error = sextant_objects::Error::Corrupt { expected, actual };
                tracing::error!(%error, "a file was not handed out to its end");
                Err(error)
            }
        }
    })
}

/// Whether a blob of `size` bytes is one piece, so that damage is found before anything is sent.
pub fn is_one_piece(size: u64) -> bool {
    size <= PIECE_BYTES
}

fn pieces<F>(
    start: u64,
    end: u64,
    read: impl Fn(Range<u64>) -> F + Send + 'static,
) -> impl Stream<Item = Result<Bytes, sextant_objects::Error>> + Send + 'static
where
    F: Future<Output = Result<Bytes, sextant_objects::Error>> + Send,
{
    stream::unfold((read, start), move |(read, at)| async move {
        if at >= end {
            return None;
        }
        let piece = read(at..end.min(at + PIECE_BYTES)).await;
        let next = match &piece {
            Ok(piece) if !piece.is_empty() => at + piece.len() as u64,
            // The file is shorter than it was, or a read failed: this piece is the last.
            _ => end,
        };
        Some((piece, (read, next)))
    })
}

/// Size and time of a file; refuses one that does not exist.
pub async fn existing(objects: &dyn ObjectStore, path: &ObjectPath) -> Result<ObjectInfo, Problem> {
    let found = objects.stat(path).await?;
    found.ok_or_else(|| {
        let detail = format!("there is no artefact `{path}`");
        Problem::new(Code::ArtefactNotFound, detail)
    })
}
