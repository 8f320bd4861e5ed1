//! A registry and an artefact store, for one process and for a fleet.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use sextant_objects::{LocalStore, ObjectPath, ObjectStore};
use sextant_objects_s3::{Credentials, S3Config, S3Store, Secret};
use sextant_registry::{
    Application, ConnectOptions, Job, JobKind, NewJob, NewModel, Registration, Registry,
    dump::Place,
};
use sextant_storage::{Config, Storage};
use sextant_test_servers::{postgres::Postgres, s3::S3};
use sextant_types::{ApplicationId, Digest, Metric, ModelId, OfflineSpec, Route, Targets};
use tempfile::TempDir;

/// Rows are kept for ever, and every blob is old enough.
pub const CONFIG: Config = Config {
    every: None,
    grace: Duration::ZERO,
    keep_ended_jobs: None,
    keep_failed_models: None,
    keep_audit: None,
    feedback_every: Duration::from_millis(1),
    limit_bytes: None,
};

/// The stores, and values that must live as long as the stores.
pub struct Bench {
    pub registry: Registry,
    pub objects: Arc<dyn ObjectStore>,
    /// The place of the registry.
    pub place: Place,
    _folder: Option<TempDir>,
    _bucket: Option<S3>,
}

impl Bench {
    /// A file and a folder that belong together.
    pub async fn folder() -> Self {
        Self::unnamed_folder().await.acquainted().await
    }

    async fn acquainted(self) -> Self {
        self.storage(CONFIG).meet().await.expect("they are new");
        self
    }

    /// A file and a folder, neither of which has a name yet.
    pub async fn unnamed_folder() -> Self {
        Self::bare_folder().await.with_application().await
    }

    /// A file and a folder without any content, also without an application.
    pub async fn bare_folder() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let registry = Registry::open(folder.path().join("registry.sqlite"));
        let objects = LocalStore::open(folder.path().join("objects"), None);
        Self {
            registry: registry.await.expect("a registry"),
            objects: Arc::new(objects.expect("a store")),
            place: Place::File(folder.path().join("registry.sqlite")),
            _folder: Some(folder),
            _bucket: None,
        }
    }

    /// A database and a bucket.
    pub async fn fleet(name: &str) -> Self {
        let bench = Self::bare_fleet(name).await;
        bench.with_application().await.acquainted().await
    }

    /// A database and a bucket without any content.
    pub async fn bare_fleet(name: &str) -> Self {
        let url = Postgres::shared().database(name);
        let server = S3::start();
        let config = S3Config {
            endpoint: Some(server.endpoint()),
            path_style: true,
            credentials: Credentials::Given {
                access_key: server.access_key().into(),
                secret_key: Secret::new(server.secret_key()),
            },
            ..S3Config::new(server.bucket())
        };
        let objects = S3Store::open(config).await.expect("the bucket is there");
        Self {
            registry: Registry::connect(&url).await.expect("a registry"),
            objects: Arc::new(objects),
            place: Place::Server(ConnectOptions::new(url)),
            _folder: None,
            _bucket: Some(server),
        }
    }

    async fn with_application(self) -> Self {
        let application = Application {
            id: application(),
            metric: Metric::TopK(1),
            description: String::new(),
            default_targets: Targets::default(),
            signature: None,
            resources: Default::default(),
            presets: Default::default(),
            feedback: None,
        };
        let created = self.registry.create_application(&application).await;
        created.expect("an application");
        self
    }

    pub fn storage(&self, config: Config) -> Storage {
        Storage::new(self.registry.clone(), Arc::clone(&self.objects), config)
    }

    pub async fn put(&self, content: impl Into<Bytes>) -> Digest {
        self.objects.put_blob(content.into()).await.expect("stored")
    }

    pub async fn has(&self, digest: &Digest) -> bool {
        self.objects.has_blob(digest).await.expect("an answer")
    }

    pub async fn put_file(&self, name: &str, content: impl Into<Bytes>) {
        let stored = self.objects.put(&path(name), content.into()).await;
        stored.expect("stored");
    }

    pub async fn has_file(&self, name: &str) -> bool {
        let found = self.objects.stat(&path(name)).await;
        found.expect("an answer").is_some()
    }

    pub async fn register(&self, name: &str, files: (Digest, Digest)) -> Registration {
        let new = new_model(name, files);
        let job = register_job(name);
        let registered = self.registry.register_model(&new, &job, 1).await;
        registered.expect("registered")
    }

    /// An offline job that is held by `me`.
    pub async fn held_job(&self, output: &str, now_ms: u64) -> Job {
        let new = NewJob::new(JobKind::Offline, application(), spec("in.jsonl", output));
        let created = self.registry.create_job(&new, now_ms).await;
        created.expect("created");
        let claimed = self.registry.claim(JobKind::Offline, "me", 60_000, now_ms);
        claimed.await.expect("an answer").expect("a job")
    }

    /// An offline job that has ended.
    pub async fn ended_job(&self, output: &str, now_ms: u64) -> Job {
        let job = self.held_job(output, now_ms).await;
        let nothing = serde_json::Value::Null;
        let ended = self.registry.finish(&job.id, "me", &nothing, now_ms).await;
        ended.expect("ended");
        job
    }
}

pub fn application() -> ApplicationId {
    ApplicationId::new("digits").expect("a name")
}

pub fn path(path: &str) -> ObjectPath {
    ObjectPath::parse(path).expect("a valid path")
}

pub fn new_model(name: &str, (digest, validation): (Digest, Digest)) -> NewModel {
    NewModel {
        name: ModelId::new(name).expect("a name"),
        version: None,
        current: false,
        application: application(),
        digest,
        validation,
        size_bytes: 1,
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

pub fn register_job(name: &str) -> NewJob {
    let model = ModelId::new(name).expect("a name");
    NewJob::new(JobKind::Register, application(), serde_json::json!({})).for_model(model)
}

/// The specification of an offline job.
pub fn spec(input: &str, output: &str) -> serde_json::Value {
    let spec = OfflineSpec {
        route: Route::Application(application()),
        targets: Targets::default(),
        input: input.to_owned(),
        output: output.to_owned(),
        chunk: 1,
        input_format: None,
        output_format: None,
        webhook: None,
    };
    serde_json::to_value(spec).expect("a document")
}
