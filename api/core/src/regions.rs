//! Shared memory of the machine: regions that a client has registered. Inputs are read from them and outputs are
//! written into them.
//!
//! A region is a part of a plain file directly in `/dev/shm`. It is read and written as a file and never mapped: a
//! client that truncates its file gets a refusal, where a mapping would end the process. A region belongs to the key
//! that registered it, so that no client reads or writes another client's region by its name.

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use parking_lot::RwLock;
use rustix::fs::OFlags;
use sextant_types::Code;

use crate::{
    auth::Caller,
    codec::{Part, short},
    problem::Problem,
};

/// Where the system keeps shared memory.
const FOLDER: &str = "/dev/shm";

/// Most regions of one key.
const MOST_OF_ONE: usize = 1024;

/// Most regions in all: each is an open file.
const MOST: usize = 4096;

/// Longest name of a region, bytes.
const LONGEST_NAME: usize = 256;

/// Regions by key and name.
pub struct Regions {
    /// `None`: this front end uses no shared memory.
    folder: Option<PathBuf>,
    known: RwLock<BTreeMap<(String, String), Arc<Region>>>,
}

/// A region as it was registered.
pub struct Region {
    /// The name of the shared memory in the client's system.
    pub key: String,
    /// Where it begins in the file, bytes.
    pub offset: u64,
    /// Its length, bytes.
    pub byte_size: u64,
    file: File,
}

/// The request to register a region.
pub struct Registration {
    /// The region's name.
    pub name: String,
    /// The name of the shared memory.
    pub key: String,
    /// Where the region begins in it, bytes.
    pub offset: u64,
    /// Its length, bytes.
    pub byte_size: u64,
}

// === impl Regions ===

impl Regions {
    /// No regions; they can be registered if `allowed` is set.
    pub fn new(allowed: bool) -> Self {
        Self {
            folder: allowed.then(|| PathBuf::from(FOLDER)),
            known: RwLock::default(),
        }
    }

    /// Whether regions can be registered.
    pub fn are_allowed(&self) -> bool {
        self.folder.is_some()
    }

    /// Registers a region.
    pub fn register(&self, caller: &Caller, asked: Registration) -> Result<(), Problem> {
        let folder = self.folder()?;
        let Registration {
            name,
            key,
            offset,
            byte_size,
        } = asked;
        if name.is_empty() || name.len() > LONGEST_NAME {
            let detail = format!("the region's name must have 1 to `{LONGEST_NAME}` bytes");
            return Err(refuse(detail, "name"));
        }
        let file = open(folder, &key)?;
        let length = file
            .metadata()
            .map_err(|error| unusable(&key, &error))?
            .len();
        let end = offset.checked_add(byte_size);
        if byte_size == 0 || end.is_none_or(|end| end > length) {
            let detail = format!(
                "`{byte_size}` bytes from `{offset}` on are not within the `{length}` bytes of `{}`",
                short(&key)
            );
            return Err(refuse(detail, "byte_size"));
        }
        let mut known = self.known.write();
        let owner = caller.name().to_owned();
        let own = known.keys().filter(|(of, _)| *of == owner).count();
        if own >= MOST_OF_ONE || known.len() >= MOST {
            let detail = format!("`{own}` regions are registered already: unregister some");
            return Err(Problem::new(Code::Overloaded, detail));
        }
        let place = (owner, name);
        if known.contains_key(&place) {
            let detail = format!(
                "shared memory region `{}` is registered already: unregister it first",
                short(&place.1)
            );
            return Err(refuse(detail, "name"));
        }
        let region = Region {
            key,
            offset,
            byte_size,
            file,
        };
        known.insert(place, Arc::new(region));
        Ok(())
    }

    /// Forgets a region of the caller, or all of its regions. A region that does not exist is no error.
    pub fn unregister(&self, caller: &Caller, name: Option<&str>) -> Result<(), Problem> {
        self.folder()?;
        let mut known = self.known.write();
        known
            .retain(|(owner, of), _| owner != caller.name() || name.is_some_and(|name| name != of));
        Ok(())
    }

    /// A region of the caller, or all of its regions, by name.
    pub fn list(
        &self,
        caller: &Caller,
        name: Option<&str>,
    ) -> Result<Vec<(String, Arc<Region>)>, Problem> {
        self.folder()?;
        if let Some(name) = name {
            return Ok(vec![(name.to_owned(), self.find(caller, name)?)]);
        }
        let known = self.known.read();
        let own = known
            .iter()
            .filter(|((owner, _), _)| owner == caller.name());
        let listed = own.map(|((_, name), region)| (name.clone(), Arc::clone(region)));
        Ok(listed.collect())
    }

    /// The bytes of a part.
    pub fn read(&self, caller: &Caller, part: &Part) -> Result<Bytes, Problem> {
        let (region, at, length) = self.part(caller, part)?;
        let mut bytes = vec![0; length];
        let read = region.file.read_exact_at(&mut bytes, at);
        read.map_err(|error| unusable(&part.region, &error))?;
        Ok(bytes.into())
    }

    /// Writes to the beginning of a part, which must have room.
    pub fn write(&self, caller: &Caller, part: &Part, bytes: &[u8]) -> Result<(), Problem> {
        let (region, at, room) = self.part(caller, part)?;
        if bytes.len() > room {
            let detail = format!(
                "the output has `{}` bytes, its part of region `{}` only `{room}`",
                bytes.len(),
                short(&part.region)
            );
            return Err(refuse(detail, "outputs"));
        }
        // A write beyond the end of a truncated file would make it grow again.
        let length = region.file.metadata().map(|file| file.len());
        let length = length.map_err(|error| unusable(&part.region, &error))?;
        if at.saturating_add(bytes.len() as u64) > length {
            let ended = io::Error::from(io::ErrorKind::UnexpectedEof);
            return Err(unusable(&part.region, &ended));
        }
        let written = region.file.write_all_at(bytes, at);
        written.map_err(|error| unusable(&part.region, &error))
    }

    /// Checks that a part lies within its region.
    pub fn check(&self, caller: &Caller, part: &Part) -> Result<(), Problem> {
        self.part(caller, part).map(drop)
    }

    /// A region, the offset in the file of a part of it, and the part's length.
    fn part(&self, caller: &Caller, part: &Part) -> Result<(Arc<Region>, u64, usize), Problem> {
        self.folder()?;
        let region = self.find(caller, &part.region)?;
        let end = part.offset.checked_add(part.byte_size);
        let length = usize::try_from(part.byte_size).ok();
        let length = length.filter(|_| end.is_some_and(|end| end <= region.byte_size));
        let Some(length) = length else {
            let detail = format!(
                "`{}` bytes from `{}` on are not within the `{}` bytes of region `{}`",
                part.byte_size,
                part.offset,
                region.byte_size,
                short(&part.region)
            );
            return Err(refuse(detail, "shared_memory_byte_size"));
        };
        let at = region.offset + part.offset;
        Ok((region, at, length))
    }

    fn find(&self, caller: &Caller, name: &str) -> Result<Arc<Region>, Problem> {
        let known = self.known.read();
        let place = (caller.name().to_owned(), name.to_owned());
        known.get(&place).cloned().ok_or_else(|| {
            let detail = format!(
                "there is no shared memory region `{}`: register it first, with the same key",
                short(name)
            );
            Problem::new(Code::RegionNotFound, detail)
        })
    }

    fn folder(&self) -> Result<&Path, Problem> {
        self.folder.as_deref().ok_or_else(|| {
            let detail = "shared memory is not used here: whoever runs the service sets `v2.shared_memory = true`";
            Problem::new(Code::RouteNotFound, detail)
        })
    }
}

/// Opens the file of a key such as `/name`.
fn open(folder: &Path, key: &str) -> Result<File, Problem> {
    let name = key.strip_prefix('/').unwrap_or(key);
    if matches!(name, "" | "." | "..") || name.contains(['/', '\0']) {
        let detail = format!(
            "the key `{}` names nothing directly in `{FOLDER}`: use a name such as `/input`",
            short(key)
        );
        return Err(refuse(detail, "key"));
    }
    // Refuse to follow a link; do not block on a pipe.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(flags.bits().cast_signed())
        .open(folder.join(name))
        .map_err(|error| unusable(key, &error))?;
    let is_plain = file.metadata().is_ok_and(|file| file.is_file());
    is_plain.then_some(file).ok_or_else(|| {
        let detail = format!(
            "the key `{}` names no plain file of shared memory",
            short(key)
        );
        refuse(detail, "key")
    })
}

fn refuse(detail: String, field: &str) -> Problem {
    Problem::new(Code::InvalidRegion, detail).field(field)
}

fn unusable(name: &str, error: &io::Error) -> Problem {
    let why = match error.kind() {
        io::ErrorKind::UnexpectedEof => "it has been cut short".to_owned(),
        _ => error.to_string(),
    };
    let detail = format!("shared memory `{}` cannot be used: {why}", short(name));
    Problem::new(Code::InvalidRegion, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regions over a folder of their own, with a file `/memory` of 64 bytes that count up.
    fn regions() -> (tempfile::TempDir, Regions) {
        let folder = tempfile::tempdir().expect("a folder");
        let bytes: Vec<u8> = (0..64).collect();
        std::fs::write(folder.path().join("memory"), bytes).expect("it can be written");
        let regions = Regions {
            folder: Some(folder.path().to_owned()),
            known: RwLock::default(),
        };
        (folder, regions)
    }

    fn registration(key: &str, offset: u64, byte_size: u64) -> Registration {
        Registration {
            name: "region".to_owned(),
            key: key.to_owned(),
            offset,
            byte_size,
        }
    }

    fn part(offset: u64, byte_size: u64) -> Part {
        Part {
            region: "region".to_owned(),
            offset,
            byte_size,
        }
    }

    fn code<T>(result: Result<T, Problem>) -> Option<Code> {
        result.err().map(|problem| problem.code())
    }

    #[test]
    fn parts_are_read_and_written_where_they_lie() {
        let (folder, regions) = regions();
        let caller = Caller::Anyone;
        let registered = regions.register(&caller, registration("/memory", 16, 32));
        assert!(registered.is_ok(), "{registered:?}");
        let bytes = regions.read(&caller, &part(4, 3)).expect("it is there");
        assert_eq!(&bytes[..], [20, 21, 22]);
        let written = regions.write(&caller, &part(30, 2), &[7, 8]);
        assert!(written.is_ok(), "{written:?}");
        let file = std::fs::read(folder.path().join("memory")).expect("it is there");
        assert_eq!(file[44..50], [44, 45, 7, 8, 48, 49]);
    }

    #[test]
    fn nothing_reaches_beyond_its_region() {
        let (folder, regions) = regions();
        let caller = Caller::Anyone;
        for (offset, byte_size) in [(0, 65), (65, 0), (0, 0), (u64::MAX, 2), (1, u64::MAX)] {
            let refused = regions.register(&caller, registration("memory", offset, byte_size));
            assert_eq!(
                code(refused),
                Some(Code::InvalidRegion),
                "{offset} {byte_size}"
            );
        }
        let registered = regions.register(&caller, registration("memory", 16, 32));
        assert!(registered.is_ok(), "{registered:?}");
        for (offset, byte_size) in [(0, 33), (32, 1), (u64::MAX, 1), (1, u64::MAX)] {
            let part = part(offset, byte_size);
            assert_eq!(
                code(regions.read(&caller, &part)),
                Some(Code::InvalidRegion)
            );
            let refused = regions.write(&caller, &part, &[0]);
            assert_eq!(code(refused), Some(Code::InvalidRegion));
        }
        let refused = regions.write(&caller, &part(0, 2), &[0; 3]);
        assert_eq!(code(refused), Some(Code::InvalidRegion));
        let file = OpenOptions::new()
            .write(true)
            .open(folder.path().join("memory"));
        file.and_then(|file| file.set_len(20))
            .expect("it can be cut");
        assert_eq!(
            code(regions.read(&caller, &part(0, 8))),
            Some(Code::InvalidRegion)
        );
        let refused = regions.write(&caller, &part(0, 8), &[0; 8]);
        assert_eq!(code(refused), Some(Code::InvalidRegion));
        let length = std::fs::metadata(folder.path().join("memory")).map(|file| file.len());
        assert_eq!(length.ok(), Some(20));
    }

    #[test]
    fn keys_name_plain_files_of_the_folder_alone() {
        let (folder, regions) = regions();
        let elsewhere = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(elsewhere.path(), [0; 64]).expect("it can be written");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(elsewhere.path(), link).expect("a link");
        std::fs::create_dir(folder.path().join("folder")).expect("a folder");
        let absolute = elsewhere.path().to_string_lossy().into_owned();
        for key in [
            "",
            "/",
            ".",
            "..",
            "/..",
            "//memory",
            "../memory",
            "folder",
            "folder/x",
            "link",
            "a\0b",
            "nothing",
            &absolute,
        ] {
            let refused = regions.register(&Caller::Anyone, registration(key, 0, 8));
            assert_eq!(code(refused), Some(Code::InvalidRegion), "{key:?}");
        }
    }

    #[test]
    fn regions_are_those_of_who_registered_them() {
        let (_folder, regions) = regions();
        let (one, other) = (Caller::Anyone, Caller::Administrator);
        let registered = regions.register(&one, registration("memory", 0, 8));
        assert!(registered.is_ok(), "{registered:?}");
        let again = regions.register(&one, registration("memory", 0, 8));
        assert_eq!(code(again), Some(Code::InvalidRegion));
        assert_eq!(
            code(regions.read(&other, &part(0, 8))),
            Some(Code::RegionNotFound)
        );
        let listed = regions.list(&other, None).map(|listed| listed.len());
        assert_eq!(listed.ok(), Some(0));
        let unregistered = regions.unregister(&other, None);
        assert!(unregistered.is_ok(), "{unregistered:?}");
        assert!(regions.read(&one, &part(0, 8)).is_ok());
        let unregistered = regions.unregister(&one, Some("region"));
        assert!(unregistered.is_ok(), "{unregistered:?}");
        assert_eq!(
            code(regions.read(&one, &part(0, 8))),
            Some(Code::RegionNotFound)
        );
    }

    #[test]
    fn without_leave_there_are_none() {
        let regions = Regions::new(false);
        let caller = Caller::Anyone;
        let refused = regions.register(&caller, registration("memory", 0, 8));
        assert_eq!(code(refused), Some(Code::RouteNotFound));
        assert_eq!(code(regions.list(&caller, None)), Some(Code::RouteNotFound));
        assert_eq!(
            code(regions.read(&caller, &part(0, 8))),
            Some(Code::RouteNotFound)
        );
    }
}
