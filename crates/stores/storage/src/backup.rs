//! Backups: a registry and its artefact store in a folder, and back.
//!
//! ```text
//! <folder>/manifest.json         what there is, and its digests; written last
//! <folder>/registry/<table>      rows, a JSON array on each line, by the names of the columns in the first
//! <folder>/objects               the blobs and files that there are, with sizes and digests, a JSON array on each line
//! <folder>/blobs/ab/abcdef..     as in the store
//! <folder>/files/<path>          as in the store
//! <folder>/apart/<name>          a file whose path is below that of another, as `a/b` beside `a`; the list has its path
//! ```
//!
//! The registry is read in one snapshot, so its rows fit each other whatever is written meanwhile. Blobs never change, so
//! those that the snapshot names are copied after it. One that is swept meanwhile belonged to a model that was deleted
//! since: then another snapshot is taken, and what was copied before is not copied again. Files are copied as they are
//! when it is their turn, each as a whole. What jobs keep while they run is left out: restored, they begin again.
//!
//! A backup is restored into an empty registry and an empty store: files first, each compared with its digest, then all
//! rows in one transaction. The two get a name of their own, by which they are not taken for those of the backup.

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

/// What lies in a store, and whether a backup has it: the prefixes of both backends.
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

/// What a backup has.
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
    /// Blobs.
    pub blobs: u64,
    /// Files.
    pub files: u64,
    /// Bytes of all of them.
    pub bytes: u64,
    /// Blobs that rows name and the store did not have.
    pub missing: Vec<Digest>,
}

/// A table of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// Its name.
    pub name: String,
    /// How many rows it has.
    pub rows: u64,
    /// SHA-256 of its file.
    pub sha256: Digest,
}

/// A blob or a file of a backup: a line of the list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Object {
    /// Where in the folder: `blobs/ab/..`, `files/..` or `apart/..`.
    place: String,
    /// Its path in the store, where the place does not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    bytes: u64,
    sha256: Digest,
}

/// How far the work is: told from time to time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// What is being done.
    pub step: &'static str,
    /// How many are done.
    pub done: u64,
    /// Of how many, where that is known.
    pub of: Option<u64>,
    /// Bytes of those that are done.
    pub bytes: u64,
}

/// Who is told.
pub type Tell<'a> = &'a mut (dyn FnMut(Progress) + Send);

/// Why a backup was not taken or restored.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The registry failed, or has rows where it is to be empty.
    #[error(transparent)]
    Registry(#[from] sextant_registry::Error),
    /// The artefact store failed.
    #[error(transparent)]
    Objects(#[from] sextant_objects::Error),
    /// The registry is not that of the store.
    #[error(transparent)]
    Storage(#[from] crate::Error),
    /// The folder cannot be read or written.
    #[error("`{}` cannot be read or written", .path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// There is something where the backup is to be written.
    #[error("`{}` is not empty: name a folder that is, or that is not there yet", .folder.display())]
    FolderNotEmpty {
        /// Which folder.
        folder: PathBuf,
    },
    /// There is something where the backup is to be restored.
    #[error("the artefact store has content: a backup is restored into an empty one")]
    StoreNotEmpty,
    /// The folder holds no backup that can be restored.
    #[error("`{}` is no backup that can be restored: {reason}", .path.display())]
    Invalid {
        /// Which file.
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
    /// Reads that of the backup in a folder, and looks whether this version can restore it.
    ///
    /// # Errors
    /// [`Error::Invalid`] where it cannot.
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

/// The name of the registry and store of a backup that is restored, and of what is taken over.
pub(crate) fn new_id() -> StoreId {
    StoreId::from_bits(uuid::Uuid::new_v4().as_u128())
}
