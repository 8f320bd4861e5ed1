//! What messages and frames may be: what does not fit is refused, compression, sizes.

use super::*;

#[tokio::test]
async fn a_typed_question_is_answered_in_bytes_where_that_is_set() {
    let typed = InferTensorContents {
        fp32_contents: vec![1.0, 2.0, 3.0],
        ..Default::default()
    };
    let asked = ModelInferRequest {
        inputs: vec![InferTensor {
            contents: Some(typed),
            ..input("FP32", &[1, 3])
        }],
        raw_input_contents: Vec::new(),
        ..query()
    };
    for raw_answers in [false, true] {
        let settings = Settings {
            raw_answers,
            ..Settings::default()
        };
        let api = Api::with(Recorder::answering(), settings).await;
        let ended = call(&api, INFER, &[], frame(&asked)).await;
        let answer: ModelInferResponse = ended.one();
        assert_eq!(answer.outputs[0].contents.is_none(), raw_answers);
        assert_eq!(answer.raw_output_contents.len(), usize::from(raw_answers));
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
async fn a_message_that_is_compressed_nobody_says_how_is_refused() {
    let api = Api::new(Recorder::answering()).await;
    let message = query().encode_to_vec();
    for headers in [&[][..], &[("grpc-encoding", "identity")]] {
        let ended = call(&api, INFER, headers, framed(true, &message)).await;
        ended.is(INVALID_ARGUMENT, "invalid_request");
        assert!(ended.message.contains("grpc-encoding"), "{ended:?}");
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
    assert!(ended.message.contains("limits.max_body_bytes"), "{ended:?}");
    let mut to = GzEncoder::new(Vec::new(), Compression::best());
    to.write_all(&vec![0; 1 << 20]).expect("a vector takes all");
    let bomb = framed(true, &to.finish().expect("a vector takes all"));
    assert!(bomb.len() < 4096);
    let headers = [("grpc-encoding", "gzip")];
    let ended = call(&api, INFER, &headers, bomb.clone()).await;
    ended.is(RESOURCE_EXHAUSTED, "too_large");
    assert!(ended.message.contains("limits.max_body_bytes"), "{ended:?}");
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

/// An empty string is two bytes on the wire, and a dozen times as many in memory.
#[tokio::test]
async fn what_becomes_of_a_message_that_is_no_query_is_counted() {
    let limits = Limits {
        max_body_bytes: 256 << 10,
        max_body_bytes_in_flight: 1 << 20,
        ..Limits::default()
    };
    let api = Api::limited(Recorder::answering(), limits).await;
    let path = "/inference.GRPCInferenceService/TraceSetting";
    let settings = |value| {
        let setting = ("trace_rate".to_owned(), TraceSetting { value });
        TraceSettings {
            settings: [setting].into(),
        }
        .encode_to_vec()
    };
    let fits = settings(vec!["1000".to_owned()]);
    let ended = call(&api, path, &[], framed(false, &fits)).await;
    assert_eq!(ended.status, OK, "{ended:?}");
    let many = settings(vec![String::new(); 60_000]);
    let mut to = GzEncoder::new(Vec::new(), Compression::best());
    to.write_all(&many).expect("a vector takes all");
    let small = framed(true, &to.finish().expect("a vector takes all"));
    let compressed = [("grpc-encoding", "gzip")];
    for (headers, body) in [(&[][..], framed(false, &many)), (&compressed[..], small)] {
        let ended = call(&api, path, headers, body).await;
        ended.is(RESOURCE_EXHAUSTED, "too_large");
        let limit = "limits.max_body_bytes_in_flight";
        assert!(ended.message.contains(limit), "{ended:?}");
    }
}
