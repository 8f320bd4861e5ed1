//! The folder with one file for each machine.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    time::SystemTime,
};

use super::{away, record::Record};
use crate::Error;

/// The suffix of a machine's file.
const FILE: &str = ".json";

/// The suffix of a file while it is written.
const UNFINISHED: &str = ".new";

/// The suffix of an unreadable file without a process, which is renamed.
const UNREADABLE: &str = ".unreadable";

/// The suffix of a machine's output.
const LOG: &str = ".log";

/// Number of logs of ended machines that are kept.
const KEPT_LOGS: usize = 32;

/// The locked folder.
pub(super) struct Folder<'a> {
    path: &'a Path,
    _lock: File,
}

/// A machine's file.
pub(super) struct Entry {
    pub(super) id: String,
    /// Its content, or why it cannot be read.
    pub(super) record: Result<Record, String>,
}

// === impl Folder ===

impl<'a> Folder<'a> {
    pub(super) fn lock(path: &'a Path) -> Result<Self, Error> {
        let name = path.join("lock");
        let lock = File::options().create(true).append(true).open(&name);
        let lock = lock.map_err(|error| at(&name, &error))?;
        lock.lock().map_err(|error| at(&name, &error))?;
        Ok(Self { path, _lock: lock })
    }

    /// All machines' files, by id. Removes what an interrupted write has left.
    pub(super) fn entries(&self) -> Result<Vec<Entry>, Error> {
        let mut entries = Vec::new();
        for name in self.names()? {
            if name.ends_with(UNFINISHED) {
                fs::remove_file(self.path.join(&name)).map_err(|error| at(self.path, &error))?;
            }
            if let Some(id) = name.strip_suffix(FILE) {
                let record = read(&self.path.join(&name))?;
                let record = record.and_then(|record| match record.id == id {
                    true => Ok(record),
                    false => Err(format!("it is of machine `{}`", record.id)),
                });
                let id = id.to_owned();
                entries.push(Entry { id, record });
            }
        }
        entries.sort_by(|one, other| one.id.cmp(&other.id));
        Ok(entries)
    }

    /// Writes the file as a whole or not at all. Nothing is synced: a loss of power that destroys the file also ends
    /// the processes.
    pub(super) fn write(&self, record: &Record) -> Result<(), Error> {
        let path = self.file(&record.id, FILE);
        let unfinished = self.file(&record.id, UNFINISHED);
        let text = serde_json::to_vec_pretty(record).map_err(|error| at(&path, &error))?;
        fs::write(&unfinished, text).map_err(|error| at(&unfinished, &error))?;
        fs::rename(&unfinished, &path).map_err(|error| at(&path, &error))
    }

    pub(super) fn remove(&self, id: &str) -> Result<(), Error> {
        let path = self.file(id, FILE);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(at(&path, &error)),
            _ => Ok(()),
        }
    }

    /// Renames an unreadable file, so that people can look at it.
    pub(super) fn set_aside(&self, id: &str) -> Result<(), Error> {
        let path = self.file(id, FILE);
        fs::rename(&path, self.file(id, UNREADABLE)).map_err(|error| at(&path, &error))
    }

    /// The file for a machine's output.
    pub(super) fn log(&self, id: &str) -> Result<File, Error> {
        let path = self.file(id, LOG);
        let file = File::options().create(true).append(true).open(&path);
        file.map_err(|error| at(&path, &error))
    }

    /// Removes the oldest logs of machines that are not among these.
    pub(super) fn prune_logs(&self, machines: &[Record]) -> Result<(), Error> {
        let mut ended: Vec<(SystemTime, PathBuf)> = Vec::new();
        for name in self.names()? {
            let Some(id) = name.strip_suffix(LOG) else {
                continue;
            };
            if machines.iter().any(|machine| machine.id == id) {
                continue;
            }
            let path = self.path.join(&name);
            let changed = fs::metadata(&path).and_then(|data| data.modified());
            ended.push((changed.unwrap_or(SystemTime::UNIX_EPOCH), path));
        }
        ended.sort();
        let surplus = ended.len().saturating_sub(KEPT_LOGS);
        for (_, path) in &ended[..surplus] {
            fs::remove_file(path).map_err(|error| at(path, &error))?;
        }
        Ok(())
    }

    fn names(&self) -> Result<Vec<String>, Error> {
        let fault = |error: io::Error| at(self.path, &error);
        let mut names = Vec::new();
        for entry in fs::read_dir(self.path).map_err(fault)? {
            let name = entry.map_err(fault)?.file_name();
            names.extend(name.into_string().ok());
        }
        Ok(names)
    }

    fn file(&self, id: &str, ending: &str) -> PathBuf {
        self.path.join(format!("{id}{ending}"))
    }
}

fn read(path: &Path) -> Result<Result<Record, String>, Error> {
    let text = fs::read(path).map_err(|error| at(path, &error))?;
    Ok(serde_json::from_slice(&text).map_err(|error| error.to_string()))
}

pub(super) fn at(path: &Path, error: &dyn std::fmt::Display) -> Error {
    away(&format!("`{}`", path.display()), error)
}
