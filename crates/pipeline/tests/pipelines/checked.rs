//! Errors of definitions that are not valid, and what is known of valid ones.

use serde_json::{Value, json};
use sextant_types::{Code, DataType};

use crate::worker::{Worker, graph, service};

fn worker() -> Worker {
    Worker::new()
        .adding("one", 1.0)
        .adding("two", 2.0)
        .with("single", false, |rows| Ok(rows.to_vec()))
}

fn pipeline(steps: &Value) -> Value {
    json!({"name": "p", "steps": steps})
}

#[test]
fn inputs_and_outputs_follow_from_the_steps() {
    let definition = pipeline(&json!([
        {"name": "a", "application": "one"},
        {"name": "b", "application": "two", "inputs": {"x": "a.y"}},
    ]));
    let graph = graph(&worker(), &definition).unwrap_or_else(|error| panic!("{error}"));
    let signature = &graph.signature;
    assert_eq!(signature.inputs.len(), 1);
    assert_eq!(
        (
            signature.inputs[0].name.as_str(),
            signature.inputs[0].data_type
        ),
        ("x", DataType::Fp32)
    );
    assert_eq!(signature.outputs[0].name, "y");
    assert_eq!(signature.outputs[0].shape, [None, Some(1)]);
}

#[test]
fn an_input_without_a_map_is_what_the_latest_earlier_step_calls_so() {
    let definition = pipeline(&json!([
        {"name": "first", "normalize": {}},
        {"name": "second", "normalize": {}},
        {"name": "third", "normalize": {}},
    ]));
    let graph = graph(&worker(), &definition).unwrap_or_else(|error| panic!("{error}"));
    let text = graph.text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[1..4],
        [
            "first   normalize  vectors <- vectors",
            "second  normalize  vectors <- first.vectors",
            "third   normalize  vectors <- second.vectors",
        ]
    );
}

#[test]
fn steps_may_stand_in_any_order() {
    let definition = json!({"name": "p", "outputs": {"sum": "b.y"}, "steps": [
        {"name": "b", "application": "two", "inputs": {"x": "a.y"}},
        {"name": "a", "application": "one"},
    ]});
    let graph = graph(&worker(), &definition).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(graph.signature.outputs[0].name, "sum");
}

#[test]
fn a_condition_has_few_loops_however_they_are_written() {
    let refusal = |when: &str| {
        let definition = pipeline(&json!([
            {"name": "a", "application": "one"},
            {"name": "b", "application": "two", "inputs": {"x": "a.y"}, "when": when},
        ]));
        graph(&worker(), &definition).err().map(|it| it.to_string())
    };
    for when in [
        "a.y.all(r, a.y.all(s, a.y.all(t, true)))",
        "a.y.all (r, a.y. all(s, a.y.all\t(t, true)))",
        "a.y.existsOne(r, a.y.existsOne(s, a.y.existsOne(t, true)))",
        "a.y.map(r, [size(a.y.filter(s, {'of': a.y . exists_one(t, true)}.of))])[0][0] > 0",
    ] {
        let refused = refusal(when).unwrap_or_default();
        assert!(refused.contains("more than 2 of"), "{when}: {refused}");
    }
    for when in [
        "a.y.all(r, a.y.exists(s, s[0] < r[0]))",
        "'.all(.all(.all(' != ''",
        "[{'y': a.y}].exists(it, size(it.y) > 0)",
    ] {
        assert_eq!(refusal(when), None, "{when}");
    }
}

#[test]
fn wrong_definitions_are_refused_by_step_and_key() {
    let a = json!({"name": "a", "application": "one"});
    let b = |more: Value| {
        let mut step = json!({"name": "b", "application": "two", "inputs": {"x": "a.y"}});
        step.as_object_mut()
            .expect("a step")
            .extend(more.as_object().cloned().expect("keys"));
        pipeline(&json!([a, step]))
    };
    let cases = [
        (pipeline(&json!([])), None, "steps", "1 to 64"),
        (
            pipeline(&json!([a, a])),
            Some("a"),
            "name",
            "another step's",
        ),
        (
            pipeline(&json!([{"name": "a b", "application": "one"}])),
            None,
            "steps",
            "no name of a step",
        ),
        (
            pipeline(&json!([{"name": "a"}])),
            Some("a"),
            "application",
            "is missing",
        ),
        (
            pipeline(&json!([{"name": "a", "application": "one", "softmax": {}}])),
            Some("a"),
            "application",
            "one thing",
        ),
        (
            pipeline(&json!([{"name": "a", "application": "none"}])),
            Some("a"),
            "application",
            "no application `none`",
        ),
        (
            b(json!({"inputs": {"x": "a.z"}})),
            Some("b"),
            "inputs",
            "gives `y`",
        ),
        (
            b(json!({"inputs": {"x": []}})),
            Some("b"),
            "inputs",
            "empty list",
        ),
        (
            b(json!({"inputs": {"z": "a.y"}})),
            Some("b"),
            "inputs",
            "does not take: it takes `x`",
        ),
        (b(json!({"inputs": {"x": "b.y"}})), None, "steps", "circle"),
        (
            b(json!({"when": "a.y[0][0] >"})),
            Some("b"),
            "when",
            "no expression",
        ),
        (
            b(json!({"when": "c == 1"})),
            Some("b"),
            "when",
            "`c`, which is no step",
        ),
        (
            b(json!({"when": "size(c.y) > 0 && a.y.all(r, r[0] > 1.0)"})),
            Some("b"),
            "when",
            "`c`, which is no step",
        ),
        (
            b(json!({"when": "[1].map(a, [1].map(b, [1].map(c, 1)))"})),
            Some("b"),
            "when",
            "more than 2",
        ),
        (
            b(json!({"when": format!("'{}' != ''", "é".repeat(510))})),
            Some("b"),
            "when",
            "more than 1024 bytes",
        ),
        (
            b(json!({"timeout_ms": 0})),
            Some("b"),
            "timeout_ms",
            "above 0",
        ),
        (
            b(json!({"retries": 99})),
            Some("b"),
            "retries",
            "at most 10",
        ),
        (
            b(json!({"on_error": "default"})),
            Some("b"),
            "default",
            "nothing for `y`",
        ),
        (
            b(json!({"on_error": "default", "default": {"y": [[1], [2, 3]]}})),
            Some("b"),
            "default",
            "unequal",
        ),
        (
            b(json!({"on_error": "default", "default": {"y": [1.0]}})),
            Some("b"),
            "default",
            "the shape [1]",
        ),
        (
            b(json!({"default": {"y": [[1]]}})),
            Some("b"),
            "default",
            "on_error: default",
        ),
        (
            b(json!({"for_each": "a.q"})),
            Some("b"),
            "for_each",
            "none of the step's inputs",
        ),
        (
            b(json!({"targets": {"min_relative_accuracy": 7.0}})),
            Some("b"),
            "targets",
            "cannot be met",
        ),
        (
            b(json!({"application": "single"})),
            Some("b"),
            "inputs",
            "which takes [1]",
        ),
        (
            pipeline(&json!([a, {"name": "t", "tokenize": {"tokenizer": "t.json"}}])),
            Some("t"),
            "tokenize",
            "not in the artefact store",
        ),
        (
            pipeline(
                &json!([a, {"name": "t", "image": {"width": 1, "height": 1}, "inputs": {"image": "a.y"}}]),
            ),
            Some("t"),
            "inputs",
            "FP32, to `image`, which takes BYTES",
        ),
        (
            pipeline(&json!([a, {"name": "c", "application": "two"}])),
            Some("a"),
            "name",
            "used by no other",
        ),
        (
            json!({"name": "p", "inputs": [{"name": "q", "datatype": "FP32", "shape": [-1, 1]}], "steps": [a]}),
            Some("a"),
            "inputs",
            "the pipeline's inputs are `q`",
        ),
        (
            json!({"name": "p", "inputs": [{"name": "a", "datatype": "FP32", "shape": [1]}], "steps": [a]}),
            None,
            "inputs",
            "that of a step",
        ),
        (
            json!({"name": "p", "steps": [a], "outputs": {"o": "nothing"}}),
            None,
            "outputs",
            "neither",
        ),
        (
            json!({"name": "P", "steps": [a]}),
            None,
            "name",
            "not a valid application name",
        ),
        (
            json!({"name": "p".repeat(101), "steps": [a]}),
            None,
            "name",
            "more than 100",
        ),
    ];
    for (definition, step, key, why) in cases {
        let error = match graph(&worker(), &definition) {
            Ok(_) => panic!("taken: {definition}"),
            Err(error) => error,
        };
        assert_eq!(
            (error.step.as_deref(), error.key),
            (step, key),
            "{error} of {definition}"
        );
        assert!(
            error.to_string().contains(why),
            "`{why}` is not in: {error}"
        );
    }
}

#[tokio::test]
async fn a_default_holds_integers_that_no_double_holds() {
    let large = 9_007_199_254_740_993_i64;
    // There are two names and one class, so the step fails.
    let steps = json!([
        {"name": "a", "application": "one"},
        {"name": "b", "top_k": {"labels": ["x", "z"]}, "inputs": {"scores": "a.y"}, "on_error": "default",
            "default": {"labels": [["none"]], "scores": [[0]], "indices": [[large]]}},
    ]);
    let service = service(worker(), &pipeline(&steps));
    let answer = service.ask(&[1.0]).await.expect("an answer");
    let mut outputs = answer.outputs.iter();
    let indices = outputs.find(|it| it.name == "indices").expect("indices");
    assert_eq!(indices.tensor.to_vec::<i64>(), Some(vec![large]));
}

#[test]
fn what_is_not_there_keeps_its_code() {
    let definition = pipeline(&json!([{"name": "a", "application": "none"}]));
    let error = graph(&worker(), &definition).err().expect("refused");
    assert_eq!(error.code, Code::ApplicationNotFound);
}

#[test]
fn an_unknown_key_is_refused_with_its_place() {
    let text = "{\"name\": \"p\",\n \"steps\": [{\"name\": \"a\", \"aplication\": \"one\"}]}";
    let error = serde_json::from_str::<sextant_pipeline::Definition>(text)
        .expect_err("refused")
        .to_string();
    assert!(
        error.contains("aplication") && error.contains("line 2"),
        "{error}"
    );
}
