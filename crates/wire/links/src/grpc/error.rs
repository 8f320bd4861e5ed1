//! Errors of connections between processes.

use std::path::PathBuf;

/// Why a process cannot be reached, or cannot be made reachable.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No process answers there, or not in time.
    #[error("`{endpoint}` cannot be reached: {reason}")]
    Unreachable {
        /// `host:port`.
        endpoint: String,
        /// The error of the attempt.
        reason: String,
    },
    /// The process there refuses this one.
    #[error("`{endpoint}` refuses: {reason}")]
    Refused {
        /// `host:port`.
        endpoint: String,
        /// Its reason.
        reason: String,
    },
    /// Not `host:port`.
    #[error("`{0}` is not an address: write `host:port`")]
    Endpoint(String),
    /// A name that cannot be sent.
    #[error("fleet name `{0}` has characters other than printable ASCII")]
    Fleet(String),
    /// The address is in use, or does not belong to this machine.
    #[error("cannot listen on `{address}`: {reason}")]
    Listen {
        /// The address.
        address: std::net::SocketAddr,
        /// The system's error.
        reason: String,
    },
    /// The address of this process that others can use is not known.
    #[error("nobody can be told how to reach this machine: set `fleet.advertise` to `host:port`")]
    Advertise,
    /// A certificate or key cannot be read.
    #[error("`{path}` cannot be read: {reason}")]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The certificates or the key are not usable.
    #[error("encryption between processes cannot be set up: {0}")]
    Tls(String),
    /// The server ended.
    #[error("the server failed: {0}")]
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
