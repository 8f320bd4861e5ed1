//! What can go wrong.

use std::{net::SocketAddr, path::PathBuf};

/// Why KEDA cannot be answered.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address is taken or not one of this machine's.
    #[error("cannot listen on `{address}` for KEDA: {reason}; set another address")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        reason: String,
    },
    /// A certificate or key cannot be read.
    #[error("`{path}` cannot be read: {reason}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// The certificates or the key are not usable.
    #[error("calls of KEDA cannot be encrypted: {0}; check the certificates and the key")]
    Tls(String),
    /// The server ended.
    #[error("the server for KEDA failed: {0}")]
    Serve(String),
}

/// An error with all that caused it: the outermost says little.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}
