//! A file that a command downloads. It gets its name once it is complete: if the download breaks, the earlier file
//! stays.

use std::{
    fs::Permissions,
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use tempfile::TempPath;
use tokio::{
    fs::{File, OpenOptions},
    io::AsyncWriteExt,
};

use super::Error;

/// Who may do what with a new file, before the process's mask.
const NEW: u32 = 0o666;

/// A file on its way.
pub struct Download {
    /// As the user calls it.
    name: PathBuf,
    file: File,
    /// Where it is meanwhile, and where it belongs; `None` of what is no regular file, such as a pipe, which is written at once.
    beside: Option<(TempPath, PathBuf)>,
}

// === impl Download ===

impl Download {
    /// Begins to write a file.
    ///
    /// # Errors
    /// When it cannot be written.
    pub async fn to(name: &Path) -> Result<Self, Error> {
        begin(name).await.map_err(failed(name))
    }

    /// Writes what came next.
    ///
    /// # Errors
    /// When it cannot be written.
    pub async fn write(&mut self, piece: &[u8]) -> Result<(), Error> {
        let written = self.file.write_all(piece).await;
        written.map_err(failed(&self.name))
    }

    /// Everything has come: gives the file its name.
    ///
    /// # Errors
    /// When it cannot be written.
    pub async fn finish(mut self) -> Result<(), Error> {
        let name = failed(&self.name);
        if let Err(error) = self.file.flush().await {
            return Err(name(error));
        }
        let Some((path, target)) = self.beside else {
            return Ok(());
        };
        match path.persist(&target) {
            Ok(()) => Ok(()),
            // A file that is itself a mount point, as in a container, cannot be replaced.
            Err(it) if it.error.kind() == io::ErrorKind::ResourceBusy => {
                overwrite(&target, &it.path).await.map_err(name)
            }
            Err(it) => Err(name(it.error)),
        }
    }
}

async fn begin(name: &Path) -> io::Result<Download> {
    let (target, kept) = match OpenOptions::new().write(true).open(name).await {
        Ok(there) => {
            let known = there.metadata().await?;
            if !known.is_file() {
                return Ok(Download {
                    name: name.to_owned(),
                    file: there,
                    beside: None,
                });
            }
            // The target of a link is replaced, not the link.
            (tokio::fs::canonicalize(name).await?, Some((there, known)))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => (led_to(name).await, None),
        Err(error) => return Err(error),
    };
    let folder = target.parent().filter(|it| !it.as_os_str().is_empty());
    let part = tempfile::Builder::new()
        .prefix(".sextant-")
        .suffix(".part")
        .permissions(Permissions::from_mode(NEW))
        .tempfile_in(folder.unwrap_or(Path::new(".")));
    let part = match (part, kept) {
        (Ok(part), Some((_, known))) => {
            // The earlier file's permissions, from which the process's mask would remove some for a new file.
            part.as_file().set_permissions(known.permissions())?;
            part
        }
        // If the folder accepts no other file, the existing file is overwritten.
        (Err(_), Some((there, _))) => {
            there.set_len(0).await?;
            return Ok(Download {
                name: name.to_owned(),
                file: there,
                beside: None,
            });
        }
        (part, None) => part?,
    };
    let (file, path) = part.into_parts();
    Ok(Download {
        name: name.to_owned(),
        file: File::from_std(file),
        beside: Some((path, target)),
    })
}

/// Where a name leads that has no file: links may lead to one that is still to be made. Those that lead nowhere else than round
/// are another error than that there is no file.
async fn led_to(name: &Path) -> PathBuf {
    let mut place = name.to_owned();
    while let Ok(link) = tokio::fs::read_link(&place).await {
        place = place.parent().unwrap_or(Path::new("")).join(link);
    }
    place
}

/// Writes what is in `from` over what is in a file.
async fn overwrite(file: &Path, from: &Path) -> io::Result<()> {
    let mut from = File::open(from).await?;
    let mut to = OpenOptions::new();
    let mut to = to.write(true).truncate(true).open(file).await?;
    tokio::io::copy(&mut from, &mut to).await?;
    to.flush().await
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> Error + use<> {
    let path = path.to_owned();
    move |source| Error::Io { path, source }
}
