//! How a question of the protocol is answered, over HTTP or gRPC.

use std::time::Instant;

use axum::http::HeaderMap;
use bytes::Bytes;
use sextant_rpc::{Answer, Query};
use sextant_types::NamedTensor;

use super::{
    ResolvedName,
    demands::Demands,
    selection::{Columns, Output, Selection},
};
use crate::{
    ApiState,
    auth::Caller,
    body::body_too_large,
    codec::{Part, binary},
    footprint::Footprint,
    problem::Problem,
    query::explained,
    room::Reservation,
};

/// A question that has been read.
pub struct Question {
    /// The demands.
    pub demands: Demands,
    /// One tensor for each input.
    pub inputs: Vec<NamedTensor>,
    /// The outputs that it asks for.
    pub selection: Selection,
}

/// How a question arrived.
#[derive(Clone, Copy)]
pub struct Arrival<'a> {
    /// Who asks.
    pub caller: &'a Caller,
    /// Headers or metadata.
    pub headers: &'a HeaderMap,
    /// When its last byte arrived.
    pub at: Instant,
    /// How long its client waits, milliseconds: the deadline if the question has no other.
    pub patience_ms: Option<f64>,
}

/// The answer to a question.
pub struct InferAnswer {
    /// The answer without its outputs.
    pub answer: Answer,
    /// The outputs that the question asked for.
    pub outputs: Vec<Output>,
    /// The token that feedback names the answer by, if the application accepts feedback.
    pub token: Option<String>,
}

/// Answers a question.
pub async fn ask(
    state: &ApiState,
    (named, question): (&ResolvedName, Question),
    arrival: Arrival<'_>,
    footprint: &mut Footprint<'_>,
) -> Result<InferAnswer, Problem> {
    let Question {
        demands,
        inputs,
        selection,
    } = question;
    selection.check(&named.signature.outputs)?;
    for part in selection.wanted.iter().filter_map(|it| it.part.as_ref()) {
        state.regions().check(arrival.caller, part)?;
    }
    let preset = demands.preset(arrival.headers)?;
    let targets = demands.targets(arrival.headers)?;
    let mut targets = state.targets_with(&named.route, preset, targets)?;
    targets.latency_ms = targets.latency_ms.or(arrival.patience_ms);
    let query = Query {
        targets,
        best_effort: demands.best_effort(arrival.headers)?,
        explain: demands.explain,
        sticky: demands.sticky(arrival.headers)?,
        serial: state.tokens().serial(state),
        ..Query::new(named.route.clone(), inputs, arrival.at)
    };
    footprint.asks(&query.inputs)?;
    let _share = state.admit_for(&named.route)?;
    let serial = query.serial;
    let mut answer = explained::dispatch(state, arrival.caller, query).await?;
    let token = state.tokens().of(state, &named.route, (&answer, serial));
    footprint.answers(&answer.outputs, selection.binary)?;
    let scored = match selection.any_classes() {
        true => {
            let model = state.directory().classes_of(&named.route, &answer.model);
            Box::pin(state.classes().of(&model, state.registry())).await?
        }
        false => None,
    };
    let columns = Columns {
        batched: named.signature.batched,
        scored: scored.as_deref(),
    };
    let mut outputs = selection.of(std::mem::take(&mut answer.outputs), columns)?;
    for output in &mut outputs {
        write(state, arrival.caller, output)?;
    }
    Ok(InferAnswer {
        answer,
        outputs,
        token,
    })
}

/// The bytes of an input in shared memory. They count as those of a body do.
pub fn read_region(
    state: &ApiState,
    caller: &Caller,
    taken: &mut Reservation,
    part: &Part,
) -> Result<Bytes, Problem> {
    let most = state.limits().max_body_bytes;
    let size = usize::try_from(part.byte_size).ok();
    let size = size.filter(|size| *size <= most);
    let size = size.ok_or_else(|| body_too_large("an input in shared memory", most as u64))?;
    state.regions().check(caller, part)?;
    taken.grow(size)?;
    state.regions().read(caller, part)
}

/// Writes an output into shared memory if the question asks for that.
fn write(state: &ApiState, caller: &Caller, output: &mut Output) -> Result<(), Problem> {
    let Some(part) = &mut output.part else {
        return Ok(());
    };
    let bytes = binary::bytes(&output.named.tensor);
    state.regions().write(caller, part, &bytes)?;
    part.byte_size = bytes.len() as u64;
    Ok(())
}
