//! `/v1/pipelines`: steps in Python, and who may use them.

use std::io::Cursor;

use reqwest::Method;
use serde_json::{Value, json};
use sextant_test_servers::interpreter;
use sextant_tests::{Answer, Api, Settings, TestCluster, digits, root, until};

/// Settings that allow steps in Python.
fn enabled() -> Vec<String> {
    vec![
        "pipelines.python.enabled=true".to_owned(),
        format!("pipelines.python.interpreter={}", interpreter().display()),
        // The interpreter is slow on a busy machine.
        "pipelines.python.time_limit_ms=120000".to_owned(),
    ]
}

fn example(name: &str) -> Vec<u8> {
    std::fs::read(root().join("examples/pipelines").join(name)).expect("the example is there")
}

async fn put(api: &Api, path: &str, file: impl Into<Vec<u8>>) {
    let stored = api.put(&format!("/v1/artefacts/{path}"), file).await;
    assert!(stored.status.is_success(), "{}", stored.text());
}

/// A pipeline of one step that takes numbers and returns numbers.
fn numbers(name: &str, function: &str) -> Value {
    let of = json!([{"name": "x", "datatype": "FP32", "shape": [-1]}]);
    json!({"name": name, "steps": [{"name": "count", "python": {"function": function, "takes": of, "gives": of}}]})
}

async fn ask(api: &Api, pipeline: &str, values: &[f64]) -> Answer {
    let inputs =
        json!([{"name": "x", "datatype": "FP32", "shape": [values.len()], "data": values}]);
    let query = json!({"application": pipeline, "explain": true, "inputs": inputs});
    api.post("/v1/queries", &query).await
}

/// An image of the data set as a PNG, moved right by `by` pixels.
fn moved(pixels: &[f32], by: usize) -> Vec<u8> {
    let mut bytes = vec![0; 64];
    for (at, value) in pixels.iter().enumerate() {
        let (row, column) = (at / 8, (at % 8 + by) % 8);
        bytes[row * 8 + column] = (value / 16.0 * 255.0).round() as u8;
    }
    let picture = image::GrayImage::from_raw(8, 8, bytes).expect("64 pixels");
    let mut file = Cursor::new(Vec::new());
    picture
        .write_to(&mut file, image::ImageFormat::Png)
        .expect("written");
    file.into_inner()
}

#[tokio::test]
async fn a_function_between_two_steps_is_one_of_them() {
    let set = enabled();
    let cluster = digits::with_mlp(&set.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let api = cluster.api();
    put(&api, "steps/centre.py", example("centre.py")).await;
    let body = Some(example("centred.yaml"));
    let made = api
        .send_bytes(Method::POST, "/v1/pipelines", "application/yaml", body)
        .await
        .json(201);
    assert!(made["files"]["steps/centre.py"].is_string(), "{made}");
    let path = "/v1/pipelines/centred/queries?explain=true";
    let images = digits::Images::load("test");
    // Only these images have room to be moved.
    let has_room = |index: &usize| (0..8).all(|row| images.pixels(*index)[row * 8 + 7] == 0.0);
    let movable: Vec<usize> = (0..images.len()).filter(has_room).take(10).collect();
    assert_eq!(movable.len(), 10, "few digits fill the picture");
    for index in movable {
        let mut labels = Vec::new();
        for by in [0, 1] {
            let picture = moved(images.pixels(index), by);
            let answer = until("the pipeline answers", || async {
                let answer = api.post_raw(path, picture.clone()).await;
                answer.status.is_success().then(|| answer.json(200))
            })
            .await;
            let steps = answer["explanation"]["steps"].as_array().expect("steps");
            let step = steps
                .iter()
                .find(|step| step["name"] == "centre")
                .expect("the step");
            assert!(
                step["compute_us"].as_f64().is_some_and(|us| us > 0.0),
                "{step}"
            );
            labels.push(answer["outputs"][0]["data"].clone());
        }
        assert_eq!(
            labels[0], labels[1],
            "image {index} has the same label at both places"
        );
    }
    let empty = api
        .post_raw(path, moved(&[0.0; 64], 0))
        .await
        .problem(400, "step_failed");
    let detail = empty["detail"].as_str().expect("a detail");
    for part in [
        "step `centre`",
        "steps/centre.py, line",
        "ValueError: a picture without ink",
    ] {
        assert!(detail.contains(part), "{detail}");
    }
    // A registered pipeline does not change when the file under its path does.
    put(
        &api,
        "steps/centre.py",
        "def centre(pixels):\n    raise KeyError('another file')\n",
    )
    .await;
    assert!(
        api.post_raw(path, moved(images.pixels(0), 0))
            .await
            .status
            .is_success()
    );
}

#[tokio::test]
async fn functions_that_fail_name_their_row_and_cost_nobody_else() {
    let cluster = TestCluster::start(Settings {
        set: [enabled(), vec!["pipelines.python.processes=2".to_owned()]].concat(),
        ..Settings::default()
    });
    let api = cluster.api();
    let file = "import os\n\ndef count(x):\n    if x.sum() < 0:\n        os._exit(1)\n    return x * 2 if x.sum() else 1 / 0\n";
    put(&api, "steps/count.py", file).await;
    api.post("/v1/pipelines", &numbers("whole", "steps/count.py:count"))
        .await
        .json(201);
    let mut each = numbers("each", "steps/count.py:count");
    each["inputs"] = json!([{"name": "x", "datatype": "FP32", "shape": [-1, 1]}]);
    each["steps"][0]["for_each"] = json!("x");
    each["steps"][0]["inputs"] = json!({"x": "x"});
    api.post("/v1/pipelines", &each).await.json(201);
    let good = ask(&api, "whole", &[1.0, 2.0]).await.json(200);
    assert_eq!(good["outputs"][0]["data"], json!([2.0, 4.0]));
    let rows = json!([{"name": "x", "datatype": "FP32", "shape": [3, 1], "data": [1.0, 0.0, 2.0]}]);
    let query = json!({"application": "each", "inputs": rows});
    let refused = api
        .post("/v1/queries", &query)
        .await
        .problem(400, "step_failed");
    let detail = refused["detail"].as_str().expect("a detail");
    assert!(
        detail.contains("step `count`: row `1`: ") && detail.contains("ZeroDivisionError"),
        "{detail}"
    );
    let died = ask(&api, "whole", &[-1.0])
        .await
        .problem(400, "step_failed");
    assert!(
        died["detail"]
            .as_str()
            .is_some_and(|it| it.contains("its process ended by an exit")),
        "{died}"
    );
    // The other pipeline of the same file answers, and then this one again.
    for pipeline in ["whole", "whole"] {
        let again = ask(&api, pipeline, &[3.0]).await.json(200);
        assert_eq!(again["outputs"][0]["data"], json!([6.0]));
    }
    assert!(cluster.children("step").len() <= 2, "there are two places");
}

#[tokio::test]
async fn what_cannot_run_is_not_registered() {
    let cluster = TestCluster::start(Settings {
        set: enabled(),
        ..Settings::default()
    });
    let api = cluster.api();
    put(&api, "steps/count.py", "def count(x):\n    return x\n").await;
    put(&api, "steps/broken.py", "def count(x)\n").await;
    let wrong_digest = {
        let mut pipeline = numbers("a", "steps/count.py:count");
        pipeline["steps"][0]["python"]["sha256"] = json!("0".repeat(64));
        pipeline
    };
    for (definition, part) in [
        (
            numbers("a", "steps/count.py:other"),
            "has no function `other`",
        ),
        (numbers("a", "steps/broken.py:count"), "line 1: SyntaxError"),
        (
            numbers("a", "steps/nowhere.py:count"),
            "is not in the artefact store",
        ),
        (numbers("a", "steps/count.py"), "is `FILE.py:function`"),
        (wrong_digest, "wants the digest"),
    ] {
        let refused = api
            .post("/v1/pipelines", &definition)
            .await
            .problem(400, "invalid_pipeline");
        let detail = refused["detail"].as_str().expect("a detail");
        assert!(detail.contains(part), "{detail}");
    }
}

#[tokio::test]
async fn it_is_off_unless_somebody_says_otherwise() {
    let cluster = digits::shared().await;
    let api = cluster.api();
    put(&api, "steps/off.py", "def count(x):\n    return x\n").await;
    let definition = numbers("off", "steps/off.py:count");
    let refused = api
        .post("/v1/pipelines", &definition)
        .await
        .problem(400, "invalid_pipeline");
    let detail = refused["detail"].as_str().expect("a detail");
    assert!(
        detail.contains("step `count`") && detail.contains("pipelines.python.enabled"),
        "{detail}"
    );
}

#[tokio::test]
async fn an_interpreter_of_no_use_is_said_to_be() {
    let set = [
        "pipelines.python.enabled=true",
        "pipelines.python.interpreter=/no/such/python",
    ];
    let cluster = TestCluster::start(Settings {
        set: set.map(str::to_owned).to_vec(),
        faults: true,
        ..Settings::default()
    });
    let api = cluster.api();
    put(&api, "steps/count.py", "def count(x):\n    return x\n").await;
    let refused = api
        .post("/v1/pipelines", &numbers("a", "steps/count.py:count"))
        .await;
    let refused = refused.problem(400, "invalid_pipeline");
    assert!(
        refused["detail"]
            .as_str()
            .is_some_and(|it| it.contains("/no/such/python")),
        "{refused}"
    );
}

#[tokio::test]
async fn it_takes_a_scope_of_its_own() {
    const ADMIN: &str = "an-administrators-key-for-tests";
    let keys = [
        "auth.mode=keys".to_owned(),
        format!("auth.admin_key={ADMIN}"),
    ];
    let cluster = TestCluster::start(Settings {
        set: [enabled(), keys.to_vec()].concat(),
        ..Settings::default()
    });
    let api = cluster.api();
    let send = async |key: &str, method: Method, path: &str, body: Vec<u8>| {
        let headers = [
            ("authorization", format!("Bearer {key}")),
            ("content-type", "application/json".to_owned()),
        ];
        api.send_with(method, path, &headers, body).await
    };
    let mut secrets = Vec::new();
    for scopes in [
        json!(["register"]),
        json!(["python"]),
        json!(["register", "python"]),
    ] {
        let body = json!({"name": "one", "scopes": scopes}).to_string();
        let made = send(ADMIN, Method::POST, "/v1/keys", body.into_bytes())
            .await
            .created();
        secrets.push(
            made["secret"]
                .as_str()
                .expect("the secret, once")
                .to_owned(),
        );
    }
    let file = b"def count(x):\n    return x\n".to_vec();
    let stored = send(ADMIN, Method::PUT, "/v1/artefacts/steps/count.py", file).await;
    assert!(stored.status.is_success(), "{}", stored.text());
    let definition = numbers("a", "steps/count.py:count").to_string();
    for (secret, status) in secrets.iter().zip([403, 403, 201]) {
        let answer = send(
            secret,
            Method::POST,
            "/v1/pipelines",
            definition.clone().into_bytes(),
        )
        .await;
        assert_eq!(answer.status.as_u16(), status, "{}", answer.text());
    }
}
