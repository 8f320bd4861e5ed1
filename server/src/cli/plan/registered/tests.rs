//! Graphs from the service's answers.

use serde_json::json;

use super::*;

/// Documents by their paths.
struct Documents(BTreeMap<String, Value>);

impl Service for Documents {
    async fn get(&self, segments: &[&str]) -> Result<Value, Error> {
        let path = segments.join("/");
        let found = self.0.get(&path).cloned();
        found.ok_or_else(|| Error::Usage(format!("nothing is under `{path}`")))
    }
}

/// `p` has a split step, and asks `inner` for each of four rows, which asks its second step for a fifth of them.
fn documents() -> Documents {
    let scale = |step: &str, probability: f64, rows: f64| json!({"step": step, "probability": {"value": probability}, "rows": {"value": rows}});
    let outer = json!({
        "definition": {"steps": [
            {"name": "pixels", "image": {}},
            {"name": "score", "split": [{"model": "m-a", "weight": 3.0}, {"model": "m-b", "weight": 1.0}]},
            {"name": "last", "application": "inner", "for_each": "score.y"},
        ]},
        "scales": [scale("score", 1.0, 1.0), scale("last", 1.0, 4.0)],
        "measured": {"state": "current", "figures": {"metric": "top1", "lower": 0.7,
            "variants": {"score": "m-a-1", "last.fast": "m-c-1"},
            "answered": {"score": ["m-a-1", "m-b-1"], "last.fast": ["m-c-1"], "last.slow": ["m-d-1"]}}},
    });
    let inner = json!({
        "definition": {"steps": [
            {"name": "fast", "model": "m-c"},
            {"name": "slow", "model": "m-d", "when": "fast.y[0] < 1.0"},
        ]},
        "scales": [scale("fast", 1.0, 1.0), scale("slow", 0.2, 1.0)],
    });
    let workers = json!({"workers": [{"device_type": {"name": "cpu", "slots": 1, "price_per_hour_usd": 0.5}}]});
    let mut all = BTreeMap::from([
        ("v1/pipelines/p".to_owned(), outer),
        ("v1/pipelines/inner".to_owned(), inner),
        ("v1/workers".to_owned(), workers),
    ]);
    for model in ["m-a", "m-b", "m-c", "m-d"] {
        let variant = json!({"name": format!("{model}-1"), "max_batch": 1, "threads": 1,
            "accuracy": {"metric": "top1", "lower": 0.9},
            "profiles": [{"device_type": "cpu", "latency": [{"batch": 1, "p50_ms": 2.0}]}]});
        let path = format!("v1/models/{model}/variants");
        all.insert(path, json!({"variants": [variant]}));
    }
    Documents(all)
}

async fn planned(scales: &[&str]) -> Result<(Graph, Option<Whole>), Error> {
    let scales: Vec<String> = scales.iter().map(|scale| (*scale).to_owned()).collect();
    graph(&documents(), "p", Scales::parse(&scales)?).await
}

#[tokio::test]
async fn split_steps_and_pipelines_that_are_steps_are_planned_as_steps_of_the_whole() {
    let (graph, whole) = planned(&[]).await.expect("a graph");
    let steps = graph.steps().iter();
    let told = steps.map(|step| {
        let rows = (step.scale.rows * 1e3).round() / 1e3;
        let probability = (step.scale.probability * 1e4).round() / 1e4;
        (step.name.as_str(), &step.after[..], probability, rows)
    });
    let told: Vec<_> = told.collect();
    let expected: [(&str, &[usize], f64, f64); 4] = [
        ("score of m-a", &[], 0.75, 1.0),
        ("score of m-b", &[], 0.25, 1.0),
        ("last.fast", &[0, 1], 1.0, 4.0),
        // The probability of at least one of four, each with a fifth; the expected number of rows is unchanged.
        ("last.slow", &[2], 0.5904, 1.355),
    ];
    assert_eq!(told, expected);
    assert_eq!(graph.splits(), [vec![0, 1]]);
    let answered = whole.expect("it was measured").answered;
    assert_eq!(answered[1], ["m-a-1", "m-b-1"]);
    assert_eq!(answered[3], ["m-d-1"]);
}

#[tokio::test]
async fn scales_are_of_whole_steps_and_of_steps_within() {
    let (graph, _) = planned(&["score=0.5", "last.slow=1:2"])
        .await
        .expect("a graph");
    let scales = graph
        .steps()
        .iter()
        .map(|step| (step.scale.probability, step.scale.rows));
    let expected = [(0.375, 1.0), (0.125, 1.0), (1.0, 4.0), (1.0, 8.0)];
    assert_eq!(scales.collect::<Vec<_>>(), expected);
    let unknown = planned(&["pixels=0.5"])
        .await
        .expect_err("no step that is planned");
    assert!(unknown.to_string().contains("`pixels`"), "{unknown}");
}

#[test]
fn what_does_not_hold_says_nothing_of_the_whole() {
    let figures = json!({"metric": "top1", "lower": 0.7});
    let error = json!({"metric": "mae", "lower": 0.7});
    for (state, figures, is_known) in [
        ("current", &figures, true),
        ("stale", &figures, false),
        ("current", &error, false),
    ] {
        let shown = json!({"measured": {"state": state, "figures": figures}});
        assert_eq!(whole(&shown, &[]).is_some(), is_known, "{shown}");
    }
    assert_eq!(whole(&json!({}), &[]), None);
}
