//! `/v1/queries/{query}`: why a query was answered as it was, and where its time went.

use std::time::{Duration, Instant};

use axum::{
    extract::{Path, State},
    response::Response,
};
use serde::Serialize;
use sextant_rpc::{Answer, Query, QueryError};
use sextant_types::{ApplicationId, Route, Targets, time::unix_ms};
use utoipa::ToSchema;

use super::{json_response, schema::ExplanationBody};
use crate::{
    ApiState,
    auth::Caller,
    explanations::{Explanation, Explanations, LONGEST_ID},
    problem::{Problem, ProblemBody},
    trace,
};

/// How a query was answered, and why.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ExplainedQuery)]
pub struct ExplainedBody {
    /// The id of the query: its own, or else that of the request.
    #[schema(example = "q-17")]
    id: String,
    /// The id of the request, as in the header `x-request-id` of its answer.
    request_id: String,
    /// The trace to which the request belongs, as in its `traceparent`.
    trace_id: String,
    /// When it ended, milliseconds since the Unix epoch.
    at_ms: u64,
    /// The application that the query asked, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    application: Option<String>,
    /// `answered`, or the code of the problem.
    #[schema(example = "answered")]
    outcome: &'static str,
    /// The model that answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    /// The variant that answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    variant: Option<String>,
    /// Whether every stated target was met, if the query was answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    targets_met: Option<bool>,
    /// The variants that were considered and why this one was chosen, if the query was answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    explanation: Option<ExplanationBody>,
    /// What was said, where it was not.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<ProblemBody>,
    /// Where its time went, stage by stage.
    budget: BudgetBody,
}

/// The time of a query by stage, and the time left before its deadline. The stages add up to `total_us`.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Budget)]
pub struct BudgetBody {
    /// The deadline of the query, microseconds from the last byte of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline_us: Option<f64>,
    /// Time left before the deadline when the answer was written, microseconds; negative if the answer was too late.
    #[serde(skip_serializing_if = "Option::is_none")]
    left_us: Option<f64>,
    /// From the last byte of the request until it was read and checked, microseconds.
    read_us: f64,
    /// Waiting while the chosen variant was loaded, including the wait for the load, microseconds; 0 if it
    /// was loaded already.
    load_us: f64,
    /// Waiting for a batch and a device, microseconds; for a refused query, all time that is not in another stage.
    queue_us: f64,
    /// Running, including joining and splitting the batch, microseconds.
    run_us: f64,
    /// On the way back from the worker, microseconds.
    return_us: f64,
    /// Writing the answer, microseconds.
    write_us: f64,
    /// The whole time, microseconds.
    total_us: f64,
}

/// The part of an explanation that is noted before the query is sent.
pub struct ExplanationContext {
    route: Route,
    targets: Targets,
    read: Duration,
    id: Option<String>,
    /// Whether the query said `explain`.
    asked: bool,
}

/// A query without a latency target is slow from this time on.
const SLOW: Duration = Duration::from_secs(1);

/// Explains the answer to a query: which variants were considered, why the variant was chosen, and where
/// the time went. The process that answered keeps explanations in memory for an hour, for queries with
/// `explain`. It also keeps explanations without the considered variants for some slow or refused
/// queries, at most eight a second of an application.
#[utoipa::path(get, operation_id = "queries_get", path = "/v1/queries/{query}", tag = "queries",
    params(("query" = String, Path, description = "the `id` of the answer, or its `x-request-id`")),
    responses(
        (status = 200, description = "The explanation", body = ExplainedBody),
        (status = 404, description = "None is kept, or none any longer", body = ProblemBody,
            content_type = "application/problem+json"),
        (status = 405, description = "`batch` is a separate route, and not a query", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub async fn get(
    State(state): State<ApiState>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let document = state.explanations().find(&id, &caller)?;
    Ok(json_response(document.to_vec()))
}

/// Sends a query that has no id of its own and asks for no explanation. If it is slow or refused, its explanation is
/// kept.
pub async fn dispatch(state: &ApiState, caller: &Caller, query: Query) -> Result<Answer, Problem> {
    let (route, targets, arrived) = (query.route.clone(), query.targets, query.arrived);
    let noted = ExplanationContext::new(&route, targets, (arrived.elapsed(), false));
    let answer = state.dispatcher().query(query).await;
    match &answer {
        Ok(answer) if !ExplanationContext::is_slow(&targets, answer, arrived) => {}
        Ok(answer) => noted.answered(state, caller, answer, arrived),
        Err(error) => noted.refused(state, caller, error, arrived),
    }
    Ok(answer?)
}

/// Logs a slow query with its stages. It is shown only with `log.level = "info,slow_query=debug"`.
fn tell(application: Option<&ApplicationId>, answer: &Answer, budget: &BudgetBody) {
    let ms = |us: f64| us / 1e3;
    tracing::debug!(
        target: "slow_query",
        application = application.map(tracing::field::display),
        model = %answer.model,
        variant = %answer.variant,
        targets_met = answer.targets_met,
        deadline_ms = budget.deadline_us.map(ms),
        total_ms = ms(budget.total_us),
        read_ms = ms(budget.read_us),
        load_ms = ms(budget.load_us),
        queue_ms = ms(budget.queue_us),
        run_ms = ms(budget.run_us),
        return_ms = ms(budget.return_us),
        write_ms = ms(budget.write_us),
        "slow query"
    );
}

fn us(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

// === impl ExplanationContext ===

impl ExplanationContext {
    /// The context of a query to `route`, with the time that reading it took, and whether it said `explain`.
    pub fn new(route: &Route, targets: Targets, (read, asked): (Duration, bool)) -> Self {
        Self {
            route: route.clone(),
            targets,
            read,
            id: None,
            asked,
        }
    }

    /// The same with the query's own id.
    pub fn called(self, id: Option<&str>) -> Self {
        let id = id.filter(|id| !id.is_empty() && id.len() <= LONGEST_ID);
        Self {
            id: id.map(str::to_owned),
            ..self
        }
    }

    /// Whether an answer is so late, or misses its targets so, that its explanation is kept without being asked for.
    pub fn is_slow(targets: &Targets, answer: &Answer, arrived: Instant) -> bool {
        let most = targets.latency_ms.map(|most| most / 1e3);
        let most = most.unwrap_or_else(|| SLOW.as_secs_f64());
        !answer.targets_met || arrived.elapsed().as_secs_f64() > most
    }

    /// The id under which the explanation is found.
    pub fn id(&self) -> String {
        let request = || trace::current().map(|trace| trace.request_id().to_owned());
        self.id.clone().or_else(request).unwrap_or_default()
    }

    /// Keeps the explanation of an answer.
    pub fn answered(self, state: &ApiState, caller: &Caller, answer: &Answer, arrived: Instant) {
        if !self.is_kept(state) {
            return;
        }
        let total = us(arrived.elapsed());
        let (read, timings) = (us(self.read), &answer.timings);
        let waited = (timings.queue_us - read).max(0.0);
        let run = timings.compute_us;
        let back = (timings.total_us - read - waited - run).max(0.0);
        let budget = BudgetBody {
            read_us: read,
            load_us: timings.load_us.min(waited),
            queue_us: (waited - timings.load_us).max(0.0),
            run_us: run,
            return_us: back,
            write_us: (total - read - waited - run - back).max(0.0),
            ..self.budget(total)
        };
        if !self.asked {
            let application = state.application_of(&self.route);
            tell(application.as_ref(), answer, &budget);
        }
        let body = ExplainedBody {
            model: Some(answer.model.to_string()),
            variant: Some(answer.variant.to_string()),
            targets_met: Some(answer.targets_met),
            explanation: answer.explanation.as_ref().map(ExplanationBody::from),
            ..self.body(state, "answered", budget)
        };
        self.keep(state, caller, &body);
    }

    /// Keeps the explanation of a refusal.
    pub fn refused(self, state: &ApiState, caller: &Caller, error: &QueryError, arrived: Instant) {
        if !self.is_kept(state) {
            return;
        }
        let total = us(arrived.elapsed());
        let read = us(self.read);
        let budget = BudgetBody {
            read_us: read,
            queue_us: (total - read).max(0.0),
            ..self.budget(total)
        };
        let problem = Problem::from(error.clone()).asked(self.targets);
        let body = self.body(state, error.code.as_str(), budget);
        let problem = problem.document("/v1/queries", false, Some(&body.request_id));
        let body = ExplainedBody {
            problem: Some(problem),
            ..body
        };
        self.keep(state, caller, &body);
    }

    fn is_kept(&self, state: &ApiState) -> bool {
        let application = || state.application_of(&self.route);
        self.asked || state.explanations().has_room(application().as_ref())
    }

    /// A budget in which no stage took any time.
    fn budget(&self, total_us: f64) -> BudgetBody {
        let deadline_us = self.targets.latency_ms.map(|deadline| deadline * 1e3);
        BudgetBody {
            deadline_us,
            left_us: deadline_us.map(|deadline| deadline - total_us),
            read_us: 0.0,
            load_us: 0.0,
            queue_us: 0.0,
            run_us: 0.0,
            return_us: 0.0,
            write_us: 0.0,
            total_us,
        }
    }

    fn body(&self, state: &ApiState, outcome: &'static str, budget: BudgetBody) -> ExplainedBody {
        let trace = trace::current();
        let of_trace = |text: fn(&trace::Trace) -> &str| {
            let text = trace.as_ref().map(text);
            text.unwrap_or_default().to_owned()
        };
        let application = state.application_of(&self.route);
        ExplainedBody {
            id: self.id(),
            request_id: of_trace(trace::Trace::request_id),
            trace_id: of_trace(trace::Trace::trace_id),
            at_ms: unix_ms(),
            application: application.map(|id| id.to_string()),
            outcome,
            model: None,
            variant: None,
            targets_met: None,
            explanation: None,
            problem: None,
            budget,
        }
    }

    /// Keeps the explanation under the query's own id and under that of its request.
    fn keep(self, state: &ApiState, caller: &Caller, body: &ExplainedBody) {
        // The document has strings and numbers: writing them into a vector cannot fail.
        let document: bytes::Bytes = serde_json::to_vec(body).unwrap_or_default().into();
        let explanations = state.explanations();
        let keep = match self.asked {
            true => Explanations::keep,
            false => Explanations::notice,
        };
        let own = Some(&body.id).filter(|id| **id != body.request_id);
        for id in own.into_iter().chain([&body.request_id]) {
            let explained = Explanation {
                id: id.clone(),
                caller: caller.name().to_owned(),
                application: state.application_of(&self.route),
                document: document.clone(),
            };
            keep(explanations, explained);
        }
    }
}
