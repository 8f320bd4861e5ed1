//! What cannot be loaded, and what is said about it.

use std::time::Duration;

use sextant_engine::{Engine, Error};
use sextant_engine_remote::{Binary, InvalidConfig, Program, RemoteConfig, RemoteEngine, Source};
use sextant_types::{NamedTensor, Precision, Tensor};

use crate::{
    hostile::answer,
    load::{load, refusal, row},
    script::{MANIFEST, METADATA, Script, hostile},
};

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
fn values_that_json_has_no_form_for_are_refused_without_the_binary_extension() {
    let script = Script::new(answer(200, METADATA));
    let (server, engine) = hostile(&script);
    let mut config = RemoteConfig::new("hostile", Source::Address(server.address.clone()));
    config.binary = Binary::Never;
    let plain = RemoteEngine::new(config).expect("the configuration is good");
    for value in [f32::NAN, f32::INFINITY] {
        let tensor = Tensor::from_elements(vec![1, 2], &[1.0, value]).expect("two numbers");
        let inputs = [NamedTensor::new("input", tensor)];
        let run = |engine| {
            let model = load(engine, MANIFEST.into());
            model.unwrap_or_else(|error| panic!("{error}")).run(&inputs)
        };
        assert!(run(&engine).is_ok());
        let error = run(&plain).expect_err("JSON has no form for it");
        assert!(matches!(error, Error::InvalidInput(_)), "{error}");
    }
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

/// A runtime that says nothing of its models serves one that the manifest describes.
#[test]
fn what_a_manifest_declares_takes_the_place_of_what_is_said() {
    let (_server, engine) = hostile(&Script::new(answer(200, "{}")));
    let declared = |shape: &str| {
        let of = |name: &str| format!(r#"[{{"name":"{name}","datatype":"FP32","shape":{shape}}}]"#);
        let head = MANIFEST.trim_end_matches('}');
        format!(
            "{head},\"inputs\":{},\"outputs\":{}}}",
            of("input"),
            of("output")
        )
    };
    let refused = refusal(load(&engine, MANIFEST.into())).to_string();
    assert!(refused.contains("`inputs` and `outputs`"), "{refused}");
    let model = load(&engine, declared("[-1,2]").into()).expect("is loaded");
    assert!(model.signature().batched);
    let answered = model.run(&row()).expect("is answered");
    assert_eq!(answered[0].to_vec(), Some(vec![3f32, 4.0]));
    let refused = refusal(load(&engine, declared("[-2,2]").into())).to_string();
    assert!(refused.contains("the manifest"), "{refused}");
}
