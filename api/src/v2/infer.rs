//! Inference by the protocol.

use std::time::Instant;

use axum::{
    extract::{Request, State},
    response::Response,
};
use sextant_rpc::Query;
use utoipa::ToSchema;

use super::{
    Named,
    wire::{self, Columns, InferBody},
};
use crate::{ApiState, codec::sections, problem::Problem, query::schema::OutputBody};

/// An inference response.
#[derive(Debug, ToSchema)]
#[schema(as = InferResponse)]
#[expect(dead_code, reason = "describes what is written by hand")]
pub struct AnswerBody {
    /// The name that was asked for.
    model_name: String,
    /// `1`.
    model_version: String,
    /// The id of the request, if it had one.
    id: Option<String>,
    /// `model`, `variant`, `slo_met`, `batch_rows`, `queue_us`, `compute_us`.
    parameters: serde_json::Value,
    /// The wanted outputs.
    outputs: Vec<OutputBody>,
}

/// Answers one query by the protocol.
#[utoipa::path(post, operation_id = "v2_infer", path = "/v2/models/{model}/infer", tag = "open inference protocol",
    params(
        ("model" = String, Path, description = "variant, model or application"),
        ("x-slo-latency-ms" = Option<f64>, Header, description = "latency target"),
        ("x-slo-min-accuracy" = Option<f64>, Header, description = "accuracy target"),
        ("inference-header-content-length" = Option<usize>, Header,
            description = "length of the JSON part; binary tensors follow"),
    ),
    request_body(content = InferBody<'static>, content_type = "application/json"),
    responses(
        (status = 200, description = "The answer", body = AnswerBody),
    ))]
pub async fn infer(
    State(state): State<ApiState>,
    named: Named,
    request: Request,
) -> Result<Response, Problem> {
    let route = named.route.clone();
    let result = answer(&state, named, request).await;
    if let Err(problem) = &result {
        state.count_query(Some(&route), Err(problem.code()));
    }
    result
}

/// The same for a version.
#[utoipa::path(post, operation_id = "v2_infer_version", path = "/v2/models/{model}/versions/{version}/infer",
    tag = "open inference protocol",
    params(
        ("model" = String, Path, description = "variant, model or application"),
        ("version" = String, Path, description = "`1`"),
    ),
    request_body(content = InferBody<'static>, content_type = "application/json"),
    responses((status = 200, description = "The answer", body = AnswerBody)))]
pub async fn infer_version(
    state: State<ApiState>,
    named: Named,
    request: Request,
) -> Result<Response, Problem> {
    infer(state, named, request).await
}

async fn answer(state: &ApiState, named: Named, request: Request) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let body = state.collect(body).await?;
    let arrived = Instant::now();
    let _permit = state.admit()?;
    let (head, tail) = sections::split(&parts.headers, body.bytes())?;
    let request = InferBody::read(&head)?;
    let selection = request.selection();
    selection.check(&named.signature.outputs)?;
    let targets = request.parameters.targets(&parts.headers)?;
    let query = Query {
        targets: state.targets(&named.route, targets)?,
        best_effort: request.parameters.best_effort()?,
        explain: request.parameters.explain,
        inputs: sections::inputs(request.inputs, tail)?,
        route: named.route.clone(),
        arrived,
    };
    let id = request.id.map(|id| id.0.into_owned());
    let _share = state.admit_for(&named.route)?;
    let answer = state.dispatcher().query(query).await?;
    let scored = match selection.any_classes() {
        true => Box::pin(state.classes().of(&answer.model, state.registry())).await?,
        false => None,
    };
    let told = (named.name.as_str(), id.as_deref());
    let columns = Columns {
        batched: named.signature.batched,
        scored: scored.as_deref(),
    };
    let response = wire::answer(told, &answer, &selection, columns)?;
    state.count_query(Some(&named.route), Ok((&answer, arrived.elapsed())));
    Ok(response)
}
