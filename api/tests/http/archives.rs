//! A model and the files beside it in one archive.

use std::io::Write;

use axum::{body::Body, http::Request};
use flate2::{Crc, write::GzEncoder};
use serde_json::json;
use sextant_formats::zip::{NewMember, directory_of};

use crate::double::{Api, Reading, Recorder};

async fn with_digits(limits: sextant_api::Limits) -> Api {
    let api = Api::limited(Recorder::answering(), limits).await;
    let body = r#"{"name":"digits","metric":"top1"}"#;
    assert_eq!(api.call("POST", "/v1/applications", body).await.status, 201);
    api
}

async fn upload(api: &Api, model: &[u8]) -> Reading {
    let fields: [(&str, &[u8]); 4] = [
        ("name", b"mlp"),
        ("application", b"digits"),
        ("model", model),
        ("validation", b"labels"),
    ];
    send(api, &fields).await
}

async fn send(api: &Api, fields: &[(&str, &[u8])]) -> Reading {
    let mut body = Vec::new();
    for (name, value) in fields {
        let head = format!(
            "--edge\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"x\"\r\n\r\n"
        );
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(value);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(b"--edge--\r\n");
    let request = Request::builder()
        .method("POST")
        .uri("/v1/models")
        .header("content-type", "multipart/form-data; boundary=edge")
        .body(Body::from(body));
    api.send(request.expect("a request")).await
}

fn zip(files: &[(&str, &[u8])]) -> Vec<u8> {
    let (mut out, mut members) = (Vec::new(), Vec::new());
    for (name, content) in files {
        let mut crc = Crc::new();
        crc.update(content);
        let member = NewMember {
            name: (*name).to_owned(),
            bytes: content.len() as u64,
            crc: crc.sum(),
        };
        out.extend_from_slice(&member.header());
        out.extend_from_slice(content);
        members.push(member);
    }
    out.extend_from_slice(&directory_of(&members));
    out
}

/// Members by name, kind and content.
fn tar(files: &[(&str, u8, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, kind, content) in files {
        let mut block = vec![0; 512];
        block[..name.len()].copy_from_slice(name.as_bytes());
        block[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
        block[156] = *kind;
        block[257..263].copy_from_slice(b"ustar\0");
        block[148..156].copy_from_slice(b"        ");
        let sum: u64 = block.iter().map(|byte| u64::from(*byte)).sum();
        block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        block.extend_from_slice(content);
        block.resize(block.len().next_multiple_of(512), 0);
        out.append(&mut block);
    }
    out.resize(out.len() + 1024, 0);
    out
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Default::default());
    packed.write_all(bytes).expect("packs");
    packed.finish().expect("packs")
}

#[tokio::test]
async fn a_folder_is_taken_from_an_archive() {
    let weights = vec![7; 100_000];
    let files: [(&str, &[u8]); 4] = [
        ("export/config.json", b"{}"),
        ("export/onnx/model.onnx", b"\x08\x08graph"),
        ("export/onnx/model.onnx_data", &weights),
        ("export/onnx/model_quantized.onnx", b"\x08\x08other"),
    ];
    let in_tar = files.map(|(name, content)| (name, b'0', content));
    let folder: [(&str, u8, &[u8]); 1] = [("export/", b'5', b"")];
    let packed = tar(&[&folder[..], &in_tar].concat());
    for archive in [zip(&files), gzip(&packed), packed] {
        let api = with_digits(sextant_api::Limits::default()).await;
        let reading = upload(&api, &archive).await;
        assert_eq!(reading.status, 202, "{}", reading.json());
        let model = api.get("/v1/models/mlp").await.json();
        assert_eq!(model["size_bytes"], 7);
        let digest = model["digest"].as_str().expect("text").parse();
        let stored = api.objects.get_blob(&digest.expect("a digest")).await;
        assert_eq!(stored.expect("stored"), "\x08\x08graph");
        let data = model["data"].as_array().expect("a list");
        assert_eq!(
            (data.len(), &data[0]["name"]),
            (1, &json!("model.onnx_data"))
        );
        assert_eq!(data[0]["size_bytes"], 100_000);
    }
}

/// As the command line takes a folder.
#[tokio::test]
async fn a_hugging_face_archive_names_classes_and_brings_its_validation_set() {
    let config = br#"{"architectures": ["XForSequenceClassification"], "id2label": {"0": "bad", "1": "good"}}"#;
    let model: &[u8] = b"\x08\x08graph";
    for [model_path, config_path, set] in [
        ["model.onnx", "config.json", "validation.jsonl"],
        [
            "x/onnx/model.onnx",
            "x/config.json",
            "x/onnx/validation.csv",
        ],
        ["onnx/model.onnx", "config.json", "validation.npz"],
    ] {
        let archive = zip(&[
            (model_path, model),
            (config_path, config),
            (set, b"records"),
        ]);
        let api = with_digits(sextant_api::Limits::default()).await;
        let fields: [(&str, &[u8]); 3] = [
            ("name", b"mlp"),
            ("application", b"digits"),
            ("model", &archive),
        ];
        let reading = send(&api, &fields).await;
        assert_eq!(reading.status, 202, "{}", reading.json());
        let shown = api.get("/v1/models/mlp").await.json();
        assert!(
            shown["data"].is_null() || shown["data"] == json!([]),
            "{shown}"
        );
        let digest = shown["validation_digest"].as_str().expect("text").parse();
        let stored = api.objects.get_blob(&digest.expect("a digest")).await;
        assert_eq!(stored.expect("stored"), "records");
        let id = sextant_types::ModelId::new("mlp").expect("a name");
        let registered = api.registry.model(&id).await.expect("it is there");
        assert_eq!(registered.classes, ["bad", "good"]);
    }
    let named: [(&str, &[u8]); 5] = [
        ("name", b"mlp"),
        ("application", b"digits"),
        (
            "model",
            &zip(&[
                ("model.onnx", model),
                ("config.json", config),
                ("validation.npz", b"inside"),
            ]),
        ),
        ("validation", b"sent"),
        ("classes", b"no\nyes"),
    ];
    let api = with_digits(sextant_api::Limits::default()).await;
    assert_eq!(send(&api, &named).await.status, 202);
    let id = sextant_types::ModelId::new("mlp").expect("a name");
    let registered = api.registry.model(&id).await.expect("it is there");
    assert_eq!(registered.classes, ["no", "yes"]);
    let stored = api.objects.get_blob(&registered.validation).await;
    assert_eq!(stored.expect("stored"), "sent");
}

#[tokio::test]
async fn archives_with_tricks_are_refused_by_name() {
    let model: (&str, &[u8]) = ("model.onnx", b"\x08\x08graph");
    let bomb = gzip(&vec![0; 1 << 20]);
    let cut = zip(&[model]);
    let mut damaged = zip(&[model]);
    let at = damaged
        .windows(5)
        .position(|it| it == b"graph")
        .expect("is there");
    damaged[at] = b'G';
    for (archive, said) in [
        (zip(&[model, ("../../etc/cron", b"x")]), "`../../etc/cron`"),
        (zip(&[model, ("/etc/cron", b"x")]), "`/etc/cron`"),
        (zip(&[model, model]), "twice"),
        (zip(&[("a.txt", b"x")]), "no `.onnx` file"),
        (zip(&[("a.onnx", b"x"), ("b.onnx", b"y")]), "`model.onnx`"),
        (tar(&[("model.onnx", b'2', b"")]), "link"),
        (
            tar(&[("model.onnx", b'0', b"x")])[..700].to_vec(),
            "cut short",
        ),
        (cut[..cut.len() - 30].to_vec(), "directory"),
        (damaged, "damaged"),
        (bomb[..bomb.len() / 2].to_vec(), "damaged"),
    ] {
        let api = with_digits(sextant_api::Limits::default()).await;
        let problem = upload(&api, &archive).await;
        let text = problem.json()["detail"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        problem.problem("invalid_model");
        assert!(text.contains(said), "{said}: {text}");
    }
    let limits = sextant_api::Limits {
        max_model_bytes: 10_000,
        ..sextant_api::Limits::default()
    };
    let api = with_digits(limits).await;
    upload(&api, &bomb).await.problem("too_large");
    assert_eq!(api.get("/v1/models").await.json(), json!({"models": []}));
}

/// Names count like a directory: they are held until the files are stored.
#[tokio::test]
async fn names_of_files_are_bounded_in_their_sum() {
    let api = with_digits(sextant_api::Limits::default()).await;
    let member = |at: usize| {
        let name = format!("{at}{}", "n".repeat(60_000));
        let member = tar(&[("././@LongLink", b'L', name.as_bytes()), ("x", b'0', b"")]);
        member[..member.len() - 1024].to_vec()
    };
    let mut archive: Vec<u8> = (0..300).flat_map(member).collect();
    archive.resize(archive.len() + 1024, 0);
    let refused = upload(&api, &archive).await;
    let problem = refused.problem("invalid_model");
    let detail = problem["detail"].as_str().expect("a text");
    assert!(detail.contains("names of its files"), "{detail}");
}

/// Headers are read one by one from the store, whether they name a file or not.
#[tokio::test]
async fn entries_that_are_no_files_are_bounded_too() {
    let api = with_digits(sextant_api::Limits::default()).await;
    let folder = tar(&[("x/", b'5', b"")]);
    let folder = &folder[..folder.len() - 1024];
    let mut archive = folder.repeat(40_000);
    archive.resize(archive.len() + 1024, 0);
    let refused = upload(&api, &archive).await;
    let problem = refused.problem("invalid_model");
    let detail = problem["detail"].as_str().expect("a text");
    assert!(detail.contains("too many entries"), "{detail}");
}
