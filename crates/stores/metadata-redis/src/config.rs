//! How to reach and use a server.

use std::{fmt, time::Duration};

/// Default number of events that are kept for followers that lag behind: half a minute of 500
/// changes a second.
pub const DEFAULT_HISTORY: usize = 16_384;
/// Default of the longest time of a call.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(2);

/// Which clock is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Clock {
    /// The server's clock: machines with different clocks agree on leases. Times given by callers
    /// are ignored, and times in answers are the server's.
    #[default]
    Server,
    /// The callers' clocks: for tests and simulated time.
    Caller,
}

/// How to reach and use a server. `Debug` leaves out the URL, which may hold a password.
#[derive(Clone)]
pub struct RedisConfig {
    /// `redis://[user:password@]host:port[/database]`.
    pub url: String,
    /// The fleet's name: several fleets may share one server. Without braces.
    pub prefix: String,
    /// Which clock is used.
    pub clock: Clock,
    /// Least number of events that are kept for followers that lag behind. The server may keep a
    /// few more.
    pub history: usize,
    /// Time after which a call ends with an error.
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
