//! Copies between the store and the folder.

use std::{
    fs::{self, File},
    io::{BufWriter, Read, Write},
    path::{Path, PathBuf},
};

use bytes::Bytes;
use futures::stream;
use sextant_objects::{ByteStream, ObjectPath, ObjectStore};
use sextant_types::Digest;
use sha2::{Digest as _, Sha256};

use super::Error;

/// Bytes that are copied at once.
const PIECE_BYTES: u64 = 8 << 20;

/// A file of the folder that is being written, and its digest.
pub(super) struct BackupFile {
    path: PathBuf,
    file: BufWriter<File>,
    hash: Sha256,
    bytes: u64,
}

/// Writes a file so that it exists as a whole or not at all.
pub(super) fn write_whole(path: &Path, text: &[u8]) -> Result<(), Error> {
    let mut written = BackupFile::create(path)?;
    written.put(text)?;
    written.finish().map(drop)
}

/// The digest and size of a file of the folder.
pub(super) fn digest_of(path: &Path) -> Result<(Digest, u64), Error> {
    let mut file = File::open(path).map_err(Error::io(path))?;
    let (mut hash, mut bytes, mut piece) = (Sha256::new(), 0, vec![0; 1 << 20]);
    loop {
        match file.read(&mut piece).map_err(Error::io(path))? {
            0 => return Ok((Digest::from_bytes(hash.finalize().into()), bytes)),
            length => {
                hash.update(&piece[..length]);
                bytes += length as u64;
            }
        }
    }
}

/// Copies a blob into the folder, and returns its size; `None` if the store does not have it. A blob that is in the
/// folder is not copied again.
pub(super) async fn blob(
    objects: &dyn ObjectStore,
    digest: &Digest,
    to: &Path,
) -> Result<Option<u64>, Error> {
    if to.exists() && digest_of(to)?.0 == *digest {
        return Ok(Some(fs::metadata(to).map_err(Error::io(to))?.len()));
    }
    let Some(size) = objects.stat_blob(digest).await? else {
        return Ok(None);
    };
    let mut written = BackupFile::create(to)?;
    let mut at = 0;
    while at < size {
        let range = at..size.min(at + PIECE_BYTES);
        let piece = match objects.get_blob_range(digest, range).await {
            Err(sextant_objects::Error::NotFound { .. }) => return Ok(None),
            piece => piece?,
        };
        if piece.is_empty() {
            break;
        }
        at += piece.len() as u64;
        written.put(&piece)?;
    }
    let (actual, bytes) = written.finish()?;
    if actual != *digest {
        fs::remove_file(to).map_err(Error::io(to))?;
        let expected = *digest;
        return Err(sextant_objects::Error::Corrupt { expected, actual }.into());
    }
    Ok(Some(bytes))
}

/// Copies a file into the folder, and returns its digest and size; `None` if it was removed meanwhile.
pub(super) async fn file(
    objects: &dyn ObjectStore,
    path: &ObjectPath,
    to: &Path,
) -> Result<Option<(Digest, u64)>, Error> {
    loop {
        let Some(before) = objects.stat(path).await? else {
            return Ok(None);
        };
        let mut written = BackupFile::create(to)?;
        let mut at = 0;
        while at < before.size_bytes {
            let range = at..before.size_bytes.min(at + PIECE_BYTES);
            let piece = match objects.get_range(path, range).await {
                Ok(piece) if !piece.is_empty() => piece,
                Ok(_)
                | Err(
                    sextant_objects::Error::NotFound { .. } | sextant_objects::Error::Range { .. },
                ) => break,
                Err(error) => return Err(error.into()),
            };
            at += piece.len() as u64;
            written.put(&piece)?;
        }
        let copied = written.finish()?;
        // A file that was replaced between two pieces is copied again.
        if objects.stat(path).await?.as_ref() == Some(&before) {
            return Ok(Some(copied));
        }
        fs::remove_file(to).map_err(Error::io(to))?;
    }
}

/// The bytes of a file of the folder, as a stream for the store.
pub(super) fn stream_of(path: &Path) -> Result<ByteStream<'static>, Error> {
    let file = File::open(path).map_err(Error::io(path))?;
    let pieces = stream::unfold(Some(file), |file| async move {
        let mut file = file?;
        let mut piece = Vec::new();
        let mut read = Read::by_ref(&mut file).take(PIECE_BYTES);
        match read.read_to_end(&mut piece) {
            Ok(0) => None,
            Ok(_) => Some((Ok(Bytes::from(piece)), Some(file))),
            Err(error) => Some((Err(error), None)),
        }
    });
    Ok(Box::pin(pieces))
}

// === impl BackupFile ===

impl BackupFile {
    pub(super) fn create(path: &Path) -> Result<Self, Error> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(Error::io(folder))?;
        }
        let new = new_name(path);
        let file = File::create(&new).map_err(Error::io(&new))?;
        Ok(Self {
            path: path.to_owned(),
            file: BufWriter::new(file),
            hash: Sha256::new(),
            bytes: 0,
        })
    }

    pub(super) fn put(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.hash.update(bytes);
        self.bytes += bytes.len() as u64;
        self.file.write_all(bytes).map_err(Error::io(&self.path))
    }

    /// Makes the file durable under its name.
    pub(super) fn finish(mut self) -> Result<(Digest, u64), Error> {
        let done = |file: &mut BufWriter<File>, path: &Path| {
            file.flush()?;
            file.get_ref().sync_all()?;
            fs::rename(new_name(path), path)
        };
        done(&mut self.file, &self.path).map_err(Error::io(&self.path))?;
        Ok((Digest::from_bytes(self.hash.finalize().into()), self.bytes))
    }
}

/// The path of a file until it is complete, in its final folder: one file is written at a time. No path of a store ends
/// with this name, because stores refuse backslashes. The fixed name permits paths with names as long as the file
/// system allows.
fn new_name(path: &Path) -> PathBuf {
    path.with_file_name("unfinished\\new")
}
