//! Registers a model whose files are stored.

use std::{iter, time::Duration};

use axum::{
    Extension, Json,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use serde_json::json;
use sextant_registry::{Error, Job, JobKind, ModelStatus, NewJob, NewModel, OnceKey, Registration};
use sextant_types::{Code, time::unix_ms};
use tokio::time::Instant;

use super::RegistrationBody;
use crate::{ApiState, auth::Subject, problem::Problem};

/// Longest wait for the removal of a file that began before the file was sent again.
const PATIENCE: Duration = Duration::from_secs(10);

/// Time between two attempts.
const PAUSE: Duration = Duration::from_millis(50);

/// Begins a registration.
pub async fn register(
    state: &ApiState,
    model: &NewModel,
    once: Option<&OnceKey>,
) -> Result<Registration, Problem> {
    let spec = json!({"model": model.name.as_str(), "application": model.application.as_str()});
    let job = NewJob::new(JobKind::Register, model.application.clone(), spec);
    let until = Instant::now() + PATIENCE;
    let registration = loop {
        let registry = state.registry();
        let registered = registry.register_model_once(model, &job, once, unix_ms());
        match registered.await {
            Err(Error::Condemned { .. }) if Instant::now() < until => {
                tokio::time::sleep(PAUSE).await;
            }
            registered => break registered?,
        }
    };
    if registration.created {
        look_again(state, model, &registration).await?;
    }
    Ok(registration)
}

/// Checks that the files are still stored. If the rest of an upload took very long, a sweep may have removed a file
/// before a row referred to it. Now that the row exists, no sweep removes the files.
async fn look_again(
    state: &ApiState,
    model: &NewModel,
    registration: &Registration,
) -> Result<(), Problem> {
    let fields = ["model", "validation"]
        .into_iter()
        .chain(iter::repeat("data"));
    for (digest, field) in model.files().zip(fields) {
        if state.objects().has_blob(&digest).await? {
            continue;
        }
        let job = &registration.job.id;
        state.registry().cancel(job, unix_ms()).await?;
        let detail = format!(
            "the file of `{field}` was removed before the registration began: send the model again, and \
             raise `storage.grace_s` if it takes longer than that to send"
        );
        return Err(Problem::new(Code::Unavailable, detail).retry_after_ms(1000));
    }
    Ok(())
}

/// The response to a registration that has begun, or that existed already.
pub fn registered(registration: &Registration, job: &Job) -> Response {
    let is_over = registration.model.status == ModelStatus::Ready || job.state.is_final();
    let status = match is_over {
        true => StatusCode::OK,
        false => StatusCode::ACCEPTED,
    };
    let location = format!("/v1/jobs/{}", job.id);
    let body = Json(RegistrationBody {
        model: registration.model.id.to_string(),
        version: registration.model.release.version,
        job: job.id.to_string(),
        state: job.state.as_str(),
    });
    let subject = Extension(Subject(registration.model.id.to_string()));
    (status, subject, [(header::LOCATION, location)], body).into_response()
}
