//! Queries over gRPC: one in a call, or many in a stream.

use std::{borrow::Cow, time::Instant};

use axum::response::Response;
use sextant_types::Route;

use super::{
    call::{Call, Context, of_frame, within},
    frame,
    parameters::{self, Parameters},
    proto, tensors,
};
use crate::{
    ApiState, ResolvedName,
    ask::{Arrival, InferAnswer, Question, ask, read_region},
    auth::Caller,
    codec::Part,
    extract::check_query_id,
    footprint::Footprint,
    problem::Problem,
    room::Reservation,
};

/// Answers one query.
pub async fn model_infer(call: Call) -> Result<Response, Problem> {
    let Call {
        context,
        body,
        encoding,
    } = call;
    let (state, begun) = (&context.state, Instant::now());
    let mut held = counted(state, begun, state.collect(body).await)?;
    let arrived = Instant::now();
    let _permit = counted(state, arrived, state.admit())?;
    let read = frame::only(held.bytes()).and_then(|(head, bytes)| {
        let room = (held.taken(), state.limits().max_body_bytes);
        let compressed = head.compressed.then_some(encoding);
        frame::decode(bytes, compressed, room, tensors::most_bytes)
    });
    let request = counted(state, arrived, read)?;
    let asked = CallContext {
        context: &context,
        caller: context.caller()?,
        arrived,
        is_alone: true,
    };
    let (reply, mut taken) = answer(asked, request).await?;
    let encoding = encoding.of_answer(&context.headers);
    let frame = frame::encode(&reply, encoding);
    taken.resize(frame.len())?;
    Ok(of_frame(taken.keep(frame), encoding))
}

/// Counts a query that is refused before its route is known.
pub fn counted<T>(
    state: &ApiState,
    since: Instant,
    read: Result<T, Problem>,
) -> Result<T, Problem> {
    read.inspect_err(|problem| state.count_query(None, Err((problem.code(), since.elapsed()))))
}

/// How a query arrived.
pub struct CallContext<'a> {
    /// The call.
    pub context: &'a Context,
    /// Who asks.
    pub caller: &'a Caller,
    /// When its last byte arrived.
    pub arrived: Instant,
    /// Whether it is the only query of its call, and ends with the call.
    pub is_alone: bool,
}

/// Answers a query that has been read, and counts its outcome.
pub async fn answer(
    asked: CallContext<'_>,
    request: proto::ModelInferRequest,
) -> Result<(proto::ModelInferResponse, Reservation), Problem> {
    let (context, arrived) = (asked.context, asked.arrived);
    let mut route = None;
    let result = answer_inner(asked, request, &mut route).await;
    if let Err(problem) = &result {
        let failed = Err((problem.code(), arrived.elapsed()));
        context.state.count_query(route.as_ref(), failed);
    }
    result
}

async fn answer_inner(
    asked: CallContext<'_>,
    request: proto::ModelInferRequest,
    route: &mut Option<Route>,
) -> Result<(proto::ModelInferResponse, Reservation), Problem> {
    let (context, is_alone) = (asked.context, asked.is_alone);
    let patience = || context.left_at(Instant::now()).filter(|_| is_alone);
    let name = (request.model_name.clone(), request.model_version.as_str());
    let found = ResolvedName::find_for_query(&context.state, asked.caller, name, route);
    let named = within(patience(), found).await?;
    within(patience(), reply(asked, &named, request)).await
}

async fn reply(
    asked: CallContext<'_>,
    named: &ResolvedName,
    request: proto::ModelInferRequest,
) -> Result<(proto::ModelInferResponse, Reservation), Problem> {
    let CallContext {
        context,
        caller,
        arrived,
        ..
    } = asked;
    let state = &context.state;
    check_query_id(&request.id)?;
    let is_typed = request.inputs.iter().any(|input| input.contents.is_some());
    let is_typed = is_typed && !state.answers_raw();
    let regions = |taken: &mut Reservation, part: &Part| read_region(state, caller, taken, part);
    let signature = Cow::Borrowed(&named.signature);
    let mut footprint = Footprint::new(state.room(), Some(signature));
    let question = Question {
        demands: Parameters(&request.parameters).demands()?,
        selection: tensors::selection(&request.outputs)?,
        inputs: tensors::inputs(
            request.inputs,
            request.raw_input_contents,
            &mut footprint.reader(),
            regions,
        )?,
    };
    let left = context.still_waits_at(Instant::now())?;
    let arrival = Arrival {
        caller,
        headers: &context.headers,
        at: arrived,
        patience_ms: left.map(|left| left.as_secs_f64() * 1e3),
    };
    let asked = ask(state, (named, question), arrival, &mut footprint).await;
    let InferAnswer {
        answer,
        outputs,
        token,
    } = asked.map_err(|problem| context.unless_too_late(problem))?;
    let (outputs, raw_output_contents) = tensors::outputs(outputs, is_typed);
    let reply = proto::ModelInferResponse {
        model_name: named.name.clone(),
        model_version: named.version_of(state, &answer).to_string(),
        id: request.id,
        parameters: parameters::of_answer(&answer, token),
        outputs,
        raw_output_contents,
    };
    state.count_query(Some(&named.route), Ok((&answer, arrived.elapsed())));
    Ok((reply, footprint.taken()))
}
