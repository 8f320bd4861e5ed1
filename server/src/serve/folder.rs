//! The data folder: one process at a time.

use std::{
    fs::{File, TryLockError},
    path::Path,
};

use anyhow::Context;

/// Holds the folder for this process until it is dropped.
pub(super) struct FolderLock(#[expect(unused, reason = "held, never read")] File);

impl FolderLock {
    /// Creates the folder when it is missing and locks it.
    pub(super) fn take(folder: &Path) -> anyhow::Result<Self> {
        let name = folder.display();
        std::fs::create_dir_all(folder).with_context(|| format!("cannot create `{name}`"))?;
        let file = File::create(folder.join("lock"))
            .with_context(|| format!("cannot write in `{name}`"))?;
        match file.try_lock() {
            Ok(()) => Ok(Self(file)),
            Err(TryLockError::WouldBlock) => anyhow::bail!(
                "`{name}` is in use by another process: stop it, or choose another `data_dir`"
            ),
            Err(TryLockError::Error(error)) => {
                Err(error).with_context(|| format!("cannot lock `{name}`"))
            }
        }
    }
}
