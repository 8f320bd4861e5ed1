//! What requests may cost.

use std::time::Duration;

use crate::body::BodyLimit;

/// Limits of the front end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes of a request body, uploads excepted.
    pub max_body_bytes: usize,
    /// Most bytes of an uploaded file: model, validation set or artefact.
    pub max_model_bytes: u64,
    /// Most queries in flight; more are refused at once.
    pub max_concurrent_queries: usize,
    /// Longest time from a request's head to the last byte of its body, uploads excepted.
    pub body_timeout: Duration,
    /// Longest time that a shutdown waits for requests in flight.
    pub drain_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_body_bytes: 16 << 20,
            max_model_bytes: 2 << 30,
            max_concurrent_queries: 4096,
            body_timeout: Duration::from_secs(30),
            drain_timeout: Duration::from_secs(30),
        }
    }
}

impl Limits {
    pub(crate) fn body(&self) -> BodyLimit {
        BodyLimit {
            max_bytes: self.max_body_bytes,
            timeout: self.body_timeout,
        }
    }
}
