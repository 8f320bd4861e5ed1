//! Offline jobs: every record appears once, whatever happens in the meantime.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;
use sextant_dispatcher::{
    Config,
    jobs::{JobConfig, JobService},
};
use sextant_health::throttle::Throttle;
use sextant_objects::ObjectPath;
use sextant_registry::{AnsweredBy, Job, JobKind, JobState, NewJob, Registry};
use sextant_rpc::{Dispatch, Offline, Query};
use sextant_types::{ApplicationId, OfflineSpec, Route, Targets, Variant};
use tokio::task::JoinHandle;

use crate::{
    costs::told,
    world::{Kind, PATIENCE, SLOW, World, query, registry, variant_route, wait_until},
};

mod answerers;
mod formats;
mod races;
mod webhooks;

const RECORDS: usize = 100;
const CHUNK: u32 = 7;

fn service(world: &World, registry: &Registry, life: u32) -> JobService {
    service_with(world, registry, life, Throttle::default())
}

fn service_with(world: &World, registry: &Registry, life: u32, throttle: Throttle) -> JobService {
    let config = config(life, throttle);
    let (dispatcher, objects) = (Arc::clone(&world.dispatcher), Arc::clone(&world.objects));
    JobService::new(config, dispatcher as _, registry.clone(), objects)
}

fn config(life: u32, throttle: Throttle) -> JobConfig {
    JobConfig {
        owner: format!("runner-{life}"),
        answered_by: AnsweredBy::Variants,
        lease_ms: 60_000,
        throttle,
        look_ms: 10,
    }
}

/// A runner that stops where it is when this is dropped.
struct Runner(JoinHandle<()>);

impl Runner {
    fn start(service: JobService) -> Self {
        Self(tokio::spawn(service.run(std::future::pending())))
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn runner(world: &World, registry: &Registry, life: u32) -> Runner {
    Runner::start(service(world, registry, life))
}

fn spec(input: &str, output: &str) -> OfflineSpec {
    OfflineSpec {
        route: Route::Application(ApplicationId::new("app").unwrap()),
        targets: Targets::default(),
        input: input.to_owned(),
        output: output.to_owned(),
        chunk: CHUNK,
        input_format: None,
        output_format: None,
        webhook: None,
    }
}

async fn put(world: &World, path: &str, bytes: impl Into<Bytes>) {
    let path = ObjectPath::parse(path).unwrap();
    world.objects.put(&path, bytes.into()).await.unwrap();
}

async fn get(world: &World, path: &str) -> Bytes {
    let path = ObjectPath::parse(path).unwrap();
    world.objects.get(&path).await.unwrap()
}

async fn submit(world: &World, registry: &Registry, input: String) -> Job {
    put(world, "in.jsonl", input).await;
    submit_spec(registry, &spec("in.jsonl", "out.jsonl")).await
}

async fn submit_spec(registry: &Registry, spec: &OfflineSpec) -> Job {
    let application = ApplicationId::new("app").unwrap();
    let spec = serde_json::to_value(spec).unwrap();
    let job = NewJob::new(JobKind::Offline, application, spec);
    registry.create_job(&job, 1).await.unwrap()
}

async fn succeeded(registry: &Registry, job: &Job) -> Job {
    let done = wait_for(registry, job, |job| job.state.is_final()).await;
    assert_eq!(done.state, JobState::Succeeded, "{:?}", done.error);
    done
}

/// Waits until nothing that a job stored is left. It is removed when the job's end is recorded, not before.
async fn nothing_is_left(world: &World, prefix: &str) {
    let gone = async {
        let request = sextant_objects::ListRequest::prefix(prefix);
        while !world
            .objects
            .list(&request)
            .await
            .unwrap()
            .objects
            .is_empty()
        {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, gone)
        .await
        .expect("the parts to go");
}

/// The longest wait for a job. Jobs compute with the time that other threads leave, and other tests leave little.
const JOB_PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);

async fn wait_for(registry: &Registry, job: &Job, state: impl Fn(&Job) -> bool) -> Job {
    let seen = async {
        loop {
            let now = registry.job(&job.id).await.unwrap();
            if state(&now) {
                return now;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(JOB_PATIENCE, seen)
        .await
        .expect("the job's state")
}

async fn answers(world: &World) -> Vec<Value> {
    let bytes = get(world, "out.jsonl").await;
    let lines = bytes
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty());
    lines
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect()
}

fn records() -> String {
    many_records(RECORDS)
}

fn many_records(count: usize) -> String {
    (0..count)
        .map(|n| format!("{{\"inputs\": {{\"x\": [{n}, 1]}}}}\n"))
        .collect()
}

fn check(answers: &[Value]) {
    assert_eq!(answers.len(), RECORDS);
    for (index, answer) in answers.iter().enumerate() {
        assert_eq!(answer["index"], index);
        let doubled = (index * 2) as f64;
        assert_eq!(answer["outputs"]["y"], serde_json::json!([doubled, 2.0]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_job_costs_is_counted_to_its_application() {
    let world = World::new().await;
    world.serve(Kind::default()).await;
    let registry = registry(&world).await;
    let job = submit(&world, &registry, records()).await;
    let _runner = runner(&world, &registry, 1);
    succeeded(&registry, &job).await;
    // Records go together as rows: two queries for each of fourteen chunks, and one for the rest.
    let all = 29;
    let costs = told(&world, |costs| {
        costs.rows.iter().any(|row| row.queries == all)
    });
    let row = costs.await.rows[0].clone();
    assert_eq!((row.queries, row.offline_queries), (all, all));
    assert_eq!(row.application.as_str(), "app");
    assert!(row.usd > 0.0);
    assert!((row.usd - row.offline_usd).abs() <= 1e-9 * row.usd);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_record_is_answered_in_order_and_the_parts_are_gone() {
    let world = World::new().await;
    world.serve(Kind::default()).await;
    let registry = registry(&world).await;
    let job = submit(&world, &registry, records()).await;
    let _runner = runner(&world, &registry, 1);
    let done = wait_for(&registry, &job, |job| job.state.is_final()).await;
    assert_eq!(done.state, JobState::Succeeded, "{:?}", done.error);
    assert_eq!(
        (done.progress_done, done.progress_total),
        (RECORDS as u64, RECORDS as u64)
    );
    check(&answers(&world).await);
    nothing_is_left(&world, "out.jsonl.parts/").await;
}

/// A few records of a large chunk are read at a time.
#[tokio::test(flavor = "multi_thread")]
async fn a_large_chunk_is_answered_in_order() {
    let world = World::new().await;
    world.serve(Kind::default()).await;
    let registry = registry(&world).await;
    put(&world, "in.jsonl", records()).await;
    let spec = OfflineSpec {
        chunk: RECORDS as u32,
        ..spec("in.jsonl", "out.jsonl")
    };
    let job = submit_spec(&registry, &spec).await;
    let _runner = runner(&world, &registry, 1);
    succeeded(&registry, &job).await;
    check(&answers(&world).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runner_killed_between_chunks_is_followed_by_one_that_goes_on() {
    let world = World::new().await;
    world.serve(Kind::default()).await;
    let registry = registry(&world).await;
    let job = submit(&world, &registry, records()).await;
    let mut life = 0;
    for reached in [1, 30, 60, 90] {
        life += 1;
        let kill = runner(&world, &registry, life);
        wait_for(&registry, &job, |job| job.progress_done >= reached).await;
        drop(kill);
        registry.void_leases(2).await.unwrap();
    }
    let _last = runner(&world, &registry, life + 1);
    let done = wait_for(&registry, &job, |job| job.state.is_final()).await;
    assert_eq!(done.state, JobState::Succeeded, "{:?}", done.error);
    check(&answers(&world).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_record_is_answered_with_its_error_and_the_rest_goes_on() {
    let world = World::new().await;
    world.serve(Kind::default()).await;
    let registry = registry(&world).await;
    let lines = [
        "{\"x\": [1, 2]}",
        "{\"x\": [1]}",
        "no json",
        "{\"x\": [[3, 4]]}",
        "{\"z\": [1]}",
    ];
    let job = submit(&world, &registry, lines.join("\n")).await;
    let _runner = runner(&world, &registry, 1);
    let done = wait_for(&registry, &job, |job| job.state.is_final()).await;
    assert_eq!(done.state, JobState::Succeeded, "{:?}", done.error);
    let answers = answers(&world).await;
    let codes: Vec<_> = answers
        .iter()
        .map(|a| a["error"]["code"].as_str())
        .collect();
    let invalid = Some("invalid_record");
    assert_eq!(codes, [None, invalid, invalid, None, invalid]);
    assert_eq!(answers[3]["outputs"]["y"], serde_json::json!([6.0, 8.0]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_job_stops_and_a_missing_input_fails_with_its_code() {
    let world = World::new().await;
    world.serve(Kind::default()).await;
    let registry = registry(&world).await;
    world.gate.close();
    let job = submit(&world, &registry, records()).await;
    let _runner = runner(&world, &registry, 1);
    wait_for(&registry, &job, |job| job.state == JobState::Running).await;
    registry.cancel(&job.id, 3).await.unwrap();
    world.gate.open();
    let done = wait_for(&registry, &job, |job| job.state.is_final()).await;
    assert_eq!(done.state, JobState::Cancelled);
    world
        .objects
        .delete(&ObjectPath::parse("in.jsonl").unwrap())
        .await
        .unwrap();
    let spec = job.spec.clone();
    let application = ApplicationId::new("app").unwrap();
    let again = NewJob::new(JobKind::Offline, application, spec);
    let again = registry.create_job(&again, 4).await.unwrap();
    let done = wait_for(&registry, &again, |job| job.state.is_final()).await;
    assert_eq!(
        done.error.map(|failure| failure.code.to_string()).unwrap(),
        "artefact_not_found"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_pauses_while_online_queries_need_the_device_and_goes_on_afterwards() {
    let world = Arc::new(World::new().await);
    world
        .serve(Kind {
            latency_ms: 20.0,
            ..Kind::default()
        })
        .await;
    let registry = registry(&world).await;
    let online = Arc::clone(&world);
    let load = tokio::spawn(async move {
        loop {
            online.ask(query(&[SLOW, 0.0])).await.unwrap();
        }
    });
    let busy = async {
        while world.dispatcher.utilization() <= 0.4 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, busy)
        .await
        .expect("a busy device");
    let job = submit(&world, &registry, records()).await;
    let _runner = runner(&world, &registry, 1);
    wait_for(&registry, &job, |job| job.state == JobState::Paused).await;
    load.abort();
    let done = wait_for(&registry, &job, |job| job.state.is_final()).await;
    assert_eq!(done.state, JobState::Succeeded, "{:?}", done.error);
    check(&answers(&world).await);
}

/// An online query may come while a batch of a job runs, and the batch cannot be stopped.
#[tokio::test(flavor = "multi_thread")]
async fn batches_of_a_job_are_short_while_online_queries_come() {
    let world = Arc::new(World::new().await);
    let kind = Kind {
        max_batch: 16,
        ..Kind::default()
    };
    // 4 ms a row.
    let slow = |variant: &mut Variant| {
        for point in &mut variant.profile.batches {
            point.p50_ms = 4.0 * f64::from(point.batch);
        }
    };
    let variant = world.publish_with("app", kind, slow).await;
    let load = sextant_rpc::Load::at_once(variant);
    world.worker.load(load).await.expect("it fits");
    let route = variant_route("m-a");
    wait_until(|| world.dispatcher.is_loaded(&route)).await;
    let most = || Offline::most_together(&*world.dispatcher, &route);
    assert_eq!(most(), 16, "nobody else is here");
    let online = Arc::clone(&world);
    let load = tokio::spawn(async move {
        loop {
            online.ask(query(&[SLOW, 0.0])).await.expect("it answers");
        }
    });
    wait_until(|| most() == 2).await;
    load.abort();
    wait_until(|| most() == 16).await;
}

/// Two workers: online queries keep one of them busy all the time, and the other has the job's variant.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_runs_on_a_worker_that_online_queries_leave_alone() {
    let world = Arc::new(World::with(Config::default(), 2).await);
    let busy = Kind {
        name: "m-busy",
        latency_ms: 20.0,
        ..Kind::default()
    };
    let busy = world.publish_for("other", busy).await;
    let quiet = world.publish(Kind::default()).await;
    for (at, variant) in [(0, busy), (1, quiet)] {
        let load = sextant_rpc::Load::at_once(variant);
        world.workers[at].load(load).await.unwrap();
    }
    wait_until(|| world.dispatcher.is_loaded(&variant_route("m-busy"))).await;
    wait_until(|| world.dispatcher.is_loaded(&variant_route("m-a"))).await;
    let registry = registry(&world).await;
    let online = Arc::clone(&world);
    let load = tokio::spawn(async move {
        loop {
            let query = Query {
                route: variant_route("m-busy"),
                ..query(&[SLOW, 0.0])
            };
            online.ask(query).await.unwrap();
        }
    });
    // By the mean of both the job would pause.
    let throttle = Throttle {
        pause_utilization: 0.2,
        ..Throttle::default()
    };
    wait_until(|| world.dispatcher.utilization() > 0.2).await;
    let job = submit(&world, &registry, records()).await;
    let _runner = Runner::start(service_with(&world, &registry, 1, throttle));
    succeeded(&registry, &job).await;
    assert!(!load.is_finished(), "online queries went on");
    load.abort();
    check(&answers(&world).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_pauses_while_online_queries_take_longer_than_their_profile_says() {
    let world = Arc::new(World::new().await);
    world.serve(Kind::default()).await;
    let registry = registry(&world).await;
    let online = Arc::clone(&world);
    let load = tokio::spawn(async move {
        loop {
            online.ask(query(&[SLOW, 0.0])).await.unwrap();
        }
    });
    // Utilisation alone would never pause it.
    let throttle = Throttle {
        pause_utilization: 2.0,
        ..Throttle::default()
    };
    // The same window shows both.
    let busy = async {
        while world.dispatcher.utilization() <= 0.4 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, busy)
        .await
        .expect("a busy device");
    let job = submit(&world, &registry, records()).await;
    let _runner = Runner::start(service_with(&world, &registry, 1, throttle));
    wait_for(&registry, &job, |job| job.state == JobState::Paused).await;
    load.abort();
    succeeded(&registry, &job).await;
    check(&answers(&world).await);
}
