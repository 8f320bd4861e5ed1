//! The experiments through the library's public interface.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod azure;
mod bounds;
mod clairvoyant;
mod experiments;
mod fleets;
mod goodput;
mod paged;
mod partition;
mod pooled;
mod replicas;
mod worlds;
