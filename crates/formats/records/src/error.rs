//! The errors of a file of records.

use sextant_objects::ObjectPath;
use sextant_types::Code;

/// An error that ends the reading or writing of a whole file.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The artefact store failed.
    #[error(transparent)]
    Objects(#[from] sextant_objects::Error),
    /// The file is not what it should be.
    #[error("`{path}`: {reason}")]
    Input {
        /// Its path.
        path: String,
        /// What is wrong and what to do.
        reason: String,
    },
    /// The file changed while it was read.
    #[error("`{path}` changed while it was read: start the job again")]
    Changed {
        /// Its path.
        path: String,
    },
    /// The answers do not fit the output's format.
    #[error("the answers cannot be written as {format}: {reason}")]
    Output {
        /// Which format.
        format: &'static str,
        /// What does not fit and what to do.
        reason: String,
    },
    /// A part of the output is damaged.
    #[error("part `{path}` of the output is damaged: {reason}")]
    Part {
        /// Its path.
        path: String,
        /// What is wrong.
        reason: &'static str,
    },
}

impl Error {
    /// The stable public code.
    pub fn code(&self) -> Code {
        match self {
            Self::Objects(error) => error.code(),
            Self::Input { .. } | Self::Changed { .. } => Code::InvalidRecord,
            Self::Output { .. } => Code::InvalidRequest,
            Self::Part { .. } => Code::Internal,
        }
    }

    pub(crate) fn input(path: &ObjectPath, reason: impl Into<String>) -> Self {
        Self::Input {
            path: path.to_string(),
            reason: reason.into(),
        }
    }

    pub(crate) fn output(format: &'static str, reason: impl Into<String>) -> Self {
        Self::Output {
            format,
            reason: reason.into(),
        }
    }
}
