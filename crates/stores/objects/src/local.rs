//! The store in a local folder.
//!
//! ```text
//! <root>/identity            the name of the store
//! <root>/blobs/ab/abcdef..   content-addressed
//! <root>/files/<path>        named; a folder is removed with the last file in it
//! <root>/tmp/<uuid>          being written; locked by its writer
//! <root>/scratch/            for users of blob files
//! ```
//!
//! Every path is walked from an open folder, one component at a time and never through a symbolic link. So no name and
//! no race leads out of the root. A file is written to `tmp`, synced and renamed into place, and then the folder is
//! synced. When the store is opened, it removes temporary files whose writer is gone. A lock on each file shows whether
//! its writer lives, so several processes may share a root (the byte limit then counts only what existed at opening and
//! what this process wrote).
//!
//! If a folder of an open store is removed, every call fails with [`Error::Lost`]: objects that are missing there were
//! not deleted through the store.

use std::{
    fs::{self, DirBuilder, Permissions},
    io,
    ops::Range,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use parking_lot::Mutex;
use rustix::fs::statvfs;
use sextant_types::{Digest, StoreId};
use tokio::task::spawn_blocking;

use crate::{
    BlobPage, ByteStream, Error, ListRequest, ObjectInfo, ObjectPath, ObjectStore, Page, PutBlob,
    Room, digest_of,
};

mod blobs;
mod budget;
mod files;
mod folder;
mod identity;
mod listing;
mod temporary;

use blobs::shard;
use budget::Budget;
use folder::{Fault, Folder};
use temporary::Temporary;

/// Bytes that are gathered from a stream before they are passed to a blocking thread.
const STREAM_CHUNK_BYTES: usize = 1 << 20;

/// Artefacts in a local folder. Cheap to clone.
#[derive(Debug, Clone)]
pub struct LocalStore {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// The absolute path of the root.
    root: PathBuf,
    blobs: Folder,
    files: Folder,
    temporary: Arc<Folder>,
    budget: Arc<Budget>,
    /// Whether the log has said that there is no room, and nothing has been stored since.
    is_full: AtomicBool,
    /// Makes reading the old file's size and putting the new file in place one step.
    commit: Mutex<()>,
}

impl LocalStore {
    /// Opens or creates a store under `root` and removes what dead writers left. If `max_bytes` is given, counts what
    /// is stored. Blocks the calling thread.
    pub fn open(root: impl AsRef<Path>, max_bytes: Option<u64>) -> Result<Self, Error> {
        Self::open_as(root.as_ref(), max_bytes, true)
    }

    /// Opens a store that another process has opened and writes to. It leaves the files being written alone, and does
    /// not change who may use the folder. Blocks the calling thread.
    pub fn open_beside(root: impl AsRef<Path>) -> Result<Self, Error> {
        Self::open_as(root.as_ref(), None, false)
    }

    fn open_as(root: &Path, max_bytes: Option<u64>, owned: bool) -> Result<Self, Error> {
        let name = root.display().to_string();
        let failed = |fault: Fault| fault.on_write(&name);
        create_root(root, owned).map_err(|source| failed(Fault::Io(source)))?;
        let place = root.canonicalize().map_err(|it| failed(Fault::Io(it)))?;
        let root = Folder::root(root).map_err(failed)?;
        let temporary = root.create_child("tmp").map_err(failed)?;
        match temporary::sweep(&temporary) {
            Err(fault) if owned => return Err(failed(fault)),
            // This user may not have access to the folder.
            Err(fault) => tracing::debug!(?fault, folder = name, "what the dead left stays"),
            Ok(()) => {}
        }
        let blobs = root.create_child("blobs").map_err(failed)?;
        let files = root.create_child("files").map_err(failed)?;
        let used = blobs.total_bytes().map_err(failed)? + files.total_bytes().map_err(failed)?;
        Ok(Self {
            inner: Arc::new(Inner {
                root: place,
                blobs,
                files,
                temporary: Arc::new(temporary),
                budget: Arc::new(Budget::new(used, max_bytes)),
                is_full: AtomicBool::new(false),
                commit: Mutex::new(()),
            }),
        })
    }

    /// Bytes stored, including those being written.
    pub fn used_bytes(&self) -> u64 {
        self.inner.budget.used()
    }

    async fn blocking<T: Send + 'static>(
        &self,
        object: impl Into<String>,
        work: impl FnOnce(&Inner, &str) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let inner = self.inner.clone();
        let object = object.into();
        let failed = object.clone();
        let whole = move || {
            inner.check(&object)?;
            let done = work(&inner, &object);
            if let Err(error @ Error::StorageFull { .. }) = &done {
                inner.tell_full(error);
            }
            done
        };
        spawn_blocking(whole)
            .await
            .unwrap_or_else(|panic| Err(Fault::Io(panic.into()).on_write(&failed)))
    }

    /// Fills a temporary file from a stream.
    async fn receive(
        &self,
        object: &str,
        hashed: bool,
        mut bytes: ByteStream<'_>,
    ) -> Result<Temporary, Error> {
        let mut temporary = self
            .blocking(object, move |inner, object| inner.begin(object, hashed))
            .await?;
        let mut pending = BytesMut::new();
        while let Some(piece) = bytes.next().await {
            pending.extend_from_slice(&piece.map_err(|source| Error::Input {
                object: object.to_owned(),
                source,
            })?);
            if pending.len() >= STREAM_CHUNK_BYTES {
                temporary = self
                    .write(object, temporary, pending.split().freeze())
                    .await?;
            }
        }
        self.write(object, temporary, pending.freeze()).await
    }

    async fn write(
        &self,
        object: &str,
        mut temporary: Temporary,
        bytes: Bytes,
    ) -> Result<Temporary, Error> {
        self.blocking(object, move |_, object| {
            temporary
                .write(&bytes)
                .map_err(|fault| fault.on_write(object))?;
            Ok(temporary)
        })
        .await
    }
}

#[async_trait]
impl ObjectStore for LocalStore {
    fn room(&self) -> Option<Room> {
        self.inner.room()
    }

    async fn identity(&self) -> Result<Option<StoreId>, Error> {
        self.blocking("identity", |inner, name| identity::read(&inner.root, name))
            .await
    }

    async fn set_identity(&self, identity: StoreId) -> Result<(), Error> {
        self.blocking("identity", move |inner, name| {
            identity::write(&inner.root, name, identity)
        })
        .await
    }

    async fn put_blob(&self, bytes: Bytes) -> Result<Digest, Error> {
        self.blocking("blob", move |inner, _| {
            let digest = digest_of(&bytes);
            let name = digest.to_string();
            if inner.renew_blob(&digest)? {
                return Ok(digest);
            }
            let mut temporary = inner.begin(&name, false)?;
            temporary
                .write(&bytes)
                .map_err(|fault| fault.on_write(&name))?;
            inner.commit_blob(&digest, temporary)?;
            Ok(digest)
        })
        .await
    }

    async fn put_blob_stream(&self, bytes: ByteStream<'_>) -> Result<PutBlob, Error> {
        let mut temporary = self.receive("blob", true, bytes).await?;
        self.blocking("blob", move |inner, _| {
            let digest = temporary.digest();
            let size_bytes = temporary.size_bytes();
            inner.commit_blob(&digest, temporary)?;
            Ok(PutBlob { digest, size_bytes })
        })
        .await
    }

    async fn get_blob(&self, digest: &Digest) -> Result<Bytes, Error> {
        let expected = *digest;
        self.blocking(expected.to_string(), move |inner, name| {
            let read = inner.blob_folder(&expected).and_then(|it| it.read(name));
            let bytes = read.map_err(|fault| fault.on_read(name))?;
            let actual = digest_of(&bytes);
            if actual == expected {
                Ok(bytes)
            } else {
                Err(Error::Corrupt { expected, actual })
            }
        })
        .await
    }

    async fn get_blob_range(&self, digest: &Digest, range: Range<u64>) -> Result<Bytes, Error> {
        let digest = *digest;
        self.blocking(digest.to_string(), move |inner, name| {
            let file = inner.blob_folder(&digest).and_then(|it| it.open(name));
            folder::read_range(file.map_err(|fault| fault.on_read(name))?, range, name)
        })
        .await
    }

    async fn blob_file(&self, digest: &Digest) -> Result<Option<PathBuf>, Error> {
        let expected = *digest;
        self.blocking(expected.to_string(), move |inner, name| {
            let stored = inner.blob_folder(&expected).and_then(|it| it.digest(name));
            let actual = stored.map_err(|fault| fault.on_read(name))?;
            if actual == expected {
                Ok(Some(
                    inner.root.join("blobs").join(shard(&expected)).join(name),
                ))
            } else {
                Err(Error::Corrupt { expected, actual })
            }
        })
        .await
    }

    fn scratch(&self) -> Option<PathBuf> {
        Some(self.inner.root.join("scratch"))
    }

    async fn stat_blob(&self, digest: &Digest) -> Result<Option<u64>, Error> {
        let digest = *digest;
        self.blocking(digest.to_string(), move |inner, name| {
            let size = inner.blob_folder(&digest).and_then(|it| it.size(name));
            absent_as_none(size, name)
        })
        .await
    }

    async fn list_blobs(&self, after: Option<&Digest>, limit: usize) -> Result<BlobPage, Error> {
        let after = after.copied();
        self.blocking("blobs", move |inner, object| {
            blobs::list(&inner.blobs, after, limit).map_err(|fault| fault.on_read(object))
        })
        .await
    }

    async fn delete_blob_stored_by(
        &self,
        digest: &Digest,
        stored_by_ms: u64,
    ) -> Result<bool, Error> {
        let digest = *digest;
        self.blocking(digest.to_string(), move |inner, name| {
            let folder = inner.blob_folder(&digest);
            inner.delete(folder, (name, stored_by_ms), name)
        })
        .await
    }

    async fn put(&self, path: &ObjectPath, bytes: Bytes) -> Result<(), Error> {
        let path = path.clone();
        self.blocking(path.to_string(), move |inner, object| {
            let mut temporary = inner.begin(object, false)?;
            temporary
                .write(&bytes)
                .map_err(|fault| fault.on_write(object))?;
            inner.commit_file(&path, temporary)
        })
        .await
    }

    async fn put_stream(&self, path: &ObjectPath, bytes: ByteStream<'_>) -> Result<u64, Error> {
        let temporary = self.receive(path.as_str(), false, bytes).await?;
        let path = path.clone();
        self.blocking(path.to_string(), move |inner, _| {
            let size_bytes = temporary.size_bytes();
            inner.commit_file(&path, temporary)?;
            Ok(size_bytes)
        })
        .await
    }

    async fn get(&self, path: &ObjectPath) -> Result<Bytes, Error> {
        let path = path.clone();
        self.blocking(path.to_string(), move |inner, object| {
            let (folder, name) = inner.locate(&path);
            folder
                .and_then(|folder| folder.read(name))
                .map_err(|fault| fault.on_read(object))
        })
        .await
    }

    async fn get_range(&self, path: &ObjectPath, range: Range<u64>) -> Result<Bytes, Error> {
        let path = path.clone();
        self.blocking(path.to_string(), move |inner, object| {
            let (folder, name) = inner.locate(&path);
            let file = folder
                .and_then(|folder| folder.open(name))
                .map_err(|fault| fault.on_read(object))?;
            folder::read_range(file, range, object)
        })
        .await
    }

    async fn stat(&self, path: &ObjectPath) -> Result<Option<ObjectInfo>, Error> {
        let path = path.clone();
        self.blocking(path.to_string(), move |inner, object| {
            let (folder, name) = inner.locate(&path);
            let found = absent_as_none(folder.and_then(|folder| folder.file(name)), object)?;
            Ok(found.map(|file| file.info(path.clone())))
        })
        .await
    }

    async fn list(&self, request: &ListRequest) -> Result<Page, Error> {
        let request = request.clone();
        self.blocking(request.prefix.clone(), move |inner, prefix| {
            listing::list(&inner.files, &request).map_err(|fault| fault.on_read(prefix))
        })
        .await
    }

    async fn delete(&self, path: &ObjectPath) -> Result<bool, Error> {
        let path = path.clone();
        self.blocking(path.to_string(), move |inner, _| inner.delete_file(&path))
            .await
    }
}

// === impl Inner ===

impl Inner {
    /// Fails if a folder of the store was removed.
    fn check(&self, object: &str) -> Result<(), Error> {
        for folder in [&self.blobs, &self.files, &*self.temporary] {
            if folder.is_removed().map_err(|it| it.on_write(object))? {
                let object = object.to_owned();
                return Err(Error::Lost { object });
            }
        }
        Ok(())
    }

    /// Bytes stored, and bytes that still fit.
    fn room(&self) -> Option<Room> {
        let disk = statvfs(&self.root).ok()?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        Some(Room {
            stored_bytes: self.budget.used(),
            free_bytes: free.min(self.budget.left()),
        })
    }

    /// Logs that there is no room, once until something is stored again: writers go on trying.
    fn tell_full(&self, error: &Error) {
        if self.is_full.swap(true, Ordering::Relaxed) {
            return;
        }
        let room = self.room();
        let (stored_bytes, free_bytes) =
            (room.map(|it| it.stored_bytes), room.map(|it| it.free_bytes));
        let folder = self.root.display();
        tracing::warn!(%error, %folder, stored_bytes, free_bytes, "the artefact store is full");
    }

    fn begin(&self, object: &str, hashed: bool) -> Result<Temporary, Error> {
        Temporary::create(self.temporary.clone(), self.budget.clone(), hashed)
            .map_err(|fault| fault.on_write(object))
    }

    fn locate<'a>(&self, path: &'a ObjectPath) -> (Result<Folder, Fault>, &'a str) {
        let (folders, name) = split(path.as_str());
        (self.files.descend(folders), name)
    }
}

/// Creates the root for its owner alone. Removes the access of others to the root of an earlier version.
fn create_root(root: &Path, owned: bool) -> io::Result<()> {
    const OTHERS: u32 = 0o007;
    DirBuilder::new().recursive(true).mode(0o700).create(root)?;
    let mode = fs::metadata(root)?.permissions().mode();
    if owned && mode & OTHERS != 0 {
        fs::set_permissions(root, Permissions::from_mode(mode & !OTHERS))?;
    }
    Ok(())
}

fn split(path: &str) -> (impl Iterator<Item = &str>, &str) {
    let (folders, name) = path.rsplit_once('/').unwrap_or(("", path));
    (folders.split('/').filter(|folder| !folder.is_empty()), name)
}

fn absent_as_none<T>(found: Result<T, Fault>, object: &str) -> Result<Option<T>, Error> {
    match found.map_err(|fault| fault.on_read(object)) {
        Ok(found) => Ok(Some(found)),
        Err(Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
