//! Backups: writes a registry and its artefact store into a folder, and restores them.
//!
//! ```text
//! <folder>/manifest.json         what the backup contains, and its digests; written last
//! <folder>/registry/<table>      rows, a JSON array on each line; the first line has the names of the columns
//! <folder>/objects               the blobs and files with sizes and digests, a JSON array on each line
//! <folder>/blobs/ab/abcdef..     as in the store
//! <folder>/files/<path>          as in the store
//! <folder>/apart/<name>          a file below the path of another, as `a/b` beside `a`; the list has its path
//! ```
//!
//! The registry is read in one snapshot, so its rows are consistent whatever is written meanwhile. Blobs never change,
//! so the blobs that the snapshot names are copied after it. A blob that is swept meanwhile belonged to a model that
//! was deleted since. Then another snapshot is taken; what was copied before is not copied again. Each file is copied
//! as a whole, in its state at that time. What jobs keep while they run is omitted: after a restore they start again.
//!
//! A backup is restored into an empty registry and an empty store: first the files, each compared with its digest, then
//! all rows in one transaction. Registry and store get a new name, so that they are not taken for those of the backup.

use std::{
    io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use sextant_registry::Registry;
use sextant_types::{Code, Digest, StoreId};

mod copy;
mod restore;
mod rows;
mod take;

pub use restore::restore;
pub use take::take;

/// The version of this format.
pub const FORMAT: u32 = 1;

/// The prefixes of the objects in a store of either backend, and whether a backup contains them.
pub const PREFIXES: [(&str, bool); 5] = [
    ("blobs", true),
    ("files", true),
    ("identity", false),
    ("scratch", false),
    ("tmp", false),
];

const MANIFEST: &str = "manifest.json";
const OBJECTS: &str = "objects";
const REGISTRY: &str = "registry";
const BLOBS: &str = "blobs";
const FILES: &str = "files";
const APART: &str = "apart";

/// The contents of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// [`FORMAT`].
    pub format: u32,
    /// The version of the registry's schema.
    pub schema: i64,
    /// When its registry was read, ms since the Unix epoch.
    pub taken_ms: u64,
    /// The name that registry and store had, as text.
    pub identity: Option<String>,
    /// The tables.
    pub tables: Vec<Table>,
    /// SHA-256 of the list of blobs and files.
    pub objects: Digest,
    /// Number of blobs.
    pub blobs: u64,
    /// Number of files.
    pub files: u64,
    /// Total size of blobs and files, bytes.
    pub bytes: u64,
    /// Blobs that rows name and that the store did not have.
    pub missing: Vec<Digest>,
}

/// A table of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// Its name.
    pub name: String,
    /// Number of its rows.
    pub rows: u64,
    /// SHA-256 of its file.
    pub sha256: Digest,
}

/// A blob or a file of a backup: a line of the list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Object {
    /// Its place in the folder: `blobs/ab/..`, `files/..` or `apart/..`.
    place: String,
    /// Its path in the store, if the place does not show it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    bytes: u64,
    sha256: Digest,
}

/// The progress of the work, reported from time to time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// The present step.
    pub step: &'static str,
    /// Number of items done.
    pub done: u64,
    /// Number of items in total, if it is known.
    pub of: Option<u64>,
    /// Size of the items done, bytes.
    pub bytes: u64,
}

/// The callback that is told of the progress.
pub type Tell<'a> = &'a mut (dyn FnMut(Progress) + Send);

/// Why a backup failed or could not be restored.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The registry failed, or it has rows although it should be empty.
    #[error(transparent)]
    Registry(#[from] sextant_registry::Error),
    /// The artefact store failed.
    #[error(transparent)]
    Objects(#[from] sextant_objects::Error),
    /// The registry does not belong to the store.
    #[error(transparent)]
    Storage(#[from] crate::Error),
    /// The folder cannot be read or written.
    #[error("`{}` cannot be read or written", .path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// The folder in which the backup should be written is not empty.
    #[error("`{}` is not empty: name a folder that is, or that is not there yet", .folder.display())]
    FolderNotEmpty {
        /// The folder.
        folder: PathBuf,
    },
    /// The store into which the backup should be restored is not empty.
    #[error("the artefact store has content: a backup is restored into an empty one")]
    StoreNotEmpty,
    /// The folder contains no backup that can be restored.
    #[error("`{}` is no backup that can be restored: {reason}", .path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Models are deleted faster than they can be copied.
    #[error("models were deleted again and again while they were copied: try again later")]
    Unsteady,
}

impl Error {
    /// The stable public code.
    pub fn code(&self) -> Code {
        match self {
            Self::Registry(source) => source.code(),
            Self::Objects(source) => source.code(),
            Self::Storage(source) => source.code(),
            Self::FolderNotEmpty { .. } | Self::StoreNotEmpty => Code::NotEmpty,
            Self::Invalid { .. } => Code::InvalidBackup,
            Self::Unsteady => Code::Unavailable,
            Self::Io { .. } => Code::Internal,
        }
    }

    fn io(path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }

    fn invalid(path: &Path, reason: impl Into<String>) -> Self {
        Self::Invalid {
            path: path.to_owned(),
            reason: reason.into(),
        }
    }
}

impl Manifest {
    /// Reads the manifest of the backup in a folder, and checks that this version can restore it.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it cannot.
    pub fn read(folder: &Path) -> Result<Self, Error> {
        let path = folder.join(MANIFEST);
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(Error::invalid(&path, "it is not there"));
            }
            Err(error) => return Err(Error::io(&path)(error)),
        };
        let manifest: Self = serde_json::from_slice(&text)
            .map_err(|error| Error::invalid(&path, error.to_string()))?;
        let (format, schema) = (manifest.format, manifest.schema);
        if format != FORMAT {
            let reason = format!("it has the format `{format}`, and this version reads `{FORMAT}`");
            return Err(Error::invalid(&path, reason));
        }
        let known = Registry::schema_version();
        if schema != known {
            let reason = format!(
                "its registry has the schema `{schema}`, and this version `{known}`: restore it with the version that \
                 took it, then upgrade"
            );
            return Err(Error::invalid(&path, reason));
        }
        Ok(manifest)
    }

    fn write(&self, folder: &Path) -> Result<(), Error> {
        let path = folder.join(MANIFEST);
        let text = serde_json::to_vec_pretty(self)
            .map_err(|error| Error::invalid(&path, error.to_string()))?;
        copy::write_whole(&path, &text)
    }
}

/// A new name for registry and store: for a restored backup, and for a store that is adopted.
pub(crate) fn new_id() -> StoreId {
    StoreId::from_bits(uuid::Uuid::new_v4().as_u128())
}
