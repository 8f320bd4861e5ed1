//! Why a load cannot be sent.

use std::{io, path::PathBuf};

/// Why a load cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address is none.
    #[error("the server `{server}`: {reason}")]
    Address {
        /// As it was given.
        server: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Nobody listens.
    #[error("no server answers at `{server}`")]
    Unreachable {
        /// Where it was looked for.
        server: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file cannot be read.
    #[error("`{}` cannot be read", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file holds something else than it should.
    #[error("`{}`: {reason}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it, and where.
        reason: String,
    },
    /// Inputs cannot be made.
    #[error("input `{input}`: {reason}")]
    Input {
        /// Which input.
        input: String,
        /// Why, and what to do.
        reason: String,
    },
    /// A plan that makes no sense.
    #[error("{0}")]
    Plan(String),
    /// No thread or timer could be had.
    #[error("the load generator cannot start")]
    Start(#[source] io::Error),
}
