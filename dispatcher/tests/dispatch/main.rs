//! The dispatcher over a real worker, store and registry; only the arithmetic is made up.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod churn;
mod fleet;
mod handover;
mod jobs;
mod queries;
mod scheduling;
mod severable;
mod world;
