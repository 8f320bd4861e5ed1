//! The HTTP front end: `/v1` (Sextant's own), `/v2` (Open Inference Protocol), health, metrics,
//! documentation.
//!
//! Entry points: [`ApiState`], [`router`], [`openapi`], [`serve`], [`auth`], [`Tls`].
//!
//! **Invariant:** only this crate knows HTTP, JSON shapes and OpenAPI, and it never knows how a
//! variant is chosen: queries go to a dispatcher client, everything else to the stores.

pub mod auth;
pub mod cors;

mod applications;
mod artefacts;
mod audit;
mod cluster;
mod costs;
mod docs;
mod examples;
mod feedback;
mod health;
mod jobs;
mod keys;
mod layer;
mod models;
mod observe;
mod once;
mod pages;
mod pipelines;
mod responses;
mod routes;
mod scaling;
mod serve;
mod status;
mod storage;
mod tls;
mod variants;

pub use observe::observe;
pub use routes::{openapi, router};
pub use serve::{Error, Listener, serve, serve_all};
pub use sextant_api_core::{
    ApiParts, ApiState, Logging, Metrics, Readiness, SetLevel, WorkerPart, Workers,
};
pub use sextant_api_wire::{Limits, problem};
pub use sextant_pipeline::{Interpreter, NoPython};
pub use tls::{Tls, TlsError, TlsFiles};

// What modules know by these names lies in packages beneath.
use sextant_api_core::{
    changes, explanations, feed, logging, metrics, query, regions, sessions, spending, tokens,
};
use sextant_api_v2 as v2;
use sextant_api_wire::{
    body, classification, codec, extract, footprint, json, page, precondition, resources, room,
    signature, targets, trace, upload,
};
