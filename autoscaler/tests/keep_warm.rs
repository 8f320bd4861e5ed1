//! An autoscaler over workers that come and go, and over a store that is shared with others.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use sextant_autoscaler::{Config, Service, Workers};
use sextant_fleet::unsteady::UnsteadyStore;
use sextant_metadata::{Command, InstanceKey, MetadataStore, Transition, WorkerRecord};
use sextant_rpc::{
    Infer, InferError, Load, LoadTimings, Pages, VariantUsage, Work, WorkError, WorkerInfo,
    WorkerStats,
};
use sextant_types::{
    Accuracy, ApplicationId, BatchLatency, Digest, EngineName, Metric, ModelId, Optimization,
    Precision, Profile, Signature, Variant, VariantId, VariantSpec, WorkerId,
};
use tokio::sync::watch;

/// Longest wait for a state that must come.
const PATIENCE: Duration = Duration::from_secs(20);

/// A worker that loads in no time, tells the store and remembers what it was told.
struct Loader {
    id: WorkerId,
    store: Arc<UnsteadyStore>,
    loaded: Mutex<BTreeSet<VariantId>>,
    told: Mutex<Vec<String>>,
}

impl Loader {
    async fn new(name: &str, store: &Arc<UnsteadyStore>) -> Arc<Self> {
        let loader = Arc::new(Self {
            id: WorkerId::new(name).unwrap(),
            store: Arc::clone(store),
            loaded: Mutex::default(),
            told: Mutex::default(),
        });
        loader.beat(false).await;
        loader
    }

    async fn beat(&self, draining: bool) {
        let record = WorkerRecord {
            endpoint: None,
            device: "cpu".into(),
            draining,
            cores: 1,
            memory_bytes: 1000,
            memory_used_bytes: 0,
            utilization: 0.0,
        };
        // Longer than any test, from a time that never lapses.
        let beat = self.store.heartbeat(&self.id, record, u64::MAX, 1);
        beat.await.unwrap();
    }

    async fn tell(&self, variant: &VariantId, command: Command) {
        let transition = Transition {
            key: InstanceKey::new(variant.clone(), self.id.clone()),
            application: ApplicationId::new("app").unwrap(),
            expected_version: None,
            command,
        };
        self.store.transition(&transition, 1).await.unwrap();
    }

    fn told(&self) -> Vec<String> {
        self.told.lock().unwrap().clone()
    }
}

#[async_trait]
impl Work for Loader {
    fn info(&self) -> WorkerInfo {
        WorkerInfo {
            worker: self.id.clone(),
            cores: 1,
            engines: vec![EngineName("made-up".to_owned())],
            pages: Pages {
                page_bytes: 1,
                total: 1000,
                free: 1000,
            },
            utilization: 0.0,
        }
    }

    fn usage(&self) -> Vec<VariantUsage> {
        let loaded = self.loaded.lock().unwrap();
        let usage = |variant: &VariantId| VariantUsage {
            variant: variant.clone(),
            idle_ms: 0,
        };
        loaded.iter().map(usage).collect()
    }

    fn infer(&self, infer: Infer) {
        (infer.done)(Err(InferError::ShuttingDown));
    }

    async fn load(&self, load: Load) -> Result<LoadTimings, WorkError> {
        let id = load.variant.id.clone();
        self.told.lock().unwrap().push(format!("load {id}"));
        if self.loaded.lock().unwrap().insert(id.clone()) {
            self.tell(&id, Command::Load).await;
            self.tell(&id, Command::Loaded).await;
        }
        Ok(LoadTimings::default())
    }

    async fn unload(&self, variant: &VariantId) -> Result<(), WorkError> {
        self.told.lock().unwrap().push(format!("unload {variant}"));
        if self.loaded.lock().unwrap().remove(variant) {
            self.tell(variant, Command::Drain).await;
            self.tell(variant, Command::Unloaded).await;
        }
        Ok(())
    }

    async fn stats(&self) -> Result<WorkerStats, WorkError> {
        Ok(WorkerStats::default())
    }
}

fn variant(name: &str) -> Arc<Variant> {
    Arc::new(Variant {
        id: VariantId::new(name).unwrap(),
        application: ApplicationId::new("app").unwrap(),
        model: ModelId::new("m").unwrap(),
        spec: VariantSpec {
            engine: EngineName("made-up".to_owned()),
            precision: Precision::Fp32,
            optimization: Optimization::All,
            threads: 1,
            max_batch: 1,
        },
        artefact: Digest::from_bytes([7; 32]),
        signature: Signature {
            inputs: Vec::new(),
            outputs: Vec::new(),
            batched: true,
        },
        accuracy: Accuracy {
            metric: Metric::Top1,
            value: 0.9,
            lower: 0.9,
            upper: 1.0,
            records: 10,
            evaluation_batch: 1,
        },
        profile: Profile {
            load_ms: 1.0,
            batches: vec![BatchLatency {
                batch: 1,
                p50_ms: 1.0,
                p99_ms: 1.0,
                mean_ms: 1.0,
                samples: 1,
            }],
            alpha_ms: 0.0,
            beta_ms: 1.0,
            residual_ms: 0.0,
            saturation_rps: 1000.0,
            peak_memory_bytes: 100,
            weights_bytes: 10,
        },
        cost_per_hour_usd: 0.1,
        cost_per_1k_usd: 1.0,
        dominated_by: None,
    })
}

/// Starts an autoscaler without workers that looks often.
fn start(store: &Arc<UnsteadyStore>, token: Option<watch::Receiver<Option<u64>>>) -> Workers {
    let config = Config {
        period_ms: 20,
        ..Config::default()
    };
    let mut service = Service::new(config, Arc::clone(store) as _, Vec::new());
    if let Some(token) = token {
        service = service.led_by(token);
    }
    let workers = service.workers();
    tokio::spawn(service.run(std::future::pending()));
    workers
}

async fn wait_until(state: impl Fn() -> bool) {
    let begun = Instant::now();
    while !state() {
        assert!(begun.elapsed() < PATIENCE, "the state did not come");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_worker_that_comes_gets_the_frontier_and_one_that_drains_or_is_gone_nothing() {
    let store = Arc::new(UnsteadyStore::new(256));
    store.publish_variant(variant("m-a")).await.unwrap();
    let workers = start(&store, None);
    let [here, late, draining, gone] = ["here", "late", "draining", "gone"];
    let here = Loader::new(here, &store).await;
    let draining = Loader::new(draining, &store).await;
    let gone = Loader::new(gone, &store).await;
    workers.add(Arc::clone(&gone) as _);
    wait_until(|| gone.told() == ["load m-a"]).await;
    assert!(workers.remove(&gone.id) && !workers.remove(&gone.id));
    draining.beat(true).await;
    store.publish_variant(variant("m-b")).await.unwrap();
    workers.add(Arc::clone(&here) as _);
    // Who has seen what was published has seen what was said before.
    wait_until(|| here.told() == ["load m-a", "load m-b"]).await;
    workers.add(Arc::clone(&draining) as _);
    let late = Loader::new(late, &store).await;
    workers.add(Arc::clone(&late) as _);
    wait_until(|| late.told() == ["load m-a", "load m-b"]).await;
    let retired = VariantId::new("m-a").unwrap();
    store.retire_variant(&retired).await.unwrap();
    for worker in [&here, &late] {
        wait_until(|| worker.told().last().unwrap() == "unload m-a").await;
    }
    assert!(draining.told().is_empty());
    assert_eq!(gone.told(), ["load m-a"]);
}

#[tokio::test]
async fn only_who_has_the_token_acts() {
    let store = Arc::new(UnsteadyStore::new(256));
    store.publish_variant(variant("m-a")).await.unwrap();
    let tokens = [watch::Sender::new(None), watch::Sender::new(None)];
    let worker = Loader::new("w", &store).await;
    let other = Loader::new("v", &store).await;
    // Each autoscaler has a worker of its own, so that it shows which one acts.
    let [first, second] =
        [&tokens[0], &tokens[1]].map(|token| start(&store, Some(token.subscribe())));
    first.add(Arc::clone(&worker) as _);
    second.add(Arc::clone(&other) as _);
    tokens[1].send_replace(Some(1));
    wait_until(|| other.told() == ["load m-a"]).await;
    assert!(worker.told().is_empty());
    tokens[1].send_replace(None);
    tokens[0].send_replace(Some(2));
    wait_until(|| worker.told() == ["load m-a"]).await;
    store.publish_variant(variant("m-b")).await.unwrap();
    wait_until(|| worker.told() == ["load m-a", "load m-b"]).await;
    assert_eq!(other.told(), ["load m-a"]);
}

#[tokio::test]
async fn a_store_that_forgets_has_nothing_unloaded() {
    let store = Arc::new(UnsteadyStore::new(256));
    store.publish_variant(variant("m-a")).await.unwrap();
    let workers = start(&store, None);
    let worker = Loader::new("w", &store).await;
    workers.add(Arc::clone(&worker) as _);
    wait_until(|| worker.told() == ["load m-a"]).await;
    store.lose_everything();
    // The worker tells what it has before anyone publishes the variant again.
    worker.beat(false).await;
    let held = VariantId::new("m-a").unwrap();
    worker.tell(&held, Command::Load).await;
    worker.tell(&held, Command::Loaded).await;
    store.publish_variant(variant("m-b")).await.unwrap();
    wait_until(|| worker.told() == ["load m-a", "load m-b"]).await;
}
