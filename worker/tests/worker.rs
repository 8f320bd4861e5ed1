//! What a worker promises: windows, states, memory, leases.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use sextant_engine::{
    Engine,
    emulated::{EmulatedEngine, EmulatedModel},
};
use sextant_metadata::{InProcessStore, InstanceKey, InstanceState, MetadataStore};
use sextant_objects::{LocalStore, ObjectStore};
use sextant_rpc::{Infer, InferError, InferOutcome, Load, Work, WorkError};
use sextant_types::{
    Accuracy, ApplicationId, BatchLatency, DataType, Digest, EngineName, Metric, ModelId,
    NamedTensor, Optimization, Precision, Profile, Signature, Tensor, TensorSpec, Variant,
    VariantId, VariantSpec, WorkerId,
};
use sextant_worker::{Config, Service, Worker};

const PATIENCE: Duration = Duration::from_secs(20);

/// Time stands still for the emulated engine while this is closed.
#[derive(Default)]
struct Gate {
    closed: Mutex<bool>,
    changed: Condvar,
    entered: AtomicUsize,
}

impl Gate {
    /// Waits until so many runs have come by.
    async fn entered(&self, runs: usize) {
        let enough = async {
            while self.entered.load(Ordering::SeqCst) < runs {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, enough).await.unwrap();
    }

    fn set(&self, closed: bool) {
        *self.closed.lock().unwrap() = closed;
        self.changed.notify_all();
    }

    fn pass(&self) {
        self.entered.fetch_add(1, Ordering::SeqCst);
        let closed = self.closed.lock().unwrap();
        drop(self.changed.wait_while(closed, |closed| *closed).unwrap());
    }
}

struct World {
    worker: Arc<Worker>,
    service: Option<Service>,
    metadata: Arc<dyn MetadataStore>,
    objects: Arc<dyn ObjectStore>,
    gate: Arc<Gate>,
    _folder: tempfile::TempDir,
}

fn signature() -> Signature {
    let spec = |name: &str| TensorSpec {
        name: name.to_owned(),
        data_type: DataType::Fp32,
        shape: vec![None, None],
    };
    Signature {
        inputs: vec![spec("x")],
        outputs: vec![spec("y")],
        batched: true,
    }
}

impl World {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let objects: Arc<dyn ObjectStore> =
            Arc::new(LocalStore::open(folder.path(), None).unwrap());
        let metadata: Arc<dyn MetadataStore> = Arc::new(InProcessStore::new());
        let gate = Arc::<Gate>::default();
        let passage = Arc::clone(&gate);
        let describe = |_: &sextant_engine::LoadRequest| {
            Ok(EmulatedModel {
                signature: signature(),
                alpha_ms: 0.0,
                beta_ms: 0.0,
                load_ms: 0.0,
                weights_bytes: 100,
            })
        };
        let engine: Arc<dyn Engine> =
            Arc::new(EmulatedEngine::new(describe).with_sleep(move |_| passage.pass()));
        let config = Config {
            page_bytes: 1,
            period_ms: 20,
            lease_ms: 60_000,
            ..Config::new(WorkerId::new("w").unwrap(), 1, 1000)
        };
        let (worker, mut service) = Worker::start(
            config,
            vec![engine],
            Arc::clone(&objects),
            Arc::clone(&metadata),
        )
        .unwrap();
        service.announce().await;
        let service = Some(service);
        Self {
            worker,
            service,
            metadata,
            objects,
            gate,
            _folder: folder,
        }
    }

    async fn variant(&self, name: &str, file: &'static [u8], memory: u64) -> Arc<Variant> {
        let artefact = self
            .objects
            .put_blob(Bytes::from_static(file))
            .await
            .unwrap();
        variant(name, artefact, memory)
    }

    async fn load(&self, variant: &Arc<Variant>) -> Result<(), WorkError> {
        let load = Load::at_once(Arc::clone(variant));
        self.worker.load(load).await.map(|_| ())
    }

    async fn state(&self, variant: &Variant) -> Option<InstanceState> {
        let key = InstanceKey::new(variant.id.clone(), WorkerId::new("w").unwrap());
        self.metadata
            .instance(&key)
            .await
            .unwrap()
            .map(|instance| instance.state)
    }

    fn infer(
        &self,
        name: &str,
        window: (Instant, Option<Instant>),
    ) -> mpsc::Receiver<InferOutcome> {
        let (sender, outcome) = mpsc::channel();
        self.worker.infer(Infer {
            variant: VariantId::new(name).unwrap(),
            parts: vec![row(2), row(2)],
            earliest: window.0,
            latest: window.1,
            expected: Duration::ZERO,
            done: Box::new(move |outcome| sender.send(outcome).unwrap()),
        });
        outcome
    }
}

fn variant(name: &str, artefact: Digest, memory: u64) -> Arc<Variant> {
    let batch = |batch| BatchLatency {
        batch,
        p50_ms: 1.0,
        p99_ms: 1.0,
        mean_ms: 1.0,
        samples: 3,
    };
    Arc::new(Variant {
        id: VariantId::new(name).unwrap(),
        application: ApplicationId::new("app").unwrap(),
        model: ModelId::new("m").unwrap(),
        spec: VariantSpec {
            engine: EngineName("emulated".to_owned()),
            precision: Precision::Fp32,
            optimization: Optimization::All,
            threads: 1,
            max_batch: 8,
        },
        artefact,
        signature: signature(),
        accuracy: Accuracy {
            metric: Metric::Top1,
            value: 0.9,
            lower: 0.8,
            upper: 1.0,
            records: 10,
            evaluation_batch: 32,
        },
        profile: Profile {
            load_ms: 1.0,
            batches: vec![batch(1), batch(8)],
            alpha_ms: 0.0,
            beta_ms: 1.0,
            residual_ms: 0.0,
            saturation_rps: 1000.0,
            peak_memory_bytes: memory,
            weights_bytes: 100,
        },
        cost_per_hour_usd: 0.1,
        cost_per_1k_usd: 0.1,
        dominated_by: None,
    })
}

fn row(width: usize) -> Vec<NamedTensor> {
    let tensor = Tensor::from_elements(vec![1, width], &vec![1.0f32; width]).unwrap();
    vec![NamedTensor::new("x", tensor)]
}

fn now() -> (Instant, Option<Instant>) {
    (Instant::now(), None)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_loaded_variant_runs_and_answers_each_part() {
    let world = World::new().await;
    let variant = world.variant("m-a", b"a", 200).await;
    world.load(&variant).await.unwrap();
    assert_eq!(world.state(&variant).await, Some(InstanceState::Active));
    let result = world
        .infer("m-a", now())
        .recv_timeout(PATIENCE)
        .unwrap()
        .unwrap();
    assert_eq!(result.outputs.len(), 2);
    for outputs in result.outputs {
        assert_eq!(outputs.unwrap()[0].rows(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_is_honoured_at_both_ends() {
    let world = World::new().await;
    let variant = world.variant("m-a", b"a", 200).await;
    world.load(&variant).await.unwrap();
    let earliest = Instant::now() + Duration::from_millis(50);
    let outcome = world.infer("m-a", (earliest, None));
    let result = outcome.recv_timeout(PATIENCE).unwrap().unwrap();
    assert!(
        result.timings.started >= earliest,
        "begun before its window"
    );
    world.gate.set(true);
    let blocking = world.infer("m-a", now());
    let late = world.infer("m-a", (Instant::now(), Some(Instant::now())));
    world.gate.set(false);
    assert!(blocking.recv_timeout(PATIENCE).unwrap().is_ok());
    assert_eq!(
        late.recv_timeout(PATIENCE).unwrap().unwrap_err(),
        InferError::TooLate
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_loaded_is_refused() {
    let world = World::new().await;
    let outcome = world.infer("m-x", now()).recv_timeout(PATIENCE).unwrap();
    assert_eq!(
        outcome.unwrap_err(),
        InferError::NotLoaded(VariantId::new("m-x").unwrap())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_that_cannot_share_a_batch_run_one_by_one() {
    let world = World::new().await;
    let variant = world.variant("m-a", b"a", 200).await;
    world.load(&variant).await.unwrap();
    let (sender, outcome) = mpsc::channel();
    world.worker.infer(Infer {
        variant: variant.id.clone(),
        parts: vec![row(2), row(3)],
        earliest: Instant::now(),
        latest: None,
        expected: Duration::ZERO,
        done: Box::new(move |outcome| sender.send(outcome).unwrap()),
    });
    let result = outcome.recv_timeout(PATIENCE).unwrap().unwrap();
    assert!(
        result.outputs.iter().all(Result::is_ok),
        "{:?}",
        result.outputs
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_is_counted_once_for_shared_weights_and_never_overdrawn() {
    let world = World::new().await;
    let first = world.variant("m-a", b"same", 500).await;
    let again = world.variant("m-b", b"same", 500).await;
    let other = world.variant("m-c", b"other", 600).await;
    world.load(&first).await.unwrap();
    world.load(&again).await.unwrap();
    world.load(&first).await.unwrap();
    assert_eq!(
        world.worker.info().pages.used_bytes(),
        500,
        "one session, one copy of weights"
    );
    let short = world.load(&other).await.unwrap_err();
    let needed = WorkError::NoMemory {
        variant: other.id.clone(),
        needed: 600,
        free: 500,
        page_bytes: 1,
    };
    assert_eq!(short, needed);
    world.worker.unload(&first.id).await.unwrap();
    world.worker.unload(&again.id).await.unwrap();
    assert_eq!(world.worker.info().pages.used_bytes(), 0);
    assert_eq!(world.state(&first).await, Some(InstanceState::Inactive));
    world.load(&other).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_load_is_a_state_with_a_reason_and_can_be_tried_again() {
    let world = World::new().await;
    let missing = variant("m-a", Digest::from_bytes([7; 32]), 200);
    assert!(world.load(&missing).await.is_err());
    assert_eq!(world.state(&missing).await, Some(InstanceState::Failed));
    assert_eq!(world.worker.info().pages.used_bytes(), 0);
    let found = world.variant("m-a", b"a", 200).await;
    world.load(&found).await.unwrap();
    assert_eq!(world.state(&found).await, Some(InstanceState::Active));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_whose_lease_lapsed_announces_what_it_holds() {
    let mut world = World::new().await;
    let variant = world.variant("m-a", b"a", 200).await;
    world.load(&variant).await.unwrap();
    assert_eq!(world.metadata.expire(u64::MAX).await.unwrap().len(), 1);
    assert_eq!(world.state(&variant).await, None);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let service = world.service.take().unwrap();
    let running = tokio::spawn(service.run(async move { drop(stopped.await) }));
    let announced = async {
        while world.state(&variant).await != Some(InstanceState::Active) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, announced).await.unwrap();
    drop(stop);
    running.await.unwrap();
    assert_eq!(
        world.state(&variant).await,
        Some(InstanceState::Inactive),
        "drained at the end"
    );
    let refused = world
        .infer("m-a", now())
        .recv_timeout(PATIENCE)
        .unwrap()
        .unwrap_err();
    assert_eq!(refused, InferError::ShuttingDown);
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_that_wait_at_the_shutdown_are_answered() {
    let mut world = World::new().await;
    let variant = world.variant("m-a", b"a", 200).await;
    world.load(&variant).await.unwrap();
    world.gate.set(true);
    let before = world.gate.entered.load(Ordering::SeqCst);
    let running = world.infer("m-a", now());
    world.gate.entered(before + 1).await;
    let waiting: Vec<_> = (0..20).map(|_| world.infer("m-a", now())).collect();
    let service = world.service.take().unwrap();
    let stopping = tokio::spawn(service.run(std::future::ready(())));
    for outcome in waiting {
        match outcome.recv_timeout(PATIENCE).unwrap() {
            Err(InferError::ShuttingDown) => {}
            other => panic!("{other:?}"),
        }
    }
    world.gate.set(false);
    assert!(
        running.recv_timeout(PATIENCE).unwrap().is_ok(),
        "what has begun is finished"
    );
    tokio::time::timeout(PATIENCE, stopping)
        .await
        .unwrap()
        .unwrap();
}
