//! `/v1/queries`: one query, answered in time.
//!
//! This is the hot path: no lock is held across an await, nothing is logged, the body is read without a tree, and the
//! answer is written into one vector.

use std::{borrow::Cow, num::NonZero, time::Instant};

use axum::{
    body::Body,
    extract::{Request, State},
    http::{HeaderValue, header},
    response::Response,
};
use bytes::Bytes;
use serde::Deserialize;
use sextant_rpc::{Answer, Query};
use sextant_types::{ApplicationId, Code, ModelId, Route, VariantId, release};
use utoipa::ToSchema;

use crate::{
    ApiState,
    auth::Caller,
    classification::Top,
    codec::{MOST_TENSORS, TensorBody, Text, binary, sections, write},
    extract,
    footprint::Footprint,
    json,
    problem::{Problem, ProblemBody},
    room::Reservation,
    targets::TargetsBody,
};

pub mod batch;
pub mod explained;
pub mod schema;
pub mod split;

use explained::ExplanationContext;

/// Size from which the signature is looked up before a query's inputs are read, bytes.
const LARGE_BYTES: usize = 64 << 10;

/// What to do when nothing meets the targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnInfeasible {
    /// Refuse with `target_infeasible` and the closest variants.
    #[default]
    Reject,
    /// Answer with the closest variant; `targets_met` is then false.
    BestEffort,
}

/// A query. Exactly one of `application`, `model` and `variant` says what it asks.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Query)]
pub struct QueryBody<'a> {
    /// Echoed in the answer.
    #[serde(borrow, default)]
    #[schema(value_type = Option<String>)]
    pub id: Option<Text<'a>>,
    /// Any variant of any model of this application.
    #[serde(borrow, default)]
    #[schema(value_type = Option<String>, example = "digits")]
    pub application: Option<Text<'a>>,
    /// Any variant of this model.
    #[serde(borrow, default)]
    #[schema(value_type = Option<String>)]
    pub model: Option<Text<'a>>,
    /// This variant and no other.
    #[serde(borrow, default)]
    #[schema(value_type = Option<String>)]
    pub variant: Option<Text<'a>>,
    /// The targets. The application's default targets apply where this leaves one out, unless the query names
    /// a variant. If a named variant is not accurate or not cheap enough, the query is refused.
    #[serde(default, deserialize_with = "json::or_default")]
    pub targets: TargetsBody,
    /// The name of one of the application's presets: its targets apply where `targets` has none.
    #[serde(borrow, default)]
    #[schema(value_type = Option<String>, example = "fast")]
    pub preset: Option<Text<'a>>,
    /// One tensor for each input of the model.
    #[serde(borrow, deserialize_with = "json::at_most::<_, _, MOST_TENSORS>")]
    #[schema(value_type = Vec<TensorBody<'_>>)]
    pub inputs: Vec<TensorBody<'a>>,
    /// Number of the most likely classes of each row to return in `classification`, with their names if the
    /// model's classes have names.
    #[serde(default)]
    #[schema(value_type = Option<u32>, minimum = 1, example = 3)]
    pub classification: Option<NonZero<u32>>,
    /// Whether the elements of the outputs follow the JSON, one output after the other, and are not in it;
    /// the header `inference-header-content-length` then says where the JSON ends.
    #[serde(default, deserialize_with = "json::or_default")]
    pub binary_outputs: bool,
    /// Whether to show which variants were considered and why; also `?explain=true`. The answer then has an
    /// `id`, and `GET /v1/queries/{id}` shows the explanation for an hour.
    #[serde(default, deserialize_with = "json::or_default")]
    pub explain: bool,
    /// What to do when nothing meets the targets.
    #[serde(default, deserialize_with = "json::or_default")]
    pub on_infeasible: OnInfeasible,
    /// A key that the client chooses, such as the id of a user: while a canary is tried, one version answers
    /// all queries of one key. At most 256 bytes.
    #[serde(borrow, default)]
    #[schema(value_type = Option<String>, example = "user-7")]
    pub sticky: Option<Text<'a>>,
}

/// Answers one query.
#[utoipa::path(
    post, operation_id = "queries_create",
    path = "/v1/queries",
    tag = "queries",
    params(
        ("explain" = Option<bool>, Query, description = "show which variants were considered and why"),
        ("inference-header-content-length" = Option<usize>, Header,
            description = "length of the JSON part; the elements of inputs that have `binary_data_size` among \
                their parameters follow"),
    ),
    request_body(content = QueryBody<'static>, content_type = "application/json"),
    responses(
        (status = 200, description = "The answer", body = schema::AnswerBody),
        (status = 422, description = "Nothing can meet the targets", body = ProblemBody,
            content_type = "application/problem+json"),
    )
)]
pub async fn create(
    State(state): State<ApiState>,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    let (begun, mut route) = (Instant::now(), None);
    let result = create_inner(&state, &caller, request, &mut route).await;
    if let Err(problem) = &result {
        state.count_query(route.as_ref(), Err((problem.code(), begun.elapsed())));
    }
    result
}

async fn create_inner(
    state: &ApiState,
    caller: &Caller,
    request: Request,
    asked: &mut Option<Route>,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let explain = wants_explanation(parts.uri.query());
    let body = state.collect(body).await?;
    let arrived = Instant::now();
    let _permit = state.admit()?;
    let sections = sections::split(&parts.headers, body.bytes())?;
    let read = read_for(state, caller, sections, (explain, arrived)).await?;
    let binary = read.binary;
    let EncodedAnswer {
        out,
        json_bytes,
        taken,
    } = answer(state, caller, read, asked).await?;
    let out = taken.keep(out);
    Ok(match binary {
        true => sections::response(json_bytes, out),
        false => json_response(out),
    })
}

/// An encoded answer.
struct EncodedAnswer {
    out: Vec<u8>,
    /// Length of its JSON.
    json_bytes: usize,
    taken: Reservation,
}

/// Sends a query that has been read, counts its answer and writes it as JSON.
async fn answer(
    state: &ApiState,
    caller: &Caller,
    read: ParsedQuery,
    asked: &mut Option<Route>,
) -> Result<EncodedAnswer, Problem> {
    let ParsedQuery {
        query,
        mut id,
        classification,
        binary,
        mut footprint,
    } = read;
    let route = asked.insert(query.route.clone());
    let share = state.admit_for(route);
    // A refused share tells of the application's queries.
    state.check_owner(caller, &query.route).await?;
    let _share = share?;
    if classification.is_some() && state.is_pipeline(route) {
        let detail =
            "a pipeline has no `classification`: let a step of it, `top_k`, name the classes";
        return Err(Problem::new(Code::InvalidRequest, detail).field("classification"));
    }
    let (arrived, targets, explain) = (query.arrived, query.targets, query.explain);
    let serial = query.serial;
    let reading = arrived.elapsed();
    footprint.asks(&query.inputs)?;
    let noted =
        |id: Option<&str>| ExplanationContext::new(route, targets, (reading, explain)).called(id);
    let answer = match state.dispatcher().query(query).await {
        Ok(answer) => answer,
        Err(error) => {
            noted(id.as_deref()).refused(state, caller, &error, arrived);
            let problem = Problem::from(error).asked(targets);
            return Err(state.unanswered(caller, route, problem));
        }
    };
    if explain {
        id.get_or_insert_with(|| noted(None).id());
    }
    footprint.answers(&answer.outputs, binary)?;
    let token = state.tokens().of(state, route, (&answer, serial));
    let version = state.directory().version(&answer.model);
    let named = (id.as_deref(), version, token.as_deref());
    let mut out = answer_json(&answer, named, binary);
    if let Some(k) = classification {
        Box::pin(classify(state, (route, &answer), k, &mut out)).await?;
    }
    let json_bytes = out.len();
    if binary {
        append_tensors(&mut out, &answer);
    }
    let taken = footprint.written(out.len())?;
    state.count_query(Some(route), Ok((&answer, arrived.elapsed())));
    if explain || ExplanationContext::is_slow(&targets, &answer, arrived) {
        noted(id.as_deref()).answered(state, caller, &answer, arrived);
    }
    Ok(EncodedAnswer {
        out,
        json_bytes,
        taken,
    })
}

/// Answers a query from a request without a query body.
pub async fn answer_plain(
    state: &ApiState,
    caller: &Caller,
    query: Query,
    asked: &mut Option<Route>,
) -> Result<Response, Problem> {
    let plain = ParsedQuery {
        query,
        id: None,
        classification: None,
        binary: false,
        footprint: Footprint::new(state.room(), None),
    };
    let written = answer(state, caller, plain, asked).await?;
    Ok(json_response(written.taken.keep(written.out)))
}

/// Appends the tensors after the JSON of an answer.
fn append_tensors(out: &mut Vec<u8>, answer: &Answer) {
    let sizes = answer.outputs.iter().map(|it| binary::size(&it.tensor));
    out.reserve_exact(sizes.sum());
    for output in &answer.outputs {
        binary::append(out, &output.tensor);
    }
}

/// A query and the requested form of its answer.
struct ParsedQuery {
    query: Query,
    id: Option<String>,
    classification: Option<NonZero<u32>>,
    binary: bool,
    footprint: Footprint<'static>,
}

/// Reads a query. An error may reveal the presets, the metric and the inputs of the query's target, so a caller that
/// may not ask the target gets only that refusal.
async fn read_for(
    state: &ApiState,
    caller: &Caller,
    sections: (Bytes, Bytes),
    asked: (bool, Instant),
) -> Result<ParsedQuery, Problem> {
    let mut named = None;
    let problem = match read(state, sections, asked, &mut named) {
        Ok(read) => return Ok(read),
        Err(problem) => problem,
    };
    if let Some(route) = &named {
        Box::pin(state.check_owner(caller, route)).await?;
    }
    Err(problem)
}

/// Reads a query from its JSON and from the elements of tensors after it. `named` is set to the query's target as soon
/// as that is known.
fn read(
    state: &ApiState,
    (head, tail): (Bytes, Bytes),
    (explain, arrived): (bool, Instant),
    named: &mut Option<Route>,
) -> Result<ParsedQuery, Problem> {
    let body: QueryBody<'_> = json::borrowed(&head)?;
    if let Some(id) = &body.id {
        extract::check_query_id(&id.0)?;
    }
    let route = route(
        body.application.as_ref(),
        body.model.as_ref(),
        body.variant.as_ref(),
    )?;
    *named = Some(route.clone());
    let preset = body.preset.as_ref().map(|name| &*name.0);
    let targets = state.targets_with(&route, preset, body.targets)?;
    let is_large = head.len() + tail.len() >= LARGE_BYTES;
    let signature = is_large.then(|| state.dispatcher().signature(&route));
    // The dispatcher refuses an unknown target later.
    let signature = signature.and_then(Result::ok).map(Cow::Owned);
    let mut footprint = Footprint::new(state.room(), signature);
    let reader = &mut footprint.reader();
    let inputs = sections::inputs(body.inputs, tail, reader, sections::no_regions)?;
    let query = Query {
        targets,
        best_effort: body.on_infeasible == OnInfeasible::BestEffort,
        explain: explain || body.explain,
        sticky: sticky(body.sticky.as_ref().map(|key| &*key.0))?,
        serial: state.tokens().serial(state),
        ..Query::new(route, inputs, arrived)
    };
    Ok(ParsedQuery {
        query,
        id: body.id.map(|id| id.0.into_owned()),
        classification: body.classification,
        binary: body.binary_outputs,
        footprint,
    })
}

/// Longest key that decides which version answers, bytes.
const MOST_STICKY_BYTES: usize = 256;

/// The number of a client's key; queries with the same key keep their version.
pub fn sticky(key: Option<&str>) -> Result<Option<u64>, Problem> {
    match key {
        Some(key) if key.len() > MOST_STICKY_BYTES => {
            let detail = format!("`sticky` has more than {MOST_STICKY_BYTES} bytes");
            Err(Problem::new(Code::InvalidRequest, detail).field("sticky"))
        }
        key => Ok(key.map(release::sticky)),
    }
}

/// Writes the most likely classes into an answer.
async fn classify(
    state: &ApiState,
    (route, answer): (&Route, &Answer),
    k: NonZero<u32>,
    out: &mut Vec<u8>,
) -> Result<(), Problem> {
    let model = state.directory().classes_of(route, &answer.model);
    let scored = state.classes().of(&model, state.registry()).await?;
    let top = Top {
        k: usize::try_from(k.get()).unwrap_or(usize::MAX),
        outputs: &answer.outputs,
        batched: state.dispatcher().signature(route)?.batched,
        scored: scored.as_deref(),
    };
    let closing = out.pop();
    out.extend_from_slice(b",\"classification\":");
    top.write(out)?;
    out.extend(closing);
    Ok(())
}

/// The target of a request, which must have exactly one name.
pub fn route(
    application: Option<&Text<'_>>,
    model: Option<&Text<'_>>,
    variant: Option<&Text<'_>>,
) -> Result<Route, Problem> {
    match (application, model, variant) {
        (Some(name), None, None) => Ok(Route::Application(ApplicationId::new(&name.0)?)),
        (None, Some(name), None) => Ok(Route::Model(name.0.parse::<ModelId>()?)),
        (None, None, Some(name)) => Ok(Route::Variant(VariantId::new(&name.0)?)),
        _ => Err(Problem::new(
            Code::InvalidRequest,
            "give exactly one of `application`, `model` and `variant`",
        )),
    }
}

fn wants_explanation(query: Option<&str>) -> bool {
    query.is_some_and(|query| {
        query
            .split('&')
            .any(|pair| matches!(pair, "explain" | "explain=true" | "explain=1"))
    })
}

fn answer_json(
    answer: &Answer,
    (id, version, token): (Option<&str>, Option<u32>, Option<&str>),
    binary: bool,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    out.push(b'{');
    if let Some(id) = id {
        out.extend_from_slice(b"\"id\":");
        write::string(&mut out, id);
        out.push(b',');
    }
    out.extend_from_slice(b"\"model\":");
    write::string(&mut out, answer.model.as_str());
    if let Some(version) = version {
        out.extend_from_slice(b",\"version\":");
        write::integer(&mut out, version);
    }
    out.extend_from_slice(b",\"variant\":");
    write::string(&mut out, answer.variant.as_str());
    out.extend_from_slice(b",\"outputs\":");
    match binary {
        true => write::list(&mut out, &answer.outputs, |out, output| {
            write::binary_tensor(out, output, binary::size(&output.tensor));
        }),
        false => write::list(&mut out, &answer.outputs, write::tensor),
    }
    let met = if answer.targets_met { "true" } else { "false" };
    out.extend_from_slice(b",\"targets_met\":");
    out.extend_from_slice(met.as_bytes());
    out.extend_from_slice(b",\"cost_usd\":");
    write::float(&mut out, answer.cost_usd);
    timings(&mut out, answer);
    // Steps of pipelines may run on no device, and name no model of the registry.
    if answer.timings.batch_rows == 0
        && answer.timings.compute_us == 0.0
        && !answer.outputs.is_empty()
    {
        out.extend_from_slice(b",\"cached\":true");
    }
    if let Some(token) = token {
        out.extend_from_slice(b",\"feedback_token\":");
        write::string(&mut out, token);
    }
    if let Some(explanation) = &answer.explanation {
        out.extend_from_slice(b",\"explanation\":");
        let body = schema::ExplanationBody::from(explanation);
        // The body has strings and numbers: writing them into a vector cannot fail.
        out.append(&mut serde_json::to_vec(&body).unwrap_or_default());
    }
    out.push(b'}');
    out
}

fn timings(out: &mut Vec<u8>, answer: &Answer) {
    let timings = &answer.timings;
    for (name, value) in [
        (",\"timings\":{\"queue_us\":", timings.queue_us),
        (",\"compute_us\":", timings.compute_us),
        (",\"total_us\":", timings.total_us),
    ] {
        out.extend_from_slice(name.as_bytes());
        write::microseconds(out, value);
    }
    out.extend_from_slice(b",\"batch_rows\":");
    write::integer(out, timings.batch_rows);
    out.push(b'}');
}

/// A 200 with a JSON body.
pub fn json_response(body: impl Into<Bytes>) -> Response {
    let mut response = Response::new(Body::from(body.into()));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}
