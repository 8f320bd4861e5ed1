//! Targets of the whole, and pipelines that are variants of an application.

use std::{collections::HashMap, sync::Arc};

use async_trait::async_trait;
use parking_lot::Mutex;
use serde_json::{Value, json};
use sextant_pipeline::{LoadedPipeline, Measurement, Pipelines, StepShare, UnboundedMemory, Whole};
use sextant_rpc::{Answer, CompositeChoice, Dispatch, Explanation, Query, QueryError};
use sextant_types::{
    Accuracy, AccuracyKind, ApplicationId, Code, DataType, Metric, NamedTensor, Prefer, Route,
    Signature, Targets, Tensor, TensorSpec, VariantId,
};

use crate::worker::{Service, Worker, failing, graph, graph_over, output, query, service, x};

pub fn measured() -> Measurement {
    Measurement {
        accuracy: Accuracy {
            kind: AccuracyKind::Accuracy,
            metric: Metric::Top1,
            value: 0.9,
            lower: 0.85,
            upper: 0.95,
            records: 200,
            evaluation_batch: 1,
        },
        p50_ms: 3.0,
        p99_ms: 7.0,
        cost_per_1k_usd: 0.02,
        charged_per_1k_usd: 0.5,
        steps: Default::default(),
    }
}

fn chain() -> Service {
    let worker = Worker::new().adding("one", 1.0);
    service(
        worker,
        &json!({"name": "p", "steps": [{"name": "a", "application": "one"}]}),
    )
}

fn set(service: &Service, whole: Whole) {
    let name = ApplicationId::new("p").expect("a name");
    service
        .pipelines
        .get(&name)
        .expect("it is loaded")
        .set_whole(whole);
}

fn asking(targets: Targets) -> Query {
    Query {
        targets,
        ..query(x(&[1.0]))
    }
}

fn least(min_quality: f64) -> Targets {
    Targets {
        min_quality: Some(min_quality),
        ..Targets::default()
    }
}

#[tokio::test]
async fn an_accuracy_of_the_whole_is_held_to_the_lower_end_of_what_was_measured() {
    let service = chain();
    let ask = async |targets| service.pipelines.query(asking(targets)).await;
    assert_eq!(ask(least(0.5)).await.unwrap_err().code, Code::InvalidTarget);
    set(&service, Whole::Pending(Some(measured())));
    let stale = ask(least(0.5)).await.unwrap_err();
    assert_eq!(stale.code, Code::Unavailable);
    assert!(stale.retry_after_ms.is_some(), "it is measured soon");
    set(&service, Whole::Current(measured()));
    assert!(ask(least(0.85)).await.expect("an answer").targets_met);
    let missed = ask(least(0.86)).await.unwrap_err();
    assert_eq!(missed.code, Code::TargetInfeasible);
    for part in [
        "0.9000 (0.8500 to 0.9500)",
        "200 records",
        "0.86",
        "lower end, 0.8500",
    ] {
        assert!(missed.message.contains(part), "{}", missed.message);
    }
    let closest = Query {
        best_effort: true,
        ..asking(least(0.86))
    };
    let closest = service.pipelines.query(closest).await.expect("an answer");
    assert!(!closest.targets_met);
    let share = Targets {
        min_relative_accuracy: Some(1.0),
        prefer: Some(Prefer::Accuracy),
        max_cost_per_1k_usd: Some(0.02),
        ..Targets::default()
    };
    assert!(ask(share).await.expect("an answer").targets_met);
    let cheap = Targets {
        max_cost_per_1k_usd: Some(0.01),
        ..Targets::default()
    };
    assert_eq!(ask(cheap).await.unwrap_err().code, Code::TargetInfeasible);
}

#[tokio::test]
async fn the_steps_of_a_query_are_told_the_accuracy_that_it_asks_of_the_whole() {
    let service = chain();
    let variant = |name: &str| VariantId::new(name).expect("a name");
    let steps = StepShare {
        variants: [(variant("v-a"), 3), (variant("v-b"), 7)].into(),
        ..StepShare::default()
    };
    set(
        &service,
        Whole::Current(Measurement {
            steps: [("a".to_owned(), steps)].into(),
            ..measured()
        }),
    );
    let share = Targets {
        min_relative_accuracy: Some(0.5),
        ..Targets::default()
    };
    for (targets, expected) in [
        (least(0.8), Some(0.8)),
        (share, Some(0.425)),
        (Targets::default(), None),
        // A demand above the pipeline's accuracy is not passed on, so nothing is planned for it.
        (least(0.9), None),
    ] {
        let asked = Query {
            best_effort: true,
            ..asking(targets)
        };
        service.pipelines.query(asked).await.expect("an answer");
        let told = service.worker.asked.lock().pop().and_then(|it| it.step);
        let told = told.expect("a step").accuracy;
        assert_eq!(told.as_ref().map(|it| it.least), expected);
        if let Some(told) = told {
            assert_eq!(told.measured, 0.85);
            assert_eq!(told.answered, [variant("v-b"), variant("v-a")]);
        }
    }
}

/// Sends a query back to an offered composite, or answers the query itself.
struct Selection {
    worker: Worker,
    takes: bool,
    offered: Mutex<Vec<usize>>,
    /// Runs once, during selection.
    meanwhile: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

#[async_trait]
impl Dispatch for Selection {
    async fn query(&self, query: Query) -> Result<Answer, QueryError> {
        let is_whole = query.route == whole();
        if is_whole {
            self.offered.lock().push(query.composites.len());
            let meanwhile = self.meanwhile.lock().take();
            if let Some(happens) = meanwhile {
                happens();
            }
        }
        match query.composites.first() {
            Some(composite) if self.takes => {
                assert_eq!(
                    (
                        composite.quality_bound,
                        composite.latency_ms,
                        composite.cost_per_1k_usd
                    ),
                    (0.85, 7.0, 0.02)
                );
                Err(QueryError::instead(CompositeChoice {
                    variant: composite.variant.clone(),
                    explanation: Some(Explanation {
                        reason: "it is the cheapest".to_owned(),
                        considered: 3,
                        ..Explanation::default()
                    }),
                }))
            }
            _ => self.worker.query(query).await,
        }
    }

    fn signature(&self, route: &Route) -> Result<Signature, QueryError> {
        self.worker.signature(route)
    }

    fn utilization(&self) -> f64 {
        0.0
    }

    fn is_ready(&self, route: &Route) -> bool {
        self.worker.is_ready(route)
    }
}

fn whole() -> Route {
    Route::Application(ApplicationId::new("whole").expect("a name"))
}

/// A pipeline that is a variant of `whole`. The model of `whole` adds a hundred; the pipeline adds one.
fn composite(step: Worker, takes: bool) -> (Arc<Selection>, Arc<Pipelines>) {
    let definition = json!({"name": "p", "variant_of": "whole",
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 1]}],
        "steps": [{"name": "a", "application": "one"}]});
    composite_of(&definition, step, takes)
}

fn composite_of(
    definition: &Value,
    steps: Worker,
    takes: bool,
) -> (Arc<Selection>, Arc<Pipelines>) {
    let worker = steps.adding("whole", 100.0);
    let graph = graph(&worker, definition).unwrap_or_else(|error| panic!("{error}"));
    let selection = Arc::new(Selection {
        worker,
        takes,
        offered: Mutex::default(),
        meanwhile: Mutex::default(),
    });
    let beneath = Arc::clone(&selection) as Arc<dyn Dispatch>;
    let pipelines = Pipelines::over(beneath, Arc::new(UnboundedMemory));
    let loaded = Arc::new(LoadedPipeline::new(graph, 1).expect("names"));
    loaded.set_whole(Whole::Current(measured()));
    let name = ApplicationId::new("p").expect("a name");
    pipelines.set(HashMap::from([(name, loaded)]));
    (selection, pipelines)
}

async fn ask_whole(pipelines: &Pipelines, values: &[f32]) -> Result<Answer, QueryError> {
    let query = Query {
        route: whole(),
        ..query(x(values))
    };
    pipelines.query(query).await
}

#[tokio::test]
async fn it_runs_where_selection_takes_it_and_is_explained_as_selected() {
    let (selection, pipelines) = composite(Worker::new().adding("one", 1.0), true);
    let answer = ask_whole(&pipelines, &[1.0]).await.expect("an answer");
    assert_eq!(output(&answer, "y").expect("y"), [2.0]);
    assert_eq!(answer.variant.as_str(), "p-v1");
    let explanation = answer.explanation.expect("explained");
    assert_eq!(
        (
            explanation.reason.as_str(),
            explanation.considered,
            explanation.steps.len()
        ),
        ("it is the cheapest", 3, 1)
    );
    assert_eq!(*selection.offered.lock(), [1]);
}

#[tokio::test]
async fn each_row_of_a_query_takes_its_own_branches() {
    let definition = json!({"name": "p", "variant_of": "whole",
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 1]}],
        "steps": [
            {"name": "a", "application": "one"},
            {"name": "b", "application": "ten", "inputs": {"x": "a.y"}, "when": "a.y[0][0] > 5.0"},
        ],
        "outputs": {"y": ["b.y", "a.y"]}});
    let steps = || Worker::new().adding("one", 1.0).adding("ten", 10.0);
    let (_, pipelines) = composite_of(&definition, steps(), true);
    let answer = ask_whole(&pipelines, &[1.0, 9.0, 2.0, 7.0]).await;
    let answer = answer.expect("an answer");
    assert_eq!(output(&answer, "y").expect("y"), [2.0, 20.0, 3.0, 18.0]);
    assert_eq!((answer.rows, answer.variant.as_str()), (4, "p-v1"));
    assert!(
        (answer.cost_usd - 0.006).abs() < 1e-12,
        "{}",
        answer.cost_usd
    );
    let steps = answer.explanation.expect("explained").steps;
    let steps: Vec<_> = steps
        .iter()
        .map(|it| (it.name.as_str(), it.outcome.as_ref(), it.rows))
        .collect();
    assert_eq!(steps, [("a", "answered", 4), ("b", "answered", 2)]);
    let (_, pipelines) = composite_of(&definition, failing_behind_one(), true);
    let failed = ask_whole(&pipelines, &[1.0, 9.0])
        .await
        .expect_err("a row fails");
    assert_eq!(failed.message, "row `1`: step `b`: it is broken");
}

#[tokio::test]
async fn it_ends_on_the_inner_pipelines_that_it_was_offered_with() {
    let steps = Worker::new().adding("one", 1.0).adding("ten", 10.0);
    let inner = |asks: &str| {
        let definition = json!({"name": "inner", "steps": [{"name": "i", "application": asks}]});
        let graph = graph(&steps, &definition).expect("a graph");
        Arc::new(LoadedPipeline::new(graph, 1).expect("names"))
    };
    let (before, after) = (inner("one"), inner("ten"));
    let within = before.graph().expect("it runs").signature.clone();
    let definition = json!({"name": "p", "variant_of": "whole",
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 1]}],
        "steps": [{"name": "a", "application": "inner"}]});
    let outer = graph_over(&definition, Some(Metric::Top1), |_| Ok(within.clone()));
    let outer = LoadedPipeline::new(outer.expect("a graph"), 1).expect("names");
    outer.set_whole(Whole::Current(measured()));
    let outer = Arc::new(outer);
    let all = |inner: Arc<LoadedPipeline>| {
        let name = |name: &str| ApplicationId::new(name).expect("a name");
        HashMap::from([(name("p"), Arc::clone(&outer)), (name("inner"), inner)])
    };
    let (old, new) = (all(before), all(after));
    let (selection, pipelines) = composite(steps, true);
    pipelines.set(old);
    let changed = Arc::clone(&pipelines);
    *selection.meanwhile.lock() = Some(Box::new(move || changed.set(new)));
    for added in [1.0, 10.0] {
        let answer = ask_whole(&pipelines, &[5.0]).await.expect("an answer");
        assert_eq!(output(&answer, "y").expect("y"), [5.0 + added]);
    }
}

#[tokio::test]
async fn an_output_that_some_rows_lack_is_not_left_out_in_silence() {
    let definition = json!({"name": "p", "variant_of": "whole",
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 1]}],
        "steps": [
            {"name": "a", "application": "one"},
            {"name": "b", "application": "ten", "inputs": {"x": "a.y"}, "when": "a.y[0][0] > 5.0"},
        ],
        "outputs": {"large": "b.y", "y": "a.y"}});
    let steps = Worker::new().adding("one", 1.0).adding("ten", 10.0);
    let (_, pipelines) = composite_of(&definition, steps, true);
    for values in [[9.0, 1.0], [1.0, 9.0]] {
        let refused = ask_whole(&pipelines, &values).await;
        let refused = refused.expect_err("a row has no `large`");
        assert_eq!(refused.code, Code::InvalidTensor);
        assert!(refused.message.contains("`large`"), "{refused}");
    }
}

fn failing_behind_one() -> Worker {
    Worker::new()
        .adding("one", 1.0)
        .with("ten", true, failing(Code::EngineFailed))
}

#[tokio::test]
async fn it_is_offered_only_while_it_is_measured_and_where_it_is_not_taken_a_variant_answers() {
    let (selection, pipelines) = composite(Worker::new().adding("one", 1.0), false);
    let answer = ask_whole(&pipelines, &[1.0]).await.expect("an answer");
    assert_eq!(output(&answer, "y").expect("y"), [101.0]);
    let name = ApplicationId::new("p").expect("a name");
    let loaded = pipelines.get(&name).expect("it is loaded");
    loaded.set_whole(Whole::Pending(Some(measured())));
    ask_whole(&pipelines, &[1.0]).await.expect("an answer");
    assert_eq!(*selection.offered.lock(), [1, 0]);
}

/// Takes rows of any length, and answers with the number of composites that were offered.
struct Open;

#[async_trait]
impl Dispatch for Open {
    async fn query(&self, query: Query) -> Result<Answer, QueryError> {
        let offered = query.composites.len().to_string();
        Err(QueryError::new(Code::TooLarge, offered))
    }

    fn signature(&self, _: &Route) -> Result<Signature, QueryError> {
        let of = |name: &str| TensorSpec {
            name: name.to_owned(),
            data_type: DataType::Fp32,
            shape: vec![None, None],
        };
        Ok(Signature {
            inputs: vec![of("x")],
            outputs: vec![of("y")],
            batched: true,
        })
    }

    fn utilization(&self) -> f64 {
        0.0
    }

    fn is_ready(&self, _: &Route) -> bool {
        true
    }
}

#[tokio::test]
async fn rows_without_elements_are_not_cut_before_somebody_answers_them() {
    let definition = json!({"name": "p", "variant_of": "whole",
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [1, -1]}],
        "steps": [{"name": "a", "application": "one"}]});
    let graph = graph_over(&definition, None, |route| Open.signature(route));
    let graph = graph.unwrap_or_else(|error| panic!("{error}"));
    let loaded = Arc::new(LoadedPipeline::new(graph, 1).expect("names"));
    loaded.set_whole(Whole::Current(measured()));
    let pipelines = Pipelines::over(Arc::new(Open), Arc::new(UnboundedMemory));
    let name = ApplicationId::new("p").expect("a name");
    pipelines.set(HashMap::from([(name, loaded)]));
    let rows = Tensor::from_elements(vec![u32::MAX as usize, 0], &[0f32; 0]).expect("rows");
    let query = Query {
        route: whole(),
        ..query(vec![NamedTensor::new("x", rows)])
    };
    let refused = pipelines
        .query(query)
        .await
        .expect_err("there are too many");
    assert_eq!((refused.code, &*refused.message), (Code::TooLarge, "1"));
}

#[tokio::test]
async fn a_variant_answers_where_its_steps_cannot_for_a_reason_that_may_pass() {
    let step = Worker::new().with("one", true, failing(Code::Overloaded));
    let (selection, pipelines) = composite(step, true);
    let answer = ask_whole(&pipelines, &[1.0]).await.expect("an answer");
    assert_eq!(output(&answer, "y").expect("y"), [101.0]);
    assert_eq!(*selection.offered.lock(), [1, 0]);
    let step = Worker::new().with("one", true, failing(Code::EngineFailed));
    let (_, pipelines) = composite(step, true);
    let failed = ask_whole(&pipelines, &[1.0]).await;
    assert_eq!(failed.expect_err("it failed").code, Code::EngineFailed);
}
