//! Folders as open file descriptors: the only code that accesses the file system by name.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    ops::Range,
    os::fd::OwnedFd,
    path::Path,
};

use bytes::Bytes;
use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, Timespec, Timestamps, UTIME_NOW},
    io::Errno,
};

use sextant_types::Digest;

use crate::store::digest_of_all;
use crate::{Error, InvalidPath, ObjectInfo, ObjectPath};

/// Why a step in the file system failed, before its purpose is known.
#[derive(Debug)]
pub(super) enum Fault {
    /// Nothing has that name.
    Missing,
    /// A symbolic link where a file or folder was expected.
    Link,
    /// A file where a folder was expected.
    NotFolder,
    /// A folder or a device where a file was expected.
    NotFile,
    /// No room.
    Full(Option<io::Error>),
    /// Anything else.
    Io(io::Error),
}

impl Fault {
    /// The error of a read: if a name is used for something else, there is no such object.
    pub(super) fn on_read(self, object: &str) -> Error {
        match self {
            Self::Missing | Self::NotFolder | Self::NotFile => Error::NotFound {
                object: object.to_owned(),
            },
            other => other.on_write(object),
        }
    }

    /// The error of a write.
    pub(super) fn on_write(self, object: &str) -> Error {
        let invalid = |reason| Error::InvalidPath(InvalidPath::new(object, reason));
        let object = object.to_owned();
        match self {
            Self::Missing => Error::NotFound { object },
            Self::Link => invalid("it leads through a symbolic link"),
            Self::NotFolder => invalid("it leads through a file"),
            Self::NotFile => invalid("it is a folder"),
            Self::Full(source) => Error::StorageFull { object, source },
            Self::Io(source) => Error::Io { object, source },
        }
    }
}

impl From<Errno> for Fault {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::NOENT => Self::Missing,
            Errno::LOOP => Self::Link,
            Errno::NOTDIR => Self::NotFolder,
            Errno::ISDIR => Self::NotFile,
            Errno::NOSPC | Errno::DQUOT | Errno::FBIG => Self::Full(Some(errno.into())),
            _ => Self::Io(errno.into()),
        }
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        match Errno::from_io_error(&error) {
            Some(errno) => errno.into(),
            None => Self::Io(error),
        }
    }
}

/// The size and modification time of a regular file.
#[derive(Debug, Clone, Copy)]
pub(super) struct FileInfo {
    size_bytes: u64,
    modified_ms: u64,
}

impl FileInfo {
    fn new(stat: &Stat) -> Self {
        let seconds = u64::try_from(stat.st_mtime).unwrap_or(0);
        let millis = stat.st_mtime_nsec / 1_000_000;
        Self {
            size_bytes: u64::try_from(stat.st_size).unwrap_or(0),
            modified_ms: seconds * 1000 + millis,
        }
    }

    pub(super) fn size_bytes(self) -> u64 {
        self.size_bytes
    }

    pub(super) fn modified_ms(self) -> u64 {
        self.modified_ms
    }

    pub(super) fn info(self, path: ObjectPath) -> ObjectInfo {
        ObjectInfo {
            path,
            size_bytes: self.size_bytes,
            modified_ms: self.modified_ms,
        }
    }
}

/// One entry of a folder; links and devices are skipped.
#[derive(Debug)]
pub(super) enum Entry {
    Folder(String),
    File(String, FileInfo),
}

/// An open folder.
#[derive(Debug)]
pub(super) struct Folder(OwnedFd);

const OPEN_FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

impl Folder {
    /// Opens the root by its path. Links may lead to the root itself.
    pub(super) fn root(path: &Path) -> Result<Self, Fault> {
        let flags = OPEN_FOLDER.difference(OFlags::NOFOLLOW);
        Ok(Self(rustix::fs::open(path, flags, Mode::empty())?))
    }

    pub(super) fn child(&self, name: &str) -> Result<Self, Fault> {
        match rustix::fs::openat(&self.0, name, OPEN_FOLDER, Mode::empty()) {
            Ok(folder) => Ok(Self(folder)),
            Err(Errno::NOTDIR | Errno::LOOP) if self.is_link(name) => Err(Fault::Link),
            Err(errno) => Err(errno.into()),
        }
    }

    pub(super) fn create_child(&self, name: &str) -> Result<Self, Fault> {
        match self.child(name) {
            Err(Fault::Missing) => {}
            found => return found,
        }
        match rustix::fs::mkdirat(&self.0, name, Mode::from_raw_mode(0o755)) {
            Ok(()) => self.sync()?,
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        self.child(name)
    }

    pub(super) fn descend<'a>(
        &self,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, Fault> {
        let here = self.reopen()?;
        names.into_iter().try_fold(here, |at, name| at.child(name))
    }

    pub(super) fn create_descend<'a>(
        &self,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, Fault> {
        let here = self.reopen()?;
        names
            .into_iter()
            .try_fold(here, |at, name| at.create_child(name))
    }

    fn reopen(&self) -> Result<Self, Fault> {
        Ok(Self(self.0.try_clone()?))
    }

    /// Whether the folder was removed since it was opened.
    pub(super) fn is_removed(&self) -> Result<bool, Fault> {
        Ok(rustix::fs::fstat(&self.0)?.st_nlink == 0)
    }

    fn is_link(&self, name: &str) -> bool {
        rustix::fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink)
    }

    /// The size and modification time of a regular file.
    pub(super) fn file(&self, name: &str) -> Result<FileInfo, Fault> {
        let stat = rustix::fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok(FileInfo::new(&stat)),
            FileType::Symlink => Err(Fault::Link),
            _ => Err(Fault::NotFile),
        }
    }

    pub(super) fn size(&self, name: &str) -> Result<u64, Fault> {
        self.file(name).map(|file| file.size_bytes)
    }

    /// Opens a regular file for reading. Never waits for the other end of a pipe.
    pub(super) fn open(&self, name: &str) -> Result<File, Fault> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(&self.0, name, flags, Mode::empty())?);
        if file.metadata()?.is_file() {
            Ok(file)
        } else {
            Err(Fault::NotFile)
        }
    }

    pub(super) fn read(&self, name: &str) -> Result<Bytes, Fault> {
        let mut file = self.open(name)?;
        let size = usize::try_from(file.metadata()?.len()).unwrap_or(0);
        let mut bytes = Vec::with_capacity(size);
        file.read_to_end(&mut bytes)?;
        Ok(bytes.into())
    }

    /// Hashes a file without holding it in memory.
    pub(super) fn digest(&self, name: &str) -> Result<Digest, Fault> {
        Ok(digest_of_all(&mut self.open(name)?)?)
    }

    pub(super) fn create_new(&self, name: &str) -> Result<File, Fault> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o644);
        Ok(File::from(rustix::fs::openat(&self.0, name, flags, mode)?))
    }

    pub(super) fn rename_to(&self, name: &str, to: &Self, new_name: &str) -> Result<(), Fault> {
        Ok(rustix::fs::renameat(&self.0, name, &to.0, new_name)?)
    }

    /// Sets the modification time of a file to now. Does not follow links.
    pub(super) fn touch(&self, name: &str) -> Result<(), Fault> {
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_NOW,
        };
        let times = Timestamps {
            last_access: now,
            last_modification: now,
        };
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        Ok(rustix::fs::utimensat(&self.0, name, &times, flags)?)
    }

    pub(super) fn unlink(&self, name: &str) -> Result<(), Fault> {
        Ok(rustix::fs::unlinkat(&self.0, name, AtFlags::empty())?)
    }

    /// Removes a folder with the folders below it. Fails if there is anything else in them.
    pub(super) fn remove_empty(&self, name: &str) -> Result<(), Fault> {
        let folder = self.child(name)?;
        for entry in folder.entries()? {
            match entry {
                Entry::Folder(name) => folder.remove_empty(&name)?,
                Entry::File(..) => return Err(Fault::NotFile),
            }
        }
        // Also fails if a link or a device is in it, or if a file has just been added.
        self.remove_folder(name)
    }

    /// Removes a folder. Fails if it is not empty.
    pub(super) fn remove_folder(&self, name: &str) -> Result<(), Fault> {
        Ok(rustix::fs::unlinkat(&self.0, name, AtFlags::REMOVEDIR)?)
    }

    /// Makes created, renamed and removed entries durable.
    pub(super) fn sync(&self) -> Result<(), Fault> {
        Ok(rustix::fs::fsync(&self.0)?)
    }

    /// Files and folders. Names that are not UTF-8 cannot be objects and are skipped.
    pub(super) fn entries(&self) -> Result<Vec<Entry>, Fault> {
        let mut entries = Vec::new();
        for entry in Dir::read_from(&self.0)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().to_str() else {
                continue;
            };
            if name == "." || name == ".." {
                continue;
            }
            match rustix::fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => entries.extend(self::entry(name, &stat)),
                // Removed since the folder was read.
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(entries)
    }

    /// Bytes of all files below the folder.
    pub(super) fn total_bytes(&self) -> Result<u64, Fault> {
        self.entries()?.into_iter().try_fold(0, |sum, entry| {
            Ok(sum
                + match entry {
                    Entry::File(_, file) => file.size_bytes,
                    Entry::Folder(name) => {
                        match self.child(&name).and_then(|it| it.total_bytes()) {
                            // Removed since the folder was read.
                            Err(Fault::Missing) => 0,
                            bytes => bytes?,
                        }
                    }
                })
        })
    }
}

fn entry(name: &str, stat: &Stat) -> Option<Entry> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Some(Entry::File(name.to_owned(), FileInfo::new(stat))),
        FileType::Directory => Some(Entry::Folder(name.to_owned())),
        _ => None,
    }
}

/// Reads the part of `range` that exists in the file.
pub(super) fn read_range(mut file: File, range: Range<u64>, object: &str) -> Result<Bytes, Error> {
    let failed = |source: io::Error| Fault::from(source).on_read(object);
    let size = file.metadata().map_err(failed)?.len();
    if range.start > size {
        return Err(Error::Range {
            object: object.to_owned(),
            size,
            start: range.start,
        });
    }
    let length = range.end.min(size).saturating_sub(range.start);
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or(0));
    file.seek(SeekFrom::Start(range.start)).map_err(failed)?;
    file.take(length).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes.into())
}
