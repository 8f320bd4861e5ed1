//! Instance state machine, leases and change feed.
