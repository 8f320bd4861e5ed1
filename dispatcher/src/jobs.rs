//! Offline jobs: files of records in, files of answers out, on spare resources (INFaaS section 5.3).
//!
//! A job reads JSONL from the artefact store, answers the records in chunks, and writes each
//! chunk once under a deterministic path (`{output}.parts/00000000.jsonl`, ..) *before* it moves
//! the job's row on. A crash in between leaves a part that the next runner writes again with the
//! same records, so every record appears exactly once. The last step joins the parts into the
//! output. The variant is chosen when the job first runs and kept in a plan beside the parts, so
//! that a resumed job answers as it began.

mod plan;
mod records;
mod run;

use std::{future::Future, sync::Arc, time::Duration};

use sextant_objects::ObjectStore;
use sextant_policies::throttle::Throttle;
use sextant_registry::{Job, JobKind, Registry};
use tokio::sync::watch;

use crate::Dispatcher;

/// How offline jobs run.
#[derive(Debug, Clone)]
pub struct JobConfig {
    /// Unique to this life of this process: the owner of its leases.
    pub owner: String,
    /// How long a claim lasts without renewal, ms.
    pub lease_ms: u64,
    /// When to make room for online queries.
    pub throttle: Throttle,
    /// Time between two looks at the load while paused, ms.
    pub look_ms: u64,
}

/// Claims and runs offline jobs, one at a time.
pub struct JobService {
    pub(crate) config: JobConfig,
    pub(crate) dispatcher: Arc<Dispatcher>,
    pub(crate) registry: Registry,
    pub(crate) objects: Arc<dyn ObjectStore>,
}

/// How often the queue is looked at when nobody wakes the runner.
const IDLE_LOOK: Duration = Duration::from_secs(5);

impl JobService {
    /// A runner of offline jobs.
    pub fn new(
        config: JobConfig,
        dispatcher: Arc<Dispatcher>,
        registry: Registry,
        objects: Arc<dyn ObjectStore>,
    ) -> Self {
        Self {
            config,
            dispatcher,
            registry,
            objects,
        }
    }

    /// Runs until `shutdown`. A job under way is given back and goes on in the next life.
    pub async fn run(self, shutdown: impl Future<Output = ()> + Send) {
        let mut changed = self.registry.jobs_changed();
        tokio::select! {
            () = shutdown => {}
            () = self.work(&mut changed) => {}
        }
    }

    async fn work(&self, changed: &mut watch::Receiver<u64>) {
        loop {
            match self.claim().await {
                Ok(Some(job)) => self.run_job(job, changed).await,
                Ok(None) => {
                    drop(tokio::time::timeout(IDLE_LOOK, changed.changed()).await);
                }
                Err(error) => {
                    tracing::warn!(%error, "the job queue did not answer");
                    tokio::time::sleep(IDLE_LOOK).await;
                }
            }
        }
    }

    async fn claim(&self) -> Result<Option<Job>, sextant_registry::Error> {
        let Self {
            config, registry, ..
        } = self;
        registry
            .claim(JobKind::Offline, &config.owner, config.lease_ms, unix_ms())
            .await
    }
}

/// Milliseconds since the Unix epoch, for leases.
pub(crate) fn unix_ms() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as u64)
}
