//! What runs and what it costs: variants, instances, workers, scaling, costs, storage.
//!
//! Entry points: [`routes()`]; the modules are called as their paths under `/v1`.
//!
//! **Invariant:** handlers tell what stores and metrics say; all they change is a worker's leave and the artefact store's.

use utoipa_axum::{router::OpenApiRouter, routes};

// Modules know what lies beneath by these names.
use sextant_api_core::{ApiState, auth, feed, metrics};
use sextant_api_wire::{codec, extract, json, page, problem, targets};

pub mod cluster;
pub mod costs;
pub mod scaling;
pub mod status;
pub mod storage;
pub mod variants;

/// Their routes.
pub fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(status::get))
        .routes(routes!(variants::of_application))
        .routes(routes!(variants::of_model))
        .routes(routes!(variants::get))
        .routes(routes!(variants::list))
        .routes(routes!(cluster::workers))
        .routes(routes!(cluster::stats))
        .routes(routes!(cluster::drain))
        .routes(routes!(cluster::instances))
        .routes(routes!(cluster::get))
        .routes(routes!(costs::get))
        .routes(routes!(scaling::get))
        .routes(routes!(scaling::decisions))
        .routes(routes!(scaling::events))
        .routes(routes!(storage::get))
        .routes(routes!(storage::sweep))
        .routes(routes!(storage::adopt))
}
