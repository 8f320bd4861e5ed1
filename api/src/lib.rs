//! The HTTP front end: `/v1` (Sextant's own), `/v2` (Open Inference Protocol), health, metrics, documentation.
//!
//! Entry points: [`ApiState`], [`router`], [`openapi`], [`serve`], [`auth`], [`Tls`].
//!
//! The folder has a package for each part: what all handlers share (`core`), the handlers of what is registered
//! (`models`), the handlers of what runs (`fleet`), the Open Inference Protocol (`v2`), and reading and writing
//! requests (`wire`).
//!
//! **Invariant:** only these packages know HTTP, JSON shapes and OpenAPI, and they never know how a variant is chosen:
//! they send queries to a dispatcher client and everything else to the stores.

pub mod auth;
pub mod cors;

mod audit;
mod docs;
mod examples;
mod health;
mod keys;
mod layer;
mod observe;
mod pages;
mod responses;
mod routes;
mod serve;
mod tls;

pub use observe::observe;
pub use routes::{openapi, router};
pub use serve::{Error, Listener, serve, serve_all};
pub use sextant_api_core::{
    ApiParts, ApiState, Logging, Metrics, Readiness, SetLevel, WorkerPart, Workers,
};
pub use sextant_api_wire::{Limits, problem};
pub use sextant_pipeline::{Interpreter, NoPython};
pub use tls::{Tls, TlsError, TlsFiles};

// Modules of this package use the packages below it by these names.
use sextant_api_core::{changes, explanations, metrics, sessions, spending};
use sextant_api_fleet::{scaling, status, variants};
use sextant_api_models::{feedback, jobs, models, pipelines};
use sextant_api_v2 as v2;
use sextant_api_wire::{body, codec, extract, json, page, precondition, trace};
