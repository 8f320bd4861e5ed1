//! Errors of the registry.

use std::fmt;

use sextant_types::{ApplicationId, Code, Digest, ErrorKind, JobId};
use sqlx::migrate::MigrateError;

/// A kind of row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entity {
    /// An application.
    Application,
    /// A model.
    Model,
    /// A pipeline.
    Pipeline,
    /// A variant.
    Variant,
    /// A job.
    Job,
    /// An API key.
    Key,
    /// An entry of the audit record.
    Audit,
    /// A blob that is about to be removed.
    Blob,
    /// The name that the registry shares with its artefact store.
    Identity,
    /// Feedback of users.
    Feedback,
}

impl fmt::Display for Entity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Application => "application",
            Self::Model => "model",
            Self::Pipeline => "pipeline",
            Self::Variant => "variant",
            Self::Job => "job",
            Self::Key => "API key",
            Self::Audit => "audit entry",
            Self::Blob => "condemned blob",
            Self::Identity => "identity",
            Self::Feedback => "feedback",
        })
    }
}

/// An error of the registry. After an error the registry is unchanged, with one exception: if the
/// server goes away while a change is being committed ([`Error::Unavailable`]), the change may have
/// been made. Every call may be repeated. A repeated claim of a job gets another job, and the first
/// one returns to the queue when its lease lapses.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No such row.
    #[error("{entity} `{id}` does not exist")]
    NotFound {
        /// The kind of row.
        entity: Entity,
        /// Its name.
        id: String,
    },
    /// A row of that name exists with other content.
    #[error("{entity} `{id}` exists with other content")]
    Exists {
        /// The kind of row.
        entity: Entity,
        /// Its name.
        id: String,
    },
    /// A version of that number exists with other content.
    #[error(
        "version `{version}` of `{line}` exists with another {differs}: leave the number out, and it becomes the next \
         version"
    )]
    VersionExists {
        /// Application and name.
        line: String,
        /// Its number.
        version: u32,
        /// The difference.
        differs: String,
    },
    /// The state of the versions does not permit the change.
    #[error("version `{version}` of `{line}` cannot be changed so: {reason}")]
    Version {
        /// Application and name.
        line: String,
        /// Its number.
        version: u32,
        /// The reason, and what to do.
        reason: String,
    },
    /// A name that several applications have.
    #[error(
        "several applications have a model `{name}`: say which is meant, {}",
        qualified(.name, .applications)
    )]
    Ambiguous {
        /// The name.
        name: String,
        /// The applications.
        applications: Vec<ApplicationId>,
    },
    /// The row cannot be removed while others need it.
    #[error("{entity} `{id}` is in use: {reason}")]
    InUse {
        /// The kind of row.
        entity: Entity,
        /// Its name.
        id: String,
        /// What needs it.
        reason: &'static str,
    },
    /// The model's inputs or outputs differ from those of the application's models.
    #[error("the model's inputs or outputs differ from those of application `{application}`")]
    SignatureMismatch {
        /// The application.
        application: ApplicationId,
    },
    /// The job was cancelled: its runner must stop.
    #[error("job `{job}` was cancelled")]
    Cancelled {
        /// The job.
        job: JobId,
    },
    /// The caller does not hold the job, or no longer: its runner must stop.
    #[error("job `{job}` is not held by `{owner}`")]
    LeaseLost {
        /// The job.
        job: JobId,
        /// The caller.
        owner: String,
    },
    /// A request used the key of a different one.
    #[error(
        "idempotency key `{key}` was used for another request: use a new key for each request, and \
         the same one only to send a request again"
    )]
    KeyReused {
        /// The key.
        key: String,
    },
    /// A reference to a blob that is about to be removed: store it again, and retry a moment later.
    #[error("file `{digest}` is being removed, since nothing referred to it: send it again")]
    Condemned {
        /// The blob.
        digest: Digest,
    },
    /// The disk or the file's limit is reached.
    #[error("no room left in the registry")]
    StorageFull(#[source] sqlx::Error),
    /// Another process holds the file, or all connections are taken.
    #[error("the registry is busy")]
    Busy(#[source] sqlx::Error),
    /// The server does not answer, or not in time. A later call may succeed.
    #[error("the registry's server is away")]
    Unavailable(#[source] sqlx::Error),
    /// The server's URL is invalid. The reason contains no part of it.
    #[error("the registry's URL is not usable: {reason}")]
    Url {
        /// What is wrong with it.
        reason: String,
    },
    /// A text with a character that the database cannot hold (U+0000).
    #[error("a text holds a character that the registry cannot store")]
    Text(#[source] sqlx::Error),
    /// A stored row cannot be read.
    #[error("{entity} `{id}` has an unreadable `{column}`: {reason}")]
    Corrupt {
        /// The kind of row.
        entity: Entity,
        /// Its name.
        id: String,
        /// The column.
        column: &'static str,
        /// The reason.
        reason: String,
    },
    /// A document that would be read differently: it holds a NaN or an infinity.
    #[error("{entity} `{id}` cannot be stored: {reason}")]
    Unstorable {
        /// The kind of row.
        entity: Entity,
        /// Its name.
        id: String,
        /// The reason.
        reason: String,
    },
    /// A later version of the service has updated the schema.
    #[error(
        "the registry's schema is of version `{found}`, and this version of the service knows up \
         to `{known}`: start the later version of the service, or restore the registry as it was \
         before the upgrade"
    )]
    NewerSchema {
        /// The latest applied version.
        found: i64,
        /// The latest version that this service knows.
        known: i64,
    },
    /// The schema is not that of this version of the service, and this call does not change it.
    #[error(
        "the registry's schema is of version `{found}`, and this version of the service has `{known}`: use the version \
         that serves it"
    )]
    OtherSchema {
        /// The latest applied version.
        found: i64,
        /// The latest version that this service knows.
        known: i64,
    },
    /// A table that no version of the service has created.
    #[error(
        "the registry has a table `{table}` that a backup would leave out: move it to another schema"
    )]
    UnknownTable {
        /// Its name.
        table: String,
    },
    /// The registry into which rows are to be inserted is not empty.
    #[error("the registry has rows in `{table}`: a backup is restored into an empty one")]
    NotEmpty {
        /// The table with rows.
        table: &'static str,
    },
    /// A row of a backup that does not fit its table.
    #[error("a row of `{table}` does not fit: {reason}")]
    Row {
        /// The table.
        table: String,
        /// What is wrong with it.
        reason: String,
    },
    /// No version of the service has created this schema.
    #[error("the registry's schema does not fit this version of the service")]
    Schema(#[source] MigrateError),
    /// The folder of the file cannot be created.
    #[error("the registry's folder `{folder}` cannot be created")]
    Folder {
        /// The folder.
        folder: String,
        /// The reason.
        #[source]
        source: std::io::Error,
    },
    /// Any other error of the database.
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
                Entity::Pipeline => Code::PipelineNotFound,
                Entity::Job => Code::JobNotFound,
                Entity::Key => Code::KeyNotFound,
                Entity::Audit | Entity::Blob | Entity::Identity | Entity::Feedback => {
                    Code::Internal
                }
            },
            Self::Exists { entity, .. } => match entity {
                Entity::Application => Code::ApplicationExists,
                Entity::Model => Code::ModelExists,
                Entity::Pipeline => Code::PipelineExists,
                Entity::Variant
                | Entity::Job
                | Entity::Key
                | Entity::Audit
                | Entity::Blob
                | Entity::Identity
                | Entity::Feedback => Code::InUse,
            },
            Self::VersionExists { .. } => Code::ModelExists,
            Self::Version { .. } => Code::VersionConflict,
            Self::Ambiguous { .. } => Code::ModelNotFound,
            Self::InUse { .. } | Self::Cancelled { .. } | Self::LeaseLost { .. } => Code::InUse,
            Self::KeyReused { .. } => Code::IdempotencyKeyReused,
            Self::SignatureMismatch { .. } => Code::SignatureMismatch,
            Self::StorageFull(_) => Code::StorageFull,
            Self::Busy(_) | Self::Unavailable(_) | Self::Condemned { .. } => Code::Unavailable,
            Self::Text(_) => Code::InvalidRequest,
            Self::NotEmpty { .. } => Code::NotEmpty,
            Self::OtherSchema { .. } | Self::UnknownTable { .. } | Self::Row { .. } => {
                Code::InvalidBackup
            }
            Self::Corrupt { .. }
            | Self::Url { .. }
            | Self::NewerSchema { .. }
            | Self::Unstorable { .. }
            | Self::Schema(_)
            | Self::Folder { .. }
            | Self::Database(_) => Code::Internal,
        }
    }

    /// The kind of the error for the caller.
    pub fn kind(&self) -> ErrorKind {
        self.code().kind()
    }

    /// Whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Busy(_) | Self::Unavailable(_))
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
/// Extended code: the index of the write-ahead log cannot grow, which only a full disk causes.
const SQLITE_IOERR_SHMSIZE: u32 = 4874;

/// Errors of SQLite; `Error::of_server` reads those of PostgreSQL.
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

#[cfg(feature = "postgres")]
impl Error {
    /// The error of a wait that has reached its limit.
    pub(crate) fn away() -> Self {
        let source = std::io::Error::from(std::io::ErrorKind::TimedOut);
        Self::Unavailable(sqlx::Error::Io(source))
    }

    /// Errors of PostgreSQL or of the connection to it.
    pub(crate) fn of_server(error: sqlx::Error) -> Self {
        use sqlx::Error::{BeginFailed, Io, PoolTimedOut, Protocol, WorkerCrashed};
        if matches!(
            error,
            Io(_) | PoolTimedOut | Protocol(_) | WorkerCrashed | BeginFailed
        ) {
            return Self::Unavailable(error);
        }
        let state = error.as_database_error().and_then(|error| error.code());
        let state = state.unwrap_or_default().into_owned();
        match state.as_str() {
            // disk_full
            "53100" => Self::StorageFull(error),
            // lock_not_available, query_canceled, idle_in_transaction_session_timeout
            "55P03" | "57014" | "25P03" => Self::Busy(error),
            // read_only_sql_transaction: a standby, until it takes over.
            "25006" => Self::Unavailable(error),
            // character_not_in_repertoire, untranslatable_character
            "22021" | "22P05" => Self::Text(error),
            other => match other.get(..2) {
                // Transactions that conflict; resources and connections that are used up.
                Some("40" | "53") => Self::Busy(error),
                // The connection fails; the server shuts down or starts.
                Some("08" | "57") => Self::Unavailable(error),
                _ => Self::Database(error),
            },
        }
    }
}

/// The references that name one model each.
fn qualified(name: &str, applications: &[ApplicationId]) -> String {
    let applications = applications.iter();
    let references: Vec<String> = applications.map(|of| format!("`{of}:{name}`")).collect();
    references.join(" or ")
}

/// Why the schema cannot be updated. `told` reads the database's own error.
pub(crate) fn schema(
    error: MigrateError,
    known: &sqlx::migrate::Migrator,
    told: impl FnOnce(sqlx::Error) -> Error,
) -> Error {
    match error {
        MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => told(error),
        MigrateError::VersionMissing(found) => Error::NewerSchema {
            found,
            known: known.iter().map(|one| one.version).max().unwrap_or(0),
        },
        other => Error::Schema(other),
    }
}
