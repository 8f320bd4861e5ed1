//! Loading and unloading by name, which Triton's clients do before and after their queries.
//!
//! The autoscaler decides what is loaded where, and it decides by queries. So a synthetic query of zeros loads a name:
//! it waits, as every query does, until a variant is loaded. Further synthetic queries from time to time hold the name,
//! so that the variant that answers them does not count as idle. Nothing else is kept for a held name: if memory is
//! short, its variant is unloaded as others are, and loaded again later.
//!
//! For a pipeline, each target of its steps is loaded and held by a query of its own: zeros are no picture, so a query
//! of zeros to the whole pipeline may end in its first step.

use std::{collections::HashMap, time::Duration};

use axum::{
    Extension,
    body::Body,
    extract::{Request, State},
    http::StatusCode,
};
use serde::Deserialize;
use serde_json::value::RawValue;
use sextant_rpc::{DispatcherClient, Query, QueryError};
use sextant_types::{
    Code, DataType, NamedTensor, Route, Signature, Targets, Tensor, TensorSpec, Texts,
};
use tokio::time::{Instant, sleep, timeout_at};
use utoipa::ToSchema;

use super::ResolvedName;
use crate::{ApiState, auth::Subject, body::body_too_large, json, problem::Problem};

/// Longest wait for a load.
const LONGEST_LOAD: Duration = Duration::from_secs(120);

/// Pause if the dispatcher says that a variant is being loaded, but not when it will be ready.
const AGAIN: Duration = Duration::from_millis(100);

/// Time between two queries that hold a name.
const HOLD_EVERY: Duration = Duration::from_secs(30);

/// What may be said of a load or an unload.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = RepositoryChange)]
pub struct ChangeBody<'a> {
    /// The service accepts `unload_dependents` and ignores it. It refuses `config` and files: models must be
    /// registered.
    #[serde(borrow, default, deserialize_with = "json::or_default")]
    #[schema(value_type = Option<std::collections::BTreeMap<String, serde_json::Value>>)]
    parameters: HashMap<&'a str, &'a RawValue>,
}

/// An empty answer, and the name of what was changed.
pub(super) type ChangeResponse = (Extension<Subject>, StatusCode);

/// Has a variant loaded and waits until it has answered. From then on the variant does not count as idle.
#[utoipa::path(post, operation_id = "v2_load", path = "/v2/repository/models/{model}/load",
    tag = "open inference protocol",
    params(("model" = String, Path, description = "variant, model or application")),
    request_body(content = Option<ChangeBody<'static>>, content_type = "application/json"),
    responses(
        (status = 200, description = "It can be answered at once"),
        (status = 404, description = "Nothing of that name exists", body = crate::problem::ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub async fn load(
    State(state): State<ApiState>,
    named: ResolvedName,
    request: Request,
) -> Result<ChangeResponse, Problem> {
    check_body(&state, request.into_body()).await?;
    let subject = Subject(named.name.clone());
    make_ready(&state, named).await?;
    Ok((Extension(subject), StatusCode::OK))
}

/// Lets a name count as idle again. Its variants stay loaded until others need their memory or they have
/// been idle for long.
#[utoipa::path(post, operation_id = "v2_unload", path = "/v2/repository/models/{model}/unload",
    tag = "open inference protocol",
    params(("model" = String, Path, description = "variant, model or application")),
    request_body(content = Option<ChangeBody<'static>>, content_type = "application/json"),
    responses(
        (status = 200, description = "It is not held any more"),
        (status = 404, description = "Nothing of that name exists", body = crate::problem::ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub async fn unload(
    State(state): State<ApiState>,
    named: ResolvedName,
    request: Request,
) -> Result<ChangeResponse, Problem> {
    check_body(&state, request.into_body()).await?;
    state.holds().release(&named.name);
    Ok((Extension(Subject(named.name)), StatusCode::OK))
}

async fn check_body(state: &ApiState, body: Body) -> Result<(), Problem> {
    let body = state.collect_document(body).await?;
    if body.trim_ascii().is_empty() {
        return Ok(());
    }
    let said: ChangeBody<'_> = json::borrowed(&body)?;
    check_parameters(said.parameters.keys().copied())
}

/// Refuses parameters that would supply a model.
pub(super) fn check_parameters<'a>(
    names: impl IntoIterator<Item = &'a str>,
) -> Result<(), Problem> {
    let brings = |name: &&str| *name == "config" || name.starts_with("file:");
    match names.into_iter().find(brings) {
        None => Ok(()),
        Some(name) => {
            let name = crate::codec::short(name);
            let detail =
                format!("`{name}` is not taken here: register models at `POST /v1/models`");
            Err(Problem::new(Code::InvalidRequest, detail).field("parameters"))
        }
    }
}

/// Loads a variant of a name, and holds it.
pub(super) async fn make_ready(state: &ApiState, named: ResolvedName) -> Result<(), Problem> {
    let max_bytes = state.limits().max_body_bytes;
    let asked = (named.route, Targets::default());
    let whole = SyntheticQuery::of(asked, &named.signature, max_bytes)?;
    let until = Instant::now() + LONGEST_LOAD;
    let loaded = timeout_at(until, whole.load_all(state)).await;
    loaded.unwrap_or_else(|_| {
        let detail = format!("`{}` was not loaded within {LONGEST_LOAD:?}", named.name);
        Err(Problem::new(Code::Warming, detail).retry_after_ms(1000))
    })?;
    let asking = {
        let state = state.clone();
        async move { whole.repeat(&state).await }
    };
    state.holds().hold(named.name, state.draining(), asking)
}

/// A query that the front end makes itself.
struct SyntheticQuery {
    route: Route,
    inputs: Vec<NamedTensor>,
    targets: Targets,
}

/// A query for each target of a pipeline's steps; `None` if the route is not a pipeline. A target that cannot be asked
/// is left out: a query to the whole pipeline says why.
fn steps_of(state: &ApiState, route: &Route) -> Option<Vec<SyntheticQuery>> {
    let mut asked = Vec::new();
    if !add_steps(state, route, &mut asked) {
        return None;
    }
    let max_bytes = state.limits().max_body_bytes;
    let queries = asked.into_iter().filter_map(|asked| {
        let signature = state.dispatcher().signature(&asked.0).ok()?;
        SyntheticQuery::of(asked, &signature, max_bytes).ok()
    });
    Some(queries.collect())
}

/// Adds the targets of a pipeline's steps, also those of steps that are pipelines; returns false if the route is not a
/// pipeline.
fn add_steps(state: &ApiState, route: &Route, asked: &mut Vec<(Route, Targets)>) -> bool {
    let Route::Application(name) = route else {
        return false;
    };
    let Some(pipeline) = state.pipelines().get(name) else {
        return false;
    };
    let Ok(graph) = pipeline.graph() else {
        return true;
    };
    for (route, targets) in graph.asked() {
        let one = (route.clone(), *targets);
        if !add_steps(state, route, asked) && !asked.contains(&one) {
            asked.push(one);
        }
    }
    true
}

// === impl SyntheticQuery ===

impl SyntheticQuery {
    fn of(
        (route, targets): (Route, Targets),
        signature: &Signature,
        max_bytes: usize,
    ) -> Result<Self, Problem> {
        let inputs = signature.inputs.iter();
        let inputs = inputs.map(|spec| zeros(spec, max_bytes));
        Ok(Self {
            route,
            inputs: inputs.collect::<Result<_, _>>()?,
            targets,
        })
    }

    async fn ask(&self, dispatcher: &DispatcherClient) -> Result<(), QueryError> {
        let query = Query {
            targets: self.targets,
            best_effort: true,
            ..Query::new(
                self.route.clone(),
                self.inputs.clone(),
                std::time::Instant::now(),
            )
        };
        match dispatcher.query(query).await {
            // The engine's failure on zeros does not matter: the variant was loaded.
            Err(error) if error.code == Code::EngineFailed => Ok(()),
            answered => answered.map(drop),
        }
    }

    /// Loads everything that is needed to answer.
    async fn load_all(&self, state: &ApiState) -> Result<(), Problem> {
        let dispatcher = state.dispatcher();
        let Some(steps) = steps_of(state, &self.route) else {
            return self.load(dispatcher).await;
        };
        for step in &steps {
            step.load(dispatcher).await?;
        }
        match self.load(dispatcher).await {
            // A step's failure on zeros does not matter, either.
            Err(problem) if is_of_inputs(problem.code()) => Ok(()),
            answered => answered,
        }
    }

    async fn load(&self, dispatcher: &DispatcherClient) -> Result<(), Problem> {
        loop {
            match self.ask(dispatcher).await {
                Err(error) if error.code == Code::Warming => {
                    let wait = error.retry_after_ms.map(Duration::from_millis);
                    sleep(wait.unwrap_or(AGAIN).max(AGAIN)).await;
                }
                answered => return Ok(answered?),
            }
        }
    }

    /// Repeats the query until the name names nothing any more.
    async fn repeat(&self, state: &ApiState) {
        loop {
            sleep(HOLD_EVERY).await;
            let Some(steps) = steps_of(state, &self.route) else {
                match self.ask(state.dispatcher()).await {
                    Err(error) if super::named::is_not_found(error.code) => return,
                    answered => self.tell(answered),
                }
                continue;
            };
            for step in &steps {
                step.tell(step.ask(state.dispatcher()).await);
            }
        }
    }

    fn tell(&self, answered: Result<(), QueryError>) {
        if let Err(error) = answered {
            tracing::debug!(%error, route = ?self.route, "what is held cannot be answered now");
        }
    }
}

/// Whether an error says that a step cannot use its inputs.
fn is_of_inputs(code: Code) -> bool {
    matches!(code, Code::InvalidTensor | Code::StepFailed)
}

/// One row of zeros, or of empty texts.
fn zeros(spec: &TensorSpec, max_bytes: usize) -> Result<NamedTensor, Problem> {
    let size = |of: &Option<u64>| usize::try_from(of.unwrap_or(1)).unwrap_or(usize::MAX);
    let shape: Vec<usize> = spec.shape.iter().map(size).collect();
    let count = shape
        .iter()
        .try_fold(1usize, |all, size| all.checked_mul(*size));
    let bytes = count.and_then(|count| count.checked_mul(spec.data_type.size().unwrap_or(4)));
    let too_large = || body_too_large("an input of one row", max_bytes as u64);
    let bytes = bytes
        .filter(|bytes| *bytes <= max_bytes)
        .ok_or_else(too_large)?;
    let tensor = match spec.data_type {
        DataType::Bytes => Tensor::from_texts(shape, Texts::empty(bytes / 4)),
        data_type => Tensor::from_bytes(data_type, shape, vec![0; bytes].into()),
    };
    Ok(NamedTensor::new(spec.name.clone(), tensor?))
}
