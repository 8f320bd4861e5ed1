//! The outcomes of queries.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::json;
use sextant_rpc::{Dispatch, Query, QueryError};
use sextant_types::{ApplicationId, Code, NamedTensor, Route, Targets, Tensor, VariantId};

use crate::worker::{Service, Worker, failing, name, output, query, service, x};

fn adding() -> Worker {
    Worker::new()
        .adding("one", 1.0)
        .adding("ten", 10.0)
        .adding("hundred", 100.0)
}

/// Two steps; the second has a condition.
fn conditional(when: &str) -> Service {
    service(
        adding(),
        &json!({"name": "p", "steps": [
            {"name": "a", "application": "one"},
            {"name": "b", "application": "ten", "inputs": {"x": "a.y"}, "when": when},
        ]}),
    )
}

#[tokio::test]
async fn a_chain_answers_as_its_steps_would_one_by_one() {
    let service = service(
        adding(),
        &json!({"name": "p", "steps": [
            {"name": "a", "application": "one"},
            {"name": "b", "model": "ten", "inputs": {"x": "a.y"}},
            {"name": "c", "variant": "hundred", "inputs": {"x": "b.y"}},
        ]}),
    );
    let answer = service.ask(&[1.0, 2.0]).await.expect("an answer");
    assert_eq!(output(&answer, "y").expect("y"), [112.0, 113.0]);
    assert_eq!(
        (answer.model.as_str(), answer.variant.as_str()),
        ("p", "p-v1")
    );
    assert!((answer.cost_usd - 0.003).abs() < 1e-12 && answer.targets_met);
    let steps = answer.explanation.expect("explained").steps;
    let steps: Vec<_> = steps
        .iter()
        .map(|it| (it.name.as_str(), it.outcome.as_ref(), it.rows))
        .collect();
    assert_eq!(
        steps,
        [
            ("a", "answered", 2),
            ("b", "answered", 2),
            ("c", "answered", 2)
        ]
    );
    let variant = VariantId::new("hundred").expect("a name");
    assert_eq!(
        service.worker.asked.lock()[2].route,
        Route::Variant(variant)
    );
}

#[tokio::test]
async fn independent_steps_run_side_by_side_and_are_joined() {
    let service = service(
        adding(),
        &json!({"name": "p", "outputs": {"a": "a.y", "b": "b.y"}, "steps": [
            {"name": "a", "application": "one"},
            {"name": "b", "application": "ten"},
        ]}),
    );
    let answer = service.ask(&[5.0]).await.expect("an answer");
    assert_eq!(
        (output(&answer, "a"), output(&answer, "b")),
        (Some(vec![6.0]), Some(vec![15.0]))
    );
}

#[tokio::test]
async fn a_branch_that_is_not_taken_costs_nothing() {
    let service = service(
        adding(),
        &json!({"name": "p", "outputs": {"y": ["slow.y", "fast.y"]}, "steps": [
            {"name": "fast", "application": "one"},
            {"name": "slow", "application": "hundred", "inputs": {"x": "fast.y"}, "when": "fast.y[0][0] < 5.0"},
        ]}),
    );
    let sure = service.ask(&[7.0]).await.expect("an answer");
    assert_eq!(
        (output(&sure, "y"), service.worker.count("hundred")),
        (Some(vec![8.0]), 0)
    );
    let unsure = service.ask(&[1.0]).await.expect("an answer");
    assert_eq!(
        (output(&unsure, "y"), service.worker.count("hundred")),
        (Some(vec![102.0]), 1)
    );
    let steps = sure.explanation.expect("explained").steps;
    let why = steps[1].why.as_deref().expect("a reason");
    assert!(
        steps[1].outcome == "skipped" && why.contains("does not hold"),
        "{why}"
    );
}

#[tokio::test]
async fn what_hangs_on_a_skipped_step_is_skipped_with_it() {
    let service = service(
        adding(),
        &json!({"name": "p", "outputs": {"y": "c.y"}, "steps": [
            {"name": "a", "application": "one"},
            {"name": "b", "application": "ten", "inputs": {"x": "a.y"}, "when": "a.y[0][0] > 100.0"},
            {"name": "c", "application": "hundred", "inputs": {"x": "b.y"}},
        ]}),
    );
    let error = service.ask(&[1.0]).await.expect_err("nothing to answer");
    assert_eq!(error.code, Code::InvalidTensor);
    assert!(
        error.message.contains("step `c` was skipped") && error.message.contains("`b`"),
        "{}",
        error.message
    );
    assert_eq!(service.worker.count("hundred"), 0);
}

#[tokio::test]
async fn a_condition_that_cannot_be_told_names_its_step() {
    for when in [
        "1 / (size(a.y) - 1) > 0",
        "a.nothing[0] > 1",
        "a.y[9][0] > 0.0",
        "a.y[0][0]",
    ] {
        let error = conditional(when)
            .ask(&[1.0])
            .await
            .expect_err("no condition");
        assert_eq!(error.code, Code::InvalidTensor, "{when}");
        assert!(
            error.message.starts_with("step `b`: its condition"),
            "{}",
            error.message
        );
    }
    let answer = conditional("a.y.exists(row, row[0] > 2.0) && !has(a.z)")
        .ask(&[1.0, 2.0])
        .await
        .expect("an answer");
    assert_eq!(output(&answer, "y").expect("y"), [12.0, 13.0]);
}

#[tokio::test]
async fn a_wait_for_a_load_counts_once() {
    let service = service(
        adding().loading(7.0),
        &json!({"name": "p", "steps": [{"name": "a", "application": "one"}]}),
    );
    service.ask(&[1.0]).await.expect("an answer");
    let name = ApplicationId::new("p").expect("a name");
    let loaded = service.pipelines.get(&name).expect("it is loaded");
    let waited: Vec<Duration> = loaded.counts().map(|it| it.waited).collect();
    assert_eq!(waited, [Duration::from_millis(7)]);
}

#[tokio::test]
async fn a_step_that_gave_much_is_there_for_a_condition() {
    let rows = [1.0; 2000];
    let answer = conditional("has(a.y) && !has(a.z)").ask(&rows).await;
    let answer = answer.expect("an answer");
    assert_eq!(output(&answer, "y").expect("y"), [12.0; 2000]);
    for when in ["size(a.y) > 0", "has(a.y) && a.y[0][0] > 0.0"] {
        let error = conditional(when)
            .ask(&rows)
            .await
            .expect_err("it sees less");
        assert!(
            error.message.contains("at most 1024 elements"),
            "{when}: {}",
            error.message
        );
    }
}

#[tokio::test]
async fn loops_within_loops_go_through_short_lists_alone() {
    let compared = ["it == a.y"; 10].join(" && ");
    let compared = format!("[a.y].all(it, it.all(r, {compared}))");
    let nested = [
        "a.y.all(r, a.y.exists(s, s[0] <= r[0]))",
        "a.y.all(r, (a.y + a.y).filter(s, s[0] == r[0]) == a.y + a.y)",
        &compared,
    ];
    let single = "a.y.all(r, r[0] in [1.0, 2.0]) && a.y.exists(r, r in a.y)";
    let answers = async |when: &str, rows: &[f32]| conditional(when).ask(rows).await;
    for when in nested {
        let answer = answers(when, &[1.0; 100]).await.expect("an answer");
        assert_eq!(output(&answer, "y").expect("y"), [12.0; 100], "{when}");
        let error = answers(when, &[1.0; 1000])
            .await
            .expect_err("it is too much");
        assert_eq!(error.code, Code::InvalidTensor, "{when}");
        let told = "its loops over tensors of this size may take more than 2097152 steps";
        assert!(error.message.contains(told), "{when}: {}", error.message);
    }
    let answer = answers(single, &[1.0; 1000]).await.expect("an answer");
    assert_eq!(output(&answer, "y").expect("y"), [12.0; 1000]);
}

#[tokio::test]
async fn each_row_is_asked_for_and_what_they_give_is_joined() {
    let worker = adding().with("single", false, |row| Ok(vec![row[0] * 2.0]));
    let service = service(
        worker,
        &json!({"name": "p", "steps": [
            {"name": "a", "application": "one"},
            {"name": "each", "application": "ten", "inputs": {"x": "a.y"}, "for_each": "a.y"},
            {"name": "single", "application": "single", "inputs": {"x": "each.y"}, "for_each": "each.y"},
        ]}),
    );
    let rows: Vec<f32> = (0u8..100).map(f32::from).collect();
    let answer = service.ask(&rows).await.expect("an answer");
    let expected: Vec<f32> = rows.iter().map(|row| (row + 11.0) * 2.0).collect();
    assert_eq!(output(&answer, "y").expect("y"), expected);
    assert_eq!(answer.outputs[0].tensor.shape(), [100, 1]);
    assert_eq!(
        (service.worker.count("ten"), service.worker.count("single")),
        (100, 100)
    );
}

#[tokio::test]
async fn no_rows_ask_for_nothing() {
    let service = service(
        adding(),
        &json!({"name": "p", "steps": [
            {"name": "best", "nms": {"min_score": 0.5}},
            {"name": "cut", "image": {"width": 1, "height": 1, "channels": 1, "layout": "flat"},
                "inputs": {"boxes": "best.boxes"}},
            {"name": "read", "application": "one", "inputs": {"x": "cut.pixels"}},
        ]}),
    );
    let floats = |name: &str, shape: Vec<usize>, value: f32| {
        let values = vec![value; shape.iter().product()];
        NamedTensor::new(name, Tensor::from_elements(shape, &values).expect("floats"))
    };
    let image = Tensor::from_strings(vec![1], vec![bytes::Bytes::from_static(b"no picture")]);
    let inputs = vec![
        floats("boxes", vec![3, 4], 1.0),
        floats("scores", vec![3, 1], 0.1),
        NamedTensor::new("image", image.expect("bytes")),
    ];
    let answer = service
        .pipelines
        .query(query(inputs))
        .await
        .expect("an answer");
    assert_eq!(answer.outputs[0].tensor.shape(), [0, 1]);
    assert_eq!(service.worker.count("one"), 0);
}

#[tokio::test]
async fn a_failure_names_its_step_and_row() {
    let worker = adding().with("odd", true, |rows| match rows[0] % 2.0 == 1.0 {
        true => Err(QueryError::new(Code::EngineFailed, "it is odd")),
        false => Ok(rows.to_vec()),
    });
    let service = service(
        worker,
        &json!({"name": "p", "steps": [
            {"name": "a", "application": "ten"},
            {"name": "b", "application": "odd", "inputs": {"x": "a.y"}, "for_each": "a.y"},
        ]}),
    );
    let error = service
        .ask(&[2.0, 4.0, 5.0, 6.0])
        .await
        .expect_err("a failure");
    assert_eq!(
        (error.code, error.message.as_str()),
        (Code::EngineFailed, "step `b`: row `2`: it is odd")
    );
}

#[tokio::test]
async fn a_step_forgives_as_it_says() {
    let of = |on_error: serde_json::Value| {
        let mut step = json!({"name": "b", "application": "broken", "inputs": {"x": "a.y"}});
        step.as_object_mut()
            .expect("a step")
            .extend(on_error.as_object().cloned().expect("keys"));
        let worker = adding().with("broken", true, failing(Code::EngineFailed));
        service(
            worker,
            &json!({"name": "p", "outputs": {"y": ["b.y", "a.y"]}, "steps": [
                {"name": "a", "application": "one"}, step,
            ]}),
        )
    };
    let error = of(json!({})).ask(&[1.0]).await.expect_err("a failure");
    assert_eq!(
        (error.code, error.message.as_str()),
        (Code::EngineFailed, "step `b`: it is broken")
    );
    let skipped = of(json!({"on_error": "skip"}))
        .ask(&[1.0])
        .await
        .expect("an answer");
    assert_eq!(output(&skipped, "y").expect("y"), [2.0]);
    let default = of(json!({"on_error": "default", "default": {"y": [[-1.0]]}}))
        .ask(&[1.0])
        .await
        .expect("an answer");
    assert_eq!(output(&default, "y").expect("y"), [-1.0]);
    let steps = default.explanation.expect("explained").steps;
    assert!(
        steps[1].outcome == "default"
            && steps[1]
                .why
                .as_deref()
                .is_some_and(|why| why.contains("engine_failed"))
    );
}

#[tokio::test]
async fn a_step_whose_rows_cannot_be_cut_forgives_as_well() {
    let of = |on_error: serde_json::Value| {
        let mut step =
            json!({"name": "b", "application": "ten", "inputs": {"x": "a.y"}, "for_each": "a.y"});
        step.as_object_mut()
            .expect("a step")
            .extend(on_error.as_object().cloned().expect("keys"));
        service(
            adding(),
            &json!({"name": "p", "outputs": {"y": ["b.y", "a.y"]}, "steps": [
                {"name": "a", "application": "one"}, step,
            ]}),
        )
    };
    let many = vec![1.0; 5000];
    let error = of(json!({})).ask(&many).await.expect_err("too many rows");
    assert_eq!(error.code, Code::TooLarge);
    assert!(error.message.starts_with("step `b`: "), "{}", error.message);
    let skipped = of(json!({"on_error": "skip"}));
    let answer = skipped.ask(&many).await.expect("an answer");
    assert_eq!(output(&answer, "y").expect("y").len(), 5000);
    let default = of(json!({"on_error": "default", "default": {"y": [[-1.0]]}}));
    let answer = default.ask(&many).await.expect("an answer");
    assert_eq!(output(&answer, "y").expect("y"), [-1.0]);
    assert_eq!(default.worker.count("ten"), 0);
}

#[tokio::test]
async fn what_may_pass_is_tried_again() {
    let left = Arc::new(AtomicU32::new(2));
    let worker = Worker::new().with("shaky", true, move |rows| {
        let is_down = left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |it| it.checked_sub(1))
            .is_ok();
        match is_down {
            true => Err(QueryError::new(Code::Unavailable, "not now")),
            false => Ok(rows.to_vec()),
        }
    });
    let service = service(
        worker,
        &json!({"name": "p", "steps": [{"name": "a", "application": "shaky", "retries": 2}]}),
    );
    assert!(service.ask(&[1.0]).await.is_ok());
    assert_eq!(service.worker.count("shaky"), 3);
}

#[tokio::test]
async fn a_step_that_vanished_is_no_missing_pipeline() {
    let worker = Worker::new().with("gone", true, |_| {
        Err(QueryError::not_found(&Route::Application(
            ApplicationId::new("gone").expect("a name"),
        )))
    });
    let service = service(
        worker,
        &json!({"name": "p", "steps": [{"name": "a", "application": "gone"}]}),
    );
    let error = service.ask(&[1.0]).await.expect_err("gone");
    assert_eq!(error.code, Code::Unavailable);
    assert!(error.message.starts_with("step `a`: "), "{}", error.message);
}

#[tokio::test]
async fn the_time_of_the_whole_is_split_over_the_steps() {
    let service = service(
        adding(),
        &json!({"name": "p", "steps": [
            {"name": "a", "application": "one"},
            {"name": "b", "application": "ten", "inputs": {"x": "a.y"}},
        ]}),
    );
    let asked = Query {
        targets: Targets {
            latency_ms: Some(1000.0),
            ..Targets::default()
        },
        ..query(x(&[1.0]))
    };
    service.pipelines.query(asked).await.expect("an answer");
    let asked = service.worker.asked.lock();
    let budget = |of: &str| {
        let query = asked
            .iter()
            .find(|query| name(&query.route) == of)
            .expect("asked");
        query.targets.latency_ms.expect("a budget")
    };
    // No step has run before, so the first gets half of the time that is left, and the second all that is left then.
    assert!(
        budget("one") <= 500.0 && budget("one") > 100.0,
        "{}",
        budget("one")
    );
    assert!(
        budget("ten") > budget("one") && budget("ten") <= 1000.0,
        "{}",
        budget("ten")
    );
}

#[tokio::test]
async fn a_query_out_of_time_is_given_up_before_its_next_step() {
    let service = service(
        adding(),
        &json!({"name": "p", "steps": [{"name": "a", "application": "one"}]}),
    );
    let late = Query {
        targets: Targets {
            latency_ms: Some(1.0),
            ..Targets::default()
        },
        arrived: Instant::now()
            .checked_sub(Duration::from_secs(1))
            .expect("a second ago"),
        ..query(x(&[1.0]))
    };
    let error = service.pipelines.query(late).await.expect_err("late");
    assert_eq!(error.code, Code::DeadlineExceeded);
    assert_eq!(service.worker.count("one"), 0);
}

#[tokio::test]
async fn targets_that_nobody_can_promise_are_refused() {
    let service = service(
        adding(),
        &json!({"name": "p", "steps": [{"name": "a", "application": "one"}]}),
    );
    for targets in [
        Targets {
            min_quality: Some(0.9),
            ..Targets::default()
        },
        Targets {
            max_cost_per_1k_usd: Some(1.0),
            ..Targets::default()
        },
    ] {
        let error = service
            .pipelines
            .query(Query {
                targets,
                ..query(x(&[1.0]))
            })
            .await
            .expect_err("refused");
        assert_eq!(error.code, Code::InvalidTarget);
    }
}

#[tokio::test]
async fn accuracy_is_asked_of_steps() {
    let service = service(
        adding(),
        &json!({"name": "p", "steps": [
            {"name": "a", "application": "one", "targets": {"min_accuracy": 0.9, "max_cost_per_1k_usd": 2.0}},
        ]}),
    );
    service.ask(&[1.0]).await.expect("an answer");
    let targets = service.worker.asked.lock()[0].targets;
    assert_eq!(
        (targets.min_quality, targets.max_cost_per_1k_usd),
        (Some(0.9), Some(2.0))
    );
}

#[tokio::test]
async fn inputs_that_do_not_fit_are_refused_before_any_step() {
    let service = service(
        adding(),
        &json!({"name": "p", "steps": [{"name": "a", "application": "one"}]}),
    );
    let mut inputs = x(&[1.0]);
    inputs[0].name = "z".to_owned();
    let error = service
        .pipelines
        .query(query(inputs))
        .await
        .expect_err("refused");
    assert_eq!(error.code, Code::InvalidTensor);
    assert!(service.worker.asked.lock().is_empty());
}

#[tokio::test]
async fn others_pass_through() {
    let service = service(
        adding(),
        &json!({"name": "p", "steps": [{"name": "a", "application": "one"}]}),
    );
    let route = Route::Application(ApplicationId::new("ten").expect("a name"));
    assert!(service.pipelines.is_ready(&route) && service.pipelines.signature(&route).is_ok());
    let answer = service
        .pipelines
        .query(Query {
            route,
            ..query(x(&[1.0]))
        })
        .await
        .expect("an answer");
    assert_eq!(answer.model.as_str(), "ten");
}
