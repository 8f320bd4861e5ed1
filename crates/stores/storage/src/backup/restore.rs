//! Restoring a backup.

use std::{
    fs::File,
    io::{BufRead, BufReader},
    path::Path,
    sync::Arc,
};

use sextant_objects::{ObjectPath, ObjectStore};
use sextant_registry::{Registry, dump::TABLES};
use sextant_types::time::unix_ms;

use super::{
    APART, BLOBS, Error, FILES, Manifest, OBJECTS, Object, Progress, REGISTRY, Tell, copy, new_id,
    rows,
};

/// Restores the backup in a folder into an empty registry and an empty store, which no service uses yet.
///
/// # Errors
/// [`Code::NotEmpty`](sextant_types::Code::NotEmpty) if they are not empty, and
/// [`Code::InvalidBackup`](sextant_types::Code::InvalidBackup) if the backup is incomplete or damaged; then the
/// registry stays empty.
pub async fn restore(
    folder: &Path,
    registry: &Registry,
    objects: &Arc<dyn ObjectStore>,
    tell: Tell<'_>,
) -> Result<Manifest, Error> {
    let manifest = Manifest::read(folder)?;
    check_tables(&manifest, folder)?;
    let listed = list(&manifest, folder)?;
    // The registry must be empty: checked before anything is written, and again with the inserted rows.
    drop(registry.restoring().await?);
    if !crate::identity::is_empty(objects.as_ref()).await? {
        return Err(Error::StoreNotEmpty);
    }
    put_objects(&listed, folder, objects.as_ref(), tell).await?;
    // Until the last row is inserted, the registry has no name and does not belong to the store.
    let id = new_id();
    objects.set_identity(id).await?;
    let mut restoring = registry.restoring().await?;
    for (done, table) in (0..).zip(&manifest.tables) {
        rows::read(&mut restoring, table, folder).await?;
        tell(Progress {
            step: "tables of the registry",
            done: done + 1,
            of: Some(manifest.tables.len() as u64),
            bytes: 0,
        });
    }
    restoring.finish(id, unix_ms()).await?;
    Ok(manifest)
}

/// Checks that each table exists once, in the order in which rows may be inserted, with the bytes that were written.
fn check_tables(manifest: &Manifest, folder: &Path) -> Result<(), Error> {
    let names = manifest.tables.iter().map(|table| table.name.as_str());
    if !names.eq(TABLES) {
        return Err(Error::invalid(folder, "its tables are other ones"));
    }
    for table in &manifest.tables {
        let path = folder.join(REGISTRY).join(&table.name);
        check(&path, table.sha256)?;
    }
    Ok(())
}

fn check(path: &Path, sha256: sextant_types::Digest) -> Result<(), Error> {
    if !path.is_file() {
        return Err(Error::invalid(path, "it is not there"));
    }
    match copy::digest_of(path)?.0 == sha256 {
        true => Ok(()),
        false => Err(damaged(path)),
    }
}

fn damaged(path: &Path) -> Error {
    Error::invalid(path, "its bytes are not those that were written")
}

fn list(manifest: &Manifest, folder: &Path) -> Result<Vec<Object>, Error> {
    let path = folder.join(OBJECTS);
    check(&path, manifest.objects)?;
    let file = File::open(&path).map_err(Error::io(&path))?;
    let objects = BufReader::new(file).lines().map(|line| {
        let line = line.map_err(Error::io(&path))?;
        serde_json::from_str(&line).map_err(|error| Error::invalid(&path, error.to_string()))
    });
    objects.collect()
}

async fn put_objects(
    listed: &[Object],
    folder: &Path,
    objects: &dyn ObjectStore,
    tell: Tell<'_>,
) -> Result<(), Error> {
    let mut bytes = 0;
    for (done, object) in (0..).zip(listed) {
        let path = folder.join(&object.place);
        let kind = object.place.split_once('/');
        match kind {
            Some((BLOBS, _)) => {
                check_is_there(&path)?;
                let stored = objects.put_blob_stream(copy::stream_of(&path)?).await?;
                if stored.digest != object.sha256 {
                    objects.delete_blob(&stored.digest).await?;
                    return Err(damaged(&path));
                }
            }
            Some((FILES | APART, name)) => {
                let name = object.path.as_deref().unwrap_or(name);
                check(&path, object.sha256)?;
                let name = ObjectPath::parse(name)
                    .map_err(|error| Error::invalid(&path, error.to_string()))?;
                objects.put_stream(&name, copy::stream_of(&path)?).await?;
            }
            _ => return Err(Error::invalid(&path, "it is neither a blob nor a file")),
        }
        bytes += object.bytes;
        tell(Progress {
            step: "files",
            done: done + 1,
            of: Some(listed.len() as u64),
            bytes,
        });
    }
    Ok(())
}

fn check_is_there(path: &Path) -> Result<(), Error> {
    match path.is_file() {
        true => Ok(()),
        false => Err(Error::invalid(path, "it is not there")),
    }
}
