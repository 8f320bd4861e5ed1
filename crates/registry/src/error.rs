//! What can go wrong in the registry.

use std::fmt;

use sextant_types::{ApplicationId, Code, ErrorKind, JobId};

/// A kind of row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entity {
    /// An application.
    Application,
    /// A model.
    Model,
    /// A variant.
    Variant,
    /// A job.
    Job,
    /// An API key.
    Key,
    /// An entry of the audit record.
    Audit,
}

impl fmt::Display for Entity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Application => "application",
            Self::Model => "model",
            Self::Variant => "variant",
            Self::Job => "job",
            Self::Key => "API key",
            Self::Audit => "audit entry",
        })
    }
}

/// An error of the registry. After any of them the registry is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No such row.
    #[error("{entity} `{id}` does not exist")]
    NotFound {
        /// What kind.
        entity: Entity,
        /// Its name.
        id: String,
    },
    /// A row of that name exists with other content.
    #[error("{entity} `{id}` exists with other content")]
    Exists {
        /// What kind.
        entity: Entity,
        /// Its name.
        id: String,
    },
    /// The row cannot go while others need it.
    #[error("{entity} `{id}` is in use: {reason}")]
    InUse {
        /// What kind.
        entity: Entity,
        /// Its name.
        id: String,
        /// By what.
        reason: &'static str,
    },
    /// The model's inputs or outputs differ from those that the application's models have.
    #[error("the model's inputs or outputs differ from those of application `{application}`")]
    SignatureMismatch {
        /// Which application.
        application: ApplicationId,
    },
    /// The job was cancelled: its runner stops.
    #[error("job `{job}` was cancelled")]
    Cancelled {
        /// Which job.
        job: JobId,
    },
    /// The job is not, or no longer, the caller's: its runner stops.
    #[error("job `{job}` is not held by `{owner}`")]
    LeaseLost {
        /// Which job.
        job: JobId,
        /// Who asked.
        owner: String,
    },
    /// The disk or the file's limit is reached.
    #[error("no room left in the registry")]
    StorageFull(#[source] sqlx::Error),
    /// Another process holds the file, or all connections are taken.
    #[error("the registry is busy")]
    Busy(#[source] sqlx::Error),
    /// A stored row cannot be read.
    #[error("{entity} `{id}` has an unreadable `{column}`: {reason}")]
    Corrupt {
        /// What kind.
        entity: Entity,
        /// Its name.
        id: String,
        /// Which column.
        column: &'static str,
        /// Why.
        reason: String,
    },
    /// A document that would not come back as it is: it holds a NaN or an infinity.
    #[error("{entity} `{id}` cannot be stored: {reason}")]
    Unstorable {
        /// What kind.
        entity: Entity,
        /// Its name.
        id: String,
        /// Why.
        reason: String,
    },
    /// The file was written by another version of the service.
    #[error("the registry's schema does not fit this version of the service")]
    Schema(#[source] sqlx::migrate::MigrateError),
    /// The folder of the file cannot be made.
    #[error("the registry's folder `{folder}` cannot be created")]
    Folder {
        /// Which folder.
        folder: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Anything else that the database says.
    #[error("the registry failed")]
    Database(#[source] sqlx::Error),
}

impl Error {
    /// The stable public code.
    pub fn code(&self) -> Code {
        match self {
            Self::NotFound { entity, .. } => match entity {
                Entity::Application => Code::ApplicationNotFound,
                Entity::Model => Code::ModelNotFound,
                Entity::Variant => Code::VariantNotFound,
                Entity::Job => Code::JobNotFound,
                Entity::Key => Code::KeyNotFound,
                Entity::Audit => Code::Internal,
            },
            Self::Exists { entity, .. } => match entity {
                Entity::Application => Code::ApplicationExists,
                Entity::Model => Code::ModelExists,
                Entity::Variant | Entity::Job | Entity::Key | Entity::Audit => Code::InUse,
            },
            Self::InUse { .. } | Self::Cancelled { .. } | Self::LeaseLost { .. } => Code::InUse,
            Self::SignatureMismatch { .. } => Code::SignatureMismatch,
            Self::StorageFull(_) => Code::StorageFull,
            Self::Busy(_) => Code::Unavailable,
            Self::Corrupt { .. }
            | Self::Unstorable { .. }
            | Self::Schema(_)
            | Self::Folder { .. }
            | Self::Database(_) => Code::Internal,
        }
    }

    /// What the error means for the caller.
    pub fn kind(&self) -> ErrorKind {
        self.code().kind()
    }

    pub(crate) fn not_found(entity: Entity, id: impl fmt::Display) -> Self {
        Self::NotFound {
            entity,
            id: id.to_string(),
        }
    }

    pub(crate) fn exists(entity: Entity, id: impl fmt::Display) -> Self {
        Self::Exists {
            entity,
            id: id.to_string(),
        }
    }

    pub(crate) fn in_use(entity: Entity, id: impl fmt::Display, reason: &'static str) -> Self {
        Self::InUse {
            entity,
            id: id.to_string(),
            reason,
        }
    }
}

// SQLite's primary result codes: the low byte of the extended ones.
const SQLITE_BUSY: u32 = 5;
const SQLITE_LOCKED: u32 = 6;
const SQLITE_FULL: u32 = 13;
/// Extended: the index of the write-ahead log cannot grow, which only a full disk prevents.
const SQLITE_IOERR_SHMSIZE: u32 = 4874;

impl From<sqlx::Error> for Error {
    fn from(error: sqlx::Error) -> Self {
        if matches!(error, sqlx::Error::PoolTimedOut) {
            return Self::Busy(error);
        }
        let code = error
            .as_database_error()
            .and_then(|error| error.code()?.parse::<u32>().ok());
        if code == Some(SQLITE_IOERR_SHMSIZE) {
            return Self::StorageFull(error);
        }
        match code.map(|extended| extended & 0xff) {
            Some(SQLITE_FULL) => Self::StorageFull(error),
            Some(SQLITE_BUSY | SQLITE_LOCKED) => Self::Busy(error),
            _ => Self::Database(error),
        }
    }
}

impl From<sqlx::migrate::MigrateError> for Error {
    fn from(error: sqlx::migrate::MigrateError) -> Self {
        use sqlx::migrate::MigrateError::{Execute, ExecuteMigration};
        match error {
            Execute(error) | ExecuteMigration(error, _) => error.into(),
            other => Self::Schema(other),
        }
    }
}
