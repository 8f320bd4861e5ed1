//! The routes of queries and of metrics.

use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{ApiState, embeddings, metrics, query};

/// The routes of queries and of metrics.
pub fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(query::create))
        .routes(routes!(query::batch::create))
        .routes(routes!(query::explained::get))
        .routes(routes!(embeddings::create))
        .routes(routes!(metrics::scrape))
}
