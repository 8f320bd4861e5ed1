//! Steps that ask one of several targets.

use serde_json::{Value, json};
use sextant_rpc::{Dispatch, Query};

use crate::worker::{Service, Worker, graph, name, query, service, x};

fn worker() -> Worker {
    Worker::new()
        .adding("one", 1.0)
        .adding("ten", 10.0)
        .with("single", false, |rows| Ok(rows.to_vec()))
}

fn definition(split: &Value) -> Value {
    json!({"name": "p", "steps": [{"name": "a", "split": split}]})
}

fn split() -> Service {
    let split = json!([{"application": "one", "weight": 3}, {"model": "ten", "weight": 1}]);
    service(worker(), &definition(&split))
}

/// The target that the last query asked.
fn last(service: &Service) -> String {
    let asked = service.worker.asked.lock();
    name(&asked.last().expect("it asked").route).to_owned()
}

#[tokio::test]
async fn each_gets_its_part_and_a_query_goes_the_same_way_again() {
    let service = split();
    let mut ways = Vec::new();
    for number in 0..1000u16 {
        service.ask(&[f32::from(number)]).await.expect("an answer");
        ways.push(last(&service));
    }
    let tens = ways.iter().filter(|way| *way == "ten").count();
    assert!((200..300).contains(&tens), "{tens} of 1000 for a quarter");
    for number in (0..1000u16).step_by(37) {
        service.ask(&[f32::from(number)]).await.expect("an answer");
        assert_eq!(last(&service), ways[usize::from(number)], "query {number}");
    }
}

#[tokio::test]
async fn queries_that_stick_to_one_number_go_one_way() {
    let service = split();
    let mut ways = Vec::new();
    for number in 0..200u16 {
        let sticky = Query {
            sticky: Some(u64::from(number / 100)),
            ..query(x(&[f32::from(number)]))
        };
        service.pipelines.query(sticky).await.expect("an answer");
        ways.push(last(&service));
    }
    assert!(ways[..100].iter().all(|way| *way == ways[0]));
    assert!(ways[100..].iter().all(|way| *way == ways[100]));
}

/// The autoscaler plans a pipeline as a whole, by the target that its steps name.
#[tokio::test]
async fn whom_a_split_asks_is_told_of_the_step_as_of_one_that_asks_it_alone() {
    let service = split();
    for number in 0..40u16 {
        let mut asked = query(x(&[f32::from(number)]));
        asked.targets.latency_ms = Some(60_000.0);
        service.pipelines.query(asked).await.expect("an answer");
    }
    let asked = service.worker.asked.lock();
    let mut routes = std::collections::BTreeSet::new();
    for query in asked.iter() {
        let step = query.step.as_ref().expect("a step");
        assert_eq!((step.of.step.as_str(), &step.of.asks), ("a", &query.route));
        assert_eq!(step.whole_ms, Some(60_000.0));
        assert!(step.patience_ms.is_some_and(|ms| ms <= 60_000.0));
        routes.insert(name(&query.route).to_owned());
    }
    assert_eq!(routes.len(), 2, "{routes:?}");
}

#[test]
fn shares_that_cannot_be_are_refused() {
    let one = json!({"application": "one", "weight": 1});
    for (split, expected) in [
        (
            json!([one, {"application": "single", "weight": 1}]),
            "take and give",
        ),
        (json!([one, {"application": "ten", "weight": 0}]), "above 0"),
        (json!([one, {"weight": 1}]), "exactly one of"),
        (
            json!([one, {"application": "ten", "model": "ten", "weight": 1}]),
            "exactly one of",
        ),
        (
            json!([one, {"application": "none", "weight": 1}]),
            "cannot be asked",
        ),
    ] {
        let error = match graph(&worker(), &definition(&split)) {
            Ok(_) => panic!("{split} was taken"),
            Err(error) => error.to_string(),
        };
        assert!(
            error.starts_with("step `a`:") && error.contains(expected),
            "{split}: {error}"
        );
    }
}
