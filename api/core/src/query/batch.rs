//! `/v1/queries/batch`: several queries in one request, each with an outcome of its own.

use std::time::Instant;

use axum::{
    extract::{Request, State},
    response::Response,
};
use bytes::Bytes;
use futures::{StreamExt, stream};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sextant_types::Code;
use utoipa::ToSchema;

use super::{EncodedAnswer, QueryBody, answer, json_response, read_for, schema::AnswerBody};
use crate::{
    ApiState,
    auth::{Caller, charge_further},
    json,
    problem::{Problem, ProblemBody, status},
    trace,
};

/// Most queries in one request.
const MOST: usize = 256;

/// Most queries that are read to count them.
const MOST_READ: usize = 4096;

/// Most queries of one request that are answered at once.
const AT_ONCE: usize = 64;

/// Several queries.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = QueryBatch)]
pub struct BatchBody<'a> {
    /// 1 to 256 queries, each as `POST /v1/queries` takes it; `binary_outputs` is refused.
    #[serde(borrow, deserialize_with = "json::at_most::<_, _, MOST_READ>")]
    #[schema(value_type = Vec<QueryBody<'_>>, min_items = 1, max_items = 256)]
    queries: Vec<&'a RawValue>,
}

/// The results of several queries.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = QueryOutcomes)]
pub struct OutcomesBody {
    /// In the order of the queries.
    outcomes: Vec<OutcomeBody>,
    /// Queries that were answered.
    answered: usize,
    /// Queries that were not.
    failed: usize,
}

/// The result of one query.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = QueryOutcome)]
pub struct OutcomeBody {
    /// The status that the query would have had alone.
    #[schema(example = 200)]
    status: u16,
    /// Its answer, if the status is 200.
    answer: Option<AnswerBody>,
    /// What went wrong, where it is not.
    problem: Option<ProblemBody>,
}

/// Answers several queries, each by itself: if one fails, the others are answered all the same. The
/// status is 200 in either case. Each query counts as a request of the key.
#[utoipa::path(
    post, operation_id = "queries_create_batch",
    path = "/v1/queries/batch",
    tag = "queries",
    request_body(content = BatchBody<'static>, content_type = "application/json"),
    responses((status = 200, description = "The result of each", body = OutcomesBody))
)]
pub async fn create(
    State(state): State<ApiState>,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    let body = state.collect(request.into_body()).await?;
    let arrived = Instant::now();
    let queries = pieces(body.bytes())?;
    let each = queries.into_iter().enumerate();
    let each: Vec<_> = each
        .map(|query| one(&state, &caller, query, arrived))
        .collect();
    let outcomes = stream::iter(each).buffered(AT_ONCE).collect::<Vec<_>>();
    let outcomes = Box::pin(outcomes).await;
    let mut taken = state.room().take();
    let answers = outcomes.iter().flatten();
    taken.grow(answers.map(|it| it.out.len()).sum())?;
    let out = outcomes_json(&outcomes);
    taken.resize(out.len())?;
    Ok(json_response(taken.keep(out)))
}

/// The text of each query, a piece of the body.
fn pieces(body: &Bytes) -> Result<Vec<Bytes>, Problem> {
    let batch: BatchBody<'_> = json::borrowed(body)?;
    let count = batch.queries.len();
    if !(1..=MOST).contains(&count) {
        let detail = format!("a batch has 1 to {MOST} queries, this one has {count}");
        return Err(Problem::new(Code::InvalidRequest, detail).field("queries"));
    }
    let queries = batch.queries.into_iter();
    Ok(queries
        .map(|query| body.slice_ref(query.get().as_bytes()))
        .collect())
}

async fn one(
    state: &ApiState,
    caller: &Caller,
    (index, query): (usize, Bytes),
    arrived: Instant,
) -> Result<EncodedAnswer, Problem> {
    let mut route = None;
    let answered = async {
        // The first query was counted with the request.
        if index > 0 {
            charge_further(caller).await?;
        }
        let _permit = state.admit()?;
        let sections = (query, Bytes::new());
        let read = read_for(state, caller, sections, (false, arrived)).await?;
        if read.binary {
            let detail = "the answers of a batch are JSON: leave `binary_outputs` out";
            return Err(Problem::new(Code::InvalidRequest, detail).field("binary_outputs"));
        }
        answer(state, caller, read, &mut route).await
    };
    let answered = answered.await;
    if let Err(problem) = &answered {
        state.count_query(route.as_ref(), Err((problem.code(), arrived.elapsed())));
    }
    answered
}

fn outcomes_json(outcomes: &[Result<EncodedAnswer, Problem>]) -> Vec<u8> {
    let trace = trace::current();
    let request_id = trace.as_ref().map(trace::Trace::request_id);
    let mut out = b"{\"outcomes\":[".to_vec();
    for (index, outcome) in outcomes.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        match outcome {
            Ok(answer) => {
                out.extend_from_slice(b"{\"status\":200,\"answer\":");
                out.extend_from_slice(&answer.out);
            }
            Err(problem) => {
                let status = status(problem.code()).as_u16();
                out.extend_from_slice(format!("{{\"status\":{status},\"problem\":").as_bytes());
                let document = problem.document("/v1/queries/batch", false, request_id);
                // The document has strings and numbers: writing them into a vector cannot fail.
                out.append(&mut serde_json::to_vec(&document).unwrap_or_default());
            }
        }
        out.push(b'}');
    }
    let answered = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    let failed = outcomes.len() - answered;
    let end = format!("],\"answered\":{answered},\"failed\":{failed}}}");
    out.extend_from_slice(end.as_bytes());
    out
}
