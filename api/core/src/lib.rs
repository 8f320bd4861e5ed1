//! What all handlers of the front end share: the state, keys and callers, metrics, and answering a query.
//!
//! Entry points: [`ApiState`], [`ApiParts`], [`auth`], [`query`], [`Metrics`].
//!
//! **Invariant:** this package does not know the other routes, nor how a variant is chosen: queries go to a dispatcher
//! client, everything else to the stores.

pub mod auth;
pub mod changes;
pub mod explanations;
pub mod feed;
pub mod logging;
pub mod metrics;
pub mod pipelines;
pub mod query;
pub mod regions;
pub mod sessions;
pub mod spending;
pub mod tokens;

mod allowance;
mod directory;
mod embeddings;
mod failures;
mod holds;
mod intake;
mod parts;
mod places;
mod routes;
mod state;
mod workers;

pub use logging::{Logging, SetLevel};
pub use metrics::Metrics;
pub use parts::{ApiParts, Readiness};
pub use routes::routes;
pub use sextant_api_wire::Limits;
pub use state::ApiState;
pub use workers::{Arrival, WorkerPart, Workers};

// Modules of this package use the package below it by these names.
use sextant_api_wire::{
    body, classification, codec, extract, footprint, json, problem, room, targets, trace,
};
