//! The data folder: one process at a time.

use std::{
    fs::{DirBuilder, File, OpenOptions, TryLockError},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::Path,
};

use anyhow::Context;

/// Holds the folder for this process until it is dropped.
pub(super) struct FolderLock(#[expect(unused, reason = "held, never read")] File);

impl FolderLock {
    /// Creates the folder when it is missing, for the owner of this process alone, and locks it. The
    /// rights of a folder that is there stay as they are: it may be shared with others on purpose.
    pub(super) fn take(folder: &Path) -> anyhow::Result<Self> {
        let name = folder.display();
        let created = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        created.with_context(|| format!("cannot create `{name}`"))?;
        let mut create = OpenOptions::new();
        let file = create.write(true).create(true).truncate(true).mode(0o600);
        let file = file.open(folder.join("lock"));
        let file = file.with_context(|| format!("cannot write in `{name}`"))?;
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

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn a_new_folder_is_closed_to_others() {
        let outer = tempfile::tempdir().expect("a folder");
        let folder = outer.path().join("data");
        let lock = FolderLock::take(&folder).expect("free");
        let mode = |path: &Path| {
            let found = fs::metadata(path).expect("it is there");
            found.permissions().mode() & 0o777
        };
        assert_eq!(mode(&folder), 0o700);
        assert_eq!(mode(&folder.join("lock")), 0o600);
        let refused = FolderLock::take(&folder).err().expect("locked");
        assert!(refused.to_string().contains("in use"), "{refused}");
        drop(lock);
    }
}
