//! `resources.cache_bytes`: answers that are kept.

use serde_json::{Value, json};
use sextant_tests::{Answer, Api, Settings, TestCluster, digits, until};

const DIGITS: &str = "/v1/applications/digits";

/// A service in which one model answers `digits`, with a cache.
async fn caching() -> TestCluster {
    let cluster = digits::service(Settings::default()).await;
    let api = cluster.api();
    digits::warm(&api).await;
    let body = json!({"resources": {"cache_bytes": 1 << 20}});
    api.patch(DIGITS, &body).await.json(200);
    cluster
}

async fn ask(api: &Api, image: usize, explain: bool) -> Value {
    let input = digits::Images::load("test").input(image);
    let query = json!({"model": "mlp", "inputs": input, "explain": explain});
    until("a query is answered", || async {
        let answer: Answer = api.post("/v1/queries", &query).await;
        answer.status.is_success().then(|| answer.json(200))
    })
    .await
}

/// Sends an image until its answer comes from the cache.
async fn ask_until_cached(api: &Api, image: usize) -> Value {
    until("the answer is kept", || async {
        let answer = ask(api, image, true).await;
        (answer["cached"] == true).then_some(answer)
    })
    .await
}

fn scores(answer: &Value) -> Vec<f64> {
    let data = answer["outputs"][0]["data"].as_array().expect("scores");
    data.iter()
        .map(|it| it.as_f64().expect("a number"))
        .collect()
}

/// The value of a counter of the application.
async fn counter(api: &Api, name: &str) -> f64 {
    let metrics = api.get("/metrics").await.text();
    let series = format!("sextant_dispatcher_{name}{{application=\"digits\"}} ");
    let line = metrics.lines().find_map(|line| line.strip_prefix(&series));
    line.map_or(0.0, |value| value.parse().expect("a number"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_inputs_are_answered_without_a_device() {
    let cluster = caching().await;
    let api = cluster.api();
    let first = ask(&api, 0, false).await;
    assert!(first.get("cached").is_none(), "{first}");
    let kept = ask_until_cached(&api, 0).await;
    for (one, other) in scores(&first).iter().zip(scores(&kept)) {
        assert!(
            (one - other).abs() <= 1e-3 * one.abs().max(1.0),
            "{first} {kept}"
        );
    }
    assert_eq!(
        (&kept["cost_usd"], &kept["timings"]["compute_us"]),
        (&json!(0.0), &json!(0.0))
    );
    let why = kept["explanation"]["reason"].as_str().expect("a reason");
    assert!(why.contains("from the cache"), "{kept}");
    assert!(counter(&api, "cache_hits_total").await >= 1.0);
    let rows = counter(&api, "cache_misses_total").await;
    assert!(rows >= 1.0, "{rows}");
    // Other inputs get other answers.
    let other = ask(&api, 1, false).await;
    assert!(other.get("cached").is_none(), "{other}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cache_that_is_taken_back_answers_nothing() {
    let cluster = caching().await;
    let api = cluster.api();
    ask_until_cached(&api, 2).await;
    let body = json!({"resources": {"cache_bytes": null}});
    api.patch(DIGITS, &body).await.json(200);
    until("nothing is kept any more", || async {
        let answer = ask(&api, 2, false).await;
        answer.get("cached").is_none().then_some(())
    })
    .await;
    for (settings, field) in [
        (json!({"cache_bytes": 1}), "resources.cache_bytes"),
        (json!({"cache_ttl_s": 0}), "resources.cache_ttl_s"),
    ] {
        let body = json!({"resources": settings});
        let problem = api
            .patch(DIGITS, &body)
            .await
            .problem(400, "invalid_request");
        assert_eq!(problem["field"], field);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_that_was_replaced_is_not_answered_for() {
    let cluster = caching().await;
    let api = cluster.api();
    let before = ask_until_cached(&api, 4).await;
    assert_eq!(api.delete("/v1/models/mlp").await.status, 204);
    // Registers another file under the same name.
    let job = api
        .register(digits::upload("digits", "mlp", "logistic"))
        .await;
    assert_eq!(job["state"], "succeeded", "{job}");
    let after = ask(&api, 4, false).await;
    assert!(after.get("cached").is_none(), "{after}");
    assert_ne!(scores(&before), scores(&after));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn feedback_joins_answers_from_the_cache() {
    let cluster = caching().await;
    let api = cluster.api();
    api.patch(DIGITS, &json!({"feedback": {}})).await.json(200);
    let kept = ask_until_cached(&api, 5).await;
    let item = json!({"token": kept["feedback_token"], "label": 1});
    let taken = api.post("/v1/feedback", &item).await.json(200);
    assert_eq!(
        (&taken["accepted"], &taken["unscored"]),
        (&json!(1), &json!(0))
    );
}
