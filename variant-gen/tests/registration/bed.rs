//! A folder, its stores, an engine, and models to register.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sextant_engine::{Capabilities, Engine, Error as EngineError, LoadRequest, LoadedModel};
use sextant_engine_ort::OrtEngine;
use sextant_metadata::{InProcessStore, MetadataStore};
use sextant_objects::{LocalStore, ObjectStore};
use sextant_onnx::builder;
use sextant_registry::{
    Application, DataFile, Job, JobKind, JobState, Model, NewJob, NewModel, Registration, Registry,
};
use sextant_types::{
    ApplicationId, JobId, Metric, ModelId, Optimization, Precision, Targets, Variant,
};
use sextant_variant_gen::{
    Config, Error, Generator, RegistrationService, Stores,
    checkpoint::{Checkpoint, NoWatch, Phase},
    measure::Effort,
};
use tokio::sync::{Notify, watch};

pub const LEASE: Duration = Duration::from_secs(60);

/// Inputs and classes of the models below.
pub const WIDTH: usize = 8;
pub const CLASSES: usize = 3;

pub fn ort() -> OrtEngine {
    let library = OrtEngine::find_library(None)
        .expect("the ONNX Runtime library is missing: run `cargo xtask provision`");
    OrtEngine::new(&library).expect("the library loads")
}

/// ONNX Runtime with one optimisation level and one thread: fewer configurations to wait for.
pub struct LimitedEngine(OrtEngine);

impl Engine for LimitedEngine {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            precisions: vec![
                Precision::Fp32,
                Precision::Int8Dynamic,
                Precision::Int8Static,
            ],
            optimizations: vec![Optimization::All],
            threads: false,
            ..self.0.capabilities()
        }
    }

    fn load(&self, request: &LoadRequest) -> Result<Arc<dyn LoadedModel>, EngineError> {
        self.0.load(request)
    }
}

pub fn limited() -> Vec<Arc<dyn Engine>> {
    vec![Arc::new(LimitedEngine(ort()))]
}

/// Steps of a registration with [`limited`], in order.
pub const STEPS: [&str; 8] = [
    "inspect",
    "generate:fp32",
    "generate:int8d",
    "generate:int8s",
    "measure:ort-fp32-all-t1",
    "measure:ort-int8d-all-t1",
    "measure:ort-int8s-all-t1",
    "publish",
];

/// Little effort: what is measured is not looked at. Nothing is left out because it is slow, as anything may seem to be
/// on a busy machine.
pub fn quick() -> Config {
    Config {
        effort: Effort {
            budget: Duration::ZERO,
            runs: 2,
            loads: 1,
            largest_batch: 4,
            least_gain: 0.0,
            pruned_above: Duration::MAX,
            ..Effort::default()
        },
        cores: 1,
        lease: LEASE,
        back_off: Duration::from_millis(1),
        ..Config::default()
    }
}

/// Stores in a folder that outlive a "process"; what is in memory does not.
pub struct Bed {
    _folder: tempfile::TempDir,
    pub registry: Registry,
    pub objects: Arc<dyn ObjectStore>,
    pub metadata: Arc<dyn MetadataStore>,
}

impl Bed {
    pub async fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let registry = Registry::open(folder.path().join("registry.sqlite"))
            .await
            .expect("opens");
        let objects = LocalStore::open(folder.path().join("objects"), None).expect("opens");
        let bed = Self {
            _folder: folder,
            registry,
            objects: Arc::new(objects),
            metadata: Arc::new(InProcessStore::new()),
        };
        bed.application("app", Metric::Top1).await;
        bed
    }

    pub async fn application(&self, name: &str, metric: Metric) {
        let application = Application {
            id: ApplicationId::new(name).expect("valid"),
            metric,
            description: String::new(),
            default_targets: Targets::default(),
            signature: None,
            resources: Default::default(),
            presets: Default::default(),
            feedback: None,
        };
        self.registry
            .create_application(&application)
            .await
            .expect("is created");
    }

    pub fn stores(&self) -> Stores {
        Stores {
            registry: self.registry.clone(),
            objects: self.objects.clone(),
            metadata: self.metadata.clone(),
        }
    }

    pub fn generator(&self, config: Config) -> Generator {
        self.watched(config, Arc::new(NoWatch))
    }

    pub fn watched(&self, config: Config, checkpoint: Arc<dyn Checkpoint>) -> Generator {
        Generator::watched(self.stores(), limited(), config, checkpoint)
    }

    /// Puts a registration into the queue.
    pub async fn submit(&self, name: &str, model: &Bytes, validation: &Bytes) -> Registration {
        self.submit_to("app", name, model, validation).await
    }

    pub async fn submit_to(
        &self,
        application: &str,
        name: &str,
        model: &Bytes,
        validation: &Bytes,
    ) -> Registration {
        self.submit_with(application, name, (model, validation), Vec::new())
            .await
    }

    /// The same with files beside the model. A set without labels is declared as one.
    pub async fn submit_with(
        &self,
        application: &str,
        name: &str,
        files: (&Bytes, &Bytes),
        data: Vec<DataFile>,
    ) -> Registration {
        let unlabelled = !files.1.windows(5).any(|word| word == b"label");
        self.submit_as((application, name), files, data, unlabelled)
            .await
    }

    /// The same, whether or not the set is declared to have no labels.
    pub async fn submit_as(
        &self,
        (application, name): (&str, &str),
        (model, validation): (&Bytes, &Bytes),
        data: Vec<DataFile>,
        unlabelled: bool,
    ) -> Registration {
        let new = NewModel {
            data,
            unlabelled,
            ..self
                .new_model((application, name), (model, validation))
                .await
        };
        self.submit_new(&new).await
    }

    /// A labelled model of which nothing is declared, with its files in the store.
    pub async fn new_model(
        &self,
        (application, name): (&str, &str),
        (model, validation): (&Bytes, &Bytes),
    ) -> NewModel {
        NewModel {
            name: ModelId::new(name).expect("valid"),
            version: None,
            current: false,
            application: ApplicationId::new(application).expect("valid"),
            digest: self.objects.put_blob(model.clone()).await.expect("stored"),
            validation: self
                .objects
                .put_blob(validation.clone())
                .await
                .expect("stored"),
            size_bytes: model.len() as u64,
            padding: None,
            outputs: Vec::new(),
            constants: Default::default(),
            names: Default::default(),
            data: Vec::new(),
            classes: Vec::new(),
            unlabelled: false,
            registered_by: None,
        }
    }

    /// Puts the registration of a model into the queue.
    pub async fn submit_new(&self, new: &NewModel) -> Registration {
        let spec = serde_json::json!({"model": new.name, "application": new.application});
        let job = NewJob::new(JobKind::Register, new.application.clone(), spec);
        let job = job.for_model(new.name.clone());
        self.registry
            .register_model(new, &job, 1)
            .await
            .expect("is registered")
    }

    pub async fn model(&self, name: &str) -> Model {
        let id = ModelId::new(name).expect("valid");
        self.registry.model(&id).await.expect("exists")
    }

    pub async fn variants(&self, name: &str) -> Vec<Variant> {
        let id = ModelId::new(name).expect("valid");
        self.registry.variants_of(&id).await.expect("reads")
    }

    /// Names of what dispatchers see.
    pub async fn visible(&self) -> Vec<String> {
        let variants = self.metadata.variants().await.expect("reads");
        variants.iter().map(|it| it.id.to_string()).collect()
    }

    /// A new process on the same folder: nothing in memory is left.
    pub async fn restart(&mut self) {
        self.metadata = Arc::new(InProcessStore::new());
        self.registry.void_leases(2).await.expect("voids");
    }

    /// Runs a service until the job has come to its end.
    pub async fn run_to_end(&self, generator: Generator, job: &JobId) -> Job {
        let service = RegistrationService::new(generator, "test");
        let settled = service.settled();
        let (stop, mut stopped) = watch::channel(false);
        let running = service.run(async move {
            stopped.wait_for(|stopped| *stopped).await.ok();
        });
        let waiting = async {
            let job = self.ended(job, settled).await;
            stop.send_replace(true);
            job
        };
        let ((), job) = tokio::join!(running, waiting);
        job
    }

    /// Waits for the end of a job that a service works on.
    pub async fn ended(&self, id: &JobId, mut settled: watch::Receiver<u64>) -> Job {
        let waiting = async {
            loop {
                settled.mark_unchanged();
                let job = self.registry.job(id).await.expect("exists");
                if job.state.is_final() {
                    return job;
                }
                settled.changed().await.expect("the service runs");
            }
        };
        tokio::time::timeout(Duration::from_secs(300), waiting)
            .await
            .expect("the job ends")
    }

    pub async fn register(&self, name: &str, model: &Bytes, validation: &Bytes) -> Job {
        let job = self.submit(name, model, validation).await.job;
        self.run_to_end(self.generator(quick()), &job.id).await
    }

    pub async fn register_well(&self, name: &str, model: &Bytes, validation: &Bytes) {
        let job = self.register(name, model, validation).await;
        assert_eq!(job.state, JobState::Succeeded, "{:?}", job.error);
    }
}

/// A small classifier.
pub fn model(seed: u64) -> Bytes {
    builder::mlp(&[WIDTH, 16, CLASSES], seed)
}

/// Random records for [`model`], 70 of them: two full evaluation batches and a shorter one.
pub fn validation(seed: u64) -> Bytes {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut lines = String::new();
    for _ in 0..70 {
        let input: Vec<f32> = (0..WIDTH).map(|_| rng.random_range(-1.0..1.0)).collect();
        let label = rng.random_range(0..CLASSES);
        let record = serde_json::json!({"inputs": {"input": input}, "label": label});
        lines.push_str(&record.to_string());
        lines.push('\n');
    }
    lines.into()
}

/// What happens when a trap is reached.
pub enum Action {
    /// Waits for ever: whoever drops the registration then kills it at this moment.
    Hang,
    /// Fails this many times.
    Fail(u32, fn() -> Error),
}

/// Reached once, or as often as it fails.
pub struct Trap {
    pub step: String,
    pub phase: Phase,
    pub action: std::sync::Mutex<Action>,
    pub reached: Notify,
}

impl Trap {
    pub fn new(step: &str, phase: Phase, action: Action) -> Arc<Self> {
        Arc::new(Self {
            step: step.to_owned(),
            phase,
            action: std::sync::Mutex::new(action),
            reached: Notify::new(),
        })
    }
}

#[async_trait]
impl Checkpoint for Trap {
    async fn reached(&self, step: &str, phase: Phase) -> Result<(), Error> {
        if step != self.step || phase != self.phase {
            return Ok(());
        }
        self.reached.notify_one();
        match &mut *self.action.lock().expect("not poisoned") {
            Action::Hang => {}
            Action::Fail(0, _) => return Ok(()),
            Action::Fail(times, error) => {
                *times -= 1;
                return Err(error());
            }
        }
        std::future::pending().await
    }
}

/// A variant without what differs from run to run.
pub fn unmeasured(mut variant: Variant) -> Variant {
    let profile = &mut variant.profile;
    for value in [
        &mut profile.load_ms,
        &mut profile.alpha_ms,
        &mut profile.beta_ms,
        &mut profile.residual_ms,
        &mut profile.saturation_rps,
        &mut variant.cost_per_hour_usd,
        &mut variant.cost_per_1k_usd,
    ] {
        *value = 0.0;
    }
    profile.peak_memory_bytes = 0;
    for batch in &mut profile.batches {
        (batch.p50_ms, batch.p99_ms, batch.mean_ms) = (0.0, 0.0, 0.0);
    }
    variant.dominated_by = None;
    variant
}
