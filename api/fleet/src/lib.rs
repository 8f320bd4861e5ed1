//! The handlers of what runs and of its costs: variants, instances, workers, scaling, costs, storage.
//!
//! Entry points: [`routes()`]; each module has the name of its path under `/v1`.
//!
//! **Invariant:** handlers show what stores and metrics say. They change only two things: whether a worker leaves, and
//! the artefact store.

use utoipa_axum::{router::OpenApiRouter, routes};

// Modules of this package use the packages below it by these names.
use sextant_api_core::{ApiState, auth, feed, metrics};
use sextant_api_wire::{codec, extract, json, page, problem, targets};

pub mod cluster;
pub mod costs;
pub mod scaling;
pub mod status;
pub mod storage;
pub mod variants;

/// The routes of all modules.
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
