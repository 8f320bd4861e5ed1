//! Moves files to their places and removes them. A folder is created with the first file in it and removed with the
//! last.

use std::sync::atomic::Ordering;

use super::{
    Inner, absent_as_none,
    folder::{Fault, Folder},
    split,
    temporary::Temporary,
};
use crate::{Error, ObjectPath};

/// Number of attempts to create a folder that another process removes because it is still empty.
const ATTEMPTS: u32 = 16;

impl Inner {
    pub(super) fn commit_file(&self, path: &ObjectPath, temporary: Temporary) -> Result<(), Error> {
        let (_, name) = split(path.as_str());
        let folder = || {
            let (folders, _) = split(path.as_str());
            self.files.create_descend(folders)
        };
        self.commit(temporary, name, folder)
            .map_err(|fault| fault.on_write(path.as_str()))
    }

    /// Gives a file its name in a folder, which `folder` opens, or creates if it does not exist.
    pub(super) fn commit(
        &self,
        mut temporary: Temporary,
        name: &str,
        folder: impl Fn() -> Result<Folder, Fault>,
    ) -> Result<(), Fault> {
        temporary.sync()?;
        let (folder, replaced) = self.place(&mut temporary, name, folder)?;
        self.is_full.store(false, Ordering::Relaxed);
        self.budget.release(replaced);
        folder.sync()
    }

    fn place(
        &self,
        temporary: &mut Temporary,
        name: &str,
        folder: impl Fn() -> Result<Folder, Fault>,
    ) -> Result<(Folder, u64), Fault> {
        // No other thread of this process removes the folder meanwhile.
        let _one_at_a_time = self.commit.lock();
        let mut attempts = 1..ATTEMPTS;
        loop {
            let placed = folder().and_then(|folder| {
                let replaced = place(temporary, &folder, name)?;
                Ok((folder, replaced))
            });
            match placed {
                Err(Fault::Missing) if attempts.next().is_some() => {}
                Err(Fault::Missing) => return Err(Fault::NotFolder),
                placed => return placed,
            }
        }
    }

    /// Removes a file, and the folders above it that are empty then.
    pub(super) fn delete_file(&self, path: &ObjectPath) -> Result<bool, Error> {
        let (folder, name) = self.locate(path);
        let removed = self.delete(folder, (name, u64::MAX), path.as_str())?;
        if removed {
            self.remove_emptied(path);
        }
        Ok(removed)
    }

    /// Removes a file unless it was written after the given time.
    pub(super) fn delete(
        &self,
        folder: Result<Folder, Fault>,
        (name, written_by_ms): (&str, u64),
        object: &str,
    ) -> Result<bool, Error> {
        let removed = folder.and_then(|folder| {
            let _one_at_a_time = self.commit.lock();
            let file = folder.file(name)?;
            if file.modified_ms() > written_by_ms {
                return Err(Fault::Missing);
            }
            folder.unlink(name)?;
            folder.sync()?;
            Ok(file.size_bytes())
        });
        let removed = absent_as_none(removed, object)?;
        self.budget.release(removed.unwrap_or(0));
        Ok(removed.is_some())
    }

    /// Removes the empty folders above a path.
    fn remove_emptied(&self, path: &ObjectPath) {
        let _one_at_a_time = self.commit.lock();
        let mut path = path.as_str();
        while let Some((folder, _)) = path.rsplit_once('/') {
            let (above, name) = split(folder);
            let above = self.files.descend(above);
            // A folder that is not empty stays, and so do those above it.
            if above.and_then(|it| it.remove_folder(name)).is_err() {
                return;
            }
            path = folder;
        }
    }
}

/// Gives a file its name and returns the size of the file that had the name.
fn place(temporary: &mut Temporary, folder: &Folder, name: &str) -> Result<u64, Fault> {
    let replaced = match folder.size(name) {
        Ok(size) => size,
        // A link in the file's place is replaced, not followed.
        Err(Fault::Missing | Fault::Link) => 0,
        // The objects below it were deleted.
        Err(Fault::NotFile)
            if matches!(folder.remove_empty(name), Ok(()) | Err(Fault::Missing)) =>
        {
            0
        }
        Err(fault) => return Err(fault),
    };
    temporary.move_to(folder, name)?;
    Ok(replaced)
}
