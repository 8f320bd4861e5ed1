//! How often the steps of a pipeline run, and what becomes of them.

use super::*;

#[tokio::test]
async fn how_often_its_steps_run_is_told_with_intervals() {
    let api = with_pipeline().await;
    let fresh = api.get("/v1/pipelines/photos").await;
    let tag = fresh.headers["etag"].clone();
    assert!(fresh.json()["scales"].is_null(), "nobody has asked yet");
    for _ in 0..3 {
        ask(&api, "", PIXEL).await;
    }
    let shown = api.get("/v1/pipelines/photos").await;
    assert_eq!(shown.headers["etag"], tag, "queries change no pipeline");
    let shown = shown.json();
    let scales = shown["scales"].as_array().expect("scales");
    let of = scales.iter().find(|it| it["step"] == "classify");
    let of = of.expect("the step");
    assert_eq!(
        (&of["queries"], &of["visits"]["value"]),
        (&json!(3), &json!(1.0))
    );
    let lower = of["probability"]["lower"].as_f64().expect("a number");
    assert!(
        (0.3..1.0).contains(&lower),
        "three queries prove little: {of}"
    );
    assert_eq!(
        of["rows"],
        json!({"value": 1.0, "lower": 1.0, "upper": 1.0})
    );
}

#[tokio::test]
async fn what_became_of_each_step_is_counted_until_the_pipeline_is_deleted() {
    let calls = std::sync::atomic::AtomicU32::new(0);
    let api = Api::new(Recorder::new(move |_| {
        match calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
            0 => Ok(answer()),
            1 => Err(QueryError::new(Code::Overloaded, "busy")),
            _ => Err(QueryError::new(Code::EngineFailed, "broken")),
        }
    }))
    .await;
    let made = api
        .call("POST", "/v1/pipelines", definition().to_string())
        .await;
    assert_eq!(made.status, 201, "{}", made.json());
    let mut told = Vec::new();
    for _ in 0..3 {
        told.push(ask(&api, "", PIXEL).await.status.as_u16());
    }
    assert_eq!(told, [200, 429, 500]);
    let metrics = async || String::from_utf8(api.get("/metrics").await.bytes).expect("text");
    let text = metrics().await;
    for (step, outcome, count) in [
        ("decode", "answered", 3),
        ("classify", "answered", 1),
        ("classify", "dropped", 1),
        ("classify", "failed", 1),
        ("name", "answered", 1),
        ("name", "dropped", 0),
    ] {
        let row = format!(
            "sextant_pipeline_steps_total{{pipeline=\"photos\",step=\"{step}\",outcome=\"{outcome}\"}} {count}\n"
        );
        assert!(text.contains(&row), "{row}{text}");
    }
    assert!(
        text.contains("sextant_pipeline_step_seconds_total{pipeline=\"photos\",step=\"decode\"}")
    );
    // Whoever asks what is not there adds no series.
    api.call("POST", "/v1/pipelines/nobody/queries", PIXEL)
        .await;
    assert!(!metrics().await.contains("pipeline=\"nobody\""));
    api.call("DELETE", "/v1/pipelines/photos", "").await;
    assert!(!metrics().await.contains("pipeline=\"photos\""));
}
