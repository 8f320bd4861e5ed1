//! The contract of an object store.

use std::{
    io::{self, Read},
    ops::Range,
    path::PathBuf,
    pin::Pin,
};

use async_trait::async_trait;
use bytes::Bytes;
use futures::Stream;
use sextant_types::{Digest, StoreId};
use sha2::{Digest as _, Sha256};

use crate::{Error, ObjectPath};

/// Bytes that arrive in pieces: an upload.
pub type ByteStream<'a> = Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send + 'a>>;

/// A stored file as listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectInfo {
    /// Its name.
    pub path: ObjectPath,
    /// Its size, bytes.
    pub size_bytes: u64,
    /// When it was last written, ms since the Unix epoch.
    pub modified_ms: u64,
}

/// Bytes stored, and bytes that still fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Bytes stored, including those being written.
    pub stored_bytes: u64,
    /// Bytes that fit until the disk or the limit is full.
    pub free_bytes: u64,
}

/// What to list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListRequest {
    /// Only paths that begin with this text; empty for all.
    pub prefix: String,
    /// Only paths after this one: the end of the previous page.
    pub after: Option<ObjectPath>,
    /// Largest number of objects in the answer, at least 1.
    pub limit: usize,
}

impl ListRequest {
    /// The first thousand objects under a prefix.
    pub fn prefix(prefix: impl Into<String>) -> Self {
        Self {
            prefix: prefix.into(),
            after: None,
            limit: 1000,
        }
    }
}

/// One page of a listing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Page {
    /// The objects, in the order of their paths' bytes.
    pub objects: Vec<ObjectInfo>,
    /// The path after which the next page begins ([`ListRequest::after`]), if there is one.
    pub next: Option<ObjectPath>,
}

/// A stored blob as listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlobInfo {
    /// Its name.
    pub digest: Digest,
    /// Its size, bytes.
    pub size_bytes: u64,
    /// When its bytes were last stored, ms since the Unix epoch, by the store's clock, which may have a resolution of a
    /// second.
    pub stored_ms: u64,
}

/// One page of a listing of blobs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BlobPage {
    /// The blobs, in the order of their digests.
    pub blobs: Vec<BlobInfo>,
    /// The blob after which the next page begins, if there is one.
    pub next: Option<Digest>,
}

/// A blob that was streamed into the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PutBlob {
    /// Its name.
    pub digest: Digest,
    /// Its size, bytes.
    pub size_bytes: u64,
}

/// SHA-256 of bytes in memory: their name as a blob.
pub fn digest_of(bytes: &[u8]) -> Digest {
    Digest::from_bytes(Sha256::digest(bytes).into())
}

/// The same of all bytes that a reader still has.
pub(crate) fn digest_of_all(bytes: &mut impl Read) -> io::Result<Digest> {
    let mut hash = Sha256::new();
    let mut piece = vec![0; 1 << 20];
    loop {
        match bytes.read(&mut piece)? {
            0 => return Ok(Digest::from_bytes(hash.finalize().into())),
            length => hash.update(&piece[..length]),
        }
    }
}

/// The store of artefacts.
///
/// Contract, for every backend:
/// - **Whole or not at all.** A reader, also after a crash, sees an object as one `put` wrote it. When a call has
///   returned, its effect is durable. Of concurrent puts to one path the last to finish stays.
/// - **Blobs are named by content.** Storing the same bytes again is no error, repairs a damaged blob and updates the
///   time of storing. Reading verifies the bytes, and reports damage with [`Error::Corrupt`], never returning wrong
///   bytes.
/// - **Not found** is [`Error::NotFound`] for reads, `None` for `stat` and `stat_blob`, `false` for deletes and
///   `has_blob`. Of two concurrent deletes both may answer `true`.
/// - **Full** is [`Error::StorageFull`], and leaves nothing that takes up room.
/// - A path is used as an object or as the folder of others, not both. A backend may refuse the second use with
///   [`Error::InvalidPath`].
/// - **Cancellation.** A dropped call is done or not done, never half done.
#[async_trait]
pub trait ObjectStore: Send + Sync {
    /// Bytes stored, and bytes that still fit; `None` if the store would have to look at all objects to know.
    fn room(&self) -> Option<Room> {
        None
    }

    /// The name by which the registry recognises the store; `None` if it has none yet.
    async fn identity(&self) -> Result<Option<StoreId>, Error>;

    /// Replaces the name of the store. The name takes no counted room.
    async fn set_identity(&self, identity: StoreId) -> Result<(), Error>;

    /// Stores bytes under their hash.
    async fn put_blob(&self, bytes: Bytes) -> Result<Digest, Error>;

    /// Stores bytes under their hash as they arrive. Memory use does not grow with their size.
    async fn put_blob_stream(&self, bytes: ByteStream<'_>) -> Result<PutBlob, Error>;

    /// Reads and verifies a blob.
    async fn get_blob(&self, digest: &Digest) -> Result<Bytes, Error>;

    /// Reads part of a blob, **unverified**: only the whole blob can be verified. The range is treated as in
    /// [`ObjectStore::get_range`].
    async fn get_blob_range(&self, digest: &Digest, range: Range<u64>) -> Result<Bytes, Error>;

    /// The verified file of a blob on this machine, for callers that map it instead of reading it; `None` if this store
    /// has no files. It may be deleted at any time: a caller that needs it longer makes a hard link in
    /// [`ObjectStore::scratch`].
    async fn blob_file(&self, digest: &Digest) -> Result<Option<PathBuf>, Error> {
        let _ = digest;
        Ok(None)
    }

    /// A folder on the same file system as the files of blobs. It may not exist yet.
    fn scratch(&self) -> Option<PathBuf> {
        None
    }

    /// A blob's size in bytes; `None` if it is not stored. Its content is not verified.
    async fn stat_blob(&self, digest: &Digest) -> Result<Option<u64>, Error>;

    /// Whether a blob is stored; its content is not verified.
    async fn has_blob(&self, digest: &Digest) -> Result<bool, Error> {
        Ok(self.stat_blob(digest).await?.is_some())
    }

    /// Up to `limit` blobs after `after`; at least one if there are more.
    async fn list_blobs(&self, after: Option<&Digest>, limit: usize) -> Result<BlobPage, Error>;

    /// Removes a blob unless it was stored again after `stored_by_ms`, a time from [`list_blobs`](Self::list_blobs).
    /// Returns whether it did. If other processes write as well, a blob may be removed all the same if it is stored at
    /// this very moment, or was stored in the same tick of the store's clock.
    async fn delete_blob_stored_by(
        &self,
        digest: &Digest,
        stored_by_ms: u64,
    ) -> Result<bool, Error>;

    /// Removes a blob. Returns whether it was there.
    async fn delete_blob(&self, digest: &Digest) -> Result<bool, Error> {
        self.delete_blob_stored_by(digest, u64::MAX).await
    }

    /// Writes a file and replaces its previous content.
    async fn put(&self, path: &ObjectPath, bytes: Bytes) -> Result<(), Error>;

    /// Writes a file as its bytes arrive and returns its size in bytes.
    async fn put_stream(&self, path: &ObjectPath, bytes: ByteStream<'_>) -> Result<u64, Error>;

    /// Reads a file.
    async fn get(&self, path: &ObjectPath) -> Result<Bytes, Error>;

    /// Reads part of a file. The range's end may lie beyond the file's end: the existing bytes are returned. A start
    /// beyond the end is [`Error::Range`].
    async fn get_range(&self, path: &ObjectPath, range: Range<u64>) -> Result<Bytes, Error>;

    /// Size and modification time of a file; `None` if it does not exist.
    async fn stat(&self, path: &ObjectPath) -> Result<Option<ObjectInfo>, Error>;

    /// Files under a prefix, sorted, page by page.
    async fn list(&self, request: &ListRequest) -> Result<Page, Error>;

    /// Removes a file. Returns whether it was there.
    async fn delete(&self, path: &ObjectPath) -> Result<bool, Error>;
}
