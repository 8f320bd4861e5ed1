//! `/v1/scaling`: the desired and the present numbers of workers and instances, and the reasons.

use axum::{
    Json,
    extract::State,
    http::HeaderMap,
    response::{IntoResponse, Response, Sse, sse::KeepAlive},
};

use crate::{
    ApiState,
    auth::Caller,
    extract::Params,
    problem::{Problem, ProblemBody},
};

mod class;
mod decision;
mod events;
mod overview;

use decision::{DecisionBody, DecisionParams, DecisionsBody};
use events::{Events, KEEP_ALIVE};
use overview::ScalingBody;

/// The desired and the actual number of workers and instances.
///
/// Every row has the desired and the actual state. Before an autoscaler has decided, all desired counts
/// are null; before a dispatcher has counted, `demand` is null.
#[utoipa::path(get, operation_id = "scaling_get", path = "/v1/scaling", tag = "scaling",
    responses(
        (status = 200, description = "At this moment", body = ScalingBody,
            example = json!({
                "desired_token": 4,
                "pools": [{"device_type": "cpu-8", "desired": 3, "least": 1, "most": 8, "up": 1,
                    "leaving": 0, "draining": 1, "provider": "process", "price_per_hour_usd": 0.384,
                    "start_s": 60.0}],
                "variants": [{"variant": "mlp-ort-fp32-all-t1-b32", "application": "digits",
                    "needed": 2, "desired": 3, "ready": 1, "loading": 1, "failed": 0,
                    "pinned": false}],
                "demand": {"window_ms": 1000, "classes": [{"application": "digits",
                    "latency_ms": 16.0, "min_accuracy": 0.95, "offered_rps": 850.0,
                    "answered": 820, "late": 10, "refused": {"overloaded": 20}}]},
                "cost_per_hour_usd": {"desired": 1.152, "actual": 0.768}})),
        (status = 503, description = "The metadata store cannot be reached", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub async fn get(State(state): State<ApiState>) -> Result<Json<ScalingBody>, Problem> {
    let snapshot = state.metadata().snapshot().await?;
    Ok(Json(ScalingBody::new(&state, &snapshot)))
}

/// What the autoscaler has changed and why, newest first.
///
/// The service keeps the last 64 decisions; there are none before an autoscaler has made one. Numbers
/// grow by one with each decision. To get the next page, pass the lowest number of this page as `before`.
#[utoipa::path(get, operation_id = "scaling_decisions", path = "/v1/scaling/decisions", tag = "scaling",
    params(
        ("limit" = Option<u32>, Query, description = "most decisions, 1 to 64; 64 if left out"),
        ("before" = Option<u64>, Query, description = "only those with a smaller number"),
        ("subject" = Option<String>, Query,
            description = "only of the pool or the variant with this name"),
    ),
    responses(
        (status = 200, description = "Newest first", body = DecisionsBody,
            example = json!({"decisions": [decision::example()]})),
        (status = 400, description = "A parameter is unknown or out of its range",
            body = ProblemBody, content_type = "application/problem+json",
            example = json!({"type": "/docs/errors/invalid_request",
                "title": "The request cannot be read", "status": 400,
                "detail": "`limit` is `65`: it must be 1 to 64",
                "instance": "/v1/scaling/decisions", "code": "invalid_request",
                "field": "limit"})),
        (status = 503, description = "The metadata store cannot be reached", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub async fn decisions(
    State(state): State<ApiState>,
    Params(params): Params<DecisionParams>,
) -> Result<Json<DecisionsBody>, Problem> {
    let filter = params.read()?;
    let desired = state.metadata().snapshot().await?.desired;
    let kept = desired.iter().flat_map(|desired| desired.decisions.iter());
    let decisions = filter
        .newest_first(kept.rev())
        .map(|decision| DecisionBody::new(&state, decision))
        .collect();
    Ok(Json(DecisionsBody { decisions }))
}

/// Streams new decisions of the autoscaler as server-sent events.
///
/// Each decision is an event `decision` with the decision's number as its id and the decision as its
/// data. The stream leaves out decisions made before the request, unless `Last-Event-ID` names one: then
/// it first sends those that followed it and are still kept. If that number has not been reached yet, the
/// store has lost its content since, and the stream sends all decisions that are kept. It sends a comment
/// every 15 s. The stream ends when the service stops, and before the next event if the key is no longer
/// valid.
#[utoipa::path(get, operation_id = "scaling_events", path = "/v1/scaling/events", tag = "scaling",
    params(("last-event-id" = Option<u64>, Header,
        description = "number of the last decision that is known already")),
    responses(
        (status = 200, description = "Events `decision`, until either side ends it; the data of each \
            is a `Decision`", body = String, content_type = "text/event-stream",
            example = "event: decision\nid: 12\ndata: {\"number\":12,\"at_ms\":1764000000000,\"subject\":\
                {\"kind\":\"pool\",\"name\":\"cpu-8\"},\"action\":\"add_workers\",\"from\":2,\"to\":3,\
                \"reason\":\"what is asked for needs 2.4 workers\",\"inputs\":[],\"alternatives\":[]}\n\n"),
        (status = 400, description = "`Last-Event-ID` is not a number", body = ProblemBody,
            content_type = "application/problem+json"),
        (status = 429, description = "There are as many streams as the limit allows", body = ProblemBody,
            content_type = "application/problem+json"),
        (status = 503, description = "The metadata store cannot be reached", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub async fn events(
    State(state): State<ApiState>,
    caller: Caller,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let known = events::last_event_id(&headers)?;
    let events = Events::open(state, caller, known).await?;
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE);
    let stream = Sse::new(events.into_stream()).keep_alive(keep_alive);
    Ok(stream.into_response())
}
