//! Takes a backup.

use std::{fs, io, path::Path};

use sextant_objects::{ListRequest, ObjectPath, ObjectStore};
use sextant_registry::dump::{Dump, Place, TABLES};
use sextant_types::{Digest, time::unix_ms};
use sha2::{Digest as _, Sha256};

use super::{
    APART, BLOBS, Error, FILES, FORMAT, Manifest, OBJECTS, Object, Progress, Tell, copy, rows,
};
use crate::{
    IdentityMismatch,
    names::{FilePurpose, kept_for},
};

/// Number of snapshots after which the backup is given up.
const ATTEMPTS: usize = 10;

/// Writes the registry and the store into a folder that is empty or does not exist. A service may use both meanwhile.
///
/// # Errors
/// [`Error::FolderNotEmpty`], or the reason why a store failed. A folder without a manifest is not a backup.
pub async fn take(
    registry: &Place,
    objects: &dyn ObjectStore,
    folder: &Path,
    tell: Tell<'_>,
) -> Result<Manifest, Error> {
    prepare(folder)?;
    for _ in 0..ATTEMPTS {
        if let Some(manifest) = attempt(registry, objects, folder, tell).await? {
            manifest.write(folder)?;
            return Ok(manifest);
        }
    }
    Err(Error::Unsteady)
}

fn prepare(folder: &Path) -> Result<(), Error> {
    use std::os::unix::fs::DirBuilderExt;
    let mut create = fs::DirBuilder::new();
    // The backup has the same contents as the data folder.
    let created = create.recursive(true).mode(0o700).create(folder);
    created.map_err(Error::io(folder))?;
    let mut entries = fs::read_dir(folder).map_err(Error::io(folder))?;
    match entries.next() {
        None => Ok(()),
        Some(_) => Err(Error::FolderNotEmpty {
            folder: folder.to_owned(),
        }),
    }
}

/// `None` if a model was deleted after the snapshot, and its files before they were copied.
async fn attempt(
    registry: &Place,
    objects: &dyn ObjectStore,
    folder: &Path,
    tell: Tell<'_>,
) -> Result<Option<Manifest>, Error> {
    let taken_ms = unix_ms();
    let mut dump = Dump::open(registry).await?;
    let identity = dump.identity().await?;
    let of_store = objects.identity().await?;
    if identity != of_store {
        let mismatch = IdentityMismatch {
            registry: identity,
            store: of_store,
        };
        return Err(crate::Error::Mismatch(mismatch).into());
    }
    let mut tables = Vec::new();
    for (done, table) in (0..).zip(TABLES) {
        tables.push(rows::write(&mut dump, table, folder).await?);
        tell(Progress {
            step: "tables of the registry",
            done: done + 1,
            of: Some(TABLES.len() as u64),
            bytes: 0,
        });
    }
    let named = dump.digests().await?;
    let schema = dump.schema();
    drop(dump);
    let (mut listed, missing) = copy_blobs(objects, &named, folder, tell).await?;
    if !missing.is_empty() && is_deleted(registry, &missing).await? {
        return Ok(None);
    }
    let blobs = listed.len() as u64;
    copy_files(objects, folder, &mut listed, tell).await?;
    Ok(Some(Manifest {
        format: FORMAT,
        schema,
        taken_ms,
        identity: identity.map(|id| id.to_string()),
        tables,
        objects: write_list(folder, &listed)?,
        blobs,
        files: listed.len() as u64 - blobs,
        bytes: listed.iter().map(|it| it.bytes).sum(),
        missing,
    }))
}

/// Whether a missing blob is no longer named.
async fn is_deleted(registry: &Place, missing: &[Digest]) -> Result<bool, Error> {
    let named = Dump::open(registry).await?.digests().await?;
    Ok(missing.iter().any(|it| named.binary_search(it).is_err()))
}

/// The copied blobs, and the blobs that the store does not have.
async fn copy_blobs(
    objects: &dyn ObjectStore,
    named: &[Digest],
    folder: &Path,
    tell: Tell<'_>,
) -> Result<(Vec<Object>, Vec<Digest>), Error> {
    let (mut listed, mut missing, mut bytes) = (Vec::new(), Vec::new(), 0);
    for (done, digest) in (0..).zip(named) {
        let name = digest.to_string();
        let place = format!("{BLOBS}/{}/{name}", &name[..2]);
        match copy::blob(objects, digest, &folder.join(&place)).await? {
            Some(size) => {
                bytes += size;
                listed.push(Object {
                    place,
                    path: None,
                    bytes: size,
                    sha256: *digest,
                });
            }
            None => missing.push(*digest),
        }
        tell(Progress {
            step: "files of models",
            done: done + 1,
            of: Some(named.len() as u64),
            bytes,
        });
    }
    Ok((listed, missing))
}

async fn copy_files(
    objects: &dyn ObjectStore,
    folder: &Path,
    listed: &mut Vec<Object>,
    tell: Tell<'_>,
) -> Result<(), Error> {
    let mut request = ListRequest::prefix("");
    let (mut done, mut bytes) = (0, 0);
    loop {
        let page = objects.list(&request).await?;
        for info in page.objects {
            // After a restore a job starts again.
            if matches!(kept_for(&info.path), Some(FilePurpose::Parts { .. })) {
                continue;
            }
            let (place, path) = place_of(&info.path, folder);
            let copied = copy::file(objects, &info.path, &folder.join(&place)).await?;
            if let Some((sha256, size)) = copied {
                bytes += size;
                listed.push(Object {
                    place,
                    path,
                    bytes: size,
                    sha256,
                });
            }
            done += 1;
            tell(Progress {
                step: "artefacts",
                done,
                of: None,
                bytes,
            });
        }
        request.after = page.next;
        if request.after.is_none() {
            return Ok(());
        }
    }
}

/// The place of a file in the folder, and its path if the place does not show it: an object store may have both `a` and
/// `a/b`, a folder may not.
fn place_of(path: &ObjectPath, folder: &Path) -> (String, Option<String>) {
    let place = format!("{FILES}/{path}");
    let at = folder.join(&place);
    let mut above = at.ancestors().skip(1).take_while(|it| *it != folder);
    if !at.is_dir() && !above.any(Path::is_file) {
        return (place, None);
    }
    let path = path.to_string();
    let name = Digest::from_bytes(Sha256::digest(&path).into());
    (format!("{APART}/{name}"), Some(path))
}

/// Writes the list of objects, and returns its digest.
fn write_list(folder: &Path, listed: &[Object]) -> Result<Digest, Error> {
    let path = folder.join(OBJECTS);
    let mut written = copy::BackupFile::create(&path)?;
    for object in listed {
        let line = serde_json::to_string(object)
            .map_err(|error| Error::io(&path)(io::Error::other(error)))?;
        written.put(format!("{line}\n").as_bytes())?;
    }
    Ok(written.finish()?.0)
}
