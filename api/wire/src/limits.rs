//! The limits of requests.

use std::time::Duration;

/// Limits of the front end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes of a request body, except uploads, and of the fields of a form.
    pub max_body_bytes: usize,
    /// Most bytes that all requests hold at once: their bodies except the files of uploads, what is made of the bodies,
    /// and answers that clients have not taken. Never less than twice `max_body_bytes`.
    pub max_body_bytes_in_flight: usize,
    /// Most bytes of an uploaded file: model, validation set or artefact.
    pub max_model_bytes: u64,
    /// Most queries that are answered at once; further queries are refused immediately. A query counts from the last
    /// byte of its body on.
    pub max_concurrent_queries: usize,
    /// Longest time from a request's head to the last byte of its body, except uploads.
    pub body_timeout: Duration,
    /// Most open connections.
    pub max_connections: usize,
    /// Longest time for the head of a request, and for the first byte of a connection.
    pub head_timeout: Duration,
    /// Longest time without a request on an open connection.
    pub idle_timeout: Duration,
    /// Least bytes a second of an upload or a download; 0: any.
    pub min_transfer_bytes_per_s: u64,
    /// The time over which that rate is averaged.
    pub transfer_grace: Duration,
    /// Longest time that a shutdown waits for requests in flight.
    pub drain_timeout: Duration,
    /// Time between the beginning of a shutdown, when the service becomes not ready, and the end of new connections.
    pub shutdown_delay: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_body_bytes: 16 << 20,
            max_body_bytes_in_flight: 1 << 30,
            max_model_bytes: 16 << 30,
            max_concurrent_queries: 4096,
            body_timeout: Duration::from_secs(30),
            max_connections: 10_000,
            head_timeout: Duration::from_secs(15),
            // Longer than common clients keep idle connections.
            idle_timeout: Duration::from_secs(120),
            min_transfer_bytes_per_s: 1024,
            transfer_grace: Duration::from_secs(30),
            drain_timeout: Duration::from_secs(30),
            shutdown_delay: Duration::ZERO,
        }
    }
}
