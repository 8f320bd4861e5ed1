//! What handlers share.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use arc_swap::ArcSwap;
use sextant_metadata::MetadataStore;
use sextant_objects::ObjectStore;
use sextant_registry::Registry;
use sextant_rpc::{DispatcherClient, Route, WorkerClient};
use sextant_types::{Code, Targets, WorkerId};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::{Limits, Metrics, directory::Directory, problem::Problem, targets::TargetsBody};

/// The clients and stores that the front end works with.
pub struct ApiParts {
    /// Answers queries.
    pub dispatcher: DispatcherClient,
    /// Applications, models, variants and jobs.
    pub registry: Registry,
    /// Uploaded files.
    pub objects: Arc<dyn ObjectStore>,
    /// Instances and workers.
    pub metadata: Arc<dyn MetadataStore>,
    /// The workers that can be asked what they did.
    pub workers: Vec<WorkerPart>,
    /// What requests may cost.
    pub limits: Limits,
}

/// A worker that can be asked.
#[derive(Clone)]
pub struct WorkerPart {
    /// What it runs batches on: `cpu`, `cuda:0`, `emulated:3` or the name of a runtime.
    pub device: String,
    /// How it is asked.
    pub client: WorkerClient,
}

/// Shared by all handlers; cheap to clone.
#[derive(Clone)]
pub struct ApiState(Arc<Shared>);

struct Shared {
    parts: ApiParts,
    metrics: Metrics,
    directory: ArcSwap<Directory>,
    queries: Semaphore,
    draining: AtomicBool,
}

impl ApiState {
    /// Wraps the parts.
    pub fn new(parts: ApiParts) -> Self {
        let queries = Semaphore::new(parts.limits.max_concurrent_queries);
        Self(Arc::new(Shared {
            parts,
            metrics: Metrics::new(),
            directory: ArcSwap::default(),
            queries,
            draining: AtomicBool::new(false),
        }))
    }

    /// Metrics of the front end; the server adds those of other roles to the same registry.
    pub fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    /// From now on `/health/ready` answers 503.
    pub fn drain(&self) {
        self.0.draining.store(true, Ordering::Release);
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.0.draining.load(Ordering::Acquire)
    }

    pub(crate) fn dispatcher(&self) -> &DispatcherClient {
        &self.0.parts.dispatcher
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.0.parts.limits
    }

    /// A place among the queries in flight.
    pub(crate) fn admit(&self) -> Result<SemaphorePermit<'_>, Problem> {
        self.0.queries.try_acquire().map_err(|_| {
            let most = self.0.parts.limits.max_concurrent_queries;
            let detail = format!("`{most}` queries are in flight already");
            Problem::new(Code::Overloaded, detail).retry_after_ms(100)
        })
    }

    pub(crate) fn registry(&self) -> &Registry {
        &self.0.parts.registry
    }

    pub(crate) fn objects(&self) -> &Arc<dyn ObjectStore> {
        &self.0.parts.objects
    }

    pub(crate) fn metadata(&self) -> &dyn MetadataStore {
        self.0.parts.metadata.as_ref()
    }

    /// The worker of that name.
    pub(crate) fn worker(&self, name: &WorkerId) -> Result<&WorkerPart, Problem> {
        let mut workers = self.0.parts.workers.iter();
        let found = workers.find(|part| part.client.info().worker == *name);
        found.ok_or_else(|| {
            let detail = format!("there is no worker `{name}`");
            Problem::new(Code::WorkerNotFound, detail)
        })
    }

    /// Queries in flight.
    pub(crate) fn in_flight(&self) -> usize {
        let free = self.0.queries.available_permits();
        self.0
            .parts
            .limits
            .max_concurrent_queries
            .saturating_sub(free)
    }

    /// Reads again what queries need to know about applications. [`crate::serve`] does so at its
    /// start and now and then, for what other processes changed.
    pub async fn refresh(&self) -> Result<(), sextant_registry::Error> {
        let directory = Directory::load(self.registry()).await?;
        self.0.directory.store(Arc::new(directory));
        Ok(())
    }

    /// The targets of a query, filled from the application's defaults.
    pub(crate) fn targets(&self, route: &Route, body: TargetsBody) -> Result<Targets, Problem> {
        self.0.directory.load().targets(route, body)
    }
}
