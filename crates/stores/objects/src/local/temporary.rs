//! A file that is being written into the store.

use std::{fs::File, io::Write, sync::Arc};

use rustix::{fs::FlockOperation, io::Errno};
use sextant_types::Digest;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::{
    budget::Budget,
    folder::{Entry, Fault, Folder},
};

/// Bytes being written. If it is dropped without [`Temporary::move_to`], the file is removed and its room is given
/// back.
#[derive(Debug)]
pub(super) struct Temporary {
    file: File,
    name: String,
    folder: Arc<Folder>,
    budget: Arc<Budget>,
    hash: Option<Sha256>,
    size_bytes: u64,
    moved: bool,
}

impl Temporary {
    pub(super) fn create(
        folder: Arc<Folder>,
        budget: Arc<Budget>,
        hashed: bool,
    ) -> Result<Self, Fault> {
        let (file, name) = loop {
            if let Some(created) = create_locked(&folder)? {
                break created;
            }
        };
        Ok(Self {
            file,
            name,
            folder,
            budget,
            hash: hashed.then(Sha256::new),
            size_bytes: 0,
            moved: false,
        })
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        let length = bytes.len() as u64;
        self.budget.reserve(length)?;
        self.size_bytes += length;
        if let Some(hash) = &mut self.hash {
            hash.update(bytes);
        }
        Ok(self.file.write_all(bytes)?)
    }

    pub(super) fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// The hash of the written bytes. It is that of no bytes unless it was requested at creation.
    pub(super) fn digest(&mut self) -> Digest {
        let hash = self.hash.take().unwrap_or_default();
        Digest::from_bytes(hash.finalize().into())
    }

    pub(super) fn sync(&mut self) -> Result<(), Fault> {
        Ok(self.file.sync_all()?)
    }

    pub(super) fn move_to(&mut self, folder: &Folder, name: &str) -> Result<(), Fault> {
        self.folder.rename_to(&self.name, folder, name)?;
        self.moved = true;
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if self.moved {
            return;
        }
        self.budget.release(self.size_bytes);
        if let Err(fault) = self.folder.unlink(&self.name) {
            tracing::warn!(file = self.name, ?fault, "a temporary file stays behind");
        }
    }
}

/// A new file with its lock, which distinguishes the file of a live writer from that of a dead one. `None` if a sweep
/// removed the file as that of a dead writer before it was locked.
fn create_locked(folder: &Folder) -> Result<Option<(File, String)>, Fault> {
    let name = Uuid::new_v4().to_string();
    let file = folder.create_new(&name)?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return Ok(None),
        Err(errno) => {
            folder.unlink(&name)?;
            return Err(errno.into());
        }
    }
    let is_there = rustix::fs::fstat(&file)?.st_nlink > 0;
    Ok(is_there.then_some((file, name)))
}

/// Removes temporary files that no writer holds.
pub(super) fn sweep(folder: &Folder) -> Result<(), Fault> {
    for entry in folder.entries()? {
        let Entry::File(name, _) = entry else {
            continue;
        };
        let abandoned = folder.open(&name).is_ok_and(|file| {
            rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
        });
        if abandoned {
            match folder.unlink(&name) {
                Ok(()) | Err(Fault::Missing) => {}
                Err(fault) => return Err(fault),
            }
        }
    }
    Ok(())
}
