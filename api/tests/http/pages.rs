//! The pages for people, and the status that the first of them shows.

use axum::{body::Body, http::Request};
use serde_json::{Value, json};
use sextant_rpc::QueryError;
use sextant_types::Code;

use crate::double::{ADMIN, Api, Reading, Recorder, Settings, answer, variant};

const BROWSER: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
const PAGES: [&str; 4] = ["/", "/registered", "/size", "/answer"];

/// A query with an id, which the recorder refuses where its latency target is 1 ms.
fn query(id: &str, latency_ms: f64) -> String {
    json!({"id": id, "application": "digits", "targets": {"latency_ms": latency_ms},
        "inputs": [{"name": "input", "shape": [1, 3], "datatype": "FP32", "data": [0.1, 2, 3]}]})
    .to_string()
}

/// Refuses queries with a target of 1 ms, and misses targets of 2 ms.
fn recorder() -> std::sync::Arc<Recorder> {
    Recorder::new(|query| match query.targets.latency_ms {
        Some(1.0) => Err(QueryError::new(
            Code::Overloaded,
            "there is <too> much to do",
        )),
        Some(2.0) => {
            let mut late = answer();
            (late.targets_met, late.timings.load_us) = (false, 10.0);
            Ok(late)
        }
        _ => Ok(answer()),
    })
}

async fn with(settings: Settings) -> Api {
    let api = Api::with(recorder(), settings).await;
    let digits =
        json!({"name": "digits", "metric": "top1", "default_targets": {"latency_ms": 25.0}});
    let created = api
        .keyed(ADMIN, "POST", "/v1/applications", digits.to_string())
        .await;
    assert_eq!(created.status, 201);
    api
}

async fn put_variant(api: &Api) {
    api.put_model().await;
    let mut variant = variant();
    variant.dominated_by = None;
    api.registry.put_variants(&[variant]).await.expect("stored");
}

/// What a browser gets, with the cookies that it has.
async fn look(api: &Api, path: &str, cookie: Option<&str>) -> Reading {
    let mut request = Request::get(path).header("accept", BROWSER);
    if let Some(cookie) = cookie {
        request = request.header("cookie", cookie);
    }
    api.send(request.body(Body::empty()).expect("a request"))
        .await
}

fn text(page: &Reading) -> &str {
    let text = std::str::from_utf8(&page.bytes).expect("UTF-8");
    assert_eq!(page.headers["content-type"], "text/html; charset=utf-8");
    text
}

/// Sends the form: what came back, and the cookie without its attributes.
async fn sign_in(api: &Api, key: &str, next: &str) -> (Reading, Option<String>) {
    let form = format!("key={key}&next={next}");
    let request = Request::post("/sign-in")
        .header("content-type", "application/x-www-form-urlencoded")
        .body(form.into());
    let answer = api.send(request.expect("a request")).await;
    let cookie = answer.headers.get("set-cookie");
    let cookie = cookie.map(|cookie| cookie.to_str().expect("text").to_owned());
    (answer, cookie)
}

async fn key(api: &Api, key: Value) -> String {
    let created = api.keyed(ADMIN, "POST", "/v1/keys", key.to_string()).await;
    created.json()["secret"].as_str().expect("a key").to_owned()
}

#[tokio::test]
async fn programs_get_json_and_browsers_a_page() {
    let api = with(Settings::default()).await;
    for accepted in ["*/*", "application/json"] {
        let request = Request::get("/").header("accept", accepted);
        let answer = api
            .send(request.body(Body::empty()).expect("a request"))
            .await;
        assert_eq!(answer.json()["name"], "sextant");
    }
    let page = look(&api, "/", None).await;
    assert_eq!(page.status, 200);
    assert!(text(&page).contains("Is everybody served?"));
}

#[tokio::test]
async fn pages_load_nothing_but_files_of_this_service() {
    let api = with(Settings::default()).await;
    put_variant(&api).await;
    api.call("POST", "/v1/queries", query("late", 2.0)).await;
    let mut files = std::collections::BTreeSet::new();
    for path in PAGES.into_iter().chain(["/answer/late"]) {
        let page = look(&api, path, None).await;
        assert_eq!(page.status, 200, "{path}: {}", text(&page));
        let policy = page.headers["content-security-policy"]
            .to_str()
            .expect("text");
        assert!(policy.starts_with("default-src 'self';"), "{policy}");
        assert_eq!(page.headers["cache-control"], "no-store");
        let text = text(&page);
        assert!(
            !text.contains("style=\"") && !text.contains("<style"),
            "{path}"
        );
        assert!(!text.contains("://"), "{path}: nothing of elsewhere");
        let links = text.split("/pages/").skip(1);
        files.extend(links.map(|rest| rest.split('"').next().expect("a name").to_owned()));
    }
    assert!(!files.is_empty());
    for name in files {
        let file = api.get(&format!("/pages/{name}")).await;
        assert_eq!(file.status, 200, "{name}");
    }
    api.get("/pages/other.css").await.problem("route_not_found");
}

#[tokio::test]
async fn the_status_tells_what_became_of_the_queries_of_the_last_minute() {
    let api = with(Settings::default()).await;
    for (id, latency_ms) in [("a", 20.0), ("b", 20.0), ("late", 2.0), ("refused", 1.0)] {
        api.call("POST", "/v1/queries", query(id, latency_ms)).await;
    }
    api.call(
        "POST",
        "/v1/queries",
        r#"{"application":"digits","inputs":[{}]}"#,
    )
    .await;
    let status = api.get("/v1/applications/digits/status").await.json();
    assert_eq!(status["application"], "digits");
    assert_eq!(status["targets"], json!({"latency_ms": 25.0}));
    let counts = ["asked", "answered", "in_time"].map(|name| status[name].as_u64());
    assert_eq!(counts, [4, 3, 2].map(Some), "{status}");
    assert_eq!(status["share_in_time"], 0.5);
    assert_eq!(status["refused"], json!({"overloaded": 1}));
    let ms = |name: &str| status[name]["total_ms"].as_f64().expect("a time");
    assert!(ms("p50") <= ms("p99") && ms("p50") > 0.0, "{status}");
    assert!(status["rate_per_s"].as_f64().expect("a rate") > 0.0);
    assert!(
        status.get("cost_per_hour_usd").is_none(),
        "no dispatcher has counted"
    );
    let missing = api.get("/v1/applications/letters/status").await;
    missing.problem("application_not_found");
    let page = look(&api, "/", None).await;
    let page = text(&page);
    assert!(
        page.contains("50.0 %") && page.contains("overloaded"),
        "{page}"
    );
    assert!(page.contains("<svg class=\"stages\""), "{page}");
}

#[tokio::test]
async fn an_application_that_nobody_asks_is_idle() {
    let api = with(Settings::default()).await;
    let status = api.get("/v1/applications/digits/status").await.json();
    assert_eq!(
        (&status["p50"], &status["share_in_time"]),
        (&Value::Null, &Value::Null)
    );
    assert!(text(&look(&api, "/", None).await).contains("Nobody asks."));
}

#[tokio::test]
async fn slow_and_refused_queries_are_kept_without_having_asked() {
    let api = with(Settings::default()).await;
    for (id, latency_ms) in [("fine", 2000.0), ("late", 2.0), ("refused", 1.0)] {
        api.call("POST", "/v1/queries", query(id, latency_ms)).await;
    }
    api.get("/v1/queries/fine").await.problem("query_not_found");
    let late = api.get("/v1/queries/late").await.json();
    assert_eq!(
        (&late["outcome"], &late["targets_met"]),
        (&json!("answered"), &json!(false))
    );
    let refused = api.get("/v1/queries/refused").await.json();
    assert_eq!(refused["outcome"], "overloaded");
    let list = look(&api, "/answer", None).await;
    let list = text(&list);
    assert!(
        list.contains("1 refused and 1 slow ones are kept."),
        "{list}"
    );
    assert!(list.contains("/answer/late") && list.contains("/answer/refused"));
    let page = look(&api, "/answer/refused", None).await;
    let page = text(&page);
    assert!(page.contains("there is &#60;too&#62; much to do"), "{page}");
    let asked_for = look(&api, "/answer?query=late", None).await;
    assert!(text(&asked_for).contains("short of its targets"));
    let missing = look(&api, "/answer/none", None).await;
    assert_eq!(missing.status, 404);
    assert!(text(&missing).contains("query_not_found"));
}

#[tokio::test]
async fn embeddings_are_kept_as_queries_are() {
    let api = with(Settings::default()).await;
    let mut outcomes = Vec::new();
    for latency_ms in [2000.0, 2.0, 1.0] {
        let targets = json!({"latency_ms": latency_ms});
        let body = json!({"model": "digits", "input": [1, 2, 3], "targets": targets});
        let answer = api.call("POST", "/v1/embeddings", body.to_string()).await;
        let id = answer.headers["x-request-id"].to_str().expect("text");
        let kept = api.get(&format!("/v1/queries/{id}")).await;
        outcomes.push(match kept.status.as_u16() {
            404 => Value::Null,
            _ => kept.json()["outcome"].clone(),
        });
    }
    assert_eq!(
        outcomes,
        [json!(null), json!("answered"), json!("overloaded")]
    );
}

#[tokio::test]
async fn a_flood_of_refusals_keeps_a_few_of_them() {
    let api = with(Settings::default()).await;
    for number in 0..100 {
        api.call("POST", "/v1/queries", query(&format!("q{number}"), 1.0))
            .await;
    }
    let list = look(&api, "/answer", None).await;
    let listed = text(&list).matches("href=\"/answer/q").count();
    assert!((8..100).contains(&listed), "{listed}");
}

#[tokio::test]
async fn variants_models_and_jobs_are_shown() {
    let api = with(Settings::default()).await;
    assert!(text(&look(&api, "/registered", None).await).contains("0 models"));
    put_variant(&api).await;
    let page = look(&api, "/registered", None).await;
    let page = text(&page);
    assert!(
        page.contains("1 model, 1 variant on the frontier, 1 job under way."),
        "{page}"
    );
    assert!(page.contains("<svg class=\"frontier\"") && page.contains("class=\"inactive\""));
    assert!(page.contains("mlp-ort-int8s-all-t1-b8") && page.contains("0.9500"));
    let size = look(&api, "/size", None).await;
    assert!(text(&size).contains("No autoscaler has spoken yet."));
}

#[tokio::test]
async fn whoever_has_not_signed_in_is_sent_to_do_so() {
    let api = with(Settings::keys()).await;
    assert_eq!(
        api.get("/").await.json()["name"],
        "sextant",
        "programs are told where to ask"
    );
    for path in PAGES.into_iter().chain(["/answer/late"]) {
        let elsewhere = look(&api, path, None).await;
        assert_eq!(elsewhere.status, 303);
        let place = elsewhere.headers["location"].to_str().expect("text");
        assert!(place.starts_with("/sign-in"), "{place}");
    }
    let form = look(&api, "/sign-in?next=/size", None).await;
    assert!(text(&form).contains("name=\"next\" value=\"/size\""));
    assert_eq!(api.get("/pages/style.css").await.status, 200);
    let invented = look(&api, "/size", Some("sextant-session=00ff")).await;
    assert_eq!(invented.status, 303);
}

#[tokio::test]
async fn a_key_begins_a_session_that_does_not_hold_it() {
    let api = with(Settings::keys()).await;
    let (refused, cookie) = sign_in(&api, "sx_wrong", "/").await;
    assert_eq!((refused.status.as_u16(), cookie), (401, None));
    assert!(text(&refused).contains("role=\"alert\""));
    let (answer, cookie) = sign_in(&api, ADMIN, "/size").await;
    assert_eq!(
        (answer.status.as_u16(), &answer.headers["location"]),
        (303, &"/size".parse().expect("a header"))
    );
    let cookie = cookie.expect("a cookie");
    for attribute in ["HttpOnly", "SameSite=Strict", "Path=/"] {
        assert!(cookie.contains(attribute), "{cookie}");
    }
    assert!(
        !cookie.contains(ADMIN) && !cookie.contains("Secure"),
        "{cookie}"
    );
    let pair = cookie.split(';').next().expect("a pair");
    for path in PAGES {
        let page = look(&api, path, Some(pair)).await;
        assert!(text(&page).contains("administrator"), "{path}");
    }
    let out = Request::post("/sign-out")
        .header("cookie", pair)
        .body(Body::empty());
    assert_eq!(api.send(out.expect("a request")).await.status, 303);
    assert_eq!(
        look(&api, "/", Some(pair)).await.status,
        303,
        "the session has ended"
    );
    for elsewhere in [
        "https://example.org/",
        "//example.org",
        "/docs",
        "/answer/../docs",
    ] {
        let (answer, _) = sign_in(&api, ADMIN, elsewhere).await;
        assert_eq!(answer.headers["location"], "/", "{elsewhere}");
    }
}

#[tokio::test]
async fn a_key_has_few_sessions_and_ends_nobody_elses() {
    let api = with(Settings::keys()).await;
    let pair = |cookie: Option<String>| {
        let cookie = cookie.expect("a cookie");
        cookie.split(';').next().expect("a pair").to_owned()
    };
    let mut own = Vec::new();
    for _ in 0..65 {
        own.push(pair(sign_in(&api, ADMIN, "/").await.1));
    }
    let status = async |pair: &str| look(&api, "/", Some(pair)).await.status.as_u16();
    assert_eq!(status(&own[0]).await, 303, "its oldest has ended");
    assert_eq!(status(&own[1]).await, 200);
    assert_eq!(status(&own[64]).await, 200);
}

#[tokio::test]
async fn pages_show_what_the_key_may_ask() {
    let api = with(Settings::keys()).await;
    let letters = json!({"name": "letters", "metric": "top1"}).to_string();
    api.keyed(ADMIN, "POST", "/v1/applications", letters).await;
    let bound = key(
        &api,
        json!({"name": "a", "scopes": ["query"], "application": "digits"}),
    )
    .await;
    let (_, cookie) = sign_in(&api, &bound, "/").await;
    let cookie = cookie.expect("a cookie");
    let pair = cookie.split(';').next();
    let served = look(&api, "/", pair).await;
    assert!(text(&served).contains("digits") && !text(&served).contains("letters"));
    assert_eq!(look(&api, "/size", pair).await.status, 403);
    assert_eq!(look(&api, "/answer", pair).await.status, 200);
    let status = api
        .keyed(&bound, "GET", "/v1/applications/letters/status", "")
        .await;
    status.problem("forbidden");
    let register = key(&api, json!({"name": "b", "scopes": ["register"]})).await;
    let (_, cookie) = sign_in(&api, &register, "/").await;
    let cookie = cookie.expect("a cookie");
    let pair = cookie.split(';').next();
    assert_eq!(look(&api, "/size", pair).await.status, 200);
    assert_eq!(look(&api, "/answer", pair).await.status, 403);
    let keys = api.keyed(ADMIN, "GET", "/v1/keys", "").await.json();
    let keys = keys["keys"].as_array().expect("keys").clone();
    for key in keys.iter().filter(|key| key["name"] == "b") {
        let path = format!("/v1/keys/{}", key["id"].as_str().expect("an id"));
        api.keyed(ADMIN, "DELETE", &path, "").await;
    }
    assert_eq!(
        look(&api, "/", pair).await.status,
        303,
        "a revoked key has no session"
    );
}

#[tokio::test]
async fn a_session_is_for_encrypted_connections_where_it_was_begun_over_one() {
    let api = with(Settings::keys()).await;
    let request = Request::post("/sign-in")
        .header("content-type", "application/x-www-form-urlencoded")
        .header("x-forwarded-proto", "https")
        .body(format!("key={ADMIN}").into());
    let answer = api.send(request.expect("a request")).await;
    let cookie = answer.headers["set-cookie"].to_str().expect("text");
    assert!(cookie.ends_with("; Secure"), "{cookie}");
}
