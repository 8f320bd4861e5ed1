//! The answers of a job's records must always come from the same variant, which may be away for a
//! while.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU32, Ordering},
};

use async_trait::async_trait;
use sextant_dispatcher::{Dispatcher, jobs::JobService};
use sextant_health::throttle::Throttle;
use sextant_registry::{JobState, Registry};
use sextant_rpc::{Answer, Offline, OnlineLoad, Query, QueryError};
use sextant_types::{Code, OfflineSpec, Route, Signature, Tensor, VariantId};

use super::{
    Runner, answers, check, config, put, records, registry, spec, submit, submit_spec, succeeded,
    wait_for,
};
use crate::world::{Kind, World, wait_until};

/// What a query gets in place of the dispatcher's answer.
trait Interceptor: Send + Sync {
    fn refuse(&self, _: &Query) -> Option<QueryError> {
        None
    }

    fn change(&self, _: &mut Answer) {}

    /// Records that are asked for in one query.
    fn most_together(&self) -> u32 {
        1
    }
}

/// A dispatcher with an interceptor in front of it.
struct InterceptedDispatcher<I> {
    dispatcher: Arc<Dispatcher>,
    instead: Arc<I>,
}

#[async_trait]
impl<I: Interceptor> Offline for InterceptedDispatcher<I> {
    fn choose(&self, spec: &OfflineSpec) -> Result<VariantId, QueryError> {
        self.dispatcher.choose(spec)
    }

    fn route(&self, spec: &OfflineSpec, chosen: &VariantId) -> Route {
        self.dispatcher.route(spec, chosen)
    }

    fn signature(&self, route: &Route) -> Result<Signature, QueryError> {
        Offline::signature(&*self.dispatcher, route)
    }

    fn most_together(&self, _: &Route) -> u32 {
        self.instead.most_together()
    }

    fn online_load(&self, route: &Route) -> OnlineLoad {
        self.dispatcher.online_load(route)
    }

    async fn answer(&self, query: Query) -> Result<Answer, QueryError> {
        assert!(query.offline, "a job asks");
        if let Some(error) = self.instead.refuse(&query) {
            return Err(error);
        }
        let mut answer = Offline::answer(&*self.dispatcher, query).await?;
        self.instead.change(&mut answer);
        Ok(answer)
    }
}

fn start<I: Interceptor + 'static>(world: &World, registry: &Registry, instead: &Arc<I>) -> Runner {
    let offline = Arc::new(InterceptedDispatcher {
        dispatcher: Arc::clone(&world.dispatcher),
        instead: Arc::clone(instead),
    });
    let objects = Arc::clone(&world.objects);
    let config = config(1, Throttle::default());
    let service = JobService::new(config, offline as _, registry.clone(), objects);
    Runner::start(service)
}

/// Another version answers from the third query on, as when a pipeline changes.
#[derive(Default)]
struct VersionChange(AtomicU32);

impl Interceptor for VersionChange {
    fn change(&self, answer: &mut Answer) {
        if self.0.fetch_add(1, Ordering::Relaxed) >= 2 {
            answer.variant = VariantId::new("another-v2").unwrap();
        }
    }
}

#[tokio::test]
async fn a_job_ends_when_another_version_answers() {
    let world = World::new().await;
    world.serve(Kind::default()).await;
    let registry = registry(&world).await;
    let _runner = start(&world, &registry, &Arc::<VersionChange>::default());
    let job = submit(&world, &registry, records()).await;
    let ended = wait_for(&registry, &job, |job| job.state.is_final()).await;
    assert_eq!(ended.state, JobState::Failed);
    let error = ended.error.unwrap();
    assert_eq!(error.code, Code::PreconditionFailed);
    assert!(error.message.contains("`another-v2`"), "{}", error.message);
}

/// The budget is exhausted for the query with this number until it is filled.
#[derive(Default)]
struct ExhaustedBudget {
    refused: AtomicU32,
    is_filled: AtomicBool,
}

const DEAR: f32 = 1000.0;

impl Interceptor for ExhaustedBudget {
    fn refuse(&self, query: &Query) -> Option<QueryError> {
        let values: Vec<f32> = query.inputs[0].tensor.to_vec().unwrap();
        if values[0] != DEAR || self.is_filled.load(Ordering::SeqCst) {
            return None;
        }
        self.refused.fetch_add(1, Ordering::SeqCst);
        Some(QueryError::new(Code::BudgetExhausted, "nothing is left").retry_after_ms(10.0))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_waits_for_its_budget_leaves_others_their_turn() {
    let world = World::new().await;
    world.serve(Kind::default()).await;
    let registry = registry(&world).await;
    let budget = Arc::<ExhaustedBudget>::default();
    let _runner = start(&world, &registry, &budget);
    put(&world, "dear.jsonl", format!("{{\"x\": [{DEAR}, 1]}}\n")).await;
    let dear = submit_spec(&registry, &spec("dear.jsonl", "dear.out.jsonl")).await;
    wait_until(|| budget.refused.load(Ordering::SeqCst) > 0).await;
    let other = submit(&world, &registry, records()).await;
    succeeded(&registry, &other).await;
    check(&answers(&world).await);
    assert!(!registry.job(&dear.id).await.unwrap().state.is_final());
    budget.is_filled.store(true, Ordering::SeqCst);
    succeeded(&registry, &dear).await;
}

/// Nothing answers from the third query on until the workers are back.
#[derive(Default)]
struct Outage {
    asked: AtomicU32,
    are_back: AtomicBool,
}

impl Interceptor for Outage {
    fn refuse(&self, _: &Query) -> Option<QueryError> {
        let asked = self.asked.fetch_add(1, Ordering::SeqCst);
        let is_away = asked >= 2 && !self.are_back.load(Ordering::SeqCst);
        is_away.then(|| QueryError::new(Code::Unavailable, "no worker is there"))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_waits_for_workers_that_are_away_for_longer_than_other_errors_are_borne() {
    let world = World::new().await;
    world.serve(Kind::default()).await;
    let registry = registry(&world).await;
    let workers = Arc::<Outage>::default();
    let _runner = start(&world, &registry, &workers);
    let job = submit(&world, &registry, records()).await;
    wait_for(&registry, &job, |job| job.state == JobState::Paused).await;
    // Other errors are final after twenty attempts.
    wait_until(|| workers.asked.load(Ordering::SeqCst) > 25).await;
    let now = registry.job(&job.id).await.unwrap();
    assert_eq!(now.state, JobState::Paused, "{:?}", now.error);
    workers.are_back.store(true, Ordering::SeqCst);
    succeeded(&registry, &job).await;
    check(&answers(&world).await);
}

/// The engine fails on each batch with this number, as when a table has no such row.
#[derive(Default)]
struct FailingEngine;

impl Interceptor for FailingEngine {
    fn refuse(&self, query: &Query) -> Option<QueryError> {
        let values: Vec<f32> = query.inputs[0].tensor.to_vec().unwrap();
        let fails = values.contains(&DEAR);
        fails.then(|| QueryError::new(Code::EngineFailed, "an index is out of range"))
    }

    fn most_together(&self) -> u32 {
        4
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_on_which_the_engine_fails_is_refused_alone() {
    const BAD: usize = 5;
    let world = World::new().await;
    world.serve(Kind::default()).await;
    let registry = registry(&world).await;
    let _runner = start(&world, &registry, &Arc::<FailingEngine>::default());
    let line = |n: usize| match n {
        BAD => format!("{{\"x\": [{DEAR}, 1]}}\n"),
        n => format!("{{\"x\": [{n}, 1]}}\n"),
    };
    put(&world, "in.jsonl", (0..8).map(line).collect::<String>()).await;
    let spec = OfflineSpec {
        chunk: 8,
        ..spec("in.jsonl", "out.jsonl")
    };
    let job = submit_spec(&registry, &spec).await;
    succeeded(&registry, &job).await;
    let answers = answers(&world).await;
    assert_eq!(answers.len(), 8);
    for (n, answer) in answers.iter().enumerate() {
        let doubled = serde_json::json!([(n * 2) as f64, 2.0]);
        match n {
            BAD => assert_eq!(answer["error"]["code"], "engine_failed", "{answer}"),
            _ => assert_eq!(answer["outputs"]["y"], doubled, "{answer}"),
        }
    }
}

/// The answer to several rows has one additional row in front.
#[derive(Default)]
struct SurplusRow;

impl Interceptor for SurplusRow {
    fn change(&self, answer: &mut Answer) {
        let several = answer.outputs.iter_mut().filter(|it| it.tensor.rows() > 1);
        for output in several {
            let first = output.tensor.slice_rows(0, 1).unwrap();
            output.tensor = Tensor::concat(&[&first, &output.tensor]).unwrap();
        }
    }

    fn most_together(&self) -> u32 {
        4
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn records_whose_outputs_are_no_rows_are_asked_for_one_by_one() {
    let world = World::new().await;
    world.serve(Kind::default()).await;
    let registry = registry(&world).await;
    let _runner = start(&world, &registry, &Arc::<SurplusRow>::default());
    let job = submit(&world, &registry, records()).await;
    succeeded(&registry, &job).await;
    check(&answers(&world).await);
}
