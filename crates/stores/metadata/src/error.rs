//! Errors of a metadata store.

use std::sync::Arc;

use sextant_types::{ApplicationId, Code, ErrorKind, WorkerId};

use crate::{Cursor, Instance, InstanceKey, MOST_DEMAND_ROWS, Rejection};

/// An error of a metadata store. The store is unchanged after every error except
/// [`Unavailable`](Self::Unavailable), after which the call may have been done or may still be
/// done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The instance is not at the version that the caller expected.
    #[error(
        "instance `{key}` is at version `{}`, not `{expected}`",
        .current.as_ref().map_or(0, |current| current.version)
    )]
    Conflict {
        /// The instance.
        key: InstanceKey,
        /// The expected version; 0 means that the instance must not exist.
        expected: u64,
        /// The present record.
        current: Option<Box<Instance>>,
    },
    /// The state machine refused the command.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// The instance belongs to another application.
    #[error("instance `{key}` belongs to application `{application}`")]
    OtherApplication {
        /// The instance.
        key: InstanceKey,
        /// The application to which it belongs.
        application: ApplicationId,
    },
    /// The worker holds no lease: it never sent a heartbeat, or it was expired.
    #[error("worker `{0}` holds no lease: it must send a heartbeat first")]
    UnknownWorker(WorkerId),
    /// Another process leads: a record was written under a greater token.
    #[error("`{record}` was written under token `{seen}`, `{token}` leads no more")]
    Fenced {
        /// `desired` or `demand`.
        record: &'static str,
        /// The token of the refused writer.
        token: u64,
        /// The greatest token seen.
        seen: u64,
    },
    /// A demand with too many rows.
    #[error("the demand has `{rows}` rows, at most `{MOST_DEMAND_ROWS}` are kept: add some up")]
    TooManyRows {
        /// Number of rows of the longest list.
        rows: usize,
    },
    /// A demand with a share outside 0 to 1.
    #[error("the idle share of `{device}` is `{share}`: it must be from 0 to 1")]
    IdleShare {
        /// The kind of device.
        device: Arc<str>,
        /// The refused value.
        share: f64,
    },
    /// A demand with a cost that is negative or not finite.
    #[error("a cost is `{amount}`: it must be a finite number from 0 on")]
    Amount {
        /// The refused value.
        amount: f64,
    },
    /// The feed no longer holds the events after the cursor: take a snapshot.
    #[error("the change feed begins at `{oldest}`, the cursor is `{cursor}`: take a snapshot")]
    Trimmed {
        /// The requested cursor.
        cursor: Cursor,
        /// The oldest cursor from which the feed can be resumed.
        oldest: Cursor,
    },
    /// The store cannot be reached.
    #[error("the metadata store is not available: {reason}")]
    Unavailable {
        /// The reason.
        reason: String,
    },
}

impl Error {
    /// The kind of the error for a caller of the service.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Conflict { .. }
            | Self::Rejected(_)
            | Self::OtherApplication { .. }
            | Self::Fenced { .. } => ErrorKind::Conflict,
            Self::TooManyRows { .. } => ErrorKind::TooLarge,
            Self::IdleShare { .. } | Self::Amount { .. } => ErrorKind::Invalid,
            Self::UnknownWorker(_) | Self::Unavailable { .. } => ErrorKind::Unavailable,
            Self::Trimmed { .. } => ErrorKind::Internal,
        }
    }

    /// The public code, if the error reaches a client at all.
    pub fn code(&self) -> Code {
        match self.kind() {
            ErrorKind::Conflict => Code::InUse,
            ErrorKind::TooLarge => Code::TooLarge,
            ErrorKind::Invalid => Code::InvalidRequest,
            ErrorKind::Unavailable => Code::Unavailable,
            _ => Code::Internal,
        }
    }
}
