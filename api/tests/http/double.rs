//! A dispatcher that decides nothing. It records the queries and gives the answer that it was given.

use std::{
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use axum::{
    Router,
    body::Body,
    http::{HeaderMap, HeaderValue, Request, StatusCode},
    response::Response,
};
use serde_json::Value;
use sextant_api::{
    ApiParts, ApiState, Limits, Logging, Readiness, WorkerPart,
    auth::{self, AdminKey, Mode},
    router,
};

use crate::worker::Idle;
use sextant_metadata::{InProcessRates, InProcessStore, MetadataStore, RateStore};
use sextant_objects::{LocalStore, ObjectStore};
use sextant_registry::{JobKind, NewJob, NewModel, Registry};
use sextant_rpc::{Answer, Dispatch, Publish, PublishError, Query, QueryError, Timings};
use sextant_storage::Storage;
use sextant_types::{
    Accuracy, ApplicationId, BatchLatency, DataType, Digest, EngineName, Metric, ModelId,
    NamedTensor, Optimization, Precision, Profile, Route, Signature, Tensor, TensorSpec, Variant,
    VariantSpec,
};
use tempfile::TempDir;
use tower::ServiceExt;
use tracing::level_filters::LevelFilter;

type Reply = Box<dyn Fn(&Query) -> Result<Answer, QueryError> + Send + Sync>;

/// Records queries and replies by a function.
pub struct Recorder {
    /// What was asked, oldest first.
    pub queries: Mutex<Vec<Query>>,
    reply: Reply,
    /// Whether queries wait for ever.
    stalls: bool,
    /// Queries that wait.
    waiting: AtomicUsize,
    /// How often model `late` is not found yet.
    pub late: AtomicUsize,
}

/// One query that waits.
struct WaitGuard<'a>(&'a AtomicUsize);

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Deletes from the stores.
struct Rows {
    registry: Registry,
    metadata: Arc<dyn MetadataStore>,
}

#[async_trait]
impl Publish for Rows {
    async fn retire_model(&self, model: &ModelId) -> Result<(), PublishError> {
        let retired = self.registry.delete_model(model, 5).await;
        let retired = retired.map_err(|error| PublishError::new(error.code(), &error))?;
        for variant in &retired {
            let gone = self.metadata.retire_variant(variant).await;
            gone.map_err(|error| PublishError::new(error.code(), &error))?;
        }
        Ok(())
    }

    async fn show_application(&self, application: &ApplicationId) -> Result<(), PublishError> {
        let known = self.registry.application(application).await;
        let resources = known
            .map_err(|error| PublishError::new(error.code(), &error))?
            .resources;
        let variants = self.metadata.variants().await.unwrap_or_default();
        for variant in variants.iter().filter(|it| it.application == *application) {
            let shown = Variant {
                resources,
                ..Variant::clone(variant)
            };
            let shown = self.metadata.publish_variant(Arc::new(shown)).await;
            shown.map_err(|error| PublishError::new(error.code(), &error))?;
        }
        Ok(())
    }
}

impl Recorder {
    pub fn new(
        reply: impl Fn(&Query) -> Result<Answer, QueryError> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            queries: Mutex::default(),
            reply: Box::new(reply),
            stalls: false,
            waiting: AtomicUsize::new(0),
            late: AtomicUsize::new(0),
        })
    }

    /// Never answers.
    pub fn stalling() -> Arc<Self> {
        Arc::new(Self {
            queries: Mutex::default(),
            reply: Box::new(|_| Ok(answer())),
            stalls: true,
            waiting: AtomicUsize::new(0),
            late: AtomicUsize::new(0),
        })
    }

    /// Queries that wait for their answer.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    pub fn answering() -> Arc<Self> {
        Self::new(|_| Ok(answer()))
    }

    pub fn last(&self) -> Query {
        let queries = self.queries.lock().expect("not poisoned");
        queries.last().expect("a query arrived").clone()
    }
}

pub fn answer() -> Answer {
    let tensor = Tensor::from_elements(vec![1, 3], &[0.25f32, -1.0, 1e-9]).expect("fits");
    Answer {
        variant: "mlp-ort-fp32-all-t1-b32".parse().expect("a name"),
        model: "mlp".parse().expect("a name"),
        outputs: vec![NamedTensor::new("probabilities", tensor)],
        rows: 1,
        timings: Timings {
            queue_us: 12.34,
            load_us: 0.0,
            compute_us: 100.0,
            total_us: 130.0,
            batch_rows: 4,
        },
        targets_met: true,
        cost_usd: 2.5e-7,
        explanation: None,
    }
}

#[async_trait]
impl Dispatch for Recorder {
    async fn query(&self, query: Query) -> Result<Answer, QueryError> {
        if self.stalls {
            self.waiting.fetch_add(1, Ordering::Relaxed);
            let _one = WaitGuard(&self.waiting);
            std::future::pending::<()>().await;
        }
        let reply = (self.reply)(&query);
        self.queries.lock().expect("not poisoned").push(query);
        reply
    }

    fn signature(&self, route: &Route) -> Result<Signature, QueryError> {
        use sextant_types::Code;
        match route {
            Route::Application(name) if name.as_str() == "digits" => Ok(signature()),
            Route::Model(name) if ["mlp", "mlp@1"].contains(&name.as_str()) => Ok(signature()),
            Route::Model(name) if name.as_str() == "late" => {
                let less = |times: usize| times.checked_sub(1);
                let (order, late) = (Ordering::Relaxed, &self.late);
                match late.fetch_update(order, order, less) {
                    Ok(_) => Err(QueryError::new(Code::ModelNotFound, "not yet")),
                    Err(_) => Ok(signature()),
                }
            }
            Route::Variant(name) if name.as_str() == "mlp-ort-fp32-all-t1-b32" => Ok(signature()),
            Route::Application(_) => Err(QueryError::new(Code::ApplicationNotFound, "none")),
            Route::Model(_) => Err(QueryError::new(Code::ModelNotFound, "none")),
            Route::Variant(_) => Err(QueryError::new(Code::VariantNotFound, "none")),
        }
    }

    fn utilization(&self) -> f64 {
        0.0
    }

    fn is_ready(&self, route: &Route) -> bool {
        self.signature(route).is_ok()
    }
}

/// A variant of `mlp` for `digits`.
pub fn variant() -> Variant {
    let latency = |batch, p50_ms| BatchLatency {
        batch,
        p50_ms,
        p99_ms: 2.0 * p50_ms,
        mean_ms: p50_ms,
        samples: 30,
    };
    Variant {
        id: "mlp-ort-int8s-all-t1-b8".parse().expect("a name"),
        application: "digits".parse().expect("a name"),
        model: "mlp".parse().expect("a name"),
        spec: VariantSpec {
            engine: EngineName("ort".to_owned()),
            precision: Precision::Int8Static,
            optimization: Optimization::All,
            threads: 1,
            max_batch: 8,
        },
        artefact: Digest::from_bytes([7; 32]),
        signature: signature(),
        padding: None,
        accuracy: Accuracy {
            kind: sextant_types::AccuracyKind::Accuracy,
            metric: Metric::Top1,
            value: 0.95,
            lower: 0.92,
            upper: 0.97,
            records: 360,
            evaluation_batch: 32,
        },
        profile: Profile {
            load_ms: 3.0,
            first_load_ms: None,
            batches: vec![latency(1, 0.5), latency(8, 1.2)],
            alpha_ms: 0.1,
            beta_ms: 0.4,
            residual_ms: 0.01,
            saturation_rps: 6666.7,
            peak_memory_bytes: 4096,
            weights_bytes: 1024,
            sizes: Default::default(),
            concurrent: Vec::new(),
        },
        cost_per_hour_usd: 0.036,
        cost_per_1k_usd: 0.000_001_5,
        measured_on: None,
        profiles: Default::default(),
        dominated_by: Some("mlp-rten-fp32-all-t1-b8".parse().expect("a name")),
        apart: None,
        resources: Default::default(),
        release: Default::default(),
        foreign: false,
    }
}

fn signature() -> Signature {
    let spec = |name: &str, columns| TensorSpec {
        name: name.to_owned(),
        data_type: DataType::Fp32,
        shape: vec![None, Some(columns)],
    };
    Signature {
        inputs: vec![spec("input", 3)],
        outputs: vec![spec("probabilities", 3)],
        batched: true,
    }
}

/// A router over a recorder and real stores in a folder of its own.
pub struct Api {
    router: Router,
    pub state: ApiState,
    pub registry: Registry,
    pub objects: Arc<dyn ObjectStore>,
    pub metadata: Arc<dyn MetadataStore>,
    _folder: Arc<TempDir>,
}

/// What a front end is built with, besides its stores.
pub struct Settings {
    pub limits: Limits,
    pub auth: auth::Config,
    pub rates: Arc<dyn RateStore>,
    pub readiness: Readiness,
    pub shared_memory: bool,
    pub raw_answers: bool,
    /// Origins of pages that may ask.
    pub origins: Vec<&'static str>,
}

/// The administrator's key of fronts that ask for keys.
pub const ADMIN: &str = "an-administrator's-key";

/// A response, read to its end.
pub struct Reading {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub bytes: Vec<u8>,
}

impl Reading {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes).unwrap_or_else(|error| {
            panic!("{error}: {}", String::from_utf8_lossy(&self.bytes));
        })
    }

    /// Asserts that this is a problem document of a code, and returns it.
    pub fn problem(&self, code: &str) -> Value {
        let json = self.json();
        assert_eq!(json["code"], code, "{json}");
        let is_protocol = json["instance"]
            .as_str()
            .is_some_and(|path| path.starts_with("/v2"));
        let kind = match is_protocol {
            true => "application/json",
            false => "application/problem+json",
        };
        assert_eq!(self.headers["content-type"], kind);
        assert_eq!(json["status"], self.status.as_u16());
        assert_eq!(json["type"], format!("/docs/errors/{code}"));
        for member in ["title", "detail", "instance"] {
            assert!(
                json[member].as_str().is_some_and(|text| !text.is_empty()),
                "{json}"
            );
        }
        json
    }
}

/// What front ends share.
struct Stores {
    registry: Registry,
    objects: Arc<dyn ObjectStore>,
    metadata: Arc<dyn MetadataStore>,
    folder: Arc<TempDir>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            auth: auth::Config::default(),
            rates: Arc::new(InProcessRates::new()),
            readiness: Arc::new(|| Ok(())),
            shared_memory: false,
            raw_answers: false,
            origins: Vec::new(),
        }
    }
}

impl Settings {
    /// Every request needs a key.
    pub fn keys() -> Self {
        Self {
            auth: auth::Config {
                mode: Mode::Keys,
                admin_key: Some(AdminKey::new(ADMIN).expect("long enough")),
                ..auth::Config::default()
            },
            ..Self::default()
        }
    }
}

impl Api {
    /// Where the registry's file and the folder of the store are.
    pub fn folder(&self) -> &Path {
        self._folder.path()
    }

    /// Registers the model `mlp` of the application `digits`, which exists.
    pub async fn put_model(&self) {
        self.put_model_of(Digest::from_bytes([1; 32])).await;
    }

    /// The same, made of a stored file.
    pub async fn put_model_of(&self, digest: Digest) {
        let model = NewModel {
            name: "mlp".parse().expect("a name"),
            version: None,
            current: false,
            application: "digits".parse().expect("a name"),
            digest,
            validation: Digest::from_bytes([2; 32]),
            size_bytes: 4,
            padding: None,
            outputs: Vec::new(),
            constants: Default::default(),
            names: Default::default(),
            data: Vec::new(),
            classes: Vec::new(),
            unlabelled: false,
            registered_by: None,
        };
        let spec = serde_json::json!({});
        let job = NewJob::new(JobKind::Register, model.application.clone(), spec);
        let job = job.for_model(model.name.clone());
        let registered = self.registry.register_model(&model, &job, 1).await;
        registered.expect("registered");
    }

    pub async fn new(dispatcher: Arc<Recorder>) -> Self {
        Self::limited(dispatcher, Limits::default()).await
    }

    pub async fn limited(dispatcher: Arc<Recorder>, limits: Limits) -> Self {
        let settings = Settings {
            limits,
            ..Settings::default()
        };
        Self::with(dispatcher, settings).await
    }

    pub async fn with(dispatcher: Arc<Recorder>, settings: Settings) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let registry = Registry::open(folder.path().join("registry.db"));
        let objects = LocalStore::open(folder.path().join("objects"), None);
        let stores = Stores {
            registry: registry.await.expect("a registry"),
            objects: Arc::new(objects.expect("a store")),
            metadata: Arc::new(InProcessStore::new()),
            folder: Arc::new(folder),
        };
        Self::over(stores, dispatcher, settings).await
    }

    /// Another front end over the same stores.
    pub async fn beside(&self, dispatcher: Arc<Recorder>, settings: Settings) -> Self {
        let stores = Stores {
            registry: self.registry.clone(),
            objects: Arc::clone(&self.objects),
            metadata: Arc::clone(&self.metadata),
            folder: Arc::clone(&self._folder),
        };
        Self::over(stores, dispatcher, settings).await
    }

    async fn over(stores: Stores, dispatcher: Arc<Recorder>, settings: Settings) -> Self {
        let storage = Storage::new(
            stores.registry.clone(),
            Arc::clone(&stores.objects),
            sextant_storage::Config {
                every: None,
                grace: Duration::from_secs(3600),
                keep_ended_jobs: None,
                keep_failed_models: None,
                keep_audit: None,
                feedback_every: Duration::from_secs(60),
                limit_bytes: None,
            },
        );
        storage.meet().await.expect("they belong together");
        let state = ApiState::new(ApiParts {
            dispatcher,
            publisher: Arc::new(Rows {
                registry: stores.registry.clone(),
                metadata: Arc::clone(&stores.metadata),
            }),
            registry: stores.registry.clone(),
            objects: Arc::clone(&stores.objects),
            storage,
            metadata: Arc::clone(&stores.metadata),
            workers: std::iter::once(WorkerPart {
                device: "emulated:0".to_owned(),
                client: Arc::new(Idle),
            })
            .collect(),
            estimate_factor: 1.0,
            limits: settings.limits,
            auth: settings.auth,
            rates: settings.rates,
            metrics: sextant_api::Metrics::registry(),
            readiness: settings.readiness,
            shared_memory: settings.shared_memory,
            raw_answers: settings.raw_answers,
            python: Arc::new(sextant_api::NoPython::Off),
            examiner: Arc::new(sextant_rpc::NoExaminer),
            origins: settings
                .origins
                .iter()
                .map(|it| HeaderValue::from_static(it))
                .collect(),
            logging: Some(Logging::new(LevelFilter::INFO, Arc::new(|_| Ok(())))),
            notifier: None,
        });
        state.refresh().await.expect("a registry");
        Self {
            router: router(state.clone()),
            state,
            registry: stores.registry,
            objects: stores.objects,
            metadata: stores.metadata,
            _folder: stores.folder,
        }
    }

    /// Sends a body with a key.
    pub async fn keyed(
        &self,
        key: &str,
        method: &str,
        path: &str,
        body: impl Into<Body>,
    ) -> Reading {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("authorization", format!("Bearer {key}"))
            .body(body.into());
        self.send(request.expect("a request")).await
    }

    /// A response whose body is still to be read: it may have no end.
    pub async fn open(&self, request: Request<Body>) -> Response {
        let Ok(response) = self.router.clone().oneshot(request).await;
        response
    }

    pub async fn send(&self, request: Request<Body>) -> Reading {
        let response = self.open(request).await;
        let (parts, body) = response.into_parts();
        let bytes = axum::body::to_bytes(body, usize::MAX)
            .await
            .expect("a whole body");
        Reading {
            status: parts.status,
            headers: parts.headers,
            bytes: bytes.into(),
        }
    }

    pub async fn get(&self, path: &str) -> Reading {
        self.call("GET", path, "").await
    }

    /// Sends a body without a content type: none is ever required.
    pub async fn call(&self, method: &str, path: &str, body: impl Into<Body>) -> Reading {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .body(body.into());
        self.send(request.expect("a request")).await
    }
}
