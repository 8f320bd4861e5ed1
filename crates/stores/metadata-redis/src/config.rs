//! How a server is reached and used.

use std::{fmt, time::Duration};

/// Events kept for followers that lag behind: half a minute of 500 changes a second.
pub const DEFAULT_HISTORY: usize = 16_384;
/// How long a call may take.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(2);

/// Whose time counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Clock {
    /// The server's: machines whose clocks differ agree on leases. Times given by callers are
    /// ignored, and times that are answered are the server's.
    #[default]
    Server,
    /// The callers': for tests and simulated time.
    Caller,
}

/// How a server is reached and used. `Debug` leaves the URL out: it may hold a password.
#[derive(Clone)]
pub struct RedisConfig {
    /// `redis://[user:password@]host:port[/database]`.
    pub url: String,
    /// The fleet's name: several fleets may share one server. Without braces.
    pub prefix: String,
    /// Whose time counts.
    pub clock: Clock,
    /// Events kept at least for followers that lag behind; the server may keep a few more.
    pub history: usize,
    /// How long a call may take before it ends with an error.
    pub timeout: Duration,
}

impl RedisConfig {
    /// The defaults, for a server at `url`.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            prefix: "sextant".to_owned(),
            clock: Clock::default(),
            history: DEFAULT_HISTORY,
            timeout: DEFAULT_TIMEOUT,
        }
    }
}

impl fmt::Debug for RedisConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisConfig")
            .field("prefix", &self.prefix)
            .field("clock", &self.clock)
            .field("history", &self.history)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}
