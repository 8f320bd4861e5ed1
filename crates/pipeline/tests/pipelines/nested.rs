//! Pipelines that are steps of other pipelines.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Instant,
};

use serde_json::{Value, json};
use sextant_pipeline::{
    Definition, LoadedPipeline, Measurement, Nesting, Pipelines, StepShare, UnboundedMemory, Whole,
};
use sextant_rpc::{Answer, Dispatch, Query, QueryError};
use sextant_types::{ApplicationId, Code, Route, Targets, VariantId};

use crate::{
    whole::measured,
    worker::{Worker, failing, graph_over, name, output, query, x},
};

fn id(name: &str) -> ApplicationId {
    ApplicationId::new(name).expect("a name")
}

fn definition(of: &Value) -> Definition {
    serde_json::from_value(of.clone()).expect("a definition")
}

/// Pipelines over a worker. Each may ask those before it.
fn service(worker: Worker, definitions: &[Value]) -> (Arc<Worker>, Arc<Pipelines>) {
    let worker = Arc::new(worker);
    let mut loaded: HashMap<ApplicationId, Arc<LoadedPipeline>> = HashMap::new();
    for of in definitions {
        let graph = graph_over(of, None, |route| match loaded.get(&id(name(route))) {
            Some(inner) => Ok(inner.graph().expect("it runs").signature.clone()),
            None => worker.signature(route),
        });
        let graph = graph.unwrap_or_else(|error| panic!("{error}"));
        let name = graph.definition.application().expect("a name");
        loaded.insert(
            name,
            Arc::new(LoadedPipeline::new(graph, 3).expect("names")),
        );
    }
    let pipelines = Pipelines::over(Arc::clone(&worker) as _, Arc::new(UnboundedMemory));
    pipelines.set(loaded);
    (worker, pipelines)
}

/// `p` adds one, then has `inner` add eleven.
fn two() -> [Value; 2] {
    [
        json!({"name": "inner", "steps": [
            {"name": "a", "application": "one"},
            {"name": "b", "application": "ten", "inputs": {"x": "a.y"}},
        ]}),
        json!({"name": "p", "steps": [
            {"name": "first", "application": "one"},
            {"name": "then", "application": "inner", "inputs": {"x": "first.y"}},
        ]}),
    ]
}

fn adding() -> Worker {
    Worker::new().adding("one", 1.0).adding("ten", 10.0)
}

async fn ask(pipelines: &Pipelines, of: Query) -> Result<Answer, QueryError> {
    pipelines.query(of).await
}

#[tokio::test]
async fn a_step_that_is_a_pipeline_answers_as_it_does_alone() {
    let (worker, pipelines) = service(adding(), &two());
    let answer = ask(&pipelines, query(x(&[1.0, 2.0])))
        .await
        .expect("an answer");
    assert_eq!(output(&answer, "y").expect("y"), [13.0, 14.0]);
    assert!(
        (answer.cost_usd - 0.003).abs() < 1e-12,
        "{}",
        answer.cost_usd
    );
    let steps = answer.explanation.expect("explained").steps;
    let steps: Vec<(&str, Option<&str>)> = steps
        .iter()
        .map(|it| (it.name.as_str(), it.variant.as_ref().map(|it| it.as_str())))
        .collect();
    assert_eq!(
        steps,
        [
            ("first", Some("one-b1")),
            ("then", Some("inner-v3")),
            ("then.a", Some("one-b1")),
            ("then.b", Some("ten-b1")),
        ]
    );
    assert!(pipelines.is_ready(&query(Vec::new()).route));
    assert_eq!(worker.count("inner"), 0);
}

#[tokio::test]
async fn its_part_of_the_time_is_the_target_of_its_steps() {
    let (worker, pipelines) = service(adding(), &two());
    let asked = Query {
        targets: Targets {
            latency_ms: Some(60_000.0),
            ..Targets::default()
        },
        arrived: Instant::now(),
        ..query(x(&[1.0]))
    };
    ask(&pipelines, asked).await.expect("an answer");
    let asked = worker.asked.lock();
    let latencies: Vec<f64> = asked
        .iter()
        .map(|it| it.targets.latency_ms.expect("a part of the time"))
        .collect();
    // No step has run before, so each step gets the same part of the time that is left.
    assert!(
        latencies[0] <= 30_000.0 && latencies[0] > 20_000.0,
        "{latencies:?}"
    );
    assert!(
        latencies[1] <= 30_000.0,
        "the step's part is split once more: {latencies:?}"
    );
    assert!(latencies.iter().all(|it| *it > 0.0), "{latencies:?}");
}

#[tokio::test]
async fn a_failure_names_the_steps_on_its_way() {
    let worker = adding().with("ten", true, failing(Code::EngineFailed));
    let (_, pipelines) = service(worker, &two());
    let failed = ask(&pipelines, query(x(&[1.0])))
        .await
        .expect_err("it fails");
    assert_eq!(failed.code, Code::EngineFailed);
    assert_eq!(failed.message, "step `then`: step `b`: it is broken");
}

/// `inner` adds one, and gives `large` only where the result is above five; `p` asks it as `within` says.
fn branching(within: &Value) -> [Value; 2] {
    [
        json!({"name": "inner", "steps": [
            {"name": "a", "application": "one"},
            {"name": "b", "application": "ten", "inputs": {"x": "a.y"}, "when": "a.y[0][0] > 5.0"},
        ], "outputs": {"large": "b.y", "y": "a.y"}}),
        json!({"name": "p", "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 1]}],
            "steps": [within], "outputs": {"large": "within.large", "y": "within.y"}}),
    ]
}

#[tokio::test]
async fn what_a_pipeline_leaves_out_is_not_what_comes_behind_it() {
    let within = json!({"name": "within", "application": "inner"});
    let (_, pipelines) = service(adding(), &branching(&within));
    let small = ask(&pipelines, query(x(&[1.0]))).await;
    let small = small.expect("an answer");
    assert_eq!(output(&small, "y"), Some(vec![2.0]));
    assert_eq!(output(&small, "large"), None);
    let large = ask(&pipelines, query(x(&[9.0]))).await;
    let large = large.expect("an answer");
    assert_eq!(output(&large, "y"), Some(vec![10.0]));
    assert_eq!(output(&large, "large"), Some(vec![20.0]));
}

#[tokio::test]
async fn what_a_pipeline_leaves_out_for_some_rows_is_not_joined() {
    let within = json!({"name": "within", "application": "inner", "for_each": "x"});
    let (_, pipelines) = service(adding(), &branching(&within));
    let small = ask(&pipelines, query(x(&[1.0, 2.0]))).await;
    let small = small.expect("an answer");
    assert_eq!(output(&small, "y"), Some(vec![2.0, 3.0]));
    assert_eq!(output(&small, "large"), None);
    let mixed = ask(&pipelines, query(x(&[9.0, 1.0]))).await;
    let failed = mixed.expect_err("no tensor has a row that is missing");
    assert_eq!(
        (failed.code, failed.message.as_str()),
        (
            Code::InvalidTensor,
            "step `within`: some of its rows gave no `large`, and others did: answer it for each row or for none"
        )
    );
}

fn nesting(of: &[(&str, &[&str])]) -> Vec<(ApplicationId, Definition)> {
    let all = of.iter().map(|(name, asked)| {
        let steps: Vec<Value> = asked
            .iter()
            .enumerate()
            .map(|(at, asked)| json!({"name": format!("s{at}"), "application": asked}))
            .collect();
        (id(name), definition(&json!({"name": name, "steps": steps})))
    });
    all.collect()
}

fn refused(of: &[(&str, &[&str])]) -> Option<String> {
    let all = nesting(of);
    let nesting = Nesting::new(all.iter().map(|(name, it)| (name, it)));
    let (_, changed) = all.last().expect("one");
    nesting
        .check(changed)
        .err()
        .map(|invalid| invalid.to_string())
}

#[test]
fn circles_are_refused_with_all_names_and_the_step() {
    assert_eq!(
        refused(&[("a", &["digits"]), ("b", &["a", "digits"])]),
        None
    );
    let own = refused(&[("a", &["digits", "a"])]).expect("it asks itself");
    assert_eq!(
        own,
        "step `s1`: `application` names the pipeline `a`, and `a` would ask itself: `a` asks `a`"
    );
    let long = refused(&[
        ("b", &["c"]),
        ("c", &["digits", "a"]),
        ("a", &["digits", "b"]),
    ]);
    assert_eq!(
        long.expect("a circle"),
        "step `s1`: `application` names the pipeline `b`, and `a` would ask itself: `a` asks `b` asks `c` asks `a`"
    );
}

#[test]
fn at_most_eight_lie_in_each_other_wherever_one_is_added() {
    let names: Vec<String> = (0..9).map(|at| format!("p{at}")).collect();
    let asked: Vec<[&str; 1]> = (0..9)
        .map(|at| [names.get(at + 1).map_or("digits", String::as_str)])
        .collect();
    let chain = |count: usize| -> Vec<(&str, &[&str])> {
        (0..count)
            .map(|at| (names[at].as_str(), &asked[at][..]))
            .collect()
    };
    assert_eq!(refused(&chain(8)), None);
    let mut nine = chain(9);
    // Steps in the middle behave as those at the ends.
    for _ in 0..9 {
        nine.rotate_left(1);
        let why = refused(&nine).expect("too deep");
        assert_eq!(why, "`steps` makes 9 pipelines lie in each other: 8 may");
    }
    let all = nesting(&nine);
    let order = Nesting::new(all.iter().map(|(name, it)| (name, it))).in_order();
    let order: Vec<&str> = order.iter().map(ApplicationId::as_str).collect();
    assert_eq!(
        order,
        ["p8", "p7", "p6", "p5", "p4", "p3", "p2", "p1", "p0"]
    );
}

/// The autoscaler plans a pipeline as a whole, by what its steps tell of themselves.
#[tokio::test]
async fn the_steps_of_an_inner_pipeline_are_told_of_as_steps_of_the_outermost() {
    let [inner, outer] = two();
    let outermost = json!({"name": "q", "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 1]}], "steps": [
        {"name": "all", "application": "p", "for_each": "x"},
        {"name": "last", "application": "one", "inputs": {"x": "all.y"}, "for_each": "all.y"},
    ]});
    let (worker, pipelines) = service(adding(), &[inner, outer, outermost]);
    let asked = Query {
        targets: Targets {
            latency_ms: Some(60_000.0),
            min_quality: Some(0.8),
            ..Targets::default()
        },
        route: Route::Application(id("q")),
        ..query(x(&[1.0, 2.0]))
    };
    let outermost = pipelines.get(&id("q")).expect("it is loaded");
    let steps = StepShare {
        variants: [(VariantId::new("v-b").expect("a name"), 1)].into(),
        ..StepShare::default()
    };
    outermost.set_whole(Whole::Current(Measurement {
        steps: [("all.then.b".to_owned(), steps)].into(),
        ..measured()
    }));
    pipelines.query(asked).await.expect("an answer");
    let asked = worker.asked.lock();
    let mut told: BTreeMap<&str, (Vec<&str>, f64)> = BTreeMap::new();
    for step in asked.iter().filter_map(|query| query.step.as_ref()) {
        let accuracy = step.accuracy.as_ref().expect("what is asked of the whole");
        assert_eq!((accuracy.least, accuracy.measured), (0.8, 0.85));
        let answered = accuracy.answered.first().map(VariantId::as_str);
        assert_eq!(answered, (step.of.step == "all.then.b").then_some("v-b"));
        assert_eq!(
            (step.of.pipeline.as_str(), step.whole_ms),
            ("q", Some(60_000.0))
        );
        let after = step.of.after.iter().map(String::as_str).collect();
        let told = told.entry(&step.of.step).or_insert((after, 0.0));
        told.1 += step.share;
    }
    let expected = [
        ("all.first", (vec![], 1.0)),
        ("all.then.a", (vec!["all.first"], 1.0)),
        ("all.then.b", (vec!["all.then.a"], 1.0)),
        ("last", (vec!["all"], 1.0)),
    ];
    assert_eq!(told, BTreeMap::from(expected));
}

#[tokio::test]
async fn a_pipeline_that_is_a_step_elsewhere_tells_of_itself_where_it_is_asked_alone() {
    let (worker, pipelines) = service(adding(), &two());
    let alone = Query {
        route: Route::Application(id("inner")),
        ..query(x(&[1.0]))
    };
    pipelines.query(alone).await.expect("an answer");
    let asked = worker.asked.lock();
    let told = asked.iter().filter_map(|query| query.step.as_ref());
    let told = told.map(|step| (step.of.pipeline.as_str(), step.of.step.as_str()));
    let told: Vec<_> = told.collect();
    assert_eq!(told, [("inner", "a"), ("inner", "b")]);
}
