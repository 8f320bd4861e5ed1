//! Registrations that fail or are refused, and the reasons that are given.

use reqwest::multipart::{Form, Part};

use super::*;

#[tokio::test]
async fn files_that_are_no_models_fail_with_their_code() {
    let cluster = TestCluster::start(Settings::default());
    let api = cluster.api();
    api.create_application("refused").await;
    let whole = digits::bytes("mlp.onnx");
    let cases: [(&str, Vec<u8>, &str); 6] = [
        ("not-onnx", b"this is not a model".to_vec(), "invalid_model"),
        (
            "a-picture",
            [&b"\x89PNG\r\n\x1a\n"[..], &[7; 4096]].concat(),
            "invalid_model",
        ),
        (
            "truncated",
            whole[..whole.len() / 2].to_vec(),
            "invalid_model",
        ),
        ("outside", outside("../../../etc/passwd"), "external_data"),
        ("beside", outside("weights.bin"), "external_data"),
        ("exotic", exotic(), "unsupported_operator"),
    ];
    for (name, model, code) in cases {
        let upload = Upload {
            model,
            ..digits::upload("refused", name, "logistic")
        };
        assert_eq!(failure(&api, upload).await, code, "{name}");
    }
    let empty = Upload {
        model: Vec::new(),
        ..digits::upload("refused", "empty", "logistic")
    };
    api.upload(empty).await.problem(400, "invalid_model");
    // The name of a failed registration can be used again, and the service is not harmed.
    let job = api
        .register(digits::upload("refused", "truncated", "logistic"))
        .await;
    assert_eq!(job["state"], "succeeded", "{job}");
}

fn outside(file: &'static str) -> Vec<u8> {
    let model = onnx::Model {
        weights_file: Some(file),
        ..onnx::Model::default()
    };
    model.bytes()
}

fn exotic() -> Vec<u8> {
    let model = onnx::Model {
        operator: "Divination",
        domain: "org.example",
        ..onnx::Model::default()
    };
    model.bytes()
}

#[tokio::test]
async fn validation_sets_that_do_not_fit_fail_with_their_code() {
    let cluster = TestCluster::start(Settings::default());
    let api = cluster.api();
    api.create_application("unlabelled").await;
    let line = |pixels: usize, label: &str| {
        let pixels = vec![1.0; pixels];
        format!("{{\"inputs\": {{\"pixels\": {pixels:?}}}{label}}}\n").into_bytes()
    };
    let archive = digits::bytes("validation.npz");
    for (name, validation, file) in [
        (
            "no-archive",
            b"PK\x03\x04 and then nothing".to_vec(),
            "validation.npz",
        ),
        (
            "cut-archive",
            archive[..archive.len() / 2].to_vec(),
            "validation.npz",
        ),
        (
            "some-labels",
            [line(64, ", \"label\": 1"), line(64, "")].concat(),
            "validation.jsonl",
        ),
        (
            "wrong-width",
            line(63, ", \"label\": 1").repeat(4),
            "validation.jsonl",
        ),
        ("no-json", b"pixels;label\n".to_vec(), "validation.jsonl"),
    ] {
        let upload = Upload {
            validation,
            validation_name: file,
            ..digits::upload("unlabelled", name, "logistic")
        };
        assert_eq!(
            failure(&api, upload).await,
            "invalid_validation_set",
            "{name}"
        );
    }
}

#[tokio::test]
async fn another_signature_under_the_same_application_fails() {
    let cluster = digits::shared().await;
    let export = |suffix: &str| {
        let path = sextant_tests::root().join(format!("tests/exports/lightgbm.{suffix}"));
        std::fs::read(path).expect("the export is there")
    };
    let upload = Upload {
        model: export("onnx"),
        validation: export("npz"),
        ..digits::upload("digits", "other-shape", "logistic")
    };
    assert_eq!(failure(&cluster.api(), upload).await, "signature_mismatch");
}

#[tokio::test]
async fn forms_that_are_incomplete_are_refused() {
    let cluster = digits::shared().await;
    let api = cluster.api();
    let file = || Part::bytes(b"x".to_vec()).file_name("x");
    let unknown = digits::upload("nowhere", "m", "logistic");
    api.upload(unknown)
        .await
        .problem(404, "application_not_found");
    let badly_named = digits::upload("digits", "Bad Name", "logistic");
    api.upload(badly_named).await.problem(400, "invalid_name");
    let no_files = Form::new().text("name", "m").text("application", "digits");
    api.multipart("/v1/models", no_files)
        .await
        .problem(400, "invalid_request");
    let no_name = Form::new()
        .text("application", "digits")
        .part("model", file())
        .part("validation", file());
    api.multipart("/v1/models", no_name)
        .await
        .problem(400, "invalid_request");
    let surplus = Form::new().text("name", "m").text("colour", "red");
    api.multipart("/v1/models", surplus)
        .await
        .problem(400, "invalid_request");
    api.get("/v1/models/nobody")
        .await
        .problem(404, "model_not_found");
    api.get("/v1/models/nobody/variants")
        .await
        .problem(404, "model_not_found");
    api.get("/v1/variants/nobody")
        .await
        .problem(404, "variant_not_found");
}

#[tokio::test]
async fn a_file_over_the_limit_is_refused_while_it_comes() {
    let cluster = TestCluster::start(Settings {
        set: vec!["limits.max_model_bytes=200000".to_owned()],
        ..Settings::default()
    });
    let api = cluster.api();
    api.create_application("small").await;
    let upload = digits::upload("small", "mlp", "mlp");
    api.upload(upload).await.problem(413, "too_large");
    api.get("/v1/models/mlp")
        .await
        .problem(404, "model_not_found");
}
