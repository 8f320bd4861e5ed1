//! `/v1/jobs/{job}/events`: the progress of a job, as server-sent events.

use std::time::Duration;

use axum::{
    Error,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{
        IntoResponse, Response, Sse,
        sse::{Event, KeepAlive},
    },
};
use futures::{Stream, StreamExt, stream};
use sextant_registry::Job;
use sextant_types::JobId;
use tokio::sync::OwnedSemaphorePermit;

use super::{await_model, wire::JobBody};
use crate::{
    ApiState,
    auth::Caller,
    extract::Name,
    problem::{Problem, ProblemBody},
};

/// How often the job is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// How often a comment is sent while there is no event.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// One client, and the events that it has.
struct Follower {
    state: ApiState,
    caller: Caller,
    job: JobId,
    /// The id of the last event that the client knows.
    known: Option<String>,
    is_over: bool,
    _place: OwnedSemaphorePermit,
}

/// Streams the state of a job, which may be a registration, as server-sent events.
///
/// Each event `job` has the job as its data. The first event has the present state, the next ones follow
/// when something has changed, and the last one comes when the job has ended, which ends the stream. With
/// `Last-Event-ID` the stream leaves out what the client knows. If the client knows the end of the job
/// already, the status is 204, which tells browsers not to ask again. The stream sends a comment every 15
/// s. It ends when the service stops, and before the next event if the key is no longer valid.
#[utoipa::path(get, operation_id = "jobs_events", path = "/v1/jobs/{job}/events", tag = "jobs",
    params(
        ("job" = String, Path, description = "its name"),
        ("last-event-id" = Option<String>, Header, description = "id of the last event that is known already"),
    ),
    responses(
        (status = 200, description = "Events `job`, until the job ends; the data of each is a `Job`",
            body = String, content_type = "text/event-stream",
            example = "event: job\nid: 1764000000000-succeeded\ndata: {\"id\":\"job-1\",\"kind\":\"offline\",\
                \"application\":\"digits\",\"state\":\"succeeded\",\"step\":\"\",\"progress\":{\"done\":40,\
                \"total\":40},\"attempts\":1,\"spec\":{},\"created_ms\":1764000000000,\
                \"updated_ms\":1764000000000}\n\n"),
        (status = 204, description = "The job has ended, and the client knows it"),
        (status = 404, description = "There is none", body = ProblemBody,
            content_type = "application/problem+json"),
        (status = 429, description = "There are as many streams as the limit allows", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub async fn stream(
    State(state): State<ApiState>,
    caller: Caller,
    Name(job): Name<JobId>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let known = headers
        .get("last-event-id")
        .and_then(|value| value.to_str().ok())
        .map(str::to_owned);
    let now = state.registry().job(&job).await?;
    if now.state.is_final() && known.as_deref() == Some(&*event_id(&now)) {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let place = state.decisions().admit()?;
    let follower = Follower {
        state,
        caller,
        job,
        known,
        is_over: false,
        _place: place,
    };
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE);
    let stream = Sse::new(follower.into_stream()).keep_alive(keep_alive);
    Ok(stream.into_response())
}

/// The id of an event: it differs after every change of the job.
fn event_id(job: &Job) -> String {
    let (state, done) = (job.state.as_str(), job.progress_done);
    format!("{}-{done}-{state}", job.updated_ms)
}

// === impl Follower ===

impl Follower {
    fn into_stream(self) -> impl Stream<Item = Result<Event, Error>> {
        let draining = self.state.draining();
        let events = stream::unfold(self, |mut follower| async move {
            let event = follower.next().await?;
            Some((event, follower))
        });
        events.take_until(draining.cancelled_owned())
    }

    /// The next event; `None` after the last. If the store does not answer, it is asked again.
    async fn next(&mut self) -> Option<Result<Event, Error>> {
        while !self.is_over {
            match self.state.registry().job(&self.job).await {
                Ok(job) => {
                    let id = event_id(&job);
                    self.is_over = job.state.is_final();
                    if self.known.as_deref() != Some(&*id) {
                        await_model(&self.state, &job).await;
                        self.known = Some(id.clone());
                        let event = Event::default().event("job").id(id);
                        let event = event.json_data(JobBody::from(job));
                        return Some(event).filter(|_| self.state.still_knows(&self.caller));
                    }
                }
                Err(error) if error.is_retryable() => {}
                // The job was deleted.
                Err(_) => return None,
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        None
    }
}
