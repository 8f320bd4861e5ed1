//! Waiting for a job: `wait_ms`, or `Prefer: wait`.

use std::time::Duration;

use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, HeaderName, HeaderValue, request::Parts},
    response::Response,
};
use serde::Deserialize;
use sextant_registry::{Job, JobKind, JobState};
use sextant_types::{Code, JobId, Route, time::unix_ms};
use tokio::time::Instant;

use crate::{ApiState, extract::Params, problem::Problem};

const PREFER: HeaderName = HeaderName::from_static("prefer");
const APPLIED: HeaderName = HeaderName::from_static("preference-applied");

/// Longest wait of one request, milliseconds.
const MAX_WAIT_MS: u64 = 60_000;

/// How often a waiting request looks at the job.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Longest time after a registration in which its model may not be found yet.
const FOUND_WITHIN: Duration = Duration::from_secs(3);

/// How often a request checks whether the model is found.
const FOUND_EVERY: Duration = Duration::from_millis(5);

/// How long to wait for a job.
pub struct Wait {
    ms: u64,
    /// Seconds, where `Prefer` asked for them.
    preferred: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WaitParams {
    wait_ms: Option<u64>,
}

/// The seconds of `Prefer: wait=..`, among other preferences.
fn preferred(headers: &HeaderMap) -> Option<u64> {
    let values = headers.get_all(PREFER).iter();
    let texts = values.filter_map(|value| value.to_str().ok());
    let mut preferences = texts.flat_map(|text| text.split([',', ';'])).map(str::trim);
    preferences.find_map(|one| one.strip_prefix("wait=")?.trim().parse().ok())
}

/// The job when it has ended, or its state at the end of the wait if it has not.
pub async fn wait(state: &ApiState, id: &JobId, wait: &Wait) -> Result<Job, Problem> {
    let until = Instant::now() + Duration::from_millis(wait.ms);
    loop {
        let job = state.registry().job(id).await?;
        if job.state.is_final() {
            await_model(state, &job).await;
            return Ok(job);
        }
        if Instant::now() >= until || state.is_draining() {
            return Ok(job);
        }
        tokio::time::sleep_until(until.min(Instant::now() + LOOK_EVERY)).await;
    }
}

/// Waits until queries find the model of a registration that has just ended: a client that sees the end queries the
/// model next, and dispatchers learn of the model in another way. Waits for [`FOUND_WITHIN`] at most: the model may
/// have been deleted meanwhile.
pub(crate) async fn await_model(state: &ApiState, job: &Job) {
    let (JobKind::Register, JobState::Succeeded, Some(model)) = (job.kind, job.state, &job.model)
    else {
        return;
    };
    let route = Route::Model(model.clone());
    let since = Duration::from_millis(unix_ms().saturating_sub(job.updated_ms));
    let until = Instant::now() + FOUND_WITHIN.saturating_sub(since);
    let is_found = || match state.dispatcher().signature(&route) {
        Err(error) => error.code != Code::ModelNotFound,
        Ok(_) => true,
    };
    while !is_found() && Instant::now() < until && !state.is_draining() {
        tokio::time::sleep(FOUND_EVERY).await;
    }
}

// === impl Wait ===

impl Wait {
    /// Whether the client asked for a wait.
    pub fn was_asked_for(&self) -> bool {
        self.ms > 0
    }

    /// Sets the header that says which preference was applied.
    pub fn tell(&self, response: &mut Response) {
        let value = self
            .preferred
            .and_then(|seconds| HeaderValue::try_from(format!("wait={seconds}")).ok());
        if let Some(value) = value {
            response.headers_mut().insert(APPLIED, value);
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Wait {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let Params(params): Params<WaitParams> = Params::from_request_parts(parts, state).await?;
        match params.wait_ms {
            Some(ms) if ms > MAX_WAIT_MS => {
                let detail = format!("`wait_ms` is `{ms}`: it may be up to {MAX_WAIT_MS}");
                Err(Problem::new(Code::InvalidRequest, detail).field("wait_ms"))
            }
            Some(ms) => Ok(Self {
                ms,
                preferred: None,
            }),
            // A preference for a longer wait is applied as far as the limit allows.
            None => {
                let most = MAX_WAIT_MS / 1000;
                let preferred = preferred(&parts.headers).map(|seconds| seconds.min(most));
                let ms = preferred.map_or(0, |seconds| seconds * 1000);
                Ok(Self { ms, preferred })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_found_among_other_preferences() {
        for (text, wanted) in [
            ("wait=10", Some(10)),
            ("respond-async, wait=3", Some(3)),
            ("handling=strict; wait=7", Some(7)),
            ("wait=soon", None),
            ("return=minimal", None),
        ] {
            let value = HeaderValue::from_static(text);
            let headers = [(PREFER, value)].into_iter().collect();
            assert_eq!(preferred(&headers), wanted, "{text}");
        }
    }
}
