use std::path::{Path, PathBuf};

use axum::{body::Body, http::Request};
use sextant_api::problem::{pages, status};
use sextant_types::Code;

use crate::double::{Api, Recorder};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
fn the_committed_description_is_current() {
    let path = root().join("openapi/sextant.json");
    let mut current = sextant_api::openapi().to_pretty_json().expect("serialises");
    current.push('\n');
    if std::env::var_os("SEXTANT_BLESS").is_some() {
        std::fs::write(&path, &current).expect("written");
    }
    let committed = std::fs::read_to_string(&path).expect("openapi/sextant.json exists");
    assert!(
        committed == current,
        "openapi/sextant.json is not what the routes say: run this test with SEXTANT_BLESS=1"
    );
}

#[test]
fn operations_have_names_of_their_own() {
    let openapi = serde_json::to_value(sextant_api::openapi()).expect("serialises");
    let mut names = std::collections::BTreeSet::new();
    for (path, item) in openapi["paths"].as_object().expect("paths") {
        assert!(!path.contains('*'), "{path}");
        for operation in item.as_object().expect("operations").values() {
            let name = operation["operationId"]
                .as_str()
                .expect("a name")
                .to_owned();
            assert!(names.insert(name.clone()), "`{name}` names two operations");
        }
    }
    assert!(names.len() > 30, "{names:?}");
}

#[test]
fn each_code_has_a_page_and_each_page_a_code() {
    for code in Code::ALL {
        let page = pages::page(*code);
        let heading = format!("`{code}`, HTTP status {}", status(*code).as_u16());
        for part in [heading.as_str(), "## Meaning", "## Cause", "## Action"] {
            assert!(page.contains(part), "docs/errors/{code}.md lacks `{part}`");
        }
        assert!(!pages::title(*code).is_empty());
    }
    let folder = std::fs::read_dir(root().join("docs/errors")).expect("the folder exists");
    for entry in folder {
        let name = entry
            .expect("readable")
            .file_name()
            .into_string()
            .expect("UTF-8");
        let code = name.strip_suffix(".md").expect("a Markdown file");
        assert!(
            Code::parse(code).is_some(),
            "docs/errors/{name} has no code"
        );
    }
}

#[tokio::test]
async fn documentation_is_served() {
    let api = Api::new(Recorder::answering()).await;
    let json = api.get("/openapi.json").await.json();
    assert!(json["paths"]["/v1/queries"]["post"].is_object());
    let page = api.get("/docs/errors/target_infeasible").await;
    assert_eq!(page.headers["content-type"], "text/markdown; charset=utf-8");
    assert!(page.bytes.starts_with(b"# Nothing registered"));
    let browser = Request::get("/docs/errors/target_infeasible").header("accept", "text/html");
    let page = api
        .send(browser.body(Body::empty()).expect("a request"))
        .await;
    assert_eq!(page.headers["content-type"], "text/html; charset=utf-8");
    assert_eq!(page.headers["vary"], "accept");
    let html = String::from_utf8(page.bytes).expect("UTF-8");
    assert!(html.contains("<h1>Nothing registered"), "{html}");
    assert!(html.contains("<code>target_infeasible</code>"), "{html}");
    let docs = api.get("/docs/").await;
    assert_eq!(docs.status, 200);
    let html = String::from_utf8(docs.bytes).expect("UTF-8");
    assert!(
        html.contains("swagger") && !html.contains("https://"),
        "{html}"
    );
    let settings = api.get("/docs/swagger-initializer.js").await;
    let settings = String::from_utf8(settings.bytes).expect("UTF-8");
    assert!(
        settings.contains("\"validatorUrl\": \"none\""),
        "{settings}"
    );
    assert!(settings.contains("/openapi.json"), "{settings}");
    assert_eq!(api.get("/").await.json()["name"], "sextant");
}

#[tokio::test]
async fn metrics_carry_no_client_names_and_come_in_the_format_that_is_accepted() {
    let api = Api::new(Recorder::answering()).await;
    let query = r#"{"application":"digits","inputs":[]}"#;
    assert_eq!(api.call("POST", "/v1/queries", query).await.status, 200);
    let nobody = r#"{"application":"made-up","targets":{"latency_ms":-1},"inputs":[]}"#;
    api.call("POST", "/v1/queries", nobody)
        .await
        .problem("invalid_target");
    api.get("/made/up/by/a/client").await;
    let reading = api.get("/metrics").await;
    let text = String::from_utf8(reading.bytes.clone()).expect("UTF-8");
    for line in [
        "sextant_queries_total{application=\"digits\",model=\"mlp\",variant=\"mlp-ort-fp32-all-t1-b32\"} 1",
        "sextant_query_duration_seconds_count{application=\"digits\",model=\"mlp\"} 1",
        "sextant_query_failures_total{application=\"\",code=\"invalid_target\"} 1",
        "sextant_problems_total{route=\"none\",code=\"route_not_found\"} 1",
        "# TYPE sextant_queries_total counter",
    ] {
        assert!(text.contains(line), "no `{line}` in\n{text}");
    }
    assert!(!text.contains("made") && !text.contains("# EOF"), "{text}");
    let kind = &reading.headers["content-type"];
    assert_eq!(kind, "text/plain; version=0.0.4; charset=utf-8");
    let request = Request::get("/metrics")
        .header(
            "accept",
            "application/openmetrics-text;version=1.0.0,text/plain;q=0.5",
        )
        .body(Body::empty());
    let reading = api.send(request.expect("a request")).await;
    let text = String::from_utf8(reading.bytes).expect("UTF-8");
    for line in ["# TYPE sextant_queries counter", "# EOF"] {
        assert!(text.contains(line), "no `{line}` in\n{text}");
    }
    let kind = reading.headers["content-type"].to_str().expect("a text");
    assert!(kind.starts_with("application/openmetrics-text"), "{kind}");
}
