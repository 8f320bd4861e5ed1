//! Which queries are given up, by which rule, and what a step tells those that it asks.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::json;
use sextant_pipeline::Outcome;
use sextant_rpc::{Dispatch, Query, QueryError};
use sextant_types::{ApplicationId, Code, Targets};
use tokio::sync::Semaphore;

use crate::worker::{Service, Worker, name, query, service, x};

/// Longest wait for a state that must come.
const PATIENCE: Duration = Duration::from_secs(20);

/// The time that each step says it takes, ms.
const RUN_MS: f64 = 500.0;

/// A chain of two steps behind a gate that lets as many answers through as it has permits.
fn chain(rule: &str, gate: &Arc<Semaphore>) -> Service {
    let worker = Worker::new()
        .adding("one", 1.0)
        .adding("ten", 10.0)
        .taking(RUN_MS)
        .behind(gate);
    service(
        worker,
        &json!({"name": "p", "dropping": rule, "steps": [
            {"name": "first", "application": "one"},
            {"name": "second", "application": "ten", "inputs": {"x": "first.y"}},
        ]}),
    )
}

/// A query with a target that came `ago_ms` ms ago.
fn asked(latency_ms: f64, ago_ms: u64) -> Query {
    let arrived = Instant::now().checked_sub(Duration::from_millis(ago_ms));
    Query {
        targets: Targets {
            latency_ms: Some(latency_ms),
            ..Targets::default()
        },
        arrived: arrived.expect("the machine runs for longer"),
        ..query(x(&[1.0]))
    }
}

/// Lets a pipeline learn what its steps take. The pipeline reads this from time to time.
async fn learn(service: &Service) {
    let begun = Instant::now();
    let hopeless = || service.pipelines.query(asked(RUN_MS / 10.0, 0));
    while hopeless().await.is_ok() {
        assert!(begun.elapsed() < PATIENCE, "it has not learnt");
        tokio::task::yield_now().await;
    }
}

/// Number of queries that were given up, at any step.
fn dropped(service: &Service) -> u64 {
    let pipeline = ApplicationId::new("p").expect("a name");
    let loaded = service.pipelines.get(&pipeline).expect("it is there");
    let outcomes = loaded.counts().flat_map(|counts| counts.outcomes);
    let dropped = outcomes.filter(|(of, _)| *of == Outcome::Dropped);
    dropped.map(|(_, count)| count).sum()
}

/// For each step: the probability that a query runs it, given that a step before it gave something.
fn probabilities(service: &Service) -> Vec<f64> {
    let pipeline = ApplicationId::new("p").expect("a name");
    let loaded = service.pipelines.get(&pipeline).expect("it is there");
    let probability = |scale: sextant_pipeline::StepScale| scale.probability.value;
    let counts = loaded.counts();
    counts.map(|counts| probability(counts.scale)).collect()
}

#[tokio::test]
async fn each_rule_gives_up_whom_it_says() {
    // The two steps take 500 ms each. Each case has the time that has passed and whether the query is answered within
    // 2,000 ms.
    let cases = [
        ("none", 1900, true),
        ("clipper++", 700, true),
        ("clipper++", 1900, false),
        ("nexus", 700, false),
        ("nexus", 100, true),
        ("pard", 1300, false),
        ("sextant", 700, true),
        ("sextant", 1300, false),
    ];
    for (rule, ago_ms, is_answered) in cases {
        let gate = Arc::new(Semaphore::new(Semaphore::MAX_PERMITS));
        let service = chain(rule, &gate);
        service.ask(&[1.0]).await.expect("an answer");
        if rule != "none" {
            learn(&service).await;
        }
        let (before, dropped) = (service.worker.count("one"), dropped(&service));
        let answered = service.pipelines.query(asked(2000.0, ago_ms)).await;
        let ran = service.worker.count("one") > before;
        match answered {
            Ok(_) => assert!(is_answered && ran, "{rule} after {ago_ms} ms"),
            Err(error) => {
                assert!(!is_answered && !ran, "{rule} after {ago_ms} ms: {error}");
                assert_eq!(error.code, Code::DeadlineExceeded, "{rule}");
                assert!(error.message.starts_with("step `first`"), "{rule}: {error}");
                assert_eq!(self::dropped(&service), dropped + 1, "{rule}");
            }
        }
    }
}

#[tokio::test]
async fn what_is_on_its_way_keeps_others_out_before_their_first_step() {
    for (rule, most) in [("sextant", 2), ("clipper++", 8)] {
        let gate = Arc::new(Semaphore::new(0));
        let service = chain(rule, &gate);
        gate.add_permits(2);
        service.ask(&[1.0]).await.expect("an answer");
        gate.add_permits(1 << 30);
        learn(&service).await;
        gate.forget_permits(Semaphore::MAX_PERMITS);
        // Each query occupies a step for 500 ms, and there is one replica.
        let pipelines = Arc::clone(&service.pipelines);
        let mut held = Vec::new();
        let mut refused: Option<QueryError> = None;
        let before = service.worker.count("one");
        for _ in 0..8 {
            let pipelines = Arc::clone(&pipelines);
            let mut asking = tokio::spawn(async move { pipelines.query(asked(2000.0, 0)).await });
            let begun = Instant::now();
            let is_held = || service.worker.count("one") - before > held.len();
            while !is_held() && !asking.is_finished() {
                assert!(begun.elapsed() < PATIENCE, "it is neither held nor refused");
                tokio::task::yield_now().await;
            }
            if asking.is_finished() {
                let ended = (&mut asking).await.expect("it does not panic");
                refused = Some(ended.expect_err("nothing is answered here"));
                break;
            }
            held.push(asking);
        }
        assert_eq!(held.len(), most, "{rule}: {refused:?}");
        if let Some(error) = refused {
            assert_eq!(error.code, Code::Overloaded);
            assert!(error.message.starts_with("step `"), "{error}");
            assert!(error.retry_after_ms.is_some());
        }
        gate.add_permits(1000);
        for asking in held {
            let answered = asking.await.expect("it does not panic");
            answered.expect("who was let in is answered");
        }
        let let_in = service.pipelines.query(asked(2000.0, 0)).await;
        assert!(let_in.is_ok(), "{rule}: nothing is on its way any more");
    }
}

#[tokio::test]
async fn what_follows_branches_of_which_each_query_takes_one_gets_all_queries() {
    let gate = Arc::new(Semaphore::new(Semaphore::MAX_PERMITS));
    let worker = Worker::new()
        .adding("one", 1.0)
        .adding("ten", 10.0)
        .taking(RUN_MS)
        .slow("ten", 10.0 * RUN_MS)
        .behind(&gate);
    let service = service(
        worker,
        &json!({"name": "p", "steps": [
            {"name": "first", "application": "one"},
            {"name": "low", "application": "one", "inputs": {"x": "first.y"}, "when": "first.y[0][0] < 5.0"},
            {"name": "high", "application": "one", "inputs": {"x": "first.y"}, "when": "first.y[0][0] >= 5.0"},
            {"name": "last", "application": "ten", "inputs": {"x": ["low.y", "high.y"]}},
        ]}),
    );
    let begun = Instant::now();
    for number in 0u32.. {
        let row = if number % 2 == 0 { 1.0 } else { 9.0 };
        service.ask(&[row]).await.expect("an answer");
        // The pipeline has read what the steps take.
        if number > 20 && service.pipelines.query(asked(RUN_MS, 0)).await.is_err() {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "it has not learnt");
    }
    gate.forget_permits(Semaphore::MAX_PERMITS);
    let before = service.worker.count("one");
    let held: Vec<_> = (0..8)
        .map(|_| {
            let pipelines = Arc::clone(&service.pipelines);
            tokio::spawn(async move { pipelines.query(query(x(&[1.0]))).await })
        })
        .collect();
    while service.worker.count("one") < before + held.len() {
        assert!(begun.elapsed() < PATIENCE, "they have not begun");
        tokio::task::yield_now().await;
    }
    let refused = service.pipelines.query(asked(2.0 * RUN_MS, 0)).await;
    let refused = refused.expect_err("there is too much before it").message;
    assert!(refused.starts_with("step `last`"), "{refused}");
    assert!(refused.contains("behind the 8.0 rows"), "{refused}");
    held.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn who_has_not_ended_a_step_is_not_one_who_passed_it() {
    let gate = Arc::new(Semaphore::new(0));
    let service = chain("sextant", &gate);
    gate.add_permits(2);
    service.ask(&[1.0]).await.expect("an answer");
    let asking = (0..8).map(|_| {
        let pipelines = Arc::clone(&service.pipelines);
        tokio::spawn(async move { pipelines.query(query(x(&[1.0]))).await })
    });
    let asking: Vec<_> = asking.collect();
    let begun = Instant::now();
    while service.worker.count("one") < 9 {
        assert!(begun.elapsed() < PATIENCE, "they have not begun");
        tokio::task::yield_now().await;
    }
    assert_eq!(probabilities(&service), [1.0, 1.0], "in flight");
    // A query that is given up does not count as having passed the step.
    let late = service.pipelines.query(asked(RUN_MS / 10.0, 1000)).await;
    late.expect_err("its time is over");
    assert_eq!(dropped(&service), 1);
    assert_eq!(probabilities(&service), [1.0, 1.0], "given up");
    gate.add_permits(1000);
    for asking in asking {
        let answered = asking.await.expect("it does not panic");
        answered.expect("an answer");
    }
    assert_eq!(probabilities(&service), [1.0, 1.0], "answered");
}

#[tokio::test]
async fn who_is_asked_is_told_the_step_and_how_long_the_query_may_take() {
    let service = service(
        Worker::new().with("scores", true, |rows| Ok(rows.to_vec())),
        &json!({"name": "p", "steps": [
            {"name": "first", "application": "scores"},
            {"name": "between", "softmax": {}, "inputs": {"scores": "first.y"}},
            {"name": "last", "application": "scores", "inputs": {"x": "between.probabilities"}, "for_each": "between.probabilities"},
        ]}),
    );
    let two = Query {
        targets: Targets {
            latency_ms: Some(3000.0),
            ..Targets::default()
        },
        ..query(x(&[1.0, 2.0]))
    };
    service.pipelines.query(two).await.expect("an answer");
    let asked = service.worker.asked.lock();
    let told = asked.iter().map(|query| {
        let step = query.step.as_ref().expect("a step");
        assert_eq!(name(&step.of.asks), "scores");
        assert_eq!(
            (step.of.pipeline.as_str(), step.whole_ms),
            ("p", Some(3000.0))
        );
        let (share, patience) = (query.targets.latency_ms, step.patience_ms);
        assert!(patience >= share, "{patience:?} is less than {share:?}");
        let after: Vec<&str> = step.of.after.iter().map(String::as_str).collect();
        (step.of.step.as_str(), after, step.share)
    });
    let last = ("last", vec!["first"], 0.5);
    let told: Vec<_> = told.collect();
    assert_eq!(told, [("first", vec![], 1.0), last.clone(), last]);
}
