//! Points in time and durations for decisions, and the wall clock.

use std::time::{SystemTime, UNIX_EPOCH};

/// Nanoseconds on the caller's clock.
pub type Nanos = u64;

/// A deadline that never comes.
pub const NEVER: Nanos = Nanos::MAX;

/// Milliseconds since the Unix epoch by this machine's clock; 0 before it. It is for times that outlive a process or
/// are sent to others. Durations are measured by a clock that cannot be set.
pub fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}
