//! The HTTP front end: `/v1` (Sextant's own), `/v2` (Open Inference Protocol), health, metrics,
//! documentation.
//!
//! Entry points: [`ApiState`], [`router`], [`openapi`], [`serve`], [`auth`], [`Tls`].
//!
//! **Invariant:** only this crate knows HTTP, JSON shapes and OpenAPI, and it never knows how a
//! variant is chosen: queries go to a dispatcher client, everything else to the stores.

pub mod auth;
pub mod body;
pub mod codec;
pub mod cors;
pub mod json;
pub mod limits;
pub mod problem;
pub mod room;

mod allowance;
mod applications;
mod artefacts;
mod audit;
mod changes;
mod classification;
mod cluster;
mod costs;
mod directory;
mod docs;
mod embeddings;
mod examples;
mod explanations;
mod extract;
mod failures;
mod feedback;
mod footprint;
mod health;
mod jobs;
mod keys;
mod layer;
mod metrics;
mod models;
mod observe;
mod once;
mod page;
mod pages;
mod pipelines;
mod places;
mod precondition;
mod query;
mod resources;
mod routes;
mod scaling;
mod serve;
mod signature;
mod state;
mod status;
mod storage;
mod targets;
mod tls;
mod trace;
mod upload;
mod v2;
mod variants;
mod workers;

pub use limits::Limits;
pub use metrics::Metrics;
pub use observe::observe;
pub use routes::{openapi, router};
pub use serve::{Error, Listener, serve, serve_all};
pub use sextant_pipeline::{Interpreter, NoPython};
pub use state::{ApiParts, ApiState, Readiness};
pub use tls::{Tls, TlsError, TlsFiles};
pub use v2::{Logging, SetLevel};
pub use workers::{WorkerPart, Workers};
