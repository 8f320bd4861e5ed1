//! The folder of a cache: the index and the files, which change together. Every function here blocks.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read as _, Write},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex, MutexGuard};
use sextant_types::Digest;

use super::index::{Index, State};
use crate::{Error, digest_of, store::digest_of_all};

const LOCK: &str = "lock";
const PART: &str = ".part";
const SCRATCH: &str = "scratch";

/// Longest time for which a read waits for the last write of a dropped read.
const PATIENCE: Duration = Duration::from_secs(5);

/// A folder of blobs with a bound.
#[derive(Debug)]
pub(super) struct Disk {
    folder: PathBuf,
    index: Mutex<Index>,
    /// Notified when a blob is no longer being written.
    released: Condvar,
    evicted: AtomicU64,
    /// Held while the folder is in use.
    _lock: File,
}

/// What the folder has of a blob.
#[derive(Debug)]
pub(super) enum ReadOutcome {
    /// Its bytes, verified.
    Whole(Bytes),
    /// There was a file with other bytes; it was removed.
    Damaged,
    /// Nothing, or its beginning.
    Absent,
}

/// Room for a blob that is being written. If it is dropped before [`Room::commit`], the written bytes stay as a
/// beginning, and the rest of the room is given back.
#[derive(Debug)]
pub(super) struct Room {
    disk: Arc<Disk>,
    digest: Digest,
    file: Option<File>,
    written: u64,
}

impl Disk {
    pub(super) fn open(folder: &Path, max_bytes: u64) -> Result<Self, Error> {
        let failed = |source| Error::Io {
            object: folder.display().to_string(),
            source,
        };
        fs::create_dir_all(folder).map_err(failed)?;
        let lock = File::create(folder.join(LOCK)).map_err(failed)?;
        lock.try_lock().map_err(|error| {
            failed(match error {
                TryLockError::WouldBlock => io::Error::new(
                    io::ErrorKind::ResourceBusy,
                    "the cache is used by another process: give each a folder of its own",
                ),
                TryLockError::Error(error) => error,
            })
        })?;
        let disk = Self {
            folder: folder.to_owned(),
            index: Mutex::new(Index::new(max_bytes)),
            released: Condvar::new(),
            evicted: AtomicU64::new(0),
            _lock: lock,
        };
        disk.find().map_err(failed)?;
        Ok(disk)
    }

    /// Indexes what an earlier process left, in the order of last use.
    fn find(&self) -> io::Result<()> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            let (digest, state) = match name.strip_suffix(PART) {
                Some(digest) => (digest.parse(), State::Begun),
                None => (name.parse(), State::Whole),
            };
            let metadata = entry.metadata()?;
            // A file without one of the cache's names is not the cache's.
            if let (Ok(digest), true) = (digest, metadata.is_file()) {
                let used = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                found.push((used, state == State::Whole, digest, metadata.len()));
            }
        }
        found.sort_unstable_by_key(|(used, whole, ..)| (*used, *whole));
        let mut index = self.index();
        for (_, whole, digest, bytes) in found {
            let state = if whole { State::Whole } else { State::Begun };
            if index.state(&digest).is_some() {
                // If both exist, the whole blob is used.
                remove_file(&self.part(&digest));
                let bytes = fs::metadata(self.whole(&digest))?.len();
                index.set(&digest, bytes, State::Whole);
            } else {
                index.set(&digest, bytes, state);
            }
        }
        let evicted = index.shrink();
        self.evict(&evicted);
        Ok(())
    }

    pub(super) fn used_bytes(&self) -> u64 {
        self.index().used_bytes()
    }

    pub(super) fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    /// Reads and verifies a whole blob.
    pub(super) fn read(&self, digest: &Digest) -> ReadOutcome {
        if self.index().state(digest) != Some(State::Whole) {
            return ReadOutcome::Absent;
        }
        let read = File::open(self.whole(digest)).and_then(|mut file| {
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            // The order of use outlives the process. Without it the cache still works.
            file.set_modified(SystemTime::now()).ok();
            Ok(bytes)
        });
        // This takes about a second for each gigabyte. Other callers do not wait for it.
        let is_right = read.as_ref().is_ok_and(|bytes| digest_of(bytes) == *digest);
        let mut index = self.index();
        match read {
            Ok(bytes) if is_right => {
                index.touch(digest);
                ReadOutcome::Whole(bytes.into())
            }
            // The blob was evicted in between.
            _ if index.state(digest) != Some(State::Whole) => ReadOutcome::Absent,
            _ => {
                remove_file(&self.whole(digest));
                index.remove(digest);
                tracing::warn!(blob = %digest, "a cached blob is damaged; it is fetched again");
                ReadOutcome::Damaged
            }
        }
    }

    /// The file of a whole blob, verified without holding the blob in memory.
    pub(super) fn file(&self, digest: &Digest) -> Option<PathBuf> {
        if self.index().state(digest) != Some(State::Whole) {
            return None;
        }
        let path = self.whole(digest);
        let read = File::open(&path).and_then(|mut file| {
            file.set_modified(SystemTime::now()).ok();
            digest_of_all(&mut file)
        });
        let mut index = self.index();
        if read.is_ok_and(|it| it == *digest) {
            index.touch(digest);
            return Some(path);
        }
        // The blob may have been evicted in between.
        if index.state(digest) == Some(State::Whole) {
            remove_file(&path);
            index.remove(digest);
            tracing::warn!(blob = %digest, "a cached blob is damaged; it is fetched again");
        }
        None
    }

    /// The file of a blob that has just been verified.
    pub(super) fn committed(&self, digest: &Digest) -> Option<PathBuf> {
        let is_whole = self.index().state(digest) == Some(State::Whole);
        is_whole.then(|| self.whole(digest))
    }

    /// A folder for users of the cache's files.
    pub(super) fn scratch(&self) -> PathBuf {
        self.folder.join(SCRATCH)
    }

    /// Takes room for a blob of `size` bytes and opens its file, positioned after what an earlier download left of it.
    /// `None` if there is no room or the disk fails.
    pub(super) fn take_room(self: &Arc<Self>, digest: &Digest, size: u64) -> Option<Room> {
        {
            // Held until the evicted files are removed: nobody gets their room before.
            let mut index = self.when_released(digest);
            // A dropped read has written it meanwhile, or it is still being written.
            if matches!(index.state(digest), Some(State::Whole | State::Busy)) {
                return None;
            }
            let evicted = index.reserve(digest, size)?;
            self.evict(&evicted);
        }
        let mut room = Room {
            disk: self.clone(),
            digest: *digest,
            file: None,
            written: 0,
        };
        match self.begin(digest, size) {
            Ok((file, begun_bytes)) => {
                room.file = Some(file);
                room.written = begun_bytes;
                Some(room)
            }
            Err(error) => {
                room.give_up(&error);
                None
            }
        }
    }

    /// The file, and the number of bytes that an earlier download left in it.
    fn begin(&self, digest: &Digest, size: u64) -> io::Result<(File, u64)> {
        remove_file(&self.whole(digest));
        let mut options = OpenOptions::new();
        let file = options.append(true).create(true).open(self.part(digest))?;
        let begun_bytes = file.metadata()?.len();
        if begun_bytes <= size {
            return Ok((file, begun_bytes));
        }
        file.set_len(0)?;
        Ok((file, 0))
    }

    pub(super) fn remove(&self, digest: &Digest) {
        let mut index = self.index();
        // The file of a running write is named after its content; it may stay.
        if index.state(digest) != Some(State::Busy) {
            remove_file(&self.whole(digest));
            remove_file(&self.part(digest));
            index.remove(digest);
        }
    }

    fn evict(&self, digests: &[Digest]) {
        for digest in digests {
            remove_file(&self.whole(digest));
            remove_file(&self.part(digest));
        }
        self.evicted
            .fetch_add(digests.len() as u64, Ordering::Relaxed);
    }

    /// The index, as soon as nobody writes the blob, or after [`PATIENCE`].
    fn when_released(&self, digest: &Digest) -> MutexGuard<'_, Index> {
        let busy = |index: &mut Index| index.state(digest) == Some(State::Busy);
        let mut index = self.index();
        self.released.wait_while_for(&mut index, busy, PATIENCE);
        index
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock()
    }

    fn whole(&self, digest: &Digest) -> PathBuf {
        self.folder.join(digest.to_string())
    }

    fn part(&self, digest: &Digest) -> PathBuf {
        self.folder.join(format!("{digest}{PART}"))
    }
}

// === impl Room ===

impl Room {
    /// Number of bytes of the blob that are written.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// The written bytes; `None`, and nothing kept, if the disk fails.
    pub(super) fn read(self) -> Option<(Self, Vec<u8>)> {
        match fs::read(self.disk.part(&self.digest)) {
            Ok(bytes) => Some((self, bytes)),
            Err(error) => {
                self.give_up(&error);
                None
            }
        }
    }

    /// Appends bytes; `None`, and nothing kept, if the disk fails.
    pub(super) fn append(mut self, bytes: &[u8]) -> Option<Self> {
        let Some(file) = &mut self.file else {
            return None;
        };
        match file.write_all(bytes) {
            Ok(()) => {
                self.written += bytes.len() as u64;
                Some(self)
            }
            Err(error) => {
                self.give_up(&error);
                None
            }
        }
    }

    /// Whether the written bytes are the blob.
    pub(super) fn is_right(&self) -> bool {
        let read = File::open(self.disk.part(&self.digest));
        let digest = read.and_then(|mut file| digest_of_all(&mut file));
        digest.is_ok_and(|it| it == self.digest)
    }

    /// Drops what an earlier download left.
    pub(super) fn restart(mut self) -> Self {
        if let Some(file) = &self.file
            && file.set_len(0).is_ok()
        {
            self.written = 0;
        } else {
            self.file = None;
        }
        self
    }

    /// Notes that the blob is whole and verified.
    pub(super) fn commit(mut self) {
        let disk = self.disk.clone();
        let renamed = fs::rename(disk.part(&self.digest), disk.whole(&self.digest));
        match renamed {
            Ok(()) => {
                self.file = None;
                disk.index().set(&self.digest, self.written, State::Whole);
                disk.released.notify_all();
            }
            Err(error) => self.give_up(&error),
        }
    }

    /// Drops what was written.
    pub(super) fn discard(mut self) {
        self.file = None;
        self.forget();
    }

    fn give_up(mut self, error: &io::Error) {
        tracing::warn!(blob = %self.digest, %error, "a blob is not cached: the cache's disk fails");
        self.file = None;
        self.forget();
    }

    fn forget(&self) {
        let mut index = self.disk.index();
        remove_file(&self.disk.part(&self.digest));
        index.remove(&self.digest);
        self.disk.released.notify_all();
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if self.file.take().is_none() {
            return;
        }
        let mut index = self.disk.index();
        if index.state(&self.digest) == Some(State::Busy) {
            index.set(&self.digest, self.written, State::Begun);
            self.disk.released.notify_all();
        }
    }
}

fn remove_file(path: &Path) {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(path = %path.display(), %error, "a cached file stays behind");
        }
        _ => {}
    }
}
