//! The dispatcher over a real worker, store and registry. Only the arithmetic is emulated.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod accuracy;
mod agreement;
mod budgets;
mod churn;
mod costs;
mod demand;
mod fleet;
mod handover;
mod hardware;
mod jobs;
mod metrics;
mod queries;
mod relief;
mod retired;
mod scheduling;
mod severable;
mod world;
