//! What can go wrong in a metadata store.

use sextant_types::{ApplicationId, Code, ErrorKind, WorkerId};

use crate::{Cursor, Instance, InstanceKey, Rejected};

/// An error of a metadata store. After any of them the store is unchanged, but for
/// [`Unavailable`](Self::Unavailable), after which the call may have been done or may yet be done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The instance is not at the version that the caller expected.
    #[error(
        "instance `{key}` is at version `{}`, not `{expected}`",
        .current.as_ref().map_or(0, |current| current.version)
    )]
    Conflict {
        /// Which instance.
        key: InstanceKey,
        /// The version expected; 0 means that it must not exist.
        expected: u64,
        /// What is there.
        current: Option<Box<Instance>>,
    },
    /// The state machine refused the command.
    #[error(transparent)]
    Rejected(#[from] Rejected),
    /// The instance belongs to another application.
    #[error("instance `{key}` belongs to application `{application}`")]
    OtherApplication {
        /// Which instance.
        key: InstanceKey,
        /// The application it belongs to.
        application: ApplicationId,
    },
    /// The worker holds no lease: it never sent a heartbeat, or its lease was expired.
    #[error("worker `{0}` holds no lease: it must send a heartbeat first")]
    UnknownWorker(WorkerId),
    /// The feed no longer holds what follows the cursor: take a snapshot.
    #[error("the change feed begins at `{oldest}`, the cursor is `{cursor}`: take a snapshot")]
    Trimmed {
        /// The cursor asked for.
        cursor: Cursor,
        /// The oldest cursor that can be resumed from.
        oldest: Cursor,
    },
    /// The store cannot be reached.
    #[error("the metadata store is not available: {reason}")]
    Unavailable {
        /// Why.
        reason: String,
    },
}

impl Error {
    /// What the error means for a caller of the service.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Conflict { .. } | Self::Rejected(_) | Self::OtherApplication { .. } => {
                ErrorKind::Conflict
            }
            Self::UnknownWorker(_) | Self::Unavailable { .. } => ErrorKind::Unavailable,
            Self::Trimmed { .. } => ErrorKind::Internal,
        }
    }

    /// The public code, where the error reaches a client at all.
    pub fn code(&self) -> Code {
        match self.kind() {
            ErrorKind::Conflict => Code::InUse,
            ErrorKind::Unavailable => Code::Unavailable,
            _ => Code::Internal,
        }
    }
}
