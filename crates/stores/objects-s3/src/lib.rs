//! Artefacts in an S3 bucket, or in a bucket of any server that speaks S3.
//!
//! ```text
//! <prefix>blobs/ab/abcdef..   content-addressed
//! <prefix>files/<path>        named
//! ```
//!
//! Entry points: [`S3Store::open`], [`S3Config`].
//!
//! Every request is tried again with growing, random pauses when the store is throttled, away or
//! broke off; a download goes on where it was cut. What is large is sent in parts of which a few are
//! in memory at a time. Blobs are sent with the SHA-256 they are named after and verified when read.
//!
//! An upload in parts that its process did not live to abort stays in the bucket, unseen but paid
//! for: give the bucket a lifecycle rule that aborts incomplete uploads after a day.
//!
//! **Invariant:** whole objects or errors, never wrong bytes; no secret reaches a log or an error.

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
    /// A setting cannot be used as it is.
    #[error("setting `{setting}` of the artefact store: {problem}")]
    Config {
        /// Its name in [`S3Config`].
        setting: &'static str,
        /// What is wrong, and what would be right.
        problem: String,
    },
    /// The bucket cannot be used: it does not exist, or the credentials do not open it.
    #[error("bucket `{bucket}` cannot be used: {problem}")]
    Bucket {
        /// Its name.
        bucket: String,
        /// What the server said.
        problem: String,
    },
    /// The server cannot be reached, or can do nothing now: another attempt may succeed.
    #[error("bucket `{bucket}` cannot be reached: {problem}")]
    Away {
        /// The bucket's name.
        bucket: String,
        /// What the server said, or why it could not be asked.
        problem: String,
    },
}
