//! Artefacts in an S3 bucket of Amazon or of any server that speaks S3.
//!
//! ```text
//! <prefix>blobs/ab/abcdef..   content-addressed
//! <prefix>files/<path>        named
//! ```
//!
//! Entry points: [`S3Store::open`], [`S3Config`].
//!
//! Every request is retried with growing, random pauses if the store throttles it, is away or
//! breaks off. A download continues where it was cut. Large objects are sent in parts, of which a
//! few are in memory at a time. Blobs are sent with the SHA-256 after which they are named, and are
//! verified when they are read.
//!
//! A multipart upload whose process ended before it could abort the upload stays in the bucket,
//! invisible but charged: give the bucket a lifecycle rule that aborts incomplete uploads after a
//! day.
//!
//! **Invariant:** whole objects or errors, never wrong bytes. No secret reaches a log or an error.

mod client;
mod config;
mod failure;
mod get;
mod keys;
mod list;
mod put;
mod retry;
mod store;
mod upload;

pub use config::{Credentials, S3Config, Secret};
pub use store::S3Store;

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setting is invalid.
    #[error("setting `{setting}` of the artefact store: {problem}")]
    Config {
        /// Its name in [`S3Config`].
        setting: &'static str,
        /// What is wrong, and what would be right.
        problem: String,
    },
    /// The bucket cannot be used: it does not exist, or the credentials give no access to it.
    #[error("bucket `{bucket}` cannot be used: {problem}")]
    Bucket {
        /// Its name.
        bucket: String,
        /// The server's answer.
        problem: String,
    },
    /// The server cannot be reached or is overloaded: another attempt may succeed.
    #[error("bucket `{bucket}` cannot be reached: {problem}")]
    Away {
        /// The bucket's name.
        bucket: String,
        /// The server's answer, or why there was none.
        problem: String,
    },
}
