//! Errors of the two stores.

use sextant_types::Code;

use crate::IdentityMismatch;

/// An error of one of the stores. Steps that were done before the error stay done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The registry failed.
    #[error(transparent)]
    Registry(#[from] sextant_registry::Error),
    /// The artefact store failed.
    #[error(transparent)]
    Objects(#[from] sextant_objects::Error),
    /// The registry does not belong to the store.
    #[error("{0}")]
    Mismatch(IdentityMismatch),
    /// The service is shutting down.
    #[error("the sweep was ended: the service is shutting down")]
    Stopped,
}

impl Error {
    /// The stable public code.
    pub fn code(&self) -> Code {
        match self {
            Self::Registry(source) => source.code(),
            Self::Objects(source) => source.code(),
            Self::Mismatch(_) => Code::StoreMismatch,
            Self::Stopped => Code::Unavailable,
        }
    }
}
