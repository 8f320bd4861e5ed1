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
        ParameterChoice, Region, Regions,
    },
    served::soon,
};

const INFER: &str = "/inference.GRPCInferenceService/ModelInfer";
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
struct Ended {
    status: i32,
    code: String,
    message: String,
    headers: HeaderMap,
    bodies: Vec<(bool, Bytes)>,
}

impl Ended {
    fn one<M: Message + Default>(&self) -> M {
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

fn frame(message: &impl Message) -> Bytes {
    framed(false, &message.encode_to_vec())
}

fn request(path: &str, headers: &[(&str, &str)], body: impl Into<Body>) -> Request<Body> {
    let builder = Request::builder().method("POST").uri(path);
    let builder = builder.header("content-type", "application/grpc");
    let builder = headers.iter().fold(builder, |builder, (name, value)| {
        builder.header(*name, *value)
    });
    builder.body(body.into()).expect("a request")
}

async fn read(response: Response) -> Ended {
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
    Ended {
        status: status.parse().expect("a number"),
        code: told("sextant-code").unwrap_or_default(),
        message: told("grpc-message").unwrap_or_default(),
        headers,
        bodies,
    }
}

async fn call(api: &Api, path: &str, headers: &[(&str, &str)], body: impl Into<Body>) -> Ended {
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
fn query() -> ModelInferRequest {
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
            inputs: vec![input(data_type.name(), &[2])],
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

#[tokio::test]
async fn what_does_not_fit_is_refused() {
    let api = Api::new(Recorder::answering()).await;
    let typed = |contents| ModelInferRequest {
        inputs: vec![InferTensor {
            contents: Some(contents),
            ..input("FP32", &[1, 3])
        }],
        raw_input_contents: Vec::new(),
        ..query()
    };
    let fp32 = |values: &[f32]| InferTensorContents {
        fp32_contents: values.to_vec(),
        ..Default::default()
    };
    let raw = |raw: Vec<Bytes>| ModelInferRequest {
        raw_input_contents: raw,
        ..query()
    };
    let of = |input| ModelInferRequest {
        inputs: vec![input],
        ..query()
    };
    let int8 = ModelInferRequest {
        inputs: vec![InferTensor {
            contents: Some(InferTensorContents {
                int_contents: vec![128],
                ..Default::default()
            }),
            ..input("INT8", &[1])
        }],
        raw_input_contents: Vec::new(),
        ..query()
    };
    let mut both = typed(fp32(&[1.0, 2.0, 3.0]));
    both.raw_input_contents = query().raw_input_contents;
    let output = |name: &str| InferRequestedOutputTensor {
        name: name.to_owned(),
        ..Default::default()
    };
    let mut unwanted = query();
    unwanted.outputs = vec![output("nothing")];
    let mut twice = query();
    twice.outputs = vec![output("probabilities"); 2];
    let mut policy = query();
    policy.parameters =
        parameters(&[("slo_policy", ParameterChoice::StringParam("no".to_owned()))]);
    let mut nan = query();
    nan.parameters = parameters(&[("slo_latency_ms", ParameterChoice::DoubleParam(f64::NAN))]);
    let mut negative = query();
    negative.parameters = parameters(&[("slo_latency_ms", ParameterChoice::DoubleParam(-1.0))]);
    let mut timeout = query();
    timeout.parameters = parameters(&[("timeout", ParameterChoice::Int64Param(-1))]);
    let mut nobody = query();
    nobody.model_name = "nobody".to_owned();
    let mut version = query();
    version.model_version = "2".to_owned();
    for (what, request, status, code) in [
        ("no such model", nobody, NOT_FOUND, "model_not_found"),
        ("no such version", version, NOT_FOUND, "model_not_found"),
        (
            "no such type",
            of(input("FP33", &[1, 3])),
            INVALID_ARGUMENT,
            "invalid_tensor",
        ),
        (
            "a negative size",
            of(input("FP32", &[-1, 3])),
            INVALID_ARGUMENT,
            "invalid_tensor",
        ),
        (
            "an overflow",
            of(input("FP32", &[i64::MAX, 4])),
            INVALID_ARGUMENT,
            "invalid_tensor",
        ),
        (
            "too few bytes",
            raw(vec![Bytes::from_static(&[0; 11])]),
            INVALID_ARGUMENT,
            "invalid_tensor",
        ),
        (
            "too many bytes",
            raw(vec![Bytes::from_static(&[0; 16])]),
            INVALID_ARGUMENT,
            "invalid_tensor",
        ),
        (
            "too many entries",
            raw(vec![Bytes::from_static(&[0; 12]); 2]),
            INVALID_ARGUMENT,
            "invalid_tensor",
        ),
        (
            "no elements",
            raw(Vec::new()),
            INVALID_ARGUMENT,
            "invalid_tensor",
        ),
        ("elements twice", both, INVALID_ARGUMENT, "invalid_tensor"),
        (
            "too few elements",
            typed(fp32(&[1.0])),
            INVALID_ARGUMENT,
            "invalid_tensor",
        ),
        (
            "a wrong field",
            typed(InferTensorContents {
                fp64_contents: vec![1.0; 3],
                ..Default::default()
            }),
            INVALID_ARGUMENT,
            "invalid_tensor",
        ),
        ("no INT8", int8, INVALID_ARGUMENT, "invalid_tensor"),
        (
            "no such output",
            unwanted,
            INVALID_ARGUMENT,
            "invalid_tensor",
        ),
        ("an output twice", twice, INVALID_ARGUMENT, "invalid_tensor"),
        (
            "no such policy",
            policy,
            INVALID_ARGUMENT,
            "invalid_request",
        ),
        ("not a number", nan, INVALID_ARGUMENT, "invalid_target"),
        (
            "a negative target",
            negative,
            INVALID_ARGUMENT,
            "invalid_target",
        ),
        (
            "a negative timeout",
            timeout,
            INVALID_ARGUMENT,
            "invalid_target",
        ),
    ] {
        let ended = call(&api, INFER, &[], frame(&request)).await;
        assert_eq!(
            (ended.status, &*ended.code),
            (status, code),
            "{what}: {ended:?}"
        );
        assert!(!ended.message.is_empty(), "{what}");
    }
}

#[tokio::test]
async fn frames_are_held_to_their_form() {
    let api = Api::new(Recorder::answering()).await;
    let whole = frame(&query());
    let mut long = whole.to_vec();
    long.push(0);
    let mut lying = whole.to_vec();
    lying[4] += 1;
    let mut flag = whole.to_vec();
    flag[0] = 2;
    for (what, body) in [
        ("nothing", Vec::new()),
        ("half a head", whole[..3].to_vec()),
        ("half a message", whole[..whole.len() - 1].to_vec()),
        ("something behind", long),
        ("a length that lies", lying),
        ("a flag that is none", flag),
        ("no message", framed(false, &[0x0f, 0xff]).to_vec()),
        (
            "many empty inputs",
            framed(false, &[0x2a, 0].repeat(5000)).to_vec(),
        ),
        ("compressed as nothing says", framed(true, b"no").to_vec()),
    ] {
        let ended = call(&api, INFER, &[], body).await;
        assert_eq!(ended.status, INVALID_ARGUMENT, "{what}: {ended:?}");
    }
    for headers in [
        [("grpc-encoding", "br")],
        [("grpc-timeout", "1x")],
        [("grpc-timeout", "")],
    ] {
        let ended = call(&api, INFER, &headers, whole.clone()).await;
        ended.is(INVALID_ARGUMENT, "invalid_request");
    }
    let unknown = "/inference.GRPCInferenceService/Unheard";
    call(&api, unknown, &[], whole)
        .await
        .is(UNIMPLEMENTED, "route_not_found");
    // Over HTTP the same path tells what it takes.
    let reading = api.call("POST", INFER, "{}").await;
    reading.problem("invalid_request");
}

#[tokio::test]
async fn messages_are_compressed_both_ways() {
    let api = Api::new(Recorder::answering()).await;
    let plain = query().encode_to_vec();
    for encoding in ["gzip", "deflate"] {
        let small = match encoding {
            "gzip" => {
                let mut to = GzEncoder::new(Vec::new(), Compression::fast());
                to.write_all(&plain).expect("a vector takes all");
                to.finish()
            }
            _ => {
                let mut to = ZlibEncoder::new(Vec::new(), Compression::fast());
                to.write_all(&plain).expect("a vector takes all");
                to.finish()
            }
        };
        let body = framed(true, &small.expect("a vector takes all"));
        let headers = [
            ("grpc-encoding", encoding),
            ("grpc-accept-encoding", "identity, gzip,deflate"),
        ];
        let ended = call(&api, INFER, &headers, body.clone()).await;
        assert_eq!(ended.headers["grpc-encoding"], encoding);
        let (compressed, bytes) = &ended.bodies[0];
        assert!(compressed, "{ended:?}");
        let mut inflated = Vec::new();
        match encoding {
            "gzip" => GzDecoder::new(&bytes[..]).read_to_end(&mut inflated),
            _ => ZlibDecoder::new(&bytes[..]).read_to_end(&mut inflated),
        }
        .expect("it is what it says");
        let reply = ModelInferResponse::decode(&inflated[..]).expect("a message");
        assert_eq!(reply.id, "seven");
        // A client that does not say that it takes such answers gets plain ones.
        let ended = call(&api, INFER, &headers[..1], body).await;
        assert!(!ended.bodies[0].0, "{ended:?}");
        let _: ModelInferResponse = ended.one();
    }
}

#[tokio::test]
async fn sizes_are_limited_compressed_or_not() {
    let limits = Limits {
        max_body_bytes: 4096,
        ..Limits::default()
    };
    let api = Api::limited(Recorder::answering(), limits).await;
    let ended = call(&api, INFER, &[], framed(false, &[0; 5000])).await;
    ended.is(RESOURCE_EXHAUSTED, "too_large");
    let mut to = GzEncoder::new(Vec::new(), Compression::best());
    to.write_all(&vec![0; 1 << 20]).expect("a vector takes all");
    let bomb = framed(true, &to.finish().expect("a vector takes all"));
    assert!(bomb.len() < 4096);
    let headers = [("grpc-encoding", "gzip")];
    let ended = call(&api, INFER, &headers, bomb.clone()).await;
    ended.is(RESOURCE_EXHAUSTED, "too_large");
    // In a stream it is the answer to one query, and a message too large the end of all.
    let body = [bomb, frame(&query()), framed(false, &[0; 5000])].concat();
    let ended = call(&api, STREAM, &headers, body).await;
    ended.is(RESOURCE_EXHAUSTED, "too_large");
    let replies = streamed(&ended);
    assert!(
        replies[0].error_message.starts_with("too_large"),
        "{replies:?}"
    );
    assert_eq!(replies[1].error_message, "");
    assert_eq!(replies.len(), 2);
}

#[tokio::test]
async fn targets_come_as_parameters_metadata_and_timeouts() {
    let recorder = Recorder::answering();
    let api = Api::new(recorder.clone()).await;
    let mut with = query();
    with.parameters = parameters(&[
        ("slo_latency_ms", ParameterChoice::DoubleParam(12.5)),
        (
            "slo_min_accuracy",
            ParameterChoice::StringParam("0.9".to_owned()),
        ),
        (
            "slo_policy",
            ParameterChoice::StringParam("best_effort".to_owned()),
        ),
        ("explain", ParameterChoice::BoolParam(true)),
        ("priority", ParameterChoice::Uint64Param(1)),
        ("anything", ParameterChoice::Int64Param(3)),
    ]);
    let headers = [("x-slo-latency-ms", "7"), ("grpc-timeout", "5S")];
    assert_eq!(call(&api, INFER, &headers, frame(&with)).await.status, OK);
    let asked = recorder.last();
    assert_eq!(
        (asked.targets.latency_ms, asked.targets.min_quality),
        (Some(12.5), Some(0.9))
    );
    assert!(asked.best_effort && asked.explain);
    assert_eq!(
        call(&api, INFER, &headers, frame(&query())).await.status,
        OK
    );
    assert_eq!(recorder.last().targets.latency_ms, Some(7.0));
    assert_eq!(
        call(&api, INFER, &headers[1..], frame(&query()))
            .await
            .status,
        OK
    );
    let deadline = recorder
        .last()
        .targets
        .latency_ms
        .expect("the call's timeout");
    assert!(deadline > 0.0 && deadline <= 5000.0, "{deadline}");
    let mut timed = query();
    timed.parameters = parameters(&[("timeout", ParameterChoice::Int64Param(3000))]);
    assert_eq!(
        call(&api, INFER, &headers[1..], frame(&timed)).await.status,
        OK
    );
    assert_eq!(recorder.last().targets.latency_ms, Some(3.0));
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

fn streamed(ended: &Ended) -> Vec<ModelStreamInferResponse> {
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

/// A file in `/dev/shm` that goes with the test.
fn shared(name: &str, bytes: &[u8]) -> tempfile::NamedTempFile {
    let file = tempfile::Builder::new()
        .prefix(name)
        .tempfile_in("/dev/shm");
    let file = file.expect("Linux has /dev/shm");
    std::fs::write(file.path(), bytes).expect("it can be written");
    file
}

fn key_of(file: &tempfile::NamedTempFile) -> String {
    let name = file.path().file_name().expect("a name");
    format!("/{}", name.to_string_lossy())
}

fn in_region(offset: i64, byte_size: i64) -> std::collections::BTreeMap<String, InferParameter> {
    parameters(&[
        (
            "shared_memory_region",
            ParameterChoice::StringParam("both".to_owned()),
        ),
        ("shared_memory_offset", ParameterChoice::Int64Param(offset)),
        (
            "shared_memory_byte_size",
            ParameterChoice::Int64Param(byte_size),
        ),
    ])
}

#[tokio::test]
async fn tensors_may_be_in_shared_memory() {
    let settings = Settings {
        shared_memory: true,
        ..Settings::default()
    };
    let api = Api::with(echo(), settings).await;
    let sent: Vec<u8> = [1.5f32, -2.0, 3.25]
        .iter()
        .flat_map(|it| it.to_le_bytes())
        .collect();
    let file = shared("sextant-test", &[&[0; 4][..], &sent, &[0; 16]].concat());
    let register = |key: String, byte_size| {
        frame(&Region {
            name: "both".to_owned(),
            key,
            offset: 4,
            byte_size,
        })
    };
    let path = "/inference.GRPCInferenceService/SystemSharedMemoryRegister";
    for (key, byte_size) in [("/../etc/passwd".to_owned(), 8), (key_of(&file), 29)] {
        let ended = call(&api, path, &[], register(key, byte_size)).await;
        ended.is(INVALID_ARGUMENT, "invalid_region");
    }
    let ended = call(&api, path, &[], register(key_of(&file), 28)).await;
    assert_eq!(ended.status, OK, "{ended:?}");
    let status = "/inference.GRPCInferenceService/SystemSharedMemoryStatus";
    let told: Regions = call(&api, status, &[], framed(false, &[])).await.one();
    assert_eq!(
        (told.regions["both"].offset, told.regions["both"].byte_size),
        (4, 28)
    );
    let listed = api.get("/v2/systemsharedmemory/status").await.json();
    assert_eq!(listed[0]["key"], key_of(&file), "{listed}");
    let asked = |offset, size| ModelInferRequest {
        inputs: vec![InferTensor {
            parameters: in_region(0, 12),
            ..input("FP32", &[1, 3])
        }],
        outputs: vec![InferRequestedOutputTensor {
            name: "probabilities".to_owned(),
            parameters: in_region(offset, size),
        }],
        raw_input_contents: Vec::new(),
        ..query()
    };
    let reply: ModelInferResponse = call(&api, INFER, &[], frame(&asked(16, 12))).await.one();
    assert_eq!(reply.raw_output_contents, [Bytes::new()]);
    let size = reply.outputs[0].parameters["shared_memory_byte_size"]
        .parameter_choice
        .clone();
    assert_eq!(size, Some(ParameterChoice::Int64Param(12)));
    let bytes = std::fs::read(file.path()).expect("it is there");
    assert_eq!(bytes[20..], sent);
    for (offset, size) in [(20, 12), (16, 8), (-1, 12), (i64::MAX, 12)] {
        let ended = call(&api, INFER, &[], frame(&asked(offset, size))).await;
        assert_eq!(ended.status, INVALID_ARGUMENT, "{ended:?}");
    }
    let body = serde_json::json!({
        "inputs": [{"name": "input", "shape": [1, 3], "datatype": "FP32", "parameters": {
            "shared_memory_region": "both", "shared_memory_byte_size": 12}}],
        "outputs": [{"name": "probabilities", "parameters": {
            "shared_memory_region": "both", "shared_memory_offset": 16, "shared_memory_byte_size": 12}}],
    });
    std::fs::write(file.path(), [&[0; 4][..], &sent, &[0; 16]].concat())
        .expect("it can be written");
    let answered = api
        .call("POST", "/v2/models/digits/infer", body.to_string())
        .await
        .json();
    let output = &answered["outputs"][0];
    assert_eq!(
        output["parameters"]["shared_memory_byte_size"], 12,
        "{answered}"
    );
    assert!(output.get("data").is_none(), "{answered}");
    assert_eq!(std::fs::read(file.path()).expect("it is there")[20..], sent);
    let gone = api
        .call("POST", "/v2/systemsharedmemory/unregister", "")
        .await;
    assert_eq!(gone.status, 200);
    let ended = call(&api, INFER, &[], frame(&asked(16, 12))).await;
    ended.is(NOT_FOUND, "region_not_found");
}

#[tokio::test]
async fn shared_memory_is_off_unless_it_is_allowed() {
    let api = Api::new(Recorder::answering()).await;
    let extensions = api.get("/v2").await.json()["extensions"].to_string();
    assert!(!extensions.contains("shared_memory"), "{extensions}");
    let region = "/v2/systemsharedmemory/region/x/register";
    let refused = api
        .call("POST", region, r#"{"key":"/x","byte_size":4}"#)
        .await;
    refused.problem("route_not_found");
    let path = "/inference.GRPCInferenceService/CudaSharedMemoryRegister";
    let ended = call(&api, path, &[], framed(false, &[])).await;
    ended.is(UNIMPLEMENTED, "route_not_found");
}
