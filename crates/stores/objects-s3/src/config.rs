//! The configuration with which a store is opened.

use std::{fmt, path::PathBuf, time::Duration};

use crate::{Error, keys::MAX_PREFIX_BYTES};

/// S3 refuses smaller parts, except the last one.
const MIN_PART_BYTES: usize = 5 << 20;

/// A text that is not shown by accident.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

/// The credentials for the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credentials {
    /// Found where the platform's tools look, in this order: environment variables, the default profile, a web identity
    /// token, the container's or machine's role.
    Environment,
    /// A named profile of the shared configuration files.
    Profile(String),
    /// Given here.
    Given {
        /// The access key's id.
        access_key: String,
        /// The access key's secret.
        secret_key: Secret,
    },
}

/// How to reach the bucket and how long to wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct S3Config {
    /// The bucket; it must exist.
    pub bucket: String,
    /// The prefix of every key: empty, or a path that ends in `/`.
    pub prefix: String,
    /// The server's address, `http://` or `https://`; `None` for Amazon's address of the region.
    pub endpoint: Option<String>,
    /// The region; `None` for the environment's, or `us-east-1` if an endpoint is given.
    pub region: Option<String>,
    /// Whether the bucket is named in the path rather than in the host name. Most servers other than Amazon's require
    /// this.
    pub path_style: bool,
    /// The credentials.
    pub credentials: Credentials,
    /// Largest number of attempts for each request, at least 1.
    pub max_attempts: u32,
    /// Mean pause before the second attempt; it doubles with each further one.
    pub backoff: Duration,
    /// The longest pause.
    pub max_backoff: Duration,
    /// Longest time to make a connection.
    pub connect_timeout: Duration,
    /// Longest time until an answer begins, and until its next bytes. A request with a body gets a second more for each
    /// 128 KiB of the body.
    pub timeout: Duration,
    /// Size of the parts in which large objects are sent, bytes; at least 5 MiB. An object has at most 10,000 parts.
    pub part_bytes: usize,
    /// Largest number of concurrent parts of one object. Memory use is one part more than this.
    pub parallel_parts: usize,
    /// Folder for streamed blobs whose name is not known yet: on disk, not in memory, with room for the largest blob.
    /// `None` for the system's temporary folder.
    pub spool: Option<PathBuf>,
}

// === impl Secret ===

impl Secret {
    /// Wraps a text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("..")
    }
}

// === impl S3Config ===

impl S3Config {
    /// A bucket of Amazon's with the defaults for the rest.
    pub fn new(bucket: impl Into<String>) -> Self {
        Self {
            bucket: bucket.into(),
            prefix: String::new(),
            endpoint: None,
            region: None,
            path_style: false,
            credentials: Credentials::Environment,
            max_attempts: 6,
            backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(3),
            timeout: Duration::from_secs(10),
            part_bytes: 8 << 20,
            parallel_parts: 4,
            spool: None,
        }
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        let fault = |setting, problem: &str| {
            Err(Error::Config {
                setting,
                problem: problem.to_owned(),
            })
        };
        if self.bucket.is_empty() || self.bucket.contains(['/', ':', ' ']) {
            return fault("bucket", "give a bucket's name, without `s3://` and path");
        }
        if !self.prefix.is_empty() && (!self.prefix.ends_with('/') || self.prefix.starts_with('/'))
        {
            return fault("prefix", "it must end in `/` and not begin with one");
        }
        if self.prefix.len() > MAX_PREFIX_BYTES {
            return fault("prefix", "it is longer than 256 bytes");
        }
        if let Some(endpoint) = &self.endpoint {
            let host = endpoint.split_once("://");
            // The address may hold a password: the error does not repeat it.
            match host {
                Some(("http" | "https", host)) if host.contains('@') => {
                    return fault(
                        "endpoint",
                        "it has a user name: give an access key as the credentials instead",
                    );
                }
                Some(("http" | "https", host)) if !host.is_empty() => {}
                _ => return fault("endpoint", "it must begin with `http://` or `https://`"),
            }
        }
        if self.part_bytes < MIN_PART_BYTES {
            return fault("part_bytes", "it must be at least 5 MiB");
        }
        if self.max_attempts == 0 || self.parallel_parts == 0 {
            return fault("max_attempts, parallel_parts", "they must be at least 1");
        }
        Ok(())
    }
}
