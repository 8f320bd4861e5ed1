//! A dispatcher with workers whose engine doubles its input, with a gate to hold them.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use bytes::Bytes;
use sextant_baselines as schedule;
use sextant_dispatcher::{Config, Dispatcher};
use sextant_engine::Engine;
use sextant_metadata::{InProcessStore, MetadataStore};
use sextant_objects::{LocalStore, ObjectStore};
use sextant_registry::{Application, Registry};
use sextant_rpc::{Answer, Dispatch, ForStep, Query, QueryError, WorkerClient};
use sextant_types::{
    Accuracy, ApplicationId, BatchLatency, DeviceType, EngineName, Metric, ModelId, NamedTensor,
    Optimization, Precision, Profile, Route, StepOf, Targets, Tensor, Variant, VariantId,
    VariantSpec, WorkerId,
};
use sextant_worker::{End, Service, Worker};

mod engine;

pub use engine::{DRAWS, Gate, MIXES, SLOW, SWAPPED, signature};

use engine::Doubling;

/// The longest wait for a state that must occur.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// The properties in which variants differ in these tests.
#[derive(Clone, Copy)]
pub struct Kind {
    pub name: &'static str,
    pub quality: f64,
    pub latency_ms: f64,
    pub load_ms: f64,
    pub cost: f64,
    pub memory: u64,
    pub artefact: &'static [u8],
    pub threads: u16,
    pub max_batch: u16,
}

impl Default for Kind {
    fn default() -> Self {
        Self {
            name: "m-a",
            quality: 0.9,
            latency_ms: 1.0,
            load_ms: 1.0,
            cost: 1.0,
            memory: 100,
            artefact: b"fine",
            threads: 1,
            max_batch: 4,
        }
    }
}

pub struct World {
    pub dispatcher: Arc<Dispatcher>,
    /// The first worker.
    pub worker: WorkerClient,
    pub workers: Vec<WorkerClient>,
    pub metadata: Arc<dyn MetadataStore>,
    pub objects: Arc<dyn ObjectStore>,
    pub gate: Arc<Gate>,
    pub folder: tempfile::TempDir,
    stop: tokio::sync::watch::Sender<bool>,
    /// The services of the workers, until they are run.
    services: Mutex<Vec<Option<Service>>>,
}

impl World {
    pub async fn new() -> Self {
        Self::with(Config::default(), 1).await
    }

    /// A dispatcher over `count` workers of one core each.
    pub async fn with(config: impl Into<DispatcherSettings>, count: usize) -> Self {
        Self::with_cores(config, count, 1).await
    }

    /// A dispatcher over `count` workers of `cores` each.
    pub async fn with_cores(
        config: impl Into<DispatcherSettings>,
        count: usize,
        cores: u16,
    ) -> Self {
        let store = Arc::new(InProcessStore::new());
        Self::over(store, config, (count, cores), |worker| worker).await
    }

    /// The same over another metadata store, with workers that the dispatcher reaches through the
    /// result of `reach`.
    pub async fn over(
        metadata: Arc<dyn MetadataStore>,
        config: impl Into<DispatcherSettings>,
        (count, cores): (usize, u16),
        reach: impl Fn(WorkerClient) -> WorkerClient,
    ) -> Self {
        let devices = vec![(cores, None); count];
        Self::made_of(metadata, config.into(), devices, reach).await
    }

    /// A dispatcher over a worker of one core for each of these types of devices.
    pub async fn with_types(config: Config, types: Vec<DeviceType>) -> Self {
        let store = Arc::new(InProcessStore::new());
        let devices = types.into_iter().map(|it| (1, Some(Arc::new(it))));
        Self::made_of(store, config.into(), devices.collect(), |worker| worker).await
    }

    /// The workers by their cores and types.
    async fn made_of(
        metadata: Arc<dyn MetadataStore>,
        config: DispatcherSettings,
        devices: Vec<(u16, Option<Arc<DeviceType>>)>,
        reach: impl Fn(WorkerClient) -> WorkerClient,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let objects: Arc<dyn ObjectStore> =
            Arc::new(LocalStore::open(folder.path().join("objects"), None).unwrap());
        let gate = Arc::<Gate>::default();
        let engine: Arc<dyn Engine> = Arc::new(Doubling {
            gate: Arc::clone(&gate),
        });
        let mut workers: Vec<WorkerClient> = Vec::new();
        let mut services = Vec::new();
        for (number, (cores, device_type)) in devices.into_iter().enumerate() {
            let name = WorkerId::new(format!("w{number}")).unwrap();
            let config = sextant_worker::Config {
                page_bytes: 1,
                lease_ms: 60_000,
                drain: PATIENCE,
                device_type,
                ..sextant_worker::Config::new(name, cores, 1000)
            };
            let engines = vec![Arc::clone(&engine)];
            let stores = (Arc::clone(&objects), Arc::clone(&metadata));
            let (worker, mut service) = Worker::start(config, engines, stores.0, stores.1).unwrap();
            service.announce().await;
            workers.push(reach(worker));
            services.push(Some(service));
        }
        let stop = tokio::sync::watch::Sender::new(false);
        let dispatcher = start(config, workers.clone(), &metadata, &stop);
        Self {
            dispatcher,
            worker: Arc::clone(&workers[0]),
            workers,
            metadata,
            objects,
            gate,
            folder,
            stop,
            services: Mutex::new(services),
        }
    }

    /// Keeps a worker's lease from now on, until it leaves.
    pub fn run_worker(&self, at: usize) -> tokio::task::JoinHandle<End> {
        let service = self.services.lock().unwrap()[at].take();
        tokio::spawn(service.expect("not run before").run(std::future::pending()))
    }

    /// One more dispatcher over the same store.
    pub fn another(&self, workers: Vec<WorkerClient>) -> Arc<Dispatcher> {
        start(
            Config::default().into(),
            workers,
            &self.metadata,
            &self.stop,
        )
    }

    /// Publishes a variant of application `app` and waits until the dispatcher knows it.
    pub async fn publish(&self, kind: Kind) -> Arc<Variant> {
        self.publish_for("app", kind).await
    }

    /// The same for another application.
    pub async fn publish_for(&self, application: &str, kind: Kind) -> Arc<Variant> {
        self.publish_with(application, kind, |_| {}).await
    }

    /// The same with further changes to the variant.
    pub async fn publish_with(
        &self,
        application: &str,
        kind: Kind,
        change: impl FnOnce(&mut Variant),
    ) -> Arc<Variant> {
        let artefact = self
            .objects
            .put_blob(Bytes::from_static(kind.artefact))
            .await
            .unwrap();
        let batches = [1, 64].map(|batch| BatchLatency {
            batch,
            p50_ms: kind.latency_ms,
            p99_ms: kind.latency_ms,
            mean_ms: kind.latency_ms,
            samples: 10,
        });
        let mut variant = Variant {
            id: VariantId::new(kind.name).unwrap(),
            application: ApplicationId::new(application).unwrap(),
            model: ModelId::new("m").unwrap(),
            spec: VariantSpec {
                engine: EngineName("doubling".to_owned()),
                precision: Precision::Fp32,
                optimization: Optimization::All,
                threads: kind.threads,
                max_batch: kind.max_batch,
            },
            artefact,
            signature: signature(),
            padding: None,
            accuracy: Accuracy {
                kind: sextant_types::AccuracyKind::Accuracy,
                metric: Metric::Top1,
                value: kind.quality,
                lower: kind.quality,
                upper: 1.0,
                records: 100,
                evaluation_batch: 32,
            },
            profile: Profile {
                load_ms: kind.load_ms,
                first_load_ms: None,
                batches: batches.to_vec(),
                alpha_ms: 0.0,
                beta_ms: kind.latency_ms,
                residual_ms: 0.0,
                saturation_rps: 1000.0,
                peak_memory_bytes: kind.memory,
                weights_bytes: 10,
                sizes: Default::default(),
                concurrent: Vec::new(),
            },
            cost_per_hour_usd: 0.1,
            cost_per_1k_usd: kind.cost,
            measured_on: None,
            profiles: Default::default(),
            dominated_by: None,
            apart: None,
            resources: Default::default(),
            release: Default::default(),
            foreign: false,
        };
        change(&mut variant);
        let variant = Arc::new(variant);
        self.metadata
            .publish_variant(Arc::clone(&variant))
            .await
            .unwrap();
        let known = Route::Variant(variant.id.clone());
        wait_until(|| self.dispatcher.signature(&known).is_ok()).await;
        variant
    }

    /// Publishes a variant of application `app` and loads it on every worker.
    pub async fn serve(&self, kind: Kind) -> Arc<Variant> {
        self.serve_for("app", kind).await
    }

    /// The same for another application.
    pub async fn serve_for(&self, application: &str, kind: Kind) -> Arc<Variant> {
        self.serve_with(application, kind, |_| {}).await
    }

    /// The same with further changes to the variant.
    pub async fn serve_with(
        &self,
        application: &str,
        kind: Kind,
        change: impl FnOnce(&mut Variant),
    ) -> Arc<Variant> {
        let variant = self.publish_with(application, kind, change).await;
        for worker in &self.workers {
            let load = sextant_rpc::Load::at_once(Arc::clone(&variant));
            worker.load(load).await.unwrap();
        }
        // A query that loses its worker finds the others only once their instances are known.
        wait_until(|| self.dispatcher.serving(&variant.id) == self.workers.len()).await;
        variant
    }

    pub async fn ask(&self, query: Query) -> Result<Answer, QueryError> {
        tokio::time::timeout(PATIENCE, self.dispatcher.query(query))
            .await
            .expect("an answer")
    }

    /// Sends a query and returns once the dispatcher has admitted it.
    pub fn send(&self, query: Query) -> tokio::task::JoinHandle<Result<Answer, QueryError>> {
        let dispatcher = Arc::clone(&self.dispatcher);
        tokio::spawn(async move { dispatcher.query(query).await })
    }
}

/// A dispatcher's settings, and another scheduling policy if it does not have ours.
pub struct DispatcherSettings {
    config: Config,
    by: Option<schedule::Options>,
}

impl From<Config> for DispatcherSettings {
    fn from(config: Config) -> Self {
        Self { config, by: None }
    }
}

impl From<schedule::Options> for DispatcherSettings {
    fn from(by: schedule::Options) -> Self {
        Self {
            config: Config::default(),
            by: Some(by),
        }
    }
}

fn start(
    DispatcherSettings { config, by }: DispatcherSettings,
    workers: Vec<WorkerClient>,
    metadata: &Arc<dyn MetadataStore>,
    stop: &tokio::sync::watch::Sender<bool>,
) -> Arc<Dispatcher> {
    let metadata = Arc::clone(metadata);
    let (dispatcher, service) = match by {
        None => Dispatcher::start(config, workers, metadata),
        Some(by) => Dispatcher::start_by(&by, config, workers, metadata),
    };
    let mut stopped = stop.subscribe();
    tokio::spawn(service.run(async move { drop(stopped.wait_for(|stop| *stop).await) }));
    dispatcher
}

impl Drop for World {
    fn drop(&mut self) {
        self.gate.open();
        self.stop.send_replace(true);
    }
}

pub fn variant_route(name: &str) -> Route {
    Route::Variant(VariantId::new(name).unwrap())
}

pub fn row(values: &[f32]) -> Vec<NamedTensor> {
    let shape = vec![values.len() / 2, 2];
    vec![NamedTensor::new(
        "x",
        Tensor::from_elements(shape, values).unwrap(),
    )]
}

pub fn query(values: &[f32]) -> Query {
    Query::new(
        Route::Application(ApplicationId::new("app").unwrap()),
        row(values),
        Instant::now(),
    )
}

/// The facts of a step whose query has these latency limits.
pub fn for_step(whole_ms: f64, patience_ms: Option<f64>) -> Box<ForStep> {
    Box::new(ForStep {
        of: Arc::new(StepOf {
            pipeline: ApplicationId::new("pages").unwrap(),
            step: "read".to_owned(),
            after: Vec::new(),
            asks: Route::Application(ApplicationId::new("app").unwrap()),
        }),
        share: 0.25,
        whole_ms: Some(whole_ms),
        patience_ms,
        accuracy: None,
    })
}

pub fn targets(latency_ms: Option<f64>, min_quality: Option<f64>) -> Targets {
    Targets {
        latency_ms,
        min_quality,
        ..Targets::default()
    }
}

pub fn output(answer: &Answer) -> Vec<f32> {
    answer.outputs[0].tensor.to_vec().unwrap()
}

/// Yields until `state` holds. The test fails if it never does.
pub async fn wait_until(state: impl Fn() -> bool) {
    let begun = Instant::now();
    while !state() {
        assert!(begun.elapsed() < PATIENCE, "the state did not come");
        tokio::task::yield_now().await;
    }
}

/// A registry that has the application of every variant.
pub async fn registry(world: &World) -> Registry {
    let registry = Registry::open(world.folder.path().join("registry.sqlite"))
        .await
        .unwrap();
    let application = Application {
        id: ApplicationId::new("app").unwrap(),
        metric: Metric::Top1,
        description: String::new(),
        default_targets: Targets::default(),
        signature: None,
        resources: Default::default(),
        presets: Default::default(),
        feedback: None,
    };
    registry.create_application(&application).await.unwrap();
    registry
}
