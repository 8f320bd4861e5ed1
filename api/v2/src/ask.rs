//! One question by the protocol on its way, whatever it came in.

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

/// A question whose form has been read.
pub struct Question {
    /// What it demands.
    pub demands: Demands,
    /// One tensor for each input.
    pub inputs: Vec<NamedTensor>,
    /// Which outputs it wants.
    pub selection: Selection,
}

/// How a question came.
#[derive(Clone, Copy)]
pub struct Arrival<'a> {
    /// Who asks.
    pub caller: &'a Caller,
    /// Headers or metadata.
    pub headers: &'a HeaderMap,
    /// When its last byte was there.
    pub at: Instant,
    /// So long its client waits, milliseconds: the deadline where there is no other.
    pub patience_ms: Option<f64>,
}

/// What a question came to.
pub struct InferAnswer {
    /// What was answered, without its outputs.
    pub answer: Answer,
    /// The wanted outputs.
    pub outputs: Vec<Output>,
    /// What feedback names the answer by, where its application takes some.
    pub token: Option<String>,
}

/// Has a question answered.
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

/// The bytes of an input in shared memory, which count as those of a body do.
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

/// Writes an output to where it is wanted in shared memory, if it is.
fn write(state: &ApiState, caller: &Caller, output: &mut Output) -> Result<(), Problem> {
    let Some(part) = &mut output.part else {
        return Ok(());
    };
    let bytes = binary::bytes(&output.named.tensor);
    state.regions().write(caller, part, &bytes)?;
    part.byte_size = bytes.len() as u64;
    Ok(())
}
