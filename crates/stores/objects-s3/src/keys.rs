//! Names in the bucket.

use sextant_objects::ObjectPath;
use sextant_types::Digest;

/// Longest prefix: with the longest path it stays below S3's limit of 1,024 bytes for a key.
pub(crate) const MAX_PREFIX_BYTES: usize = 256;

/// The layout of the bucket below a prefix.
#[derive(Debug, Clone)]
pub(crate) struct Keys {
    prefix: String,
}

impl Keys {
    pub(crate) fn new(prefix: &str) -> Self {
        Self {
            prefix: prefix.to_owned(),
        }
    }

    /// The key of the store's name.
    pub(crate) fn identity(&self) -> String {
        format!("{}identity", self.prefix)
    }

    /// The key of a blob. Its first two digits come twice: some servers store keys as files in
    /// folders.
    pub(crate) fn blob(&self, digest: &Digest) -> String {
        let name = digest.to_string();
        format!("{}{}/{name}", self.blobs(), &name[..2])
    }

    /// The common prefix of the keys of all blobs.
    pub(crate) fn blobs(&self) -> String {
        format!("{}blobs/", self.prefix)
    }

    /// The digest of a listed key; `None` if it is not the key of a blob of the store.
    pub(crate) fn digest(&self, key: &str) -> Option<Digest> {
        let (_, name) = key.rsplit_once('/')?;
        let digest = name.parse().ok()?;
        (self.blob(&digest) == key).then_some(digest)
    }

    pub(crate) fn file(&self, path: &ObjectPath) -> String {
        self.files(path.as_str())
    }

    /// The common prefix of the keys of all files whose paths begin with `path_prefix`.
    pub(crate) fn files(&self, path_prefix: &str) -> String {
        format!("{}files/{path_prefix}", self.prefix)
    }

    /// The path of a listed key; `None` if it is not the key of a file of the store.
    pub(crate) fn path(&self, key: &str) -> Option<ObjectPath> {
        let path = key.strip_prefix(&self.prefix)?.strip_prefix("files/")?;
        ObjectPath::parse(path).ok()
    }
}
