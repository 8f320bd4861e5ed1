//! All routes, registered once: the router and its description come from the same list.

use std::sync::Arc;

use axum::{Router, body::Body, extract::DefaultBodyLimit};
use tower_http::{
    decompression::{DecompressionBody, RequestDecompressionLayer},
    map_request_body::MapRequestBodyLayer,
};
use utoipa::openapi::{ContactBuilder, InfoBuilder, LicenseBuilder, OpenApi, OpenApiBuilder};
use utoipa_axum::{router::OpenApiRouter, routes};
use utoipa_swagger_ui::SwaggerUi;

use crate::{
    ApiState, applications, artefacts, audit,
    auth::{self, Guard, RuleBook},
    cluster, costs, docs, health, jobs, keys, layer, metrics, models,
    problem::responses,
    query, scaling, storage, v2, variants,
};

/// The complete front end.
pub fn router(state: ApiState) -> Router {
    let (router, openapi) = described().split_for_parts();
    let guard = Arc::new(Guard::new(state.clone(), RuleBook::new(&openapi)));
    let openapi = portable(openapi);
    router
        .merge(explorer(openapi))
        .fallback(layer::not_found)
        .method_not_allowed_fallback(layer::method_not_allowed)
        .layer(decompression())
        .layer(axum::middleware::from_fn_with_state(guard, auth::guard))
        .layer(axum::middleware::from_fn_with_state(
            state.clone(),
            layer::finish,
        ))
        .with_state(state)
}

/// Bodies with `Content-Encoding: gzip` or `deflate` are read as what they hold: limits count what comes out. Others
/// are refused by whoever reads them.
fn decompression() -> Decompression {
    let request = RequestDecompressionLayer::new().pass_through_unaccepted(true);
    (request, MapRequestBodyLayer::new(Body::new))
}

/// What makes a body that is read of a body that may be compressed.
type Decompression = (
    RequestDecompressionLayer,
    MapRequestBodyLayer<fn(DecompressionBody<Body>) -> Body>,
);

/// The description of the interface, as served at `/openapi.json`.
pub fn openapi() -> OpenApi {
    portable(described().into_openapi())
}

/// OpenAPI has no notation for a path's rest: `{*path}` becomes `{path}`. Says which keys are
/// asked for.
fn portable(mut openapi: OpenApi) -> OpenApi {
    auth::describe(&mut openapi);
    responses::describe(&mut openapi);
    let paths = std::mem::take(&mut openapi.paths.paths);
    openapi.paths.paths = paths
        .into_iter()
        .map(|(path, item)| (path.replace("{*", "{"), item))
        .collect();
    openapi
}

fn described() -> OpenApiRouter<ApiState> {
    let info = InfoBuilder::new()
        .title("Sextant")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(
            "Model-less inference: say what latency, accuracy and cost you need; Sextant chooses \
             the model variant that answers.",
        ))
        .license(Some(
            LicenseBuilder::new()
                .name("Apache License 2.0")
                .identifier(Some("Apache-2.0"))
                .build(),
        ))
        .contact(Some(
            ContactBuilder::new()
                .name(Some("The Sextant maintainers"))
                .build(),
        ))
        .build();
    OpenApiRouter::with_openapi(OpenApiBuilder::new().info(info).build())
        .routes(routes!(query::create))
        .routes(routes!(applications::create, applications::list))
        .routes(routes!(
            applications::get,
            applications::change,
            applications::delete
        ))
        .routes(routes!(variants::of_application))
        .merge(uploads())
        .routes(routes!(models::create_from_artefacts))
        .routes(routes!(models::get, models::delete))
        .routes(routes!(models::file))
        .routes(routes!(variants::of_model))
        .routes(routes!(variants::get))
        .routes(routes!(jobs::create, jobs::list))
        .routes(routes!(jobs::get, jobs::cancel))
        .routes(routes!(artefacts::list))
        .routes(routes!(
            artefacts::get,
            artefacts::head,
            artefacts::put,
            artefacts::delete
        ))
        .routes(routes!(cluster::workers))
        .routes(routes!(cluster::stats))
        .routes(routes!(cluster::drain))
        .routes(routes!(cluster::instances))
        .routes(routes!(cluster::get))
        .routes(routes!(costs::get))
        .routes(routes!(scaling::get))
        .routes(routes!(scaling::decisions))
        .routes(routes!(scaling::events))
        .routes(routes!(keys::create, keys::list))
        .routes(routes!(keys::revoke))
        .routes(routes!(audit::list))
        .routes(routes!(storage::get))
        .routes(routes!(storage::sweep))
        .merge(v2::routes())
        .routes(routes!(health::live))
        .routes(routes!(health::ready))
        .routes(routes!(metrics::scrape))
        .routes(routes!(docs::index))
        .routes(routes!(docs::error_page))
}

/// The interactive description. Its files are part of the program, and no validator elsewhere is
/// told about this service.
fn explorer(openapi: OpenApi) -> SwaggerUi {
    let config = utoipa_swagger_ui::Config::default().validator_url("none");
    SwaggerUi::new("/docs")
        .config(config)
        .url("/openapi.json", openapi)
}

/// Forms with files: their limit is per file and kept while they are streamed.
fn uploads() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(models::create, models::list))
        .layer(DefaultBodyLimit::disable())
}
