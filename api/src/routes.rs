//! All routes, registered once: the router and its description come from the same list.

use std::sync::Arc;

use axum::{Router, body::Body};
use tower_http::{
    decompression::{DecompressionBody, RequestDecompressionLayer},
    map_request_body::MapRequestBodyLayer,
};
use utoipa::openapi::{
    ContactBuilder, InfoBuilder, LicenseBuilder, OpenApi, OpenApiBuilder,
    tag::{Tag, TagBuilder},
};
use utoipa_axum::{router::OpenApiRouter, routes};
use utoipa_swagger_ui::SwaggerUi;

use crate::{
    ApiState, audit,
    auth::{self, Guard, RuleBook},
    cors, docs, examples, health, keys, layer, pages, responses, v2,
};

/// The complete front end.
pub fn router(state: ApiState) -> Router {
    let (router, openapi) = described().split_for_parts();
    let guard = Arc::new(Guard::new(state.clone(), RuleBook::new(&openapi)));
    let openapi = portable(openapi);
    let cross_origin = cors::layer(state.origins());
    let router = router
        .merge(docs::unchanging(explorer(openapi).into()))
        .merge(v2::grpc::routes())
        .merge(pages::routes())
        .fallback(layer::not_found)
        .method_not_allowed_fallback(layer::method_not_allowed)
        .layer(decompression())
        .layer(axum::middleware::from_fn_with_state(guard, auth::guard))
        .layer(axum::middleware::from_fn_with_state(
            state.clone(),
            layer::finish,
        ))
        .with_state(state);
    match cross_origin {
        // Outermost: a browser's preflight request has no key.
        Some(cross_origin) => router.layer(cross_origin),
        None => router,
    }
}

/// Decompresses bodies with `Content-Encoding: gzip` or `deflate`; limits count the decompressed bytes. The reader of
/// the body refuses other encodings.
fn decompression() -> Decompression {
    let request = RequestDecompressionLayer::new().pass_through_unaccepted(true);
    (request, MapRequestBodyLayer::new(Body::new))
}

/// The type of a body after the layer that decompresses it.
type Decompression = (
    RequestDecompressionLayer,
    MapRequestBodyLayer<fn(DecompressionBody<Body>) -> Body>,
);

/// The description of the interface, as served at `/openapi.json`.
pub fn openapi() -> OpenApi {
    portable(described().into_openapi())
}

/// OpenAPI has no notation for the rest of a path: `{*path}` becomes `{path}`. Adds which keys the operations need.
fn portable(mut openapi: OpenApi) -> OpenApi {
    auth::describe(&mut openapi);
    responses::describe(&mut openapi);
    examples::describe(&mut openapi);
    openapi.tags = Some(tags());
    let paths = std::mem::take(&mut openapi.paths.paths);
    openapi.paths.paths = paths
        .into_iter()
        .map(|(path, item)| (path.replace("{*", "{"), item))
        .collect();
    openapi
}

/// The tags, in the order in which people need them.
fn tags() -> Vec<Tag> {
    let tags = [
        (
            "queries",
            "Queries: one, several, vectors, and explanations of their answers.",
        ),
        (
            "applications",
            "What queries ask, and their default targets.",
        ),
        ("models", "Registering trained models."),
        (
            "feedback",
            "What users say of answers, and what that says of models.",
        ),
        (
            "pipelines",
            "Applications that several steps answer: a picture or a sentence in, a label out.",
        ),
        ("variants", "Variants of models and their measurements."),
        (
            "jobs",
            "Registrations, and offline jobs over files of records.",
        ),
        ("artefacts", "Files for jobs and registrations."),
        (
            "open inference protocol",
            "`/v2`, as clients of Triton, KServe and MLServer speak it.",
        ),
        ("keys", "API keys, and the record of who changed what."),
        ("cluster", "Workers and instances."),
        ("scaling", "The desired number of workers, and the reasons."),
        ("storage", "What uses the artefact store."),
        (
            "health",
            "Whether the process lives and is ready, and its metrics.",
        ),
        ("documentation", "Pages of documentation."),
    ];
    let tags = tags.into_iter();
    tags.map(|(name, text)| TagBuilder::new().name(name).description(Some(text)).build())
        .collect()
}

fn described() -> OpenApiRouter<ApiState> {
    let info = InfoBuilder::new()
        .title("Sextant")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(
            "Model-less inference: say what latency, accuracy and cost you need; Sextant chooses \
             the model variant that answers.\n\n\
             Begin with an *application* (`POST /v1/applications`), register a *model* with its validation set \
             (`POST /v1/models`), follow its job (`GET /v1/jobs/{job}`), and ask (`POST /v1/queries`).\n\n\
             Every error is a problem document (RFC 9457) with a stable `code`, whose page is \
             `/docs/errors/{code}`. Lists take `limit` and `after`, which is the `next` of the page before. Every \
             answer names its request in `x-request-id` and continues the trace in `traceparent`.",
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
        .merge(sextant_api_core::routes())
        .merge(sextant_api_models::routes())
        .merge(sextant_api_fleet::routes())
        .merge(v2::routes())
        .routes(routes!(keys::create, keys::list))
        .routes(routes!(keys::get, keys::revoke))
        .routes(routes!(audit::list))
        .routes(routes!(health::live))
        .routes(routes!(health::ready))
        .routes(routes!(docs::index))
        .routes(routes!(docs::error_page))
}

/// The interactive description. Its files are part of the program, and it sends nothing to a validator elsewhere.
fn explorer(openapi: OpenApi) -> SwaggerUi {
    let config = utoipa_swagger_ui::Config::default().validator_url("none");
    SwaggerUi::new("/docs")
        .config(config)
        .url("/openapi.json", openapi)
}
