//! `grpc.health.v1.Health`: whether the service accepts calls.

use std::time::Duration;

use axum::response::Response;
use hyper::body::Frame;
use sextant_types::Code;
use tokio::{sync::mpsc, time::sleep};

use super::{
    call::{Call, Context},
    frame::{self, Encoding},
    proto::health::{
        HealthCheckRequest, HealthCheckResponse, health_check_response::ServingStatus,
    },
    status,
    stream::{Piece, channel},
};
use crate::{ApiState, problem::Problem};

/// The services that a client can ask about; the empty name is all of them.
const SERVICES: [&str; 3] = [
    "",
    "inference.GRPCInferenceService",
    "grpc.health.v1.Health",
];

/// How often a change is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The current status.
pub async fn check(
    context: Context,
    request: HealthCheckRequest,
) -> Result<HealthCheckResponse, Problem> {
    if !SERVICES.contains(&&*request.service) {
        let detail = "there is no service of that name";
        return Err(Problem::new(Code::ModelNotFound, detail));
    }
    Ok(response(now(&context.state)))
}

/// The current status, and the new status after each change.
pub async fn watch(call: Call) -> Result<Response, Problem> {
    let state = call.context.state.clone();
    let mut held = state.collect(call.body).await?;
    let (head, bytes) = frame::only(held.bytes())?;
    let encoding = head.compressed.then_some(call.encoding);
    let room = (held.taken(), state.limits().max_body_bytes);
    let request: HealthCheckRequest = frame::decode(bytes, encoding, room, |_| 0)?;
    let is_known = SERVICES.contains(&&*request.service);
    drop(held);
    let (sender, response) = channel(Encoding::Identity);
    tokio::spawn(tell(state, is_known, sender));
    Ok(response)
}

/// Sends the status until the client has gone or the service stops.
async fn tell(state: ApiState, is_known: bool, sender: mpsc::Sender<Piece>) {
    let draining = state.draining();
    let mut told = None;
    loop {
        let is_last = state.is_draining();
        let status = match is_known {
            true => now(&state),
            false => ServingStatus::ServiceUnknown,
        };
        if told != Some(status) {
            let message = frame::encode(&response(status), Encoding::Identity).into();
            if sender.send(Ok(Frame::data(message))).await.is_err() {
                return;
            }
            told = Some(status);
        }
        if is_last {
            let trailers = status::trailers(Ok(()));
            sender.send(Ok(Frame::trailers(trailers))).await.ok();
            return;
        }
        tokio::select! {
            () = sender.closed() => return,
            () = draining.cancelled() => {}
            () = sleep(LOOK_EVERY) => {}
        }
    }
}

fn now(state: &ApiState) -> ServingStatus {
    match state.check_ready() {
        Ok(()) => ServingStatus::Serving,
        Err(_) => ServingStatus::NotServing,
    }
}

fn response(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse {
        status: status.into(),
    }
}
