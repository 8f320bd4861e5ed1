//! Servers that lie, break off, flood or say nothing: every batch ends in the right error, in
//! bounded time and memory, and good servers are served as before.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use sextant_engine::{Engine, Error, LoadedModel};
use sextant_engine_remote::{Binary, InvalidConfig, Program, RemoteConfig, RemoteEngine, Source};
use sextant_types::Precision;

#[path = "support/hostile.rs"]
mod hostile;
#[path = "support/load.rs"]
mod load;

use hostile::{Hostile, Reaction, answer};
use load::{load, refusal, row};

const METADATA: &str = r#"{"name":"m","inputs":[{"name":"input","datatype":"FP32","shape":[-1,2]}],
    "outputs":[{"name":"output","datatype":"FP32","shape":[-1,2]}]}"#;

const GOOD: &str =
    r#"{"outputs":[{"name":"output","datatype":"FP32","shape":[1,2],"data":[3,4]}]}"#;

const MANIFEST: &str = r#"{"format":"sextant-remote/1","runtime":"hostile","model":"m"}"#;

/// The reactions to metadata and inference; the rest is answered well.
struct Script {
    metadata: Reaction,
    infer: Mutex<Reaction>,
}

impl Script {
    fn new(metadata: Reaction) -> Arc<Self> {
        Arc::new(Self {
            metadata,
            infer: Mutex::new(answer(200, GOOD)),
        })
    }

    fn will(&self, reaction: Reaction) {
        *self.infer.lock().unwrap_or_else(PoisonError::into_inner) = reaction;
    }

    fn respond(&self, line: &str) -> Reaction {
        let target = line.split(' ').nth(1).unwrap_or_default();
        match target {
            "/v2" => answer(200, r#"{"extensions":["binary_tensor_data"]}"#),
            "/v2/models/m" => self.metadata.clone(),
            "/v2/models/m/infer" => {
                let infer = self.infer.lock().unwrap_or_else(PoisonError::into_inner);
                infer.clone()
            }
            _ => answer(200, "{}"),
        }
    }
}

/// A server that acts by `script`, and an engine for it.
fn hostile(script: &Arc<Script>) -> (Hostile, RemoteEngine) {
    let acting = Arc::clone(script);
    let server = Hostile::start(Arc::new(move |line, _| acting.respond(line)));
    let mut config = RemoteConfig::new("hostile", Source::Address(server.address.clone()));
    config.ready_timeout = Duration::from_secs(20);
    config.request_timeout = Duration::from_secs(20);
    config.max_response_bytes = 1 << 20;
    let engine = RemoteEngine::new(config).expect("the configuration is good");
    (server, engine)
}

fn model(engine: &RemoteEngine) -> Arc<dyn LoadedModel> {
    load(engine, MANIFEST.into()).unwrap_or_else(|error| panic!("it cannot be loaded: {error}"))
}

fn output(rest: &str) -> Reaction {
    answer(
        200,
        &format!(r#"{{"outputs":[{{"name":"output",{rest}}}]}}"#),
    )
}

fn binary(head: &str, tail: &[u8]) -> Reaction {
    let (json, all) = (head.len(), head.len() + tail.len());
    let start = format!(
        "HTTP/1.1 200 OK\r\ninference-header-content-length: {json}\r\n\
         content-length: {all}\r\n\r\n{head}"
    );
    Reaction::Raw([start.as_bytes(), tail].concat())
}

/// Answers that fail the batch, and a part of what must be said about each.
fn lies() -> Vec<(Reaction, &'static str)> {
    let raw = |text: &str| text.as_bytes().to_vec();
    let nested = "[".repeat(100_000);
    vec![
        (
            answer(500, r#"{"error":"no memory left on the device"}"#),
            "no memory left",
        ),
        (answer(400, "plain text"), "status 400: plain text"),
        (answer(302, ""), "status 302"),
        (answer(200, ""), "cannot be read"),
        (answer(200, "<html>"), "cannot be read"),
        (answer(200, r#"{"outputs":7}"#), "cannot be read"),
        (answer(200, &nested), "cannot be read"),
        (answer(200, r#"{"outputs":[]}"#), "no output `output`"),
        (
            answer(
                200,
                r#"{"outputs":[{"name":"x","datatype":"FP32","shape":[]}]}"#,
            ),
            "output `x`",
        ),
        (
            output(r#""datatype":"INT64","shape":[1,2],"data":[1,2]"#),
            "`INT64`",
        ),
        (
            output(r#""datatype":"FP32","shape":[1,3],"data":[1,2,3]"#),
            "[1, 3]",
        ),
        (
            output(r#""datatype":"FP32","shape":[2],"data":[1,2]"#),
            "[2]",
        ),
        (
            output(r#""datatype":"FP32","shape":[2,2],"data":[1,2,3,4]"#),
            "1 rows",
        ),
        (
            output(r#""datatype":"FP32","shape":[1,2],"data":[1,2,3]"#),
            "more than the `2`",
        ),
        (
            output(r#""datatype":"FP32","shape":[1,2],"data":[1]"#),
            "`1` elements",
        ),
        (
            output(r#""datatype":"FP32","shape":[1,2],"data":[1,null]"#),
            "`null`",
        ),
        (
            output(r#""datatype":"FP32","shape":[1,2],"data":"text""#),
            "no list",
        ),
        (output(r#""datatype":"FP32","shape":[1,2]"#), "no data"),
        (
            output(r#""datatype":"FP32","shape":[1,-2],"data":[]"#),
            "cannot be read",
        ),
        (
            answer(
                200,
                &GOOD.replace(
                    "}]",
                    r#"},{"name":"output","datatype":"FP32","shape":[1,2],"data":[3,4]}]"#,
                ),
            ),
            "twice",
        ),
        (
            binary(
                r#"{"outputs":[{"name":"output","datatype":"FP32","shape":[1,2],"parameters":{"binary_data_size":8}}]}"#,
                b"1234",
            ),
            "`4` are left",
        ),
        (
            binary(
                r#"{"outputs":[{"name":"output","datatype":"FP32","shape":[1,2],"parameters":{"binary_data_size":4}}]}"#,
                b"1234",
            ),
            "inconsistent",
        ),
        (binary(GOOD, b"more"), "belong to no output"),
        (
            Reaction::Raw(raw(
                "HTTP/1.1 200 OK\r\ninference-header-content-length: 99\r\ncontent-length: 2\r\n\r\n{}",
            )),
            "`99` bytes",
        ),
        (
            Reaction::Cut(raw(
                "HTTP/1.1 200 OK\r\ncontent-length: 18446744073709551615\r\n\r\n{",
            )),
            "",
        ),
        (
            Reaction::Cut(raw("HTTP/1.1 200 OK\r\ncontent-length: 2000000\r\n\r\n{")),
            "larger than `1048576`",
        ),
        (
            Reaction::Flood(raw("HTTP/1.1 200 OK\r\n\r\n"), vec![b'x'; 4096]),
            "larger than `1048576`",
        ),
        (
            Reaction::Flood(
                raw("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"),
                raw("5\r\nhello\r\n"),
            ),
            "larger than `1048576`",
        ),
        (
            Reaction::Flood(raw("HTTP/1.1 200 OK\r\n"), raw("header: value\r\n")),
            "",
        ),
        (
            Reaction::Cut(raw(
                "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"outputs\"",
            )),
            "connection",
        ),
        (Reaction::Cut(raw("HTTP/1.1 2")), ""),
        (Reaction::Cut(Vec::new()), "connection"),
        (Reaction::Cut(raw("SSH-2.0-server\r\n\r\n")), ""),
    ]
}

#[test]
fn a_lie_fails_its_batch_and_no_other() {
    let script = Script::new(answer(200, METADATA));
    let (_server, engine) = hostile(&script);
    let model = model(&engine);
    for (index, (lie, said)) in lies().into_iter().enumerate() {
        script.will(lie);
        match model.run(&row()) {
            Err(Error::Failed(text)) => {
                assert!(text.contains(said), "lie {index}: `{text}` lacks `{said}`");
                assert!(text.len() < 1200, "lie {index}: {} bytes", text.len());
            }
            Err(other) => panic!("lie {index}: `{other}`"),
            Ok(outputs) => panic!("lie {index} is believed: {outputs:?}"),
        }
        script.will(answer(200, GOOD));
        let outputs = model
            .run(&row())
            .unwrap_or_else(|error| panic!("after {index}: {error}"));
        assert_eq!(outputs[0].to_vec::<f32>(), Some(vec![3.0, 4.0]));
    }
}

#[test]
fn silence_is_a_loss_of_the_handle() {
    let script = Script::new(answer(200, METADATA));
    let (server, _) = hostile(&script);
    let mut config = RemoteConfig::new("hostile", Source::Address(server.address.clone()));
    config.request_timeout = Duration::from_secs(1);
    let engine = RemoteEngine::new(config).expect("the configuration is good");
    let silences = [
        Reaction::Hang(Vec::new()),
        Reaction::Hang(b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n{".to_vec()),
    ];
    for silence in silences {
        let (silent, other) = (model(&engine), model(&engine));
        script.will(silence);
        for _ in 0..2 {
            let error = silent.run(&row()).expect_err("nothing is said");
            assert!(
                matches!(&error, Error::Lost(text) if text.contains("within 1s")),
                "{error}"
            );
        }
        script.will(answer(200, GOOD));
        assert!(silent.run(&row()).is_err(), "a lost handle is of no use");
        assert!(other.run(&row()).is_ok(), "others are untouched");
        assert!(model(&engine).run(&row()).is_ok(), "it can be loaded again");
    }
}

#[test]
fn a_server_that_is_gone_is_a_loss() {
    let script = Script::new(answer(200, METADATA));
    let (server, engine) = hostile(&script);
    let model = model(&engine);
    drop(server);
    let error = model.run(&row()).expect_err("nobody listens");
    assert!(matches!(error, Error::Lost(_)), "{error}");
}

#[test]
fn a_server_that_has_forgotten_the_model_is_a_loss() {
    let forgotten = Mutex::new(false);
    let server = Hostile::start(Arc::new(move |line, _| {
        let mut forgotten = forgotten.lock().unwrap_or_else(PoisonError::into_inner);
        match line.split(' ').nth(1).unwrap_or_default() {
            "/v2/models/m" => answer(200, METADATA),
            "/v2/models/m/infer" => {
                *forgotten = true;
                answer(400, r#"{"error":"unknown model `m`"}"#)
            }
            "/v2/models/m/ready" if *forgotten => answer(400, "{}"),
            _ => answer(200, "{}"),
        }
    }));
    let config = RemoteConfig::new("hostile", Source::Address(server.address.clone()));
    let engine = RemoteEngine::new(config).expect("the configuration is good");
    let error = model(&engine).run(&row()).expect_err("it has forgotten");
    assert!(
        matches!(&error, Error::Lost(text) if text.contains("unknown model")),
        "{error}"
    );
}

#[test]
fn what_is_said_of_a_model_is_checked() {
    let model = |inputs: &str| {
        let output = r#"{"name":"o","datatype":"FP32","shape":[-1]}"#;
        answer(
            200,
            &format!(r#"{{"inputs":[{inputs}],"outputs":[{output}]}}"#),
        )
    };
    let many = vec![r#"{"name":"i","datatype":"FP32","shape":[]}"#; 2000].join(",");
    let deep = format!(
        r#"{{"name":"i","datatype":"FP32","shape":[{}1]}}"#,
        "1,".repeat(100)
    );
    let said = [
        (answer(404, "none"), true),
        (answer(400, "none"), true),
        (
            model(r#"{"name":"i","datatype":"COMPLEX","shape":[1]}"#),
            true,
        ),
        (answer(200, "no JSON"), false),
        (answer(200, "{}"), false),
        (model(""), false),
        (model(&many), false),
        (model(&deep), false),
        (model(r#"{"name":"","datatype":"FP32","shape":[1]}"#), false),
        (
            model(r#"{"name":"i","datatype":"FP32","shape":[-2]}"#),
            false,
        ),
        (model(r#"{"name":"i","datatype":"FP32"}"#), false),
        (
            model(
                r#"{"name":"i","datatype":"FP32","shape":[]},{"name":"i","datatype":"FP32","shape":[]}"#,
            ),
            false,
        ),
    ];
    for (index, (metadata, unsupported)) in said.into_iter().enumerate() {
        let (_server, engine) = hostile(&Script::new(metadata));
        match refusal(load(&engine, MANIFEST.into())) {
            Error::Unsupported(_) if unsupported => {}
            Error::InvalidModel(_) if !unsupported => {}
            other => panic!("{index}: refused as `{other}`"),
        }
    }
}

#[test]
fn nobody_at_the_address_is_unavailable() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = format!("http://{}", listener.local_addr().expect("an address"));
    drop(listener);
    let mut config = RemoteConfig::new("nobody", Source::Address(address));
    config.ready_timeout = Duration::from_millis(100);
    let engine = RemoteEngine::new(config).expect("the configuration is good");
    let manifest = MANIFEST.replace("hostile", "nobody");
    let error = refusal(load(&engine, manifest.into()));
    assert!(
        matches!(
            error,
            Error::Unavailable {
                engine: "nobody",
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn manifests_for_others_and_files_of_engines_are_refused() {
    let script = Script::new(answer(200, METADATA));
    let (_server, engine) = hostile(&script);
    let other = MANIFEST.replace("hostile", "other");
    let error = refusal(load(&engine, other.clone().into()));
    assert!(matches!(error, Error::InvalidModel(_)), "{error}");
    let onnx = sextant_onnx::builder::mlp(&[4, 3], 1);
    assert!(!engine.reads(&onnx) && !engine.reads(&other.into()));
    let error = refusal(load(&engine, onnx));
    assert!(matches!(error, Error::Unsupported(_)), "{error}");
}

#[test]
fn batches_have_the_manifests_limit_and_no_precision_is_promised() {
    let script = Script::new(answer(200, METADATA));
    let (_server, engine) = hostile(&script);
    let limited = MANIFEST.replace('}', r#","max_batch":1,"weights_bytes":7}"#);
    let model = load(&engine, limited.into()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(
        (model.weights_bytes(), engine.resident_weights_bytes()),
        (7, 7)
    );
    assert!(model.run(&row()).is_ok());
    let inputs = sextant_engine::conformance::random_inputs(model.signature(), &[2], 1);
    let error = model.run(&inputs).expect_err("two rows are one too many");
    assert!(matches!(error, Error::InvalidInput(_)), "{error}");
    let alone = MANIFEST.replace('}', r#","max_batch":0}"#);
    let model = load(&engine, alone.into()).unwrap_or_else(|error| panic!("{error}"));
    assert!(!model.signature().batched);
    let request = sextant_engine::LoadRequest {
        artefact: sextant_types::Digest::from_bytes([9; 32]),
        model: MANIFEST.into(),
        precision: Precision::Fp16,
        optimization: sextant_types::Optimization::All,
        threads: 1,
    };
    assert!(matches!(
        refusal(engine.load(&request)),
        Error::Unsupported(_)
    ));
}

#[test]
fn configurations_that_cannot_work_are_refused() {
    let with = |source: Source| RemoteEngine::new(RemoteConfig::new("r", source)).err();
    for url in [
        "",
        "r",
        "ftp://h",
        "https://h",
        "http://",
        "http://u@h",
        "http://h/?q",
    ] {
        let error = with(Source::Address(url.to_owned()));
        assert!(
            matches!(error, Some(InvalidConfig::Url { .. })),
            "{url}: {error:?}"
        );
    }
    let error = with(Source::Command(Program::default()));
    assert!(
        matches!(error, Some(InvalidConfig::Command(_))),
        "{error:?}"
    );
    let good = RemoteConfig::new("r", Source::Address("http://h:1/base/".to_owned()));
    for (name, value) in [("a b", "c"), ("a", "b\nc"), ("Content-Length", "3")] {
        let mut config = good.clone();
        config.headers.push((name.to_owned(), value.to_owned()));
        let error = RemoteEngine::new(config).err();
        assert!(
            matches!(error, Some(InvalidConfig::Header { .. })),
            "{name}: {error:?}"
        );
    }
    let mut config = good.clone();
    config.name = "Not A Name".to_owned();
    assert!(matches!(
        RemoteEngine::new(config).err(),
        Some(InvalidConfig::Name(_))
    ));
    let mut config = good.clone();
    config.request_timeout = Duration::ZERO;
    assert!(matches!(
        RemoteEngine::new(config).err(),
        Some(InvalidConfig::Zero { .. })
    ));
    let mut config = good;
    config.binary = Binary::Never;
    config
        .headers
        .push(("authorization".to_owned(), "Bearer token".to_owned()));
    assert!(RemoteEngine::new(config).is_ok());
}
