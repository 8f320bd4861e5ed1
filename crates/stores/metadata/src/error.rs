//! What can go wrong in a metadata store.

use std::sync::Arc;

use sextant_types::{ApplicationId, Code, ErrorKind, WorkerId};

use crate::{Cursor, Instance, InstanceKey, MOST_DEMAND_ROWS, Rejection};

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
    Rejected(#[from] Rejection),
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
    /// Another leads: a record was written under a greater token.
    #[error("`{record}` was written under token `{seen}`, `{token}` leads no more")]
    Fenced {
        /// `desired` or `demand`.
        record: &'static str,
        /// The token of the refused writer.
        token: u64,
        /// The greatest token seen.
        seen: u64,
    },
    /// A demand of too many rows.
    #[error("the demand has `{rows}` rows, at most `{MOST_DEMAND_ROWS}` are kept: add some up")]
    TooManyRows {
        /// Those of the longer list.
        rows: usize,
    },
    /// A demand with a share that is none.
    #[error("the idle share of `{device}` is `{share}`: it must be from 0 to 1")]
    IdleShare {
        /// The kind of device.
        device: Arc<str>,
        /// The refused value.
        share: f64,
    },
    /// A demand with a cost that is not an amount.
    #[error("a cost is `{amount}`: it must be a finite number from 0 on")]
    Amount {
        /// The refused value.
        amount: f64,
    },
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

    /// The public code, where the error reaches a client at all.
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
