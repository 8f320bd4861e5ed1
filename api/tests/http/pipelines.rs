//! Pipelines over HTTP: registered, changed, asked.

mod bound;
mod counted;
mod metric;

use axum::{body::Body, http::Request};
use serde_json::{Value, json};
use sextant_rpc::QueryError;
use sextant_types::{Code, Tensor};

use crate::double::{ADMIN, Api, Reading, Recorder, Settings, answer};

/// A picture of one red pixel.
const PIXEL: &[u8] = &[
    0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0x00, 0x00, 0x00, 0x0d, 0x49, 0x48, 0x44, 0x52,
    0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x01, 0x08, 0x02, 0x00, 0x00, 0x00, 0x90, 0x77, 0x53,
    0xde, 0x00, 0x00, 0x00, 0x0c, 0x49, 0x44, 0x41, 0x54, 0x78, 0x9c, 0x63, 0xf8, 0xcf, 0xc0, 0x00,
    0x00, 0x03, 0x01, 0x01, 0x00, 0xc9, 0xfe, 0x92, 0xef, 0x00, 0x00, 0x00, 0x00, 0x49, 0x45, 0x4e,
    0x44, 0xae, 0x42, 0x60, 0x82,
];

/// A picture in, a label out, by the application `digits`, which sees three numbers.
fn definition() -> Value {
    json!({
        "name": "photos",
        "description": "colours",
        "steps": [
            {"name": "decode", "image": {"width": 1, "height": 1, "layout": "flat"}},
            {"name": "classify", "application": "digits", "inputs": {"input": "decode.pixels"}},
            {"name": "name", "top_k": {"labels": ["red", "green", "blue"]},
                "inputs": {"scores": "classify.probabilities"}},
        ],
        "outputs": {"label": "name.labels", "score": "name.scores"},
    })
}

/// Answers with what it is given.
fn echoing() -> std::sync::Arc<Recorder> {
    Recorder::new(|query| {
        let mut echo = answer();
        let values = query.inputs[0].tensor.to_vec::<f32>().expect("floats");
        echo.outputs[0].tensor =
            Tensor::from_elements(vec![values.len() / 3, 3], &values).expect("a tensor");
        Ok(echo)
    })
}

async fn with_pipeline() -> Api {
    let api = Api::new(echoing()).await;
    let made = api
        .call("POST", "/v1/pipelines", definition().to_string())
        .await;
    assert_eq!(made.status, 201, "{}", made.json());
    api
}

async fn ask(api: &Api, query: &str, body: &'static [u8]) -> Reading {
    api.call(
        "POST",
        &format!("/v1/pipelines/photos/queries{query}"),
        body,
    )
    .await
}

fn label(answer: &Value) -> &Value {
    let outputs = answer["outputs"].as_array().expect("outputs");
    let label = outputs
        .iter()
        .find(|output| output["name"] == "label")
        .expect("a label");
    &label["data"][0]
}

#[tokio::test]
async fn a_picture_goes_in_and_a_label_comes_out() {
    let api = with_pipeline().await;
    let answer = ask(&api, "?latency_ms=5000&explain=true", PIXEL)
        .await
        .json();
    assert_eq!(
        (label(&answer), &answer["model"], &answer["variant"]),
        (&json!("red"), &json!("photos"), &json!("photos-v1"))
    );
    let steps = answer["explanation"]["steps"].as_array().expect("steps");
    let steps: Vec<_> = steps
        .iter()
        .map(|step| (step["name"].as_str(), step["outcome"].as_str()))
        .collect();
    let answered = |name| (Some(name), Some("answered"));
    assert_eq!(
        steps,
        [answered("decode"), answered("classify"), answered("name")]
    );
    let id = answer["id"].as_str().expect("an id");
    let explained = api.get(&format!("/v1/queries/{id}")).await.json();
    let request = Request::get(format!("/answer/{id}")).header("accept", "text/html");
    let page = api
        .send(request.body(Body::empty()).expect("a request"))
        .await;
    let page = String::from_utf8(page.bytes).expect("text");
    assert!(
        page.contains("Steps, as they ended") && page.contains("classify"),
        "{page}"
    );
    assert_eq!(
        explained["explanation"]["steps"][1]["variant"],
        "mlp-ort-fp32-all-t1-b32"
    );
}

#[tokio::test]
async fn every_protocol_asks_it_as_any_application() {
    let api = with_pipeline().await;
    let picture = base64_of(PIXEL);
    let input = json!([{"name": "image", "shape": [1], "datatype": "BYTES", "data": [picture]}]);
    // Text is no picture, and the error names the step.
    let query = json!({"application": "photos", "inputs": input});
    let refused = api
        .call("POST", "/v1/queries", query.to_string())
        .await
        .problem("invalid_tensor");
    assert!(
        refused["detail"]
            .as_str()
            .is_some_and(|detail| detail.contains("step `decode`: row `0` of `image`")),
        "{refused}"
    );
    let metadata = api.get("/v2/models/photos").await.json();
    assert_eq!(
        metadata["inputs"][0],
        json!({"name": "image", "datatype": "BYTES", "shape": [-1]})
    );
    let head = json!({"inputs": [{"name": "image", "shape": [1], "datatype": "BYTES",
        "parameters": {"binary_data_size": PIXEL.len() + 4}}]})
    .to_string();
    let mut body = head.clone().into_bytes();
    body.extend((PIXEL.len() as u32).to_le_bytes());
    body.extend(PIXEL);
    let request = Request::post("/v2/models/photos/infer")
        .header("inference-header-content-length", head.len())
        .body(Body::from(body));
    let answer = api.send(request.expect("a request")).await.json();
    assert_eq!(
        (label(&answer), &answer["model_name"]),
        (&json!("red"), &json!("photos"))
    );
    let index = api.call("POST", "/v2/repository/index", "{}").await.json();
    let names: Vec<_> = index
        .as_array()
        .expect("models")
        .iter()
        .map(|it| &it["name"])
        .collect();
    assert!(names.contains(&&json!("photos")), "{index}");
    assert_eq!(api.get("/v2/models/photos/ready").await.status, 200);
}

fn base64_of(bytes: &[u8]) -> String {
    use base64::{Engine as _, prelude::BASE64_STANDARD};
    BASE64_STANDARD.encode(bytes)
}

#[tokio::test]
async fn a_definition_may_be_yaml() {
    let api = Api::new(echoing()).await;
    let yaml = "
name: photos
steps:
  - name: decode
    image: {width: 1, height: 1, layout: flat}
  - name: classify
    application: digits
    inputs: {input: decode.pixels}
";
    let request = |text: &'static str| {
        let request = Request::post("/v1/pipelines").header("content-type", "application/yaml");
        request.body(Body::from(text)).expect("a request")
    };
    let made = api.send(request(yaml)).await;
    assert_eq!(made.status, 201, "{}", made.json());
    assert_eq!(
        made.json()["signature"]["outputs"][0]["name"],
        "probabilities"
    );
    let wrong = api
        .send(request("name: [photos\nsteps: 1"))
        .await
        .problem("invalid_request");
    assert!(
        wrong["detail"]
            .as_str()
            .is_some_and(|detail| detail.contains("line")),
        "{wrong}"
    );
}

#[tokio::test]
async fn it_is_listed_shown_and_deleted_with_its_application() {
    let api = with_pipeline().await;
    let again = api
        .call("POST", "/v1/pipelines", definition().to_string())
        .await;
    assert_eq!(
        (again.status.as_u16(), &again.json()["version"]),
        (200, &json!(1))
    );
    let listed = api.get("/v1/pipelines").await.json();
    assert_eq!(listed["pipelines"][0]["name"], "photos");
    assert_eq!(listed["pipelines"][0]["definition"], definition());
    let application = api.get("/v1/applications/photos").await.json();
    assert_eq!(application["description"], "colours");
    assert_eq!(
        api.call("DELETE", "/v1/pipelines/photos", "").await.status,
        204
    );
    api.get("/v1/pipelines/photos")
        .await
        .problem("pipeline_not_found");
    api.get("/v1/applications/photos")
        .await
        .problem("application_not_found");
    ask(&api, "", PIXEL).await.problem("pipeline_not_found");
}

#[tokio::test]
async fn a_definition_is_checked_before_it_is_kept() {
    let api = Api::new(echoing()).await;
    let checked = api
        .call(
            "POST",
            "/v1/pipelines?dry_run=true",
            definition().to_string(),
        )
        .await;
    assert_eq!(
        (checked.status.as_u16(), &checked.json()["version"]),
        (200, &json!(0))
    );
    api.get("/v1/pipelines/photos")
        .await
        .problem("pipeline_not_found");
    let mut wrong = definition();
    wrong["steps"][1]["inputs"]["input"] = json!("decode.nothing");
    let refused = api
        .call("POST", "/v1/pipelines", wrong.to_string())
        .await
        .problem("invalid_pipeline");
    let detail = refused["detail"].as_str().expect("a detail");
    assert!(
        detail.contains("step `classify`") && detail.contains("`decode.nothing`"),
        "{detail}"
    );
    wrong["steps"][1] = json!({"name": "classify", "application": "none"});
    let refused = api
        .call("POST", "/v1/pipelines", wrong.to_string())
        .await
        .problem("invalid_pipeline");
    assert!(
        refused["detail"]
            .as_str()
            .is_some_and(|detail| detail.contains("cannot be asked")),
        "{refused}"
    );
    let taken = json!({"name": "digits", "metric": "top1"});
    assert_eq!(
        api.call("POST", "/v1/applications", taken.to_string())
            .await
            .status,
        201
    );
    let mut named = definition();
    named["name"] = json!("digits");
    api.call("POST", "/v1/pipelines", named.to_string())
        .await
        .problem("application_exists");
}

#[tokio::test]
async fn a_change_makes_a_version() {
    let api = with_pipeline().await;
    let before = api.get("/v1/pipelines/photos").await;
    let tag = before.headers["etag"].to_str().expect("a tag").to_owned();
    let mut steps = definition()["steps"].clone();
    steps[2]["top_k"]["labels"] = json!(["rot", "grün", "blau"]);
    let patch = |tag: &str, change: Value| {
        let request = Request::patch("/v1/pipelines/photos").header("if-match", tag);
        request
            .body(Body::from(change.to_string()))
            .expect("a request")
    };
    let changed = api.send(patch(&tag, json!({"steps": steps}))).await;
    assert_eq!(
        (changed.status.as_u16(), &changed.json()["version"]),
        (200, &json!(2))
    );
    let answer = ask(&api, "", PIXEL).await.json();
    assert_eq!(
        (label(&answer), &answer["variant"]),
        (&json!("rot"), &json!("photos-v2"))
    );
    api.send(patch(&tag, json!({"description": null})))
        .await
        .problem("precondition_failed");
    api.call("PATCH", "/v1/pipelines/photos", r#"{"name": "other"}"#)
        .await
        .problem("invalid_pipeline");
    api.call("POST", "/v1/pipelines", definition().to_string())
        .await
        .problem("pipeline_exists");
}

#[tokio::test]
async fn files_are_those_of_the_registration() {
    let api = Api::new(echoing()).await;
    let mut named = definition();
    named["steps"][2]["top_k"] = json!({"labels_file": "labels.txt"});
    let missing = api
        .call("POST", "/v1/pipelines", named.to_string())
        .await
        .problem("invalid_pipeline");
    assert!(
        missing["detail"]
            .as_str()
            .is_some_and(|detail| detail.contains("`labels.txt`")),
        "{missing}"
    );
    let put = |text: &'static str| api.call("PUT", "/v1/artefacts/labels.txt", text);
    assert_eq!(put("red\ngreen\nblue\n").await.status, 201);
    let made = api.call("POST", "/v1/pipelines", named.to_string()).await;
    assert_eq!(made.status, 201, "{}", made.json());
    assert!(put("one\ntwo\nthree\n").await.status.is_success());
    let beside = api.beside(echoing(), Settings::default()).await;
    for api in [&api, &beside] {
        assert_eq!(label(&ask(api, "", PIXEL).await.json()), "red");
    }
    api.call("POST", "/v1/pipelines", named.to_string())
        .await
        .problem("pipeline_exists");
}

#[tokio::test]
async fn keys_of_its_application_ask_it_and_no_others() {
    let api = Api::with(echoing(), Settings::keys()).await;
    let made = api
        .keyed(ADMIN, "POST", "/v1/pipelines", definition().to_string())
        .await;
    assert_eq!(made.status, 201, "{}", made.json());
    let taken = json!({"name": "digits", "metric": "top1"}).to_string();
    assert_eq!(
        api.keyed(ADMIN, "POST", "/v1/applications", taken)
            .await
            .status,
        201
    );
    let key = async |application: &str, scope: &str| {
        let body = json!({"name": "k", "scopes": [scope], "application": application});
        let made = api
            .keyed(ADMIN, "POST", "/v1/keys", body.to_string())
            .await
            .json();
        made["secret"].as_str().expect("a key").to_owned()
    };
    let (own, other) = (key("photos", "query").await, key("digits", "query").await);
    let path = "/v1/pipelines/photos/queries";
    assert_eq!(
        label(&api.keyed(&own, "POST", path, PIXEL).await.json()),
        "red"
    );
    api.keyed(&other, "POST", path, PIXEL)
        .await
        .problem("forbidden");
    api.keyed(&other, "GET", "/v1/pipelines/photos", "")
        .await
        .problem("forbidden");
    // Whoever changes it must have business with what its steps ask.
    let register = key("photos", "register").await;
    let change = json!({"description": "mine"}).to_string();
    api.keyed(&register, "PATCH", "/v1/pipelines/photos", change)
        .await
        .problem("forbidden");
}

#[tokio::test]
async fn what_a_pipeline_does_not_have_is_said() {
    let api = with_pipeline().await;
    let input = json!([{"name": "image", "shape": [0], "datatype": "BYTES", "data": []}]);
    let query = json!({"application": "photos", "inputs": input, "classification": 2});
    let refused = api
        .call("POST", "/v1/queries", query.to_string())
        .await
        .problem("invalid_request");
    assert!(
        refused["detail"]
            .as_str()
            .is_some_and(|detail| detail.contains("top_k")),
        "{refused}"
    );
    let query = json!({"application": "photos", "inputs": input, "targets": {"min_accuracy": 0.9}});
    let refused = api
        .call("POST", "/v1/queries", query.to_string())
        .await
        .problem("invalid_target");
    assert!(
        refused["detail"]
            .as_str()
            .is_some_and(|detail| detail.contains("`validation`")),
        "{refused}"
    );
    ask(&api, "?latency_ms=x", PIXEL)
        .await
        .problem("invalid_request");
    ask(&api, "?nothing=1", PIXEL)
        .await
        .problem("invalid_request");
}

#[tokio::test]
async fn the_committed_schema_is_current() {
    let api = Api::new(echoing()).await;
    let served = api.get("/docs/pipeline-schema.json").await.json();
    let path =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../openapi/pipeline.schema.json");
    let current = format!("{served:#}\n");
    if std::env::var_os("SEXTANT_BLESS").is_some() {
        std::fs::write(&path, &current).expect("written");
    }
    let committed = std::fs::read_to_string(&path).expect("openapi/pipeline.schema.json exists");
    assert!(
        committed == current,
        "openapi/pipeline.schema.json is not what is served: run this test with SEXTANT_BLESS=1"
    );
}

#[tokio::test]
async fn it_is_replaced_as_a_whole() {
    let api = Api::new(echoing()).await;
    let put = |definition: Value| api.call("PUT", "/v1/pipelines/photos", definition.to_string());
    assert_eq!(put(definition()).await.status, 201);
    let mut shorter = definition();
    shorter["steps"].as_array_mut().expect("steps").pop();
    shorter.as_object_mut().expect("keys").remove("outputs");
    let replaced = put(shorter.clone()).await;
    assert_eq!(
        (replaced.status.as_u16(), &replaced.json()["version"]),
        (200, &json!(2))
    );
    assert_eq!(
        api.get("/v1/pipelines/photos").await.json()["definition"],
        shorter
    );
    shorter["name"] = json!("other");
    put(shorter).await.problem("invalid_pipeline");
}

#[tokio::test]
async fn its_graph_is_a_picture_and_a_text() {
    let api = with_pipeline().await;
    let text = api.get("/v1/pipelines/photos/graph").await;
    let text = String::from_utf8(text.bytes).expect("text");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines,
        [
            "<- image: BYTES [?]",
            "decode    image  image <- image",
            "classify  application digits  input <- decode.pixels",
            "name      top_k  scores <- classify.probabilities",
            "-> label: BYTES [?, 1]  <- name.labels",
            "-> score: FP32 [?, 1]  <- name.scores",
        ]
    );
    let picture = api.get("/v1/pipelines/photos/graph?as=svg").await;
    assert_eq!(picture.headers["content-type"], "image/svg+xml");
    let svg = String::from_utf8(picture.bytes).expect("text");
    assert!(
        svg.starts_with("<svg ") && svg.contains(">classify<") && svg.matches("<rect").count() == 6,
        "{svg}"
    );
    api.get("/v1/pipelines/none/graph")
        .await
        .problem("pipeline_not_found");
    let application = api.get("/v1/applications/photos").await.json();
    assert_eq!(application["signature"]["inputs"][0]["name"], "image");
}

#[tokio::test]
async fn its_steps_are_on_the_page() {
    let api = with_pipeline().await;
    let request = Request::get("/registered").header("accept", "text/html");
    let page = api
        .send(request.body(Body::empty()).expect("a request"))
        .await;
    let page = String::from_utf8(page.bytes).expect("text");
    assert!(
        page.contains("photos, version 1") && page.contains(">classify</text>"),
        "{page}"
    );
    assert!(
        !page.contains("<style"),
        "pages load their styles from files"
    );
}

#[tokio::test]
async fn offline_jobs_name_it_as_they_name_an_application() {
    let api = with_pipeline().await;
    assert_eq!(
        api.call("PUT", "/v1/artefacts/in.jsonl", "{}").await.status,
        201
    );
    let job = json!({"application": "photos", "input": "in.jsonl", "output": "out.jsonl"});
    let queued = api.call("POST", "/v1/jobs", job.to_string()).await;
    assert_eq!(queued.status, 202);
    assert_eq!(queued.json()["application"], "photos");
}
