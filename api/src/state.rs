//! What handlers share.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use sextant_rpc::{DispatcherClient, Route};
use sextant_types::{Code, Targets};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::{Limits, Metrics, problem::Problem};

/// The clients and stores that the front end works with.
pub struct ApiParts {
    /// Answers queries.
    pub dispatcher: DispatcherClient,
    /// What requests may cost.
    pub limits: Limits,
}

/// Shared by all handlers; cheap to clone.
#[derive(Clone)]
pub struct ApiState(Arc<Shared>);

struct Shared {
    parts: ApiParts,
    metrics: Metrics,
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

    /// Fills targets from the application's defaults.
    pub(crate) fn with_defaults(&self, _route: &Route, targets: Targets) -> Targets {
        targets
    }
}
