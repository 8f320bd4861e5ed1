//! The Open Inference Protocol over gRPC, frame by frame.

use std::{
    convert::Infallible,
    io::{Read, Write},
    sync::Arc,
};

use axum::{
    body::Body,
    http::{HeaderMap, Request},
    response::Response,
};
use bytes::{BufMut, Bytes, BytesMut};
use flate2::{
    Compression,
    read::{GzDecoder, ZlibDecoder},
    write::{GzEncoder, ZlibEncoder},
};
use futures::stream;
use http_body_util::BodyExt;
use prost::Message;
use sextant_api::Limits;
use sextant_types::{DataType, NamedTensor};

use crate::{
    double::{ADMIN, Api, Recorder, Settings, answer},
    messages::{
        InferParameter, InferRequestedOutputTensor, InferTensor, InferTensorContents, LogSetting,
        LogSettings, ModelInferRequest, ModelInferResponse, ModelStreamInferResponse,
        ParameterChoice, Region, Regions, TraceSetting, TraceSettings,
    },
    served::soon,
};

mod forms;
mod memory;
mod metadata;
mod targets;

/// The method that asks one query.
pub const INFER: &str = "/inference.GRPCInferenceService/ModelInfer";
const STREAM: &str = "/inference.GRPCInferenceService/ModelStreamInfer";

const OK: i32 = 0;
const INVALID_ARGUMENT: i32 = 3;
const DEADLINE_EXCEEDED: i32 = 4;
const NOT_FOUND: i32 = 5;
const PERMISSION_DENIED: i32 = 7;
const RESOURCE_EXHAUSTED: i32 = 8;
const UNIMPLEMENTED: i32 = 12;
const UNAUTHENTICATED: i32 = 16;

/// How a call ended, and its messages.
#[derive(Debug)]
pub struct CallResult {
    status: i32,
    code: String,
    message: String,
    headers: HeaderMap,
    bodies: Vec<(bool, Bytes)>,
}

impl CallResult {
    /// The only message.
    pub fn one<M: Message + Default>(&self) -> M {
        assert_eq!(self.status, OK, "{self:?}");
        assert_eq!(self.bodies.len(), 1, "{self:?}");
        M::decode(self.bodies[0].1.clone()).expect("a message")
    }

    fn is(&self, status: i32, code: &str) {
        assert_eq!((self.status, &*self.code), (status, code), "{self:?}");
        assert!(!self.message.is_empty(), "{self:?}");
    }
}

fn framed(compressed: bool, message: &[u8]) -> Bytes {
    let mut out = BytesMut::new();
    out.put_u8(compressed.into());
    out.put_u32(u32::try_from(message.len()).expect("a small one"));
    out.extend_from_slice(message);
    out.freeze()
}

/// A message as it travels.
pub fn frame(message: &impl Message) -> Bytes {
    framed(false, &message.encode_to_vec())
}

/// A call of this method.
pub fn request(path: &str, headers: &[(&str, &str)], body: impl Into<Body>) -> Request<Body> {
    let builder = Request::builder().method("POST").uri(path);
    let builder = builder.header("content-type", "application/grpc");
    let builder = headers.iter().fold(builder, |builder, (name, value)| {
        builder.header(*name, *value)
    });
    builder.body(body.into()).expect("a request")
}

/// Reads an answer to its end.
pub async fn read(response: Response) -> CallResult {
    assert_eq!(response.status(), 200);
    let headers = response.headers().clone();
    assert_eq!(headers["content-type"], "application/grpc");
    let body = response.into_body().collect().await.expect("a whole body");
    let trailers = body.trailers().cloned().unwrap_or_default();
    let mut rest = body.to_bytes();
    let mut bodies = Vec::new();
    while !rest.is_empty() {
        let head = rest.split_to(5);
        let length = u32::from_be_bytes(head[1..].try_into().expect("four bytes"));
        bodies.push((head[0] == 1, rest.split_to(length as usize)));
    }
    let told = |name: &str| {
        let value = trailers.get(name).or_else(|| headers.get(name));
        value.map(|value| value.to_str().expect("text").to_owned())
    };
    let status = told("grpc-status").expect("every call has a status");
    CallResult {
        status: status.parse().expect("a number"),
        code: told("sextant-code").unwrap_or_default(),
        message: told("grpc-message").unwrap_or_default(),
        headers,
        bodies,
    }
}

async fn call(
    api: &Api,
    path: &str,
    headers: &[(&str, &str)],
    body: impl Into<Body>,
) -> CallResult {
    read(api.open(request(path, headers, body)).await).await
}

fn input(data_type: &str, shape: &[i64]) -> InferTensor {
    InferTensor {
        name: "input".to_owned(),
        datatype: data_type.to_owned(),
        shape: shape.to_vec(),
        ..Default::default()
    }
}

/// Three numbers, as bytes.
pub fn query() -> ModelInferRequest {
    let bytes: Vec<u8> = [1.0f32, 2.0, 3.0]
        .iter()
        .flat_map(|it| it.to_le_bytes())
        .collect();
    ModelInferRequest {
        model_name: "digits".to_owned(),
        id: "seven".to_owned(),
        inputs: vec![input("FP32", &[1, 3])],
        raw_input_contents: vec![bytes.into()],
        ..Default::default()
    }
}

fn parameters(
    values: &[(&str, ParameterChoice)],
) -> std::collections::BTreeMap<String, InferParameter> {
    let one = |(name, value): &(&str, ParameterChoice)| {
        let parameter_choice = Some(value.clone());
        ((*name).to_owned(), InferParameter { parameter_choice })
    };
    values.iter().map(one).collect()
}

/// Answers with what was asked.
fn echo() -> Arc<Recorder> {
    Recorder::new(|query| {
        let mut answer = answer();
        let tensor = query.inputs[0].tensor.clone();
        answer.outputs = vec![NamedTensor::new("probabilities", tensor)];
        Ok(answer)
    })
}

#[tokio::test]
async fn a_query_is_answered_as_over_http() {
    let recorder = Recorder::answering();
    let api = Api::new(recorder.clone()).await;
    let ended = call(&api, INFER, &[], frame(&query())).await;
    let reply: ModelInferResponse = ended.one();
    assert_eq!(
        (&*reply.model_name, &*reply.model_version, &*reply.id),
        ("digits", "1", "seven")
    );
    let output = &reply.outputs[0];
    assert_eq!(
        (&*output.name, &*output.datatype, &output.shape[..]),
        ("probabilities", "FP32", &[1, 3][..])
    );
    let wanted: Vec<u8> = [0.25f32, -1.0, 1e-9]
        .iter()
        .flat_map(|it| it.to_le_bytes())
        .collect();
    assert_eq!(reply.raw_output_contents, [Bytes::from(wanted)]);
    let told = |name: &str| reply.parameters[name].parameter_choice.clone();
    assert_eq!(
        told("model"),
        Some(ParameterChoice::StringParam("mlp".to_owned()))
    );
    assert_eq!(told("slo_met"), Some(ParameterChoice::BoolParam(true)));
    assert_eq!(told("batch_rows"), Some(ParameterChoice::Int64Param(4)));
    let asked = recorder.last();
    assert_eq!(
        asked.inputs[0].tensor.to_vec::<f32>(),
        Some(vec![1.0, 2.0, 3.0])
    );
    assert_eq!(asked.targets.latency_ms, None);
}

#[tokio::test]
async fn every_type_travels_as_bytes() {
    let api = Api::new(echo()).await;
    for data_type in DataType::ALL {
        let bytes: Bytes = match data_type.size() {
            Some(size) => (0..2 * size).map(|at| u8::from(at == 0)).collect(),
            None => Bytes::from_static(&[2, 0, 0, 0, 0xff, b'a', 0, 0, 0, 0]),
        };
        let request = ModelInferRequest {
            // The model has no such input: what it would take is not looked at.
            inputs: vec![InferTensor {
                name: "anything".to_owned(),
                ..input(data_type.name(), &[2])
            }],
            raw_input_contents: vec![bytes.clone()],
            ..query()
        };
        let reply: ModelInferResponse = call(&api, INFER, &[], frame(&request)).await.one();
        assert_eq!(reply.outputs[0].datatype, data_type.name());
        assert_eq!(reply.raw_output_contents, [bytes], "{data_type}");
    }
}

#[tokio::test]
async fn every_type_but_the_halves_travels_in_its_field() {
    let api = Api::new(echo()).await;
    let contents = |data_type| {
        let mut of = InferTensorContents::default();
        match data_type {
            DataType::Bool => of.bool_contents = vec![true, false],
            DataType::Uint8 | DataType::Uint16 | DataType::Uint32 => {
                of.uint_contents = vec![0, 255];
            }
            DataType::Uint64 => of.uint64_contents = vec![0, u64::MAX],
            DataType::Int8 | DataType::Int16 | DataType::Int32 => of.int_contents = vec![-128, 127],
            DataType::Int64 => of.int64_contents = vec![i64::MIN, i64::MAX],
            DataType::Fp32 => of.fp32_contents = vec![-0.5, 1e30],
            DataType::Fp64 => of.fp64_contents = vec![-0.5, 1e300],
            DataType::Bytes => of.bytes_contents = vec![Bytes::new(), Bytes::from_static(&[0xff])],
            DataType::Fp16 | DataType::Bf16 => of.fp32_contents = vec![0.5, 1.0],
        }
        of
    };
    for data_type in DataType::ALL {
        let sent = contents(data_type);
        let request = ModelInferRequest {
            inputs: vec![InferTensor {
                name: "anything".to_owned(),
                contents: Some(sent.clone()),
                ..input(data_type.name(), &[2])
            }],
            raw_input_contents: Vec::new(),
            ..query()
        };
        let ended = call(&api, INFER, &[], frame(&request)).await;
        if matches!(data_type, DataType::Fp16 | DataType::Bf16) {
            ended.is(INVALID_ARGUMENT, "invalid_tensor");
            assert!(ended.message.contains("raw_input_contents"), "{ended:?}");
            continue;
        }
        let reply: ModelInferResponse = ended.one();
        assert_eq!(reply.outputs[0].contents, Some(sent), "{data_type}");
        assert!(reply.raw_output_contents.is_empty());
    }
}

/// Who has given up is told so, which clients try again, and not of a target that nobody sent.
#[tokio::test]
async fn a_client_that_has_given_up_is_told_so() {
    let api = Api::new(Recorder::answering()).await;
    for timeout in ["1n", "0n", "0S", "1u"] {
        let ended = call(&api, INFER, &[("grpc-timeout", timeout)], frame(&query())).await;
        ended.is(DEADLINE_EXCEEDED, "deadline_exceeded");
    }
}

#[tokio::test]
async fn a_client_that_gives_up_frees_its_place() {
    let recorder = Recorder::stalling();
    let limits = Limits {
        max_concurrent_queries: 1,
        ..Limits::default()
    };
    let api = Api::limited(recorder.clone(), limits).await;
    let timed = [("grpc-timeout", "20m")];
    for path in [INFER, STREAM] {
        // A stream that its client keeps open.
        let body = match path {
            INFER => Body::from(frame(&query())),
            _ => {
                let first = stream::iter([Ok::<_, Infallible>(frame(&query()))]);
                Body::from_stream(futures::StreamExt::chain(first, stream::pending()))
            }
        };
        let mut waiting = Box::pin(async {
            let response = api.open(request(path, &[], body)).await;
            response.into_body().collect().await
        });
        soon("the query waits", async {
            while recorder.waiting() == 0 {
                futures::future::select(&mut waiting, Box::pin(tokio::task::yield_now())).await;
            }
        })
        .await;
        let refused = call(&api, INFER, &[], frame(&query())).await;
        refused.is(RESOURCE_EXHAUSTED, "overloaded");
        drop(waiting);
        soon("the place is free", async {
            while recorder.waiting() > 0 {
                tokio::task::yield_now().await;
            }
        })
        .await;
        let ended = call(&api, INFER, &timed, frame(&query())).await;
        ended.is(DEADLINE_EXCEEDED, "deadline_exceeded");
    }
}

/// Asserts that the metrics have a line.
async fn counts(api: &Api, line: &str) {
    let metrics = api.get("/metrics").await;
    let text = String::from_utf8(metrics.bytes).expect("UTF-8");
    assert!(text.contains(line), "no `{line}` in\n{text}");
}

#[tokio::test]
async fn queries_that_are_refused_unread_or_given_up_are_counted() {
    let limits = Limits {
        max_concurrent_queries: 0,
        ..Limits::default()
    };
    let api = Api::limited(Recorder::answering(), limits).await;
    let ended = call(&api, INFER, &[], frame(&query())).await;
    ended.is(RESOURCE_EXHAUSTED, "overloaded");
    let ended = call(&api, STREAM, &[], frame(&query())).await;
    let reply = &streamed(&ended)[0];
    assert!(reply.error_message.starts_with("overloaded"), "{reply:?}");
    let refused = "sextant_query_failures_total{application=\"\",code=\"overloaded\"} 2";
    counts(&api, refused).await;
    let api = Api::new(Recorder::stalling()).await;
    let digits = r#"{"name":"digits","metric":"top1"}"#;
    api.call("POST", "/v1/applications", digits).await;
    let ended = call(&api, INFER, &[("grpc-timeout", "20m")], frame(&query())).await;
    ended.is(DEADLINE_EXCEEDED, "deadline_exceeded");
    let late = "sextant_query_failures_total{application=\"digits\",code=\"deadline_exceeded\"} 1";
    counts(&api, late).await;
}

#[tokio::test]
async fn queries_that_name_nothing_are_counted() {
    let api = Api::new(Recorder::answering()).await;
    let nobody = frame(&ModelInferRequest {
        model_name: "nobody".to_owned(),
        ..query()
    });
    let ended = call(&api, INFER, &[], nobody.clone()).await;
    ended.is(NOT_FOUND, "model_not_found");
    let ended = call(&api, STREAM, &[], nobody).await;
    let reply = &streamed(&ended)[0];
    assert!(
        reply.error_message.starts_with("model_not_found"),
        "{reply:?}"
    );
    let refused = "sextant_query_failures_total{application=\"\",code=\"model_not_found\"} 2";
    counts(&api, refused).await;
}

fn streamed(ended: &CallResult) -> Vec<ModelStreamInferResponse> {
    let each = ended.bodies.iter();
    let reply = |(_, bytes): &(bool, Bytes)| ModelStreamInferResponse::decode(bytes.clone());
    each.map(|body| reply(body).expect("a message")).collect()
}

#[tokio::test]
async fn a_stream_answers_each_query_once_in_their_order() {
    let api = Api::new(Recorder::answering()).await;
    let queries = (0..200).map(|number| {
        let model_name = if number % 7 == 3 { "nobody" } else { "digits" };
        frame(&ModelInferRequest {
            id: number.to_string(),
            model_name: model_name.to_owned(),
            ..query()
        })
    });
    // In pieces that respect no message.
    let all = queries.collect::<Vec<_>>().concat();
    let pieces: Vec<_> = all
        .chunks(37)
        .map(Bytes::copy_from_slice)
        .map(Ok::<_, Infallible>)
        .collect();
    let ended = call(&api, STREAM, &[], Body::from_stream(stream::iter(pieces))).await;
    assert_eq!(ended.status, OK);
    let replies = streamed(&ended);
    assert_eq!(replies.len(), 200);
    for (number, reply) in replies.iter().enumerate() {
        let inner = reply.infer_response.as_ref().expect("it tells which");
        assert_eq!(inner.id, number.to_string());
        let is_refused = number % 7 == 3;
        assert_eq!(
            reply.error_message.starts_with("model_not_found"),
            is_refused,
            "{reply:?}"
        );
        assert_eq!(inner.outputs.is_empty(), is_refused);
    }
    let cut = [&frame(&query())[..], &[0, 0, 0]].concat();
    let ended = call(&api, STREAM, &[], cut).await;
    ended.is(INVALID_ARGUMENT, "invalid_request");
    assert_eq!(streamed(&ended).len(), 1);
}

#[tokio::test]
async fn the_first_query_of_a_stream_is_counted_with_the_call() {
    let api = Api::with(Recorder::answering(), Settings::keys()).await;
    let body = r#"{"name":"a","scopes":["query"],"rate_per_s":0.001,"burst":2}"#;
    let created = api.keyed(ADMIN, "POST", "/v1/keys", body).await.json();
    let bearer = format!("Bearer {}", created["secret"].as_str().expect("a secret"));
    let queries = vec![frame(&query()); 3].concat();
    let ended = call(&api, STREAM, &[("authorization", &*bearer)], queries).await;
    let replies = streamed(&ended);
    let refused = replies.iter();
    let refused = refused.filter(|it| it.error_message.starts_with("rate_limited"));
    assert_eq!((replies.len(), refused.count()), (3, 1), "{replies:?}");
}

#[tokio::test]
async fn keys_are_asked_for_as_over_http() {
    let api = Api::with(Recorder::answering(), Settings::keys()).await;
    for path in [
        INFER,
        STREAM,
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    ] {
        let ended = call(&api, path, &[], frame(&query())).await;
        ended.is(UNAUTHENTICATED, "unauthenticated");
    }
    for path in [
        "/inference.GRPCInferenceService/ServerLive",
        "/inference.GRPCInferenceService/ServerReady",
        "/inference.GRPCInferenceService/ServerMetadata",
        "/grpc.health.v1.Health/Check",
    ] {
        assert_eq!(
            call(&api, path, &[], framed(false, &[])).await.status,
            OK,
            "{path}"
        );
    }
    let wrong = [("authorization", "Bearer nobody's")];
    call(&api, INFER, &wrong, frame(&query()))
        .await
        .is(UNAUTHENTICATED, "unauthenticated");
    let admin = format!("Bearer {ADMIN}");
    let admin = [("authorization", &*admin)];
    for path in [INFER, STREAM] {
        assert_eq!(call(&api, path, &admin, frame(&query())).await.status, OK);
    }
    let body = r#"{"name":"reader","scopes":["register"]}"#;
    let created = api.keyed(ADMIN, "POST", "/v1/keys", body).await.json();
    let secret = created["secret"].as_str().expect("a secret");
    let bearer = format!("Bearer {secret}");
    let lacking = [("authorization", &*bearer)];
    call(&api, INFER, &lacking, frame(&query()))
        .await
        .is(PERMISSION_DENIED, "forbidden");
    let flag = Some(false);
    let settings = [("log_info".to_owned(), LogSetting { flag })];
    let change = LogSettings {
        settings: settings.into(),
    };
    let path = "/inference.GRPCInferenceService/LogSettings";
    let ended = call(&api, path, &lacking, frame(&change)).await;
    ended.is(PERMISSION_DENIED, "forbidden");
    let told: LogSettings = call(&api, path, &admin, frame(&change)).await.one();
    assert_eq!(told.settings["log_info"].flag, Some(false));
    let audit = api.keyed(ADMIN, "GET", "/v1/audit", "").await.json();
    assert_eq!(audit["entries"][0]["action"], "log.change", "{audit}");
}
