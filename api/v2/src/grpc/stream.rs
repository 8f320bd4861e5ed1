//! Queries in a stream. Each query is answered once, in the order of arrival; many are in flight at once.
//!
//! If a query is wrong, its answer says so. An error of the stream itself ends the stream: a message that is too large,
//! or bytes that are no message.

use std::time::{Duration, Instant};

use axum::{body::Body, response::Response};
use bytes::{Buf, Bytes, BytesMut};
use futures::{StreamExt, stream::FuturesOrdered};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use sextant_types::Code;
use tokio::{sync::mpsc, time::sleep_until};
use tracing::Instrument;

use super::{
    call::{self, Call, Context},
    frame::{self, Encoding, HEAD_BYTES, Head},
    infer,
    proto::{InferParameter, ModelStreamInferResponse, infer_parameter::ParameterChoice},
    status, tensors,
};
use crate::{
    ApiState,
    body::{body_too_large, broken},
    problem::Problem,
    room::Reservation,
};

/// Most queries of one stream in flight; the next one is read when one of them is answered.
const MOST_IN_FLIGHT: usize = 64;

/// Answers that wait for the client to take them.
const ANSWERS_AHEAD: usize = 4;

/// A piece of a response.
pub type Piece = Result<Frame<Bytes>, std::convert::Infallible>;

/// Answers a stream of queries.
pub async fn model_stream_infer(call: Call) -> Result<Response, Problem> {
    call.context.caller()?;
    let encoding = call.encoding.of_answer(&call.context.headers);
    let (sender, response) = channel(encoding);
    tokio::spawn(run(call, encoding, sender).in_current_span());
    Ok(response)
}

/// A response whose pieces are sent one by one.
pub fn channel(encoding: Encoding) -> (mpsc::Sender<Piece>, Response) {
    let (sender, mut pieces) = mpsc::channel(ANSWERS_AHEAD);
    let body = StreamBody::new(futures::stream::poll_fn(move |cx| pieces.poll_recv(cx)));
    (sender, call::with_messages(Body::new(body), encoding))
}

/// Runs until the stream ends or its client has gone. It then drops the queries in flight.
async fn run(call: Call, encoding: Encoding, sender: mpsc::Sender<Piece>) {
    let Call { context, body, .. } = call;
    let queries = Queries {
        messages: Messages::new(&context.state, body),
        encoding: call.encoding,
        context: &context,
    };
    let ended = tokio::select! {
        () = sender.closed() => return,
        ended = queries.answer(encoding, &sender) => ended,
    };
    if let Err(problem) = &ended {
        let path = "/inference.GRPCInferenceService/ModelStreamInfer";
        context.state.metrics().problem(path, problem.code());
    }
    let trailers = status::trailers(ended.as_ref().copied());
    // The client may be gone.
    sender.send(Ok(Frame::trailers(trailers))).await.ok();
}

/// The queries of a stream.
struct Queries<'a> {
    messages: Messages,
    encoding: Encoding,
    context: &'a Context,
}

// === impl Queries ===

impl Queries<'_> {
    async fn answer(
        mut self,
        encoding: Encoding,
        sender: &mpsc::Sender<Piece>,
    ) -> Result<(), Problem> {
        let draining = self.context.state.draining();
        let mut answers = FuturesOrdered::new();
        let mut ended = None;
        loop {
            let may_read = ended.is_none() && answers.len() < MOST_IN_FLIGHT;
            tokio::select! {
                message = self.messages.next(), if may_read => match message {
                    Ok(Some(message)) => {
                        answers.push_back(one(self.context, (self.encoding, encoding), message));
                    }
                    Ok(None) => ended = Some(Ok(())),
                    Err(problem) => ended = Some(Err(problem)),
                },
                Some(message) = answers.next(), if !answers.is_empty() => {
                    if sender.send(Ok(Frame::data(message))).await.is_err() {
                        return Ok(());
                    }
                }
                () = draining.cancelled(), if ended.is_none() => {
                    let detail = "the service is shutting down";
                    let problem = Problem::new(Code::Unavailable, detail);
                    ended = Some(Err(problem.retry_after_ms(1000)));
                }
                else => return ended.unwrap_or(Ok(())),
            }
        }
    }
}

/// The encoded answer to one query of a stream. The encodings are those of the requests and of the answers.
async fn one(
    context: &Context,
    (encoding, answering): (Encoding, Encoding),
    message: Message,
) -> Bytes {
    let arrived = Instant::now();
    let mut asked = (String::new(), String::new());
    let answered = reply(context, encoding, (message, arrived), &mut asked).await;
    let (id, model_name) = asked;
    let (reply, taken) = match answered {
        Ok((mut reply, taken)) => {
            let choice = ParameterChoice::BoolParam(true);
            let last = InferParameter {
                parameter_choice: Some(choice),
            };
            let name = "triton_final_response".to_owned();
            reply.parameters.insert(name, last);
            let reply = ModelStreamInferResponse {
                error_message: String::new(),
                infer_response: Some(reply),
            };
            (reply, Some(taken))
        }
        Err(problem) => {
            let path = "/inference.GRPCInferenceService/ModelStreamInfer";
            context.state.metrics().problem(path, problem.code());
            let reply = ModelStreamInferResponse {
                error_message: format!("{}: {}", problem.code(), problem.told()),
                // Tells the client which query failed.
                infer_response: Some(super::proto::ModelInferResponse {
                    id,
                    model_name,
                    ..Default::default()
                }),
            };
            (reply, None)
        }
    };
    let frame = frame::encode(&reply, answering);
    match taken {
        None => frame.into(),
        Some(mut taken) => {
            // The memory that was reserved for the outputs suffices.
            taken.resize(frame.len()).unwrap_or_default();
            taken.keep(frame)
        }
    }
}

async fn reply(
    context: &Context,
    encoding: Encoding,
    (message, arrived): (Message, Instant),
    asked: &mut (String, String),
) -> Result<(super::proto::ModelInferResponse, Reservation), Problem> {
    let Message {
        head,
        bytes,
        mut taken,
        is_first,
    } = message;
    let state = &context.state;
    let caller = context.caller()?;
    // Each query counts as a request of its own; the first was counted with the call.
    let place = match is_first {
        true => caller.take_place(state),
        false => caller.charge(state).await,
    };
    let _place = infer::counted(state, arrived, place)?;
    let _permit = infer::counted(state, arrived, state.admit())?;
    let room = (&mut taken, state.limits().max_body_bytes);
    let encoding = head.compressed.then_some(encoding);
    let read = frame::decode(bytes, encoding, room, tensors::most_bytes);
    let request: super::proto::ModelInferRequest = infer::counted(state, arrived, read)?;
    *asked = (request.id.clone(), request.model_name.clone());
    let query = infer::CallContext {
        context,
        caller,
        arrived,
        is_alone: false,
    };
    infer::answer(query, request).await
}

/// A message of a stream, with the memory that is reserved for it.
struct Message {
    head: Head,
    bytes: Bytes,
    taken: Reservation,
    /// Whether it is the stream's first message.
    is_first: bool,
}

/// Messages as they arrive.
struct Messages {
    body: Body,
    buffer: BytesMut,
    taken: Reservation,
    max_bytes: usize,
    longest: Duration,
    /// When the rest of the message must have arrived.
    until: Option<tokio::time::Instant>,
    /// Whether the stream has had a message.
    has_begun: bool,
}

// === impl Messages ===

impl Messages {
    fn new(state: &ApiState, body: Body) -> Self {
        Self {
            body,
            buffer: BytesMut::new(),
            taken: state.room().take_body(),
            max_bytes: state.limits().max_body_bytes,
            longest: state.limits().body_timeout,
            until: None,
            has_begun: false,
        }
    }

    /// The next message; `None` at the end. A caller may drop the future and call again.
    async fn next(&mut self) -> Result<Option<Message>, Problem> {
        loop {
            if let Some(message) = self.whole()? {
                self.until = None;
                return Ok(Some(message));
            }
            let until = match self.buffer.is_empty() {
                true => None,
                false => Some(
                    *self
                        .until
                        .get_or_insert_with(|| tokio::time::Instant::now() + self.longest),
                ),
            };
            let frame = match until {
                None => self.body.frame().await,
                Some(until) => tokio::select! {
                    frame = self.body.frame() => frame,
                    () = sleep_until(until) => return Err(self.too_slow()),
                },
            };
            match frame {
                None if self.buffer.is_empty() => return Ok(None),
                None => {
                    let detail = "the last message is cut short";
                    return Err(Problem::new(Code::InvalidRequest, detail));
                }
                Some(frame) => {
                    let Ok(data) = frame.map_err(|error| broken(&error))?.into_data() else {
                        continue;
                    };
                    self.taken.grow(data.len())?;
                    self.buffer.extend_from_slice(&data);
                }
            }
        }
    }

    /// The message at the beginning of the received bytes, if it is complete.
    fn whole(&mut self) -> Result<Option<Message>, Problem> {
        let Some(head) = Head::read(&self.buffer)? else {
            return Ok(None);
        };
        if head.length > self.max_bytes {
            return Err(body_too_large("the message", self.max_bytes as u64));
        }
        if self.buffer.len() - HEAD_BYTES < head.length {
            return Ok(None);
        }
        self.buffer.advance(HEAD_BYTES);
        let bytes = self.buffer.split_to(head.length).freeze();
        let taken = self.taken.split(HEAD_BYTES + head.length);
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        Ok(Some(Message {
            head,
            bytes,
            taken,
            is_first,
        }))
    }

    fn too_slow(&self) -> Problem {
        let detail = format!(
            "the rest of a message did not arrive within {:?}",
            self.longest
        );
        Problem::new(Code::InvalidRequest, detail)
    }
}
