//! The forms that requests may have, to the letter.

use axum::{body::Body, http::Request};

use crate::double::{Api, Recorder, Settings};

const INPUT: &str = r#"{"name":"input","shape":[1,3],"datatype":"FP32","data":[1,2,3]}"#;

#[tokio::test]
async fn arrays_are_no_objects() {
    let recorder = Recorder::answering();
    let api = Api::new(recorder.clone()).await;
    let query = |targets: &str, input: &str| {
        format!(r#"{{"application":"digits","targets":{targets},"inputs":[{input}]}}"#)
    };
    let application = |more: &str| format!(r#"{{"name":"new","metric":"top1",{more}}}"#);
    let infer = |more: &str| format!(r#"{{{more},"inputs":[{INPUT}]}}"#);
    for (path, body, field) in [
        ("/v1/queries", query("[]", INPUT), Some("targets")),
        ("/v1/queries", query("[20]", INPUT), Some("targets")),
        (
            "/v1/queries",
            query("{}", r#"["input",[1,3],"FP32",[1,2,3],null]"#),
            Some("inputs[0]"),
        ),
        ("/v1/queries", "[]".to_owned(), None),
        ("/v1/applications", r#"["new","top1"]"#.to_owned(), None),
        (
            "/v1/applications",
            application(r#""default_targets":[]"#),
            Some("default_targets"),
        ),
        (
            "/v1/applications",
            application(r#""resources":[1]"#),
            Some("resources"),
        ),
        ("/v1/keys", r#"["new",["query"]]"#.to_owned(), None),
        ("/v1/jobs", "[]".to_owned(), None),
        (
            "/v1/registrations",
            r#"["a","digits","m","v"]"#.to_owned(),
            None,
        ),
        (
            "/v2/models/digits/infer",
            infer(r#""parameters":[5]"#),
            Some("parameters"),
        ),
        (
            "/v2/models/digits/infer",
            infer(r#""outputs":[["probabilities"]]"#),
            Some("outputs[0]"),
        ),
    ] {
        let refused = api.call("POST", path, body.clone()).await;
        assert_eq!(refused.status, 400, "{path} {body}");
        let problem = refused.problem("invalid_request");
        assert_eq!(problem["field"].as_str(), field, "{path} {body}: {problem}");
        let detail = problem["detail"].as_str().expect("a text");
        assert!(detail.contains("expected an object"), "{body}: {detail}");
    }
    let good = query(r#"{"latency_ms":20}"#, INPUT);
    assert_eq!(api.call("POST", "/v1/queries", good).await.status, 200);
    assert_eq!(recorder.last().targets.latency_ms, Some(20.0));
}

#[tokio::test]
async fn numbers_in_headers_are_digits() {
    let api = Api::new(Recorder::answering()).await;
    let body = format!(r#"{{"inputs":[{INPUT}]}}"#);
    let send = async |name: &str, value: &str| {
        let request = Request::post("/v2/models/digits/infer")
            .header(name, value)
            .body(Body::from(body.clone()));
        api.send(request.expect("a request")).await
    };
    let name = "inference-header-content-length";
    let length = body.len();
    assert_eq!(send(name, &length.to_string()).await.status, 200);
    for wrong in [
        format!("+{length}"),
        format!(" +{length}"),
        format!("{length}.0"),
    ] {
        let refused = send(name, &wrong).await;
        refused.problem("invalid_request");
    }
    let refused = send("x-slo-latency-ms", "+20").await;
    refused.problem("invalid_target");
    let timeout = format!(r#"{{"parameters":{{"timeout":"+5"}},"inputs":[{INPUT}]}}"#);
    let refused = api.call("POST", "/v2/models/digits/infer", timeout).await;
    refused.problem("invalid_target");
    let events = Request::get("/v1/scaling/events").header("last-event-id", "+1");
    let refused = api
        .send(events.body(Body::empty()).expect("a request"))
        .await;
    refused.problem("invalid_request");
    api.call("PUT", "/v1/artefacts/a", "0123456789").await;
    let range = Request::get("/v1/artefacts/a").header("range", "bytes=+1-+2");
    let whole = api
        .send(range.body(Body::empty()).expect("a request"))
        .await;
    assert_eq!(whole.status, 200, "what is not a range is ignored");
}

#[tokio::test]
async fn pages_say_what_browsers_may_do_with_them() {
    let api = Api::with(Recorder::answering(), Settings::keys()).await;
    for path in [
        "/docs/",
        "/docs/swagger-ui.css",
        "/docs/errors/internal",
        "/docs/errors/nothing",
    ] {
        let page = api.get(path).await;
        let header = |name: &str| page.headers.get(name).and_then(|it| it.to_str().ok());
        let policy = header("content-security-policy").unwrap_or_default();
        assert!(policy.contains("default-src 'none'"), "{path}: {policy}");
        assert!(policy.contains("frame-ancestors 'none'"), "{path}");
        assert_eq!(header("x-frame-options"), Some("DENY"), "{path}");
        assert_eq!(header("x-content-type-options"), Some("nosniff"), "{path}");
    }
    let page = String::from_utf8(api.get("/docs/").await.bytes).expect("UTF-8");
    for tag in page.split("<script").skip(1) {
        assert!(tag.contains("src=\"./"), "a script of its own: {tag}");
    }
    let health = api.get("/health/live").await;
    assert!(!health.headers.contains_key("content-security-policy"));
}

/// Who has a page asks whether it is still the same; who has not gets it in as few bytes as it accepts.
#[tokio::test]
async fn pages_of_the_program_are_sent_once() {
    let api = Api::new(Recorder::answering()).await;
    for path in ["/openapi.json", "/docs/", "/docs/swagger-ui.css"] {
        let ask = |header: &'static str, value: String| {
            let request = Request::get(path).header(header, value);
            api.send(request.body(Body::empty()).expect("a request"))
        };
        let whole = api.get(path).await;
        let tag = whole.headers["etag"].to_str().expect("a tag").to_owned();
        assert_eq!(whole.headers["cache-control"], "no-cache", "{path}");
        let again = ask("if-none-match", tag.clone()).await;
        assert_eq!(
            (again.status, again.bytes.len()),
            (304.try_into().expect("a status"), 0),
            "{path}"
        );
        assert_eq!(again.headers["etag"], tag.as_str(), "{path}");
        let other = ask("if-none-match", "W/\"other\"".to_owned()).await;
        assert_eq!(other.bytes, whole.bytes, "{path}");
        let packed = ask("accept-encoding", "gzip".to_owned()).await;
        assert_eq!(packed.headers["etag"], tag.as_str(), "{path}");
        assert!(packed.bytes.len() < whole.bytes.len(), "{path}");
    }
}
