//! The data folder: only one process uses it at a time, and it must exist for as long as the process runs.

use std::{
    fs::{DirBuilder, File, OpenOptions, TryLockError},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::Context;
use sextant_api::Readiness;

/// Folders that the process needs, held open: a removed one has no name left, whatever is at its path now.
#[derive(Debug, Clone, Default)]
pub(super) struct HeldFolders(Vec<(PathBuf, Arc<File>)>);

/// Ready as `readiness` says, and while every folder is still there.
pub(super) fn ready_while_kept(kept: HeldFolders, readiness: Readiness) -> Readiness {
    Arc::new(move || {
        kept.check()?;
        readiness()
    })
}

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

// === impl HeldFolders ===

impl HeldFolders {
    /// Has a folder watched from now on.
    pub(super) fn add(&mut self, folder: &Path) -> io::Result<()> {
        let folder = folder.canonicalize()?;
        let held = File::open(&folder)?;
        self.0.push((folder, Arc::new(held)));
        Ok(())
    }

    /// What of them is gone.
    fn check(&self) -> Result<(), String> {
        for (folder, held) in &self.0 {
            let is_named = held.metadata().is_ok_and(|found| found.nlink() > 0);
            if !is_named || !folder.exists() {
                return Err(format!(
                    "`{}` was removed while the service runs: put it back and start the service again",
                    folder.display()
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn a_process_whose_folder_was_removed_is_not_ready() {
        let outer = tempfile::tempdir().expect("a folder");
        let folder = outer.path().join("data");
        fs::create_dir(&folder).expect("free");
        let mut kept = HeldFolders::default();
        kept.add(&folder).expect("it is there");
        let ready = ready_while_kept(kept, Arc::new(|| Ok(())));
        assert_eq!(ready(), Ok(()));
        let aside = outer.path().join("aside");
        fs::rename(&folder, &aside).expect("free");
        let why = ready().expect_err("nothing is at its path");
        assert!(why.contains("was removed"), "{why}");
        fs::rename(&aside, &folder).expect("free");
        assert_eq!(ready(), Ok(()));
        fs::remove_dir(&folder).expect("it is empty");
        fs::create_dir(&folder).expect("free");
        assert!(ready().is_err(), "another one is at its path");
        let unready: Readiness = Arc::new(|| Err("something else".to_owned()));
        let both = ready_while_kept(HeldFolders::default(), unready);
        assert_eq!(both(), Err("something else".to_owned()));
    }

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
