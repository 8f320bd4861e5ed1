//! Inference over HTTP.

use std::{borrow::Cow, time::Instant};

use axum::{
    extract::{Request, State},
    response::Response,
};
use bytes::Bytes;
use sextant_types::Route;
use utoipa::ToSchema;

use super::{
    ResolvedName,
    ask::{Arrival, InferAnswer, Question, ask, read_region},
    named::NamePath,
    raw,
    wire::{self, InferBody},
};
use crate::{
    ApiState,
    auth::Caller,
    codec::sections,
    extract,
    footprint::Footprint,
    problem::Problem,
    query::{json_response, schema::OutputBody},
};

/// An inference response.
#[derive(Debug, ToSchema)]
#[schema(as = InferResponse)]
#[expect(dead_code, reason = "describes what is written by hand")]
pub struct AnswerBody {
    /// The name that was asked for.
    model_name: String,
    /// The version that has answered; `1` if the query asked an application or a variant.
    model_version: String,
    /// The id of the request, if it had one.
    id: Option<String>,
    /// `model`, `variant`, `slo_met`, `batch_rows`, `queue_us`, `compute_us`, `cost_usd`; `feedback_token` if
    /// the application takes feedback, `explanation` if the request asks for one.
    parameters: serde_json::Value,
    /// The requested outputs.
    outputs: Vec<OutputBody>,
}

/// Answers one query by the protocol.
#[utoipa::path(post, operation_id = "v2_infer", path = "/v2/models/{model}/infer", tag = "open inference protocol",
    params(
        ("model" = String, Path, description = "variant, model or application"),
        ("x-slo-latency-ms" = Option<f64>, Header, description = "latency target"),
        ("x-slo-min-accuracy" = Option<f64>, Header, description = "accuracy target"),
        ("x-slo-min-relative-accuracy" = Option<f64>, Header,
            description = "accuracy target as a share of the uploaded file's"),
        ("x-slo-max-error" = Option<f64>, Header, description = "error target"),
        ("x-slo-max-cost-per-1k-usd" = Option<f64>, Header, description = "cost target"),
        ("x-slo-prefer" = Option<String>, Header,
            description = "`cost`, `accuracy` or `latency`: which of the variants that meet the targets answers"),
        ("x-slo-policy" = Option<String>, Header,
            description = "`reject`, or `best_effort`: the closest variant answers if none meets the targets"),
        ("x-slo-preset" = Option<String>, Header, description = "name of one of the application's presets"),
        ("x-slo-sticky" = Option<String>, Header,
            description = "a key of the client's: while a canary is tried, one version answers all queries of one key"),
        ("inference-header-content-length" = Option<usize>, Header,
            description = "length of the JSON part; binary tensors follow"),
    ),
    request_body(content = InferBody<'static>, content_type = "application/json"),
    responses(
        (status = 200, description = "The answer", body = AnswerBody),
    ))]
pub async fn infer(
    State(state): State<ApiState>,
    path: NamePath,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    let (begun, mut route) = (Instant::now(), None);
    let result = answer(&state, path, (&caller, request), &mut route).await;
    if let Err(problem) = &result {
        state.count_query(route.as_ref(), Err((problem.code(), begun.elapsed())));
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
    path: NamePath,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    infer(state, path, caller, request).await
}

async fn answer(
    state: &ApiState,
    NamePath { name, version }: NamePath,
    (caller, request): (&Caller, Request),
    asked: &mut Option<Route>,
) -> Result<Response, Problem> {
    let named = ResolvedName::find_for_query(state, caller, (name, &version), asked).await?;
    let (parts, body) = request.into_parts();
    let body = state.collect(body).await?;
    let arrived = Instant::now();
    let _permit = state.admit()?;
    let signature = Cow::Borrowed(&named.signature);
    let mut footprint = Footprint::new(state.room(), Some(signature));
    let (question, id) = match raw::is_raw(&parts.headers) {
        true => (raw::question(&named.signature, body.bytes().clone())?, None),
        false => {
            let sections = sections::split(&parts.headers, body.bytes())?;
            read(state, caller, sections, &mut footprint)?
        }
    };
    let arrival = Arrival {
        caller,
        headers: &parts.headers,
        at: arrived,
        patience_ms: None,
    };
    let asked = (&named, question);
    let answered = ask(state, asked, arrival, &mut footprint).await?;
    let InferAnswer {
        answer,
        outputs,
        token,
    } = answered;
    let version = named.version_of(state, &answer);
    let told = (&answer, token.as_deref());
    let (json_bytes, out) = wire::answer((&named.name, version, id.as_deref()), told, &outputs);
    drop(outputs);
    let out = footprint.keep(out)?;
    state.count_query(Some(&named.route), Ok((&answer, arrived.elapsed())));
    Ok(match json_bytes {
        Some(json_bytes) => sections::response(json_bytes, out),
        None => json_response(out),
    })
}

/// The question in a body with a JSON part, and its id.
fn read(
    state: &ApiState,
    caller: &Caller,
    (head, tail): (Bytes, Bytes),
    footprint: &mut Footprint<'_>,
) -> Result<(Question, Option<String>), Problem> {
    let request = InferBody::read(&head)?;
    if let Some(id) = &request.id {
        extract::check_query_id(&id.0)?;
    }
    let question = Question {
        demands: request.parameters.demands()?,
        selection: request.selection()?,
        inputs: sections::inputs(
            request.inputs,
            tail,
            &mut footprint.reader(),
            |taken, part| read_region(state, caller, taken, part),
        )?,
    };
    Ok((question, request.id.map(|id| id.0.into_owned())))
}
