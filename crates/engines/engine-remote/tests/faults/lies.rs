//! Servers that lie, break off, flood or say nothing: every batch ends in the right error, in
//! bounded time and memory, and good servers are served as before.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use sextant_engine::Error;
use sextant_engine_remote::{RemoteConfig, RemoteEngine, Source};

use crate::{
    hostile::{HostileServer, Reaction, answer},
    load::row,
    script::{GOOD, METADATA, Script, hostile, model},
};

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
            "not a list",
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
    // What is said comes sooner on a busy machine, too.
    config.request_timeout = Duration::from_secs(3);
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
                error.is_loss() && error.to_string().contains("within 3s"),
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
    assert!(matches!(error, Error::Gone(_)), "{error}");
}

#[test]
fn a_server_that_has_forgotten_the_model_is_a_loss() {
    let forgotten = Mutex::new(false);
    let server = HostileServer::start(Arc::new(move |line, _| {
        let mut forgotten = forgotten.lock();
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
        matches!(&error, Error::Gone(text) if text.contains("unknown model")),
        "{error}"
    );
}
