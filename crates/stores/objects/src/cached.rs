//! A store with a bounded folder of blobs in front of it. A worker reads models through it.
//!
//! ```text
//! <folder>/lock           held while the cache is open
//! <folder>/<digest>       a whole blob; its modification time is the time of its last use
//! <folder>/<digest>.part  the beginning of a blob
//! <folder>/scratch        links of users of blob files; the bytes that they hold are beyond the bound
//! ```
//!
//! - A blob read from the folder is verified like one from the store. A damaged file is removed and the blob is fetched
//!   again. So nothing needs to be synced: what a crash leaves is either right or detected.
//! - Room for a blob is taken before its first byte is written, by removing the blobs that were used longest ago. A
//!   blob that does not fit beside the blobs that are being fetched bypasses the cache. The folder never holds more
//!   than its bound.
//! - A download that was interrupted, by an error or by the end of its process, continues where it stopped.
//! - If several callers ask for a blob at the same time, one fetches it and all get its bytes.
//! - A fault of the cache's disk disables the cache, but never fails the read.
//!
//! Blobs are immutable, so a blob that another process has deleted from the store may still be read here.

use std::{
    ops::Range,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::{StreamExt, stream};
use sextant_types::{Digest, StoreId};
use tokio::task::spawn_blocking;

use crate::{
    BlobPage, ByteStream, Error, ListRequest, ObjectInfo, ObjectPath, ObjectStore, Page, PutBlob,
    digest_of,
};

mod disk;
mod index;
mod shared_reads;

use disk::{Disk, Room};
use shared_reads::SharedReads;

/// Bytes fetched by one request of the store.
const PIECE_BYTES: u64 = 8 << 20;

/// Number of concurrent requests of one download.
const PIECES_AHEAD: usize = 4;

/// Largest amount of memory reserved for a blob from its stated size alone.
const MAX_AHEAD_BYTES: u64 = 1 << 30;

/// A cache of blobs in front of another store. Cheap to clone.
#[derive(Clone)]
pub struct CachedStore {
    store: Arc<dyn ObjectStore>,
    disk: Arc<Disk>,
    reads: Arc<SharedReads>,
    files: Arc<tokio::sync::Mutex<()>>,
    counters: Arc<Counters>,
}

/// The counters of a cache since it was opened, and its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheStats {
    /// Reads answered from the folder.
    pub hits: u64,
    /// Reads for which the store was called.
    pub misses: u64,
    /// Reads answered with the bytes of a concurrent read.
    pub shared: u64,
    /// Misses that found no room and bypassed the cache.
    pub bypassed: u64,
    /// Misses that continued an earlier download.
    pub resumed: u64,
    /// Blobs that were damaged and fetched again.
    pub damaged: u64,
    /// Blobs removed to make room.
    pub evicted: u64,
    /// Bytes fetched from the store.
    pub fetched_bytes: u64,
    /// Bytes in the folder, including those being fetched.
    pub used_bytes: u64,
}

#[derive(Debug, Default)]
struct Counters {
    hits: AtomicU64,
    misses: AtomicU64,
    shared: AtomicU64,
    bypassed: AtomicU64,
    resumed: AtomicU64,
    damaged: AtomicU64,
    fetched_bytes: AtomicU64,
}

impl CachedStore {
    /// Opens or creates a cache of at most `max_bytes` in a folder of its own, and takes over what an earlier process
    /// left there. Blocks the calling thread.
    ///
    /// Fails if the folder cannot be used, or if another process uses it.
    pub fn open(
        store: Arc<dyn ObjectStore>,
        folder: impl AsRef<Path>,
        max_bytes: u64,
    ) -> Result<Self, Error> {
        Ok(Self {
            store,
            disk: Arc::new(Disk::open(folder.as_ref(), max_bytes)?),
            reads: Arc::default(),
            files: Arc::default(),
            counters: Arc::default(),
        })
    }

    /// The counters and the size of the cache.
    pub fn stats(&self) -> CacheStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.counters;
        CacheStats {
            hits: read(&counters.hits),
            misses: read(&counters.misses),
            shared: read(&counters.shared),
            bypassed: read(&counters.bypassed),
            resumed: read(&counters.resumed),
            damaged: read(&counters.damaged),
            evicted: self.disk.evicted(),
            fetched_bytes: read(&counters.fetched_bytes),
            used_bytes: self.disk.used_bytes(),
        }
    }

    /// Runs disk work where it may block. A failure of the disk is treated like an empty cache.
    async fn on_disk<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Arc<Disk>) -> T + Send + 'static,
    ) -> Option<T> {
        let disk = self.disk.clone();
        spawn_blocking(move || work(&disk)).await.ok()
    }

    async fn read(&self, digest: Digest) -> Result<Bytes, Error> {
        match self.on_disk(move |disk| disk.read(&digest)).await {
            Some(disk::ReadOutcome::Whole(bytes)) => {
                count(&self.counters.hits, 1);
                return Ok(bytes);
            }
            Some(disk::ReadOutcome::Damaged) => count(&self.counters.damaged, 1),
            Some(disk::ReadOutcome::Absent) | None => {}
        }
        count(&self.counters.misses, 1);
        let size = self.store.stat_blob(&digest).await?;
        let size = size.ok_or_else(|| Error::NotFound {
            object: digest.to_string(),
        })?;
        let room = self.on_disk(move |disk| disk.take_room(&digest, size).and_then(Room::read));
        let Some((room, begun)) = room.await.flatten() else {
            count(&self.counters.bypassed, 1);
            return self.fetch_past(&digest).await;
        };
        if !begun.is_empty() {
            count(&self.counters.resumed, 1);
        }
        match self.fetch(digest, size, room, begun).await? {
            Some(bytes) => Ok(bytes),
            None => {
                count(&self.counters.damaged, 1);
                self.fetch_again(digest).await
            }
        }
    }

    /// Fetches what `begun` lacks, into memory and the folder; `None` if the whole does not match its digest.
    async fn fetch(
        &self,
        digest: Digest,
        size: u64,
        room: Room,
        begun: Vec<u8>,
    ) -> Result<Option<Bytes>, Error> {
        let mut bytes = BytesMut::from(begun.as_slice());
        let ahead = size.min(MAX_AHEAD_BYTES).saturating_sub(bytes.len() as u64);
        bytes.reserve(usize::try_from(ahead).unwrap_or(0));
        let mut room = Some(room);
        let ranges = cut(bytes.len() as u64..size);
        let mut pieces = stream::iter(ranges)
            .map(|range| self.piece(&digest, range))
            .buffered(PIECES_AHEAD);
        while let Some(piece) = pieces.next().await {
            let piece = piece?;
            bytes.extend_from_slice(&piece);
            // A running write owns the room. If the fetch is dropped meanwhile, the room is still counted.
            if let Some(taken) = room.take() {
                let written = self.on_disk(move |_| taken.append(&piece)).await;
                room = written.flatten();
            }
        }
        let whole = bytes.freeze();
        let kept = self.on_disk({
            let whole = whole.clone();
            move |_| {
                let right = digest_of(&whole) == digest;
                match room {
                    Some(room) if right => room.commit(),
                    Some(room) => room.discard(),
                    None => {}
                }
                right
            }
        });
        Ok(kept.await.unwrap_or(false).then_some(whole))
    }

    async fn piece(&self, digest: &Digest, range: Range<u64>) -> Result<Bytes, Error> {
        let piece = self.store.get_blob_range(digest, range).await?;
        count(&self.counters.fetched_bytes, piece.len() as u64);
        Ok(piece)
    }

    /// Reads the blob with the store's own verified read, and writes the bytes to the folder.
    async fn fetch_again(&self, digest: Digest) -> Result<Bytes, Error> {
        let bytes = self.fetch_past(&digest).await?;
        let stored = bytes.clone();
        self.on_disk(move |disk| {
            let room = disk.take_room(&digest, stored.len() as u64);
            if let Some(room) = room.and_then(|room| room.restart().append(&stored)) {
                room.commit();
            }
        })
        .await;
        Ok(bytes)
    }

    /// The file of a blob, which is fetched into the folder if it is not there; `None` if there is no room, or if the
    /// store's own bytes are wrong.
    async fn file(&self, digest: Digest) -> Result<Option<PathBuf>, Error> {
        // A second caller finds what the first one has fetched.
        let _one_at_a_time = self.files.lock().await;
        if let Some(Some(path)) = self.on_disk(move |disk| disk.file(&digest)).await {
            count(&self.counters.hits, 1);
            return Ok(Some(path));
        }
        count(&self.counters.misses, 1);
        let size = self.store.stat_blob(&digest).await?;
        let size = size.ok_or_else(|| Error::NotFound {
            object: digest.to_string(),
        })?;
        // The second attempt ignores the beginning that an earlier download may have left.
        for _ in 0..2 {
            let Some(room) = self.filled(digest, size).await? else {
                return Ok(None);
            };
            let kept = self.on_disk(move |disk| {
                let is_right = room.is_right();
                match is_right {
                    true => room.commit(),
                    false => room.discard(),
                }
                is_right.then(|| disk.committed(&digest)).flatten()
            });
            if let Some(path) = kept.await.flatten() {
                return Ok(Some(path));
            }
            count(&self.counters.damaged, 1);
        }
        Ok(None)
    }

    /// Room with all bytes that the store has of a blob, not verified; `None` if there is no room.
    async fn filled(&self, digest: Digest, size: u64) -> Result<Option<Room>, Error> {
        let room = self.on_disk(move |disk| disk.take_room(&digest, size));
        let Some(room) = room.await.flatten() else {
            count(&self.counters.bypassed, 1);
            return Ok(None);
        };
        // The beginning is not read: it may be larger than memory.
        let begun_bytes = room.written();
        count(&self.counters.resumed, u64::from(begun_bytes > 0));
        let mut pieces = stream::iter(cut(begun_bytes..size))
            .map(|range| self.piece(&digest, range))
            .buffered(PIECES_AHEAD);
        let mut room = Some(room);
        while let Some(piece) = pieces.next().await {
            let (piece, taken) = (piece?, room.take());
            let written = self.on_disk(move |_| taken.and_then(|room| room.append(&piece)));
            room = written.await.flatten();
        }
        Ok(room)
    }

    async fn fetch_past(&self, digest: &Digest) -> Result<Bytes, Error> {
        let bytes = self.store.get_blob(digest).await?;
        count(&self.counters.fetched_bytes, bytes.len() as u64);
        Ok(bytes)
    }
}

#[async_trait]
impl ObjectStore for CachedStore {
    async fn identity(&self) -> Result<Option<StoreId>, Error> {
        self.store.identity().await
    }

    async fn set_identity(&self, identity: StoreId) -> Result<(), Error> {
        self.store.set_identity(identity).await
    }

    async fn put_blob(&self, bytes: Bytes) -> Result<Digest, Error> {
        self.store.put_blob(bytes).await
    }

    async fn put_blob_stream(&self, bytes: ByteStream<'_>) -> Result<PutBlob, Error> {
        self.store.put_blob_stream(bytes).await
    }

    async fn get_blob(&self, digest: &Digest) -> Result<Bytes, Error> {
        let shared = self.reads.join(digest);
        let turn = shared.turn().await;
        if let Some(done) = turn.read_before() {
            count(&self.counters.shared, 1);
            return done;
        }
        let read = self.read(*digest).await;
        // Callers from now on read again.
        self.reads.close(digest, &shared);
        turn.finish(read)
    }

    async fn blob_file(&self, digest: &Digest) -> Result<Option<PathBuf>, Error> {
        self.file(*digest).await
    }

    fn scratch(&self) -> Option<PathBuf> {
        Some(self.disk.scratch())
    }

    async fn get_blob_range(&self, digest: &Digest, range: Range<u64>) -> Result<Bytes, Error> {
        self.store.get_blob_range(digest, range).await
    }

    async fn stat_blob(&self, digest: &Digest) -> Result<Option<u64>, Error> {
        self.store.stat_blob(digest).await
    }

    async fn list_blobs(&self, after: Option<&Digest>, limit: usize) -> Result<BlobPage, Error> {
        self.store.list_blobs(after, limit).await
    }

    async fn delete_blob_stored_by(
        &self,
        digest: &Digest,
        stored_by_ms: u64,
    ) -> Result<bool, Error> {
        let deleted = self.store.delete_blob_stored_by(digest, stored_by_ms);
        let deleted = deleted.await?;
        let digest = *digest;
        self.on_disk(move |disk| disk.remove(&digest)).await;
        Ok(deleted)
    }

    async fn put(&self, path: &ObjectPath, bytes: Bytes) -> Result<(), Error> {
        self.store.put(path, bytes).await
    }

    async fn put_stream(&self, path: &ObjectPath, bytes: ByteStream<'_>) -> Result<u64, Error> {
        self.store.put_stream(path, bytes).await
    }

    async fn get(&self, path: &ObjectPath) -> Result<Bytes, Error> {
        self.store.get(path).await
    }

    async fn get_range(&self, path: &ObjectPath, range: Range<u64>) -> Result<Bytes, Error> {
        self.store.get_range(path, range).await
    }

    async fn stat(&self, path: &ObjectPath) -> Result<Option<ObjectInfo>, Error> {
        self.store.stat(path).await
    }

    async fn list(&self, request: &ListRequest) -> Result<Page, Error> {
        self.store.list(request).await
    }

    async fn delete(&self, path: &ObjectPath) -> Result<bool, Error> {
        self.store.delete(path).await
    }
}

fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

/// Cuts the range into pieces of one request each.
fn cut(range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let end = range.end;
    let starts = range.step_by(PIECE_BYTES as usize);
    starts.map(move |start| start..end.min(start + PIECE_BYTES))
}
