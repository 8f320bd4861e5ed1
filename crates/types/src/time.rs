//! Points in time and durations of decisions.

/// Nanoseconds on the caller's clock.
pub type Nanos = u64;

/// A deadline that never comes.
pub const NEVER: Nanos = Nanos::MAX;
