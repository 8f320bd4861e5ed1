//! The handlers of what is registered: applications, models, pipelines, files and jobs, and feedback.
//!
//! Entry points: [`routes()`]; each module has the name of its path under `/v1`.
//!
//! **Invariant:** handlers read and write stores through the shared state; none knows how a query is answered.

use axum::extract::DefaultBodyLimit;
use utoipa_axum::{router::OpenApiRouter, routes};

// Modules of this package use the packages below it by these names.
use sextant_api_core::{ApiState, auth, query, tokens};
use sextant_api_wire::{
    body, codec, extract, json, page, precondition, problem, resources, room, signature, targets,
    upload,
};

pub mod applications;
pub mod artefacts;
pub mod feedback;
pub mod jobs;
pub mod models;
pub mod pipelines;

mod once;

/// The routes of all modules.
pub fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(applications::create, applications::list))
        .routes(routes!(
            applications::get,
            applications::change,
            applications::delete
        ))
        .routes(routes!(pipelines::create, pipelines::list))
        .routes(routes!(
            pipelines::get,
            pipelines::change,
            pipelines::replace,
            pipelines::delete
        ))
        .routes(routes!(pipelines::ask))
        .routes(routes!(pipelines::graph))
        .routes(routes!(pipelines::schema))
        .routes(routes!(feedback::give))
        .routes(routes!(feedback::export::get, feedback::erase::delete))
        .routes(routes!(feedback::online::get))
        .merge(uploads())
        .routes(routes!(models::create_from_artefacts))
        .routes(routes!(models::get, models::delete))
        .routes(routes!(models::file))
        .routes(routes!(models::versions::list))
        .routes(routes!(models::versions::trials))
        .routes(routes!(models::versions::change))
        .routes(routes!(models::versions::promote))
        .routes(routes!(models::versions::rollback))
        .routes(routes!(models::retry))
        .routes(routes!(jobs::create, jobs::list))
        .routes(routes!(jobs::get, jobs::cancel))
        .routes(routes!(jobs::events::stream))
        .routes(routes!(artefacts::list))
        .routes(routes!(
            artefacts::get,
            artefacts::head,
            artefacts::put,
            artefacts::delete
        ))
}

/// The routes of forms with files: the limit applies to each file, and is enforced while the file is streamed.
fn uploads() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(models::create, models::list))
        .layer(DefaultBodyLimit::disable())
}
