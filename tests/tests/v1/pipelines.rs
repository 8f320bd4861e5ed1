//! `/v1/pipelines`: a picture or a sentence goes in and a label comes out, with registered models.

use std::io::Cursor;

use reqwest::Method;
use serde_json::{Value, json};
use sextant_tests::{Answer, Api, Settings, TestCluster, Upload, digits, root, until};

/// A file of `examples/pipelines`.
fn example(name: &str) -> Vec<u8> {
    std::fs::read(root().join("examples/pipelines").join(name)).expect("the example is there")
}

/// Registers a pipeline of the examples.
async fn register(api: &Api, name: &str) -> Answer {
    let definition = Some(example(name));
    api.send_bytes(
        Method::POST,
        "/v1/pipelines",
        "application/yaml",
        definition,
    )
    .await
}

/// An image of the data set as a PNG of grey pixels.
fn png(pixels: &[f32]) -> Vec<u8> {
    let bytes = pixels
        .iter()
        .map(|it| (it / 16.0 * 255.0).round() as u8)
        .collect();
    let picture = image::GrayImage::from_raw(8, 8, bytes).expect("64 pixels");
    let mut file = Cursor::new(Vec::new());
    picture
        .write_to(&mut file, image::ImageFormat::Png)
        .expect("written");
    file.into_inner()
}

fn output<'a>(answer: &'a Value, name: &str) -> &'a Value {
    let outputs = answer["outputs"].as_array().expect("outputs");
    let output = outputs.iter().find(|output| output["name"] == name);
    &output.unwrap_or_else(|| panic!("no `{name}` in {answer}"))["data"]
}

/// Sends a file until the pipeline answers; its models may still be loading.
async fn ask(api: &Api, name: &str, body: Vec<u8>) -> Value {
    let path = format!("/v1/pipelines/{name}/queries");
    until("the pipeline answers", || async {
        let answer = api.post_raw(&path, body.clone()).await;
        answer.status.is_success().then(|| answer.json(200))
    })
    .await
}

#[tokio::test]
async fn pictures_are_read_as_their_pixels_are() {
    let cluster = digits::shared().await;
    let api = cluster.api();
    register(&api, "photos.yaml").await.json(201);
    digits::warm(&api).await;
    let images = digits::Images::load("test");
    let (mut correct, mut alike) = (0, 0);
    for index in 0..100 {
        let read = ask(&api, "photos", png(images.pixels(index))).await;
        let digit: usize = output(&read, "digit")[0]
            .as_str()
            .and_then(|it| it.parse().ok())
            .expect("a digit");
        let query = json!({"application": "digits", "targets": {"min_accuracy": 0.9}, "inputs": images.input(index)});
        let asked = api.post("/v1/queries", &query).await.json(200);
        correct += usize::from(digit as i64 == images.labels[index]);
        alike += usize::from(digit == digits::digit(output(&asked, "scores")));
    }
    // A picture has 256 shades and the data set has 17, so single images may get another label.
    assert!(
        correct >= 93 && alike >= 97,
        "{correct} of 100 right, {alike} as by their pixels"
    );
    let status = api.get("/v1/applications/photos/status").await.json(200);
    assert!(
        status["asked"].as_u64().is_some_and(|asked| asked >= 1),
        "{status}"
    );
}

#[tokio::test]
async fn only_the_pipeline_that_was_seen_is_replaced_and_deleted() {
    let cluster = digits::shared().await;
    let api = cluster.api();
    let path = "/v1/pipelines/seen-alone";
    let body = |description: &str| {
        let steps = json!([{"name": "a", "application": "digits"}]);
        json!({"name": "seen-alone", "description": description, "steps": steps})
    };
    let send = async |method, tag: &str, body: &Value| {
        let headers = [("if-match", tag.to_owned())];
        let body = body.to_string().into_bytes();
        api.send_with(method, path, &headers, body).await
    };
    let missing = send(Method::PUT, "*", &body("none")).await;
    missing.problem(412, "precondition_failed");
    api.get(path).await.problem(404, "pipeline_not_found");
    api.post("/v1/pipelines", &body("first")).await.json(201);
    let tag = async || api.get(path).await.headers["etag"].clone();
    let first = tag().await.to_str().expect("text").to_owned();
    let replaced = send(Method::PUT, &first, &body("second")).await;
    assert_eq!(replaced.json(200)["version"], 2);
    for method in [Method::PUT, Method::DELETE] {
        let late = send(method, &first, &body("third")).await;
        late.problem(412, "precondition_failed");
    }
    let second = tag().await.to_str().expect("text").to_owned();
    let deleted = send(Method::DELETE, &second, &json!({})).await;
    assert_eq!(deleted.status, 204);
}

#[tokio::test]
async fn a_cascade_asks_the_dear_model_where_the_cheap_one_is_unsure() {
    let cluster = digits::shared().await;
    let api = cluster.api();
    register(&api, "cascade.yaml").await.json(201);
    let images = digits::Images::load("test");
    let (mut correct, mut dear) = (0, 0);
    for index in 0..100 {
        let query = json!({"application": "careful-digits", "explain": true, "inputs": images.input(index)});
        let answer = until("the cascade answers", || async {
            let answer = api.post("/v1/queries", &query).await;
            answer.status.is_success().then(|| answer.json(200))
        })
        .await;
        let steps = answer["explanation"]["steps"].as_array().expect("steps");
        let slow = steps
            .iter()
            .find(|step| step["name"] == "slow")
            .expect("the step");
        dear += usize::from(slow["outcome"] == "answered");
        assert!(
            slow["outcome"] == "answered" || slow["why"].is_string(),
            "{slow}"
        );
        correct +=
            usize::from(digits::digit(output(&answer, "scores")) as i64 == images.labels[index]);
    }
    assert!(correct >= 93, "{correct} of 100 images were read correctly");
    assert!(
        (1..100).contains(&dear),
        "the expensive model was used {dear} times of 100"
    );
}

/// The purpose of a cascade: it is as accurate as the expensive model alone and costs less.
#[tokio::test]
async fn the_threshold_of_a_cascade_is_chosen_on_a_validation_set() {
    let cluster = digits::service(Settings::default()).await;
    let file = root().join("examples/pipelines/tuned.yaml");
    let set = digits::file("validation.npz");
    let tune = |least: &str| {
        let (file, set) = (file.to_string_lossy(), set.to_string_lossy());
        let of = [
            "--validation",
            &set,
            "--min-accuracy",
            least,
            "--thresholds",
            "0,0.6,0.9,1.01",
        ];
        let output = cluster.client(&[&["--json", "pipeline", "tune", &file][..], &of].concat());
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        let answer = serde_json::from_str::<Value>(&text);
        let answer = answer.unwrap_or_else(|_| panic!("no JSON: {text}{told}"));
        (output.status.code(), answer)
    };
    let (code, answer) = tune("0.9");
    assert_eq!(code, Some(0), "{answer}");
    let tried = answer["tried"].as_array().expect("a list");
    let of = |row: &Value, name: &str| row[name].as_f64().expect("a number");
    let (never, always) = (&tried[0], &tried[3]);
    assert!(
        of(never, "cost_per_1k_usd") < of(always, "cost_per_1k_usd"),
        "{answer}"
    );
    assert!(of(never, "value") <= of(always, "value"), "{answer}");
    for row in tried {
        assert!(
            of(row, "lower") < of(row, "value") && of(row, "value") < of(row, "upper"),
            "{row}"
        );
    }
    let chosen = of(&answer["chosen"], "threshold");
    let good = tried.iter().filter(|row| of(row, "lower") >= 0.9);
    let cheapest =
        good.min_by(|a, b| of(a, "cost_per_1k_usd").total_cmp(&of(b, "cost_per_1k_usd")));
    assert_eq!(
        Some(chosen),
        cheapest.map(|row| of(row, "threshold")),
        "{answer}"
    );
    let listed = cluster.api().get("/v1/pipelines").await.json(200);
    let names: Vec<&Value> = listed["pipelines"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|it| &it["name"])
        .collect();
    assert_eq!(names, ["careful-digits"], "those that were tried are gone");
    let (code, answer) = tune("0.9999");
    assert!(
        answer["chosen"].is_null(),
        "none of the thresholds is that accurate"
    );
    assert_eq!(code, Some(1), "nothing is registered");
    // A pipeline that a user has registered under the temporary name is kept.
    let definition = String::from_utf8(example("tuned.yaml")).expect("text");
    let own = definition
        .replace("careful-digits", "careful-digits-tuning")
        .replace("THRESHOLD", "0.5");
    let api = cluster.api();
    let made = api.send_bytes(
        Method::POST,
        "/v1/pipelines",
        "application/yaml",
        Some(own.into_bytes()),
    );
    made.await.json(201);
    let (file, set) = (file.to_string_lossy(), set.to_string_lossy());
    let refused = cluster.client(&[
        "pipeline",
        "tune",
        &file,
        "--validation",
        &set,
        "--min-accuracy",
        "0.9",
    ]);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{text}");
    assert!(text.contains("careful-digits-tuning"), "{text}");
    let kept = api.get("/v1/pipelines/careful-digits-tuning").await;
    assert_eq!(kept.json(200)["version"], 1);
}

async fn with_sentences() -> TestCluster {
    let cluster = TestCluster::start(Settings::default());
    let api = cluster.api();
    api.create_application("sentiment").await;
    let upload = Upload {
        application: "sentiment",
        name: "sentiment",
        model: example("sentiment.onnx"),
        validation: example("sentiment.npz"),
        validation_name: "validation.npz",
    };
    let job = api.register(upload).await;
    assert_eq!(job["state"], "succeeded", "{job}");
    let stored = api
        .put(
            "/v1/artefacts/tokenizers/sentiment.json",
            example("tokenizer.json"),
        )
        .await;
    assert!(stored.status.is_success());
    register(&api, "sentences.yaml").await.json(201);
    cluster
}

#[tokio::test]
async fn sentences_are_understood_and_embedded_also_after_a_restart() {
    let mut cluster = with_sentences().await;
    let api = cluster.api();
    let labels = async |api: &Api| {
        let mut labels = Vec::new();
        for text in ["What a LOVELY film", "the hotel was cold and dull", ""] {
            let answer = ask(api, "sentences", text.as_bytes().to_vec()).await;
            labels.push(
                output(&answer, "label")[0]
                    .as_str()
                    .expect("a label")
                    .to_owned(),
            );
        }
        labels
    };
    let before = labels(&api).await;
    assert_eq!(before[..2], ["good", "bad"]);
    let vectors = json!({
        "name": "vectors",
        "steps": [
            {"name": "tokens", "tokenize": {"tokenizer": "tokenizers/sentiment.json"}},
            {"name": "score", "application": "sentiment"},
            {"name": "unit", "normalize": {}, "inputs": {"vectors": "score.scores"}}
        ],
    });
    api.post("/v1/pipelines", &vectors).await.json(201);
    let embedded = api
        .post(
            "/v1/embeddings",
            &json!({"model": "vectors", "input": ["warm", "broken"]}),
        )
        .await;
    let embedded = embedded.json(200);
    let vector = |at: usize| {
        let vector = embedded["data"][at]["embedding"]
            .as_array()
            .expect("a vector");
        vector
            .iter()
            .map(|it| it.as_f64().expect("a number"))
            .collect::<Vec<_>>()
    };
    let (warm, broken) = (vector(0), vector(1));
    assert!(warm[1] > warm[0] && broken[0] > broken[1], "{embedded}");
    let length = warm.iter().map(|it| it * it).sum::<f64>();
    assert!((length - 1.0).abs() < 1e-5, "{length}");
    let refused = api
        .post(
            "/v1/embeddings",
            &json!({"model": "vectors", "input": [1, 2]}),
        )
        .await;
    refused.problem(400, "invalid_request");
    // The pipeline keeps the tokenizer of its registration, whatever the file under its path is now.
    assert!(
        api.put("/v1/artefacts/tokenizers/sentiment.json", "{}")
            .await
            .status
            .is_success()
    );
    cluster.kill();
    cluster.launch();
    assert_eq!(labels(&cluster.api()).await, before);
}

#[tokio::test]
async fn a_job_has_a_pipeline_answer_each_record_in_its_place() {
    let cluster = with_sentences().await;
    let api = cluster.api();
    let texts = ["what a lovely film", "cold and dull", "warm"];
    let lines = texts.map(|text| json!({"inputs": {"text": [text]}}).to_string());
    let records = format!(
        "{}\n{{\"inputs\": {{}}}}\n{}\n{}\n",
        lines[0], lines[1], lines[2]
    );
    api.put("/v1/artefacts/in/texts.jsonl", records)
        .await
        .json(201);
    let body = json!({"application": "sentences", "chunk": 2,
        "input": "in/texts.jsonl", "output": "out/labels.jsonl"});
    let queued = api.post("/v1/jobs", &body).await.json(202);
    let job = api.job_over(queued["id"].as_str().expect("an id")).await;
    assert_eq!(job["state"], "succeeded", "{job}");
    assert_eq!(job["progress"], json!({"done": 4, "total": 4, "failed": 1}));
    assert_eq!(job["result"]["variant"], "sentences-v1", "{job}");
    let text = api.get("/v1/artefacts/out/labels.jsonl").await.text();
    let answers: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("a line of JSON"))
        .collect();
    let labels: Vec<&Value> = answers
        .iter()
        .map(|it| &it["outputs"]["label"][0][0])
        .collect();
    assert_eq!(
        (labels[0], labels[2], labels[3]),
        (&json!("good"), &json!("bad"), &json!("good")),
        "{text}"
    );
    assert_eq!(answers[1]["error"]["code"], "invalid_tensor", "{text}");
    // Only online queries may have targets.
    let body = json!({"application": "sentences", "targets": {"min_accuracy": 0.5},
        "input": "in/texts.jsonl", "output": "out/never.jsonl"});
    let queued = api.post("/v1/jobs", &body).await.json(202);
    let job = api.job_over(queued["id"].as_str().expect("an id")).await;
    assert_eq!(job["error"]["code"], "invalid_target", "{job}");
}

#[tokio::test]
async fn a_job_has_a_pipeline_answer_each_picture_of_a_folder() {
    let cluster = digits::shared().await;
    let api = cluster.api();
    let definition = String::from_utf8(example("photos.yaml")).expect("text");
    let definition = definition.replace("name: photos", "name: album");
    let kind = "application/yaml";
    let sent = api.send_bytes(Method::POST, "/v1/pipelines", kind, Some(definition.into()));
    sent.await.json(201);
    digits::warm(&api).await;
    let images = digits::Images::load("test");
    let pictures: Vec<Vec<u8>> = (0..5).map(|at| png(images.pixels(at))).collect();
    for (at, picture) in pictures.iter().enumerate() {
        let path = format!("/v1/artefacts/album/{at}.png");
        api.put(&path, picture.clone()).await.json(201);
    }
    api.put("/v1/artefacts/album/notes.txt", "no picture")
        .await
        .json(201);
    let job = async |asks: &str, name: &str, output: &str| {
        let body = json!({asks: name, "chunk": 2, "input": "album/", "output": output});
        let queued = api.post("/v1/jobs", &body).await.json(202);
        api.job_over(queued["id"].as_str().expect("an id")).await
    };
    let read = job("application", "album", "read/album.jsonl").await;
    let progress = json!({"done": 6, "total": 6, "failed": 1});
    assert_eq!(read["progress"], progress, "{read}");
    let text = api.get("/v1/artefacts/read/album.jsonl").await.text();
    let answers = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("a line of JSON"));
    let answers: Vec<Value> = answers.collect();
    for (at, picture) in pictures.into_iter().enumerate() {
        let asked = ask(&api, "album", picture).await;
        let digit = &answers[at]["outputs"]["digit"][0][0];
        assert_eq!(digit, &output(&asked, "digit")[0], "{text}");
        assert_eq!(answers[at]["file"], format!("album/{at}.png"), "{text}");
    }
    assert_eq!(answers[5]["file"], "album/notes.txt");
    assert_eq!(answers[5]["error"]["code"], "invalid_tensor", "{text}");
    // A folder of answers has a file for each record.
    let apart = job("application", "album", "read/album/").await;
    assert_eq!(apart["result"]["files"], 6, "{apart}");
    let text = api.get("/v1/artefacts/read/album/3.png.jsonl").await.text();
    let answer: Value = serde_json::from_str(text.trim()).expect("one line");
    assert_eq!(
        (&answer["index"], &answer["file"]),
        (&json!(0), &json!("album/3.png"))
    );
    // A model that takes no strings takes no files, and a file of an unknown kind is not a record.
    let numbers = job("model", "mlp", "read/never.jsonl").await;
    assert_eq!(numbers["error"]["code"], "invalid_record", "{numbers}");
    api.put("/v1/artefacts/album/more.tiff", "?")
        .await
        .json(201);
    let unknown = job("application", "album", "read/never.jsonl").await;
    assert_eq!(unknown["error"]["code"], "invalid_request", "{unknown}");
}

#[tokio::test]
async fn bad_inputs_name_the_step_and_cost_nobody_else() {
    let cluster = with_sentences().await;
    let api = cluster.api();
    ask(&api, "sentences", b"warm".to_vec()).await;
    let path = "/v1/pipelines/sentences/queries";
    for bad in [vec![0xff, 0xfe], vec![b'a'; 10 << 20]] {
        let refused = api.post_raw(path, bad).await.problem(400, "invalid_tensor");
        let detail = refused["detail"].as_str().expect("a detail");
        assert!(
            detail.contains("step `tokens`: row `0` of `text`"),
            "{detail}"
        );
    }
    // The model that a step runs is deleted.
    assert!(api.delete("/v1/models/sentiment").await.status.is_success());
    let gone = until("the pipeline knows that its model is gone", || async {
        let answer = api.post_raw(path, "warm").await;
        (answer.status.as_u16() == 503).then(|| answer.problem(503, "unavailable"))
    })
    .await;
    assert!(
        gone["detail"]
            .as_str()
            .is_some_and(|detail| detail.contains("step `score`")),
        "{gone}"
    );
    let refused = api
        .post(
            "/v1/applications",
            &json!({"name": "sentences", "metric": "top1"}),
        )
        .await;
    refused.problem(409, "application_exists");
}

#[tokio::test]
async fn the_plan_of_a_pipeline_with_a_target_is_desired_and_explained() {
    let set = [
        "worker.devices=emulated:3@one",
        "variants.engines=emulated",
        "variants.max_batch=4",
    ];
    let cluster = digits::with_mlp(&set).await;
    let api = cluster.api();
    let twice = json!({"name": "twice", "dropping": "sextant", "steps": [
        {"name": "first", "application": "digits"},
        {"name": "second", "application": "digits"},
    ], "outputs": {"first": "first.scores", "second": "second.scores"}});
    api.post("/v1/pipelines", &twice).await.json(201);
    let images = digits::Images::load("test");
    let query =
        json!({"application": "twice", "targets": {"latency_ms": 5000}, "inputs": images.input(0)});
    let told = until("the plan is shown", || async {
        api.post("/v1/queries", &query).await;
        let body = api.get("/v1/scaling/decisions").await.json(200);
        let decisions = body["decisions"].as_array()?.iter();
        let mut reasons = decisions.filter_map(|it| it["reason"].as_str());
        let told = reasons.find(|it| it.contains("pipeline `twice`"));
        told.map(str::to_owned)
    })
    .await;
    for step in ["`first`", "`second`"] {
        assert!(
            told.contains(step) && told.contains("within 5000 ms"),
            "{told}"
        );
    }
    let metrics = api.get("/metrics").await.text();
    let answered =
        "sextant_pipeline_steps_total{pipeline=\"twice\",step=\"second\",outcome=\"answered\"}";
    assert!(metrics.contains(answered), "{metrics}");
}
