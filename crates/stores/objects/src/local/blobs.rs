//! Blobs as files.

use sextant_types::Digest;

use super::{
    Inner, absent_as_none,
    folder::{Entry, Fault, Folder},
    temporary::Temporary,
};
use crate::{BlobInfo, BlobPage, Error};

/// One page, in the order of the digests. A file that is not named after a digest, or lies in another digest's folder,
/// is not a blob.
pub(super) fn list(blobs: &Folder, after: Option<Digest>, limit: usize) -> Result<BlobPage, Fault> {
    let limit = limit.max(1);
    let mut page = BlobPage::default();
    for name in shards(blobs)? {
        if after.is_some_and(|after| name < shard(&after)) {
            continue;
        }
        let found = match blobs.child(&name) {
            Ok(folder) => of_shard(&folder, &name)?,
            // It was replaced since the folder was read.
            Err(Fault::Missing | Fault::NotFolder | Fault::Link) => continue,
            Err(fault) => return Err(fault),
        };
        let ahead = |blob: &BlobInfo| after.is_none_or(|after| blob.digest > after);
        page.blobs.extend(found.into_iter().filter(ahead));
        // One more entry shows whether there is another page.
        if page.blobs.len() > limit {
            page.blobs.truncate(limit);
            page.next = page.blobs.last().map(|last| last.digest);
            break;
        }
    }
    Ok(page)
}

fn shards(blobs: &Folder) -> Result<Vec<String>, Fault> {
    let entries = blobs.entries()?.into_iter();
    let mut names: Vec<String> = entries
        .filter_map(|entry| match entry {
            Entry::Folder(name) => Some(name),
            Entry::File(..) => None,
        })
        .collect();
    names.sort_unstable();
    Ok(names)
}

fn of_shard(folder: &Folder, called: &str) -> Result<Vec<BlobInfo>, Fault> {
    let entries = folder.entries()?.into_iter();
    let mut blobs: Vec<BlobInfo> = entries
        .filter_map(|entry| {
            let Entry::File(name, file) = entry else {
                return None;
            };
            let digest: Digest = name.parse().ok()?;
            (shard(&digest) == called).then(|| BlobInfo {
                digest,
                size_bytes: file.size_bytes(),
                stored_ms: file.modified_ms(),
            })
        })
        .collect();
    blobs.sort_unstable_by_key(|blob| blob.digest);
    Ok(blobs)
}

/// The folder of a blob, named by the first two digits, so that no folder grows too large.
pub(super) fn shard(digest: &Digest) -> String {
    format!("{:02x}", digest.as_bytes()[0])
}

// === impl Inner ===

impl Inner {
    pub(super) fn blob_folder(&self, digest: &Digest) -> Result<Folder, Fault> {
        self.blobs.descend([shard(digest).as_str()])
    }

    /// Updates the modification time of a blob that exists with the right bytes. Returns whether it does. The folder is
    /// synced, because another writer may have put the blob there a moment ago.
    pub(super) fn renew_blob(&self, digest: &Digest) -> Result<bool, Error> {
        let name = digest.to_string();
        let stored = self.blob_folder(digest).and_then(|folder| {
            {
                // The time is updated first, so that the blob is not removed while it is read.
                let _one_at_a_time = self.commit.lock();
                folder.touch(&name)?;
            }
            let stored = folder.digest(&name)?;
            folder.sync()?;
            Ok(stored)
        });
        Ok(absent_as_none(stored, &name)? == Some(*digest))
    }

    pub(super) fn commit_blob(&self, digest: &Digest, temporary: Temporary) -> Result<(), Error> {
        let name = digest.to_string();
        let folder = || self.blobs.create_descend([shard(digest).as_str()]);
        self.commit(temporary, &name, folder)
            .map_err(|fault| fault.on_write(&name))
    }
}
