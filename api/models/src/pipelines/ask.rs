//! `POST /v1/pipelines/{pipeline}/queries`: the body is a file, the response is an answer.

use std::time::Instant;

use axum::{
    extract::{Request, State},
    response::Response,
};
use serde::Deserialize;
use sextant_rpc::Query;
use sextant_types::{
    ApplicationId, Code, NamedTensor, Route, Signature, Tensor, TensorSpec, Texts,
};

use crate::{
    ApiState,
    auth::Caller,
    extract::{Name, Params},
    problem::{Problem, ProblemBody},
    query::{self, schema},
    targets::TargetsBody,
};

/// The parameters beside the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AskParams {
    latency_ms: Option<f64>,
    preset: Option<String>,
    #[serde(default)]
    explain: bool,
    #[serde(default)]
    best_effort: bool,
}

/// Answers a query whose only input is the body as it is: a picture or a sentence. This is for pipelines
/// with one input of strings; use `POST /v1/queries` for others.
#[utoipa::path(post, operation_id = "pipelines_ask", path = "/v1/pipelines/{pipeline}/queries", tag = "queries",
    params(
        ("pipeline" = String, Path, description = "its name"),
        ("latency_ms" = Option<f64>, Query, description = "the latency target, ms"),
        ("preset" = Option<String>, Query, description = "the name of one of the application's presets"),
        ("explain" = Option<bool>, Query, description = "show the result of each step"),
        ("best_effort" = Option<bool>, Query, description = "answer even if no variant meets the targets"),
    ),
    request_body(content = Vec<u8>, content_type = "application/octet-stream", description = "the element itself"),
    responses(
        (status = 200, description = "The answer", body = schema::AnswerBody),
        (status = 422, description = "Nothing can meet the targets", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub async fn ask(
    State(state): State<ApiState>,
    caller: Caller,
    Name(name): Name<ApplicationId>,
    Params(params): Params<AskParams>,
    request: Request,
) -> Result<Response, Problem> {
    let (begun, route) = (Instant::now(), Route::Application(name));
    let mut asked = None;
    let result = Box::pin(answered(
        &state, &caller, &route, params, request, &mut asked,
    ))
    .await;
    if let Err(problem) = &result {
        state.count_query(asked.as_ref(), Err((problem.code(), begun.elapsed())));
    }
    result
}

async fn answered(
    state: &ApiState,
    caller: &Caller,
    route: &Route,
    params: AskParams,
    request: Request,
    asked: &mut Option<Route>,
) -> Result<Response, Problem> {
    let body = state.collect(request.into_body()).await?;
    let arrived = Instant::now();
    let _permit = state.admit()?;
    let Route::Application(name) = route else {
        return Err(missing("it"));
    };
    let pipeline = state
        .pipelines()
        .get(name)
        .ok_or_else(|| missing(name.as_str()))?;
    let graph = pipeline.graph();
    let graph = graph.map_err(|why| {
        Problem::new(Code::Unavailable, format!("the pipeline cannot run: {why}"))
    })?;
    let input = only_input(&graph.signature)?;
    let text = Texts::one(body.bytes().clone());
    let tensor = text.and_then(|text| Tensor::from_texts(vec![1; input.shape.len()], text));
    let tensor = tensor.map_err(|error| Problem::new(Code::InvalidTensor, error.to_string()))?;
    let targets = TargetsBody {
        latency_ms: params.latency_ms,
        ..TargetsBody::default()
    };
    let query = Query {
        targets: state.targets_with(route, params.preset.as_deref(), targets)?,
        best_effort: params.best_effort,
        explain: params.explain,
        ..Query::new(
            route.clone(),
            vec![NamedTensor::new(&input.name, tensor)],
            arrived,
        )
    };
    query::answer_plain(state, caller, query, asked).await
}

fn missing(name: &str) -> Problem {
    Problem::new(
        Code::PipelineNotFound,
        format!("there is no pipeline `{name}`"),
    )
}

/// The only input of a pipeline, which the body becomes.
fn only_input(signature: &Signature) -> Result<&TensorSpec, Problem> {
    signature.only_text().ok_or_else(|| {
        let names = signature.inputs.iter().map(|it| format!("`{}`", it.name));
        let detail = format!(
            "a body is one input of strings, and the pipeline's inputs are {}: ask it with `POST /v1/queries`",
            names.collect::<Vec<_>>().join(", ")
        );
        Problem::new(Code::InvalidRequest, detail)
    })
}
