//! Errors of the server.

use std::{net::SocketAddr, path::PathBuf};

/// Why KEDA cannot be answered.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address is in use, or does not belong to this machine.
    #[error("cannot listen on `{address}` for KEDA: {reason}; set another address")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        reason: String,
    },
    /// A certificate or key cannot be read.
    #[error("`{path}` cannot be read: {reason}")]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The certificates or the key are not usable.
    #[error("calls of KEDA cannot be encrypted: {0}; check the certificates and the key")]
    Tls(String),
    /// The server ended.
    #[error("the server for KEDA failed: {0}")]
    Serve(String),
}

/// The text of an error with all its causes: the outermost error says little.
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
