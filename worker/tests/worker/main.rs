//! The worker's contract: windows, one device, pages, states, faults, leases.
//!
//! These tests wait for states rather than for time: a test holds the engine at a step, and windows
//! lie in the past or far ahead.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod device;
mod double;
mod faults;
mod fetching;
mod health;
mod held;
mod isolation;
mod memory;
mod metrics;
mod prepared;
mod room;
mod service;
mod stress;
mod windows;

use std::{
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use bytes::Bytes;
use sextant_engine::{Device, DeviceMemory, Engine};
use sextant_metadata::{InProcessStore, InstanceKey, InstanceState, MetadataStore};
use sextant_objects::{LocalStore, ObjectStore};
use sextant_rpc::{BatchResult, Infer, InferError, InferOutcome, Load, Work, WorkError};
use sextant_types::{
    Accuracy, ApplicationId, BatchLatency, Digest, EngineName, Metric, ModelId, NamedTensor,
    Optimization, Precision, Profile, Tensor, Texts, Variant, VariantId, VariantSpec, WorkerId,
};
use sextant_worker::{Config, End, IsolationPolicy, Service, Watchdog, Worker};

use double::{Double, PATIENCE, Record, Step, row, signature};

/// A worker with its engine, stores and service.
struct World {
    worker: Arc<Worker>,
    service: Option<Service>,
    metadata: Arc<dyn MetadataStore>,
    objects: Arc<dyn ObjectStore>,
    record: Arc<Record>,
    folder: tempfile::TempDir,
}

/// The kind of the worker's device.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Cpu,
    /// One batch at a time, inputs in the host's memory.
    Dedicated,
    /// One batch at a time, inputs staged.
    Staged,
}

impl World {
    /// One core and 1000 pages of one byte.
    async fn new() -> Self {
        Self::with(Kind::Cpu, config()).await
    }

    async fn with(kind: Kind, config: Config) -> Self {
        let record = Arc::<Record>::default();
        let engine = Arc::new(Double {
            device: kind.device(),
            staged: kind == Kind::Staged,
            is_isolated: false,
            record: Arc::clone(&record),
        });
        Self::on(engine, record, config).await
    }

    /// With another engine. `record` holds its runs, if anything does.
    async fn on(engine: Arc<dyn Engine>, record: Arc<Record>, config: Config) -> Self {
        let metadata = Arc::new(InProcessStore::new());
        Self::over(engine, record, config, metadata).await
    }

    /// With another store as well.
    async fn over(
        engine: Arc<dyn Engine>,
        record: Arc<Record>,
        config: Config,
        metadata: Arc<dyn MetadataStore>,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let objects: Arc<dyn ObjectStore> =
            Arc::new(LocalStore::open(folder.path(), None).unwrap());
        let stores = (Arc::clone(&objects), Arc::clone(&metadata));
        let (worker, mut service) =
            Worker::start(config, vec![engine], stores.0, stores.1).unwrap();
        service.announce().await;
        Self {
            worker,
            service: Some(service),
            metadata,
            objects,
            record,
            folder,
        }
    }

    /// Runs the service until the sender is dropped.
    fn serve(
        &mut self,
    ) -> (
        tokio::sync::oneshot::Sender<()>,
        tokio::task::JoinHandle<End>,
    ) {
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let service = self.service.take().unwrap();
        let running = tokio::spawn(service.run(async move { drop(stopped.await) }));
        (stop, running)
    }

    async fn variant(&self, name: &str, file: &str, memory: u64) -> Arc<Variant> {
        let bytes = Bytes::from(file.as_bytes().to_vec());
        let artefact = self.objects.put_blob(bytes).await.unwrap();
        variant(name, artefact, memory)
    }

    /// Stores and loads a variant with an artefact of its own.
    async fn loaded(&self, name: &str) -> Arc<Variant> {
        let variant = self.variant(name, name, 200).await;
        self.load(&variant).await.unwrap();
        variant
    }

    async fn load(&self, variant: &Arc<Variant>) -> Result<(), WorkError> {
        let load = Load::at_once(Arc::clone(variant));
        self.worker.load(load).await.map(drop)
    }

    /// The same in a task of its own.
    fn loading(&self, load: Load) -> tokio::task::JoinHandle<Result<(), WorkError>> {
        let worker = Arc::clone(&self.worker);
        tokio::spawn(async move { worker.load(load).await.map(drop) })
    }

    fn unloading(&self, variant: &Variant) -> tokio::task::JoinHandle<Result<(), WorkError>> {
        let (worker, id) = (Arc::clone(&self.worker), variant.id.clone());
        tokio::spawn(async move { worker.unload(&id).await })
    }

    async fn state(&self, variant: &Variant) -> Option<InstanceState> {
        let key = InstanceKey::new(variant.id.clone(), WorkerId::new("w").unwrap());
        let instance = self.metadata.instance(&key).await.unwrap();
        instance.map(|instance| instance.state)
    }

    async fn reaches(&self, variant: &Variant, state: InstanceState) {
        let reached = async {
            while self.state(variant).await != Some(state) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, reached).await.unwrap();
    }

    fn used(&self) -> u64 {
        self.worker.info().pages.used_bytes()
    }

    fn send(&self, name: &str, parts: Vec<Vec<NamedTensor>>, window: Window) -> Outcome {
        let (sender, outcome) = mpsc::channel();
        self.worker.infer(Infer {
            variant: VariantId::new(name).unwrap(),
            parts: parts.into_iter().map(sextant_rpc::Part::Inputs).collect(),
            earliest: window.0,
            latest: window.1,
            expected: Duration::ZERO,
            offline_rows: 0,
            done: Box::new(move |outcome| sender.send(outcome).unwrap()),
        });
        Outcome(outcome)
    }

    /// A batch of one query.
    fn infer(&self, name: &str, key: i64, window: Window) -> Outcome {
        self.send(name, vec![row(key, 2)], window)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.record.release_all();
    }
}

/// The channel on which a batch's outcome arrives.
struct Outcome(mpsc::Receiver<InferOutcome>);

impl Outcome {
    fn get(self) -> InferOutcome {
        let outcome = self.0.recv_timeout(PATIENCE).unwrap();
        // The sender was dropped with the handler: there is no second answer.
        assert!(self.0.recv_timeout(PATIENCE).is_err(), "answered twice");
        outcome
    }

    fn ok(self) -> BatchResult {
        self.get().unwrap()
    }

    fn error(self) -> InferError {
        self.get().unwrap_err()
    }

    fn is_pending(&self) -> bool {
        matches!(self.0.try_recv(), Err(mpsc::TryRecvError::Empty))
    }
}

impl Kind {
    fn device(self) -> Device {
        match self {
            Self::Cpu => Device::Cpu,
            Self::Dedicated | Self::Staged => Device::Dedicated {
                name: "double:0".to_owned(),
                memory: DeviceMemory {
                    page_bytes: 1,
                    pages: 1000,
                },
            },
        }
    }
}

/// `earliest` and `latest`.
type Window = (Instant, Option<Instant>);

fn now() -> Window {
    (Instant::now(), None)
}

fn ahead(seconds: u64) -> Window {
    (Instant::now() + Duration::from_secs(seconds), None)
}

fn config() -> Config {
    Config {
        page_bytes: 1,
        period_ms: 20,
        lease_ms: 60_000,
        ..Config::new(WorkerId::new("w").unwrap(), 1, 1000)
    }
}

/// Every held batch and every held load counts as stuck. On a busy machine a thread waits for a core for longer than a
/// tenth of a second, and what is not held must not count.
fn impatient() -> Config {
    Config {
        watchdog: Watchdog {
            batch_floor: Duration::from_millis(500),
            load_floor: Duration::from_millis(500),
            factor: 1.0,
            ..Watchdog::default()
        },
        ..config()
    }
}

/// Yields until `state` holds; a state that does not come fails the test.
async fn until(state: impl Fn() -> bool) {
    let begun = Instant::now();
    while !state() {
        assert!(begun.elapsed() < PATIENCE, "the state did not come");
        tokio::task::yield_now().await;
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
            engine: EngineName("double".to_owned()),
            precision: Precision::Fp32,
            optimization: Optimization::All,
            threads: 1,
            max_batch: 8,
        },
        artefact,
        signature: signature(),
        padding: None,
        accuracy: Accuracy {
            kind: sextant_types::AccuracyKind::Accuracy,
            metric: Metric::Top1,
            value: 0.9,
            lower: 0.8,
            upper: 1.0,
            records: 10,
            evaluation_batch: 32,
        },
        profile: Profile {
            load_ms: 1.0,
            first_load_ms: None,
            batches: vec![batch(1), batch(8)],
            alpha_ms: 0.0,
            beta_ms: 1.0,
            residual_ms: 0.0,
            saturation_rps: 1000.0,
            peak_memory_bytes: memory,
            weights_bytes: 100,
            sizes: Default::default(),
            concurrent: Vec::new(),
        },
        cost_per_hour_usd: 0.1,
        cost_per_1k_usd: 0.1,
        measured_on: None,
        profiles: Default::default(),
        dominated_by: None,
        apart: None,
        resources: Default::default(),
        release: Default::default(),
        foreign: false,
    })
}
