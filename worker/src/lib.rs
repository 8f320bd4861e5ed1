//! Devices, memory, engines: running a batch on time.
//!
//! Entry points: [`Worker::start`], which returns the handle (a [`sextant_rpc::Work`]) and the
//! [`Service`] that keeps the lease and watches the instances.
//!
//! **Invariant:** a worker does what it is told inside the window it is told, or says that it did
//! not. It never retries, evicts or chooses; it knows no other worker and no query.

mod executor;
mod ledger;
mod loader;
mod monitor;

use std::{
    collections::HashMap,
    sync::{
        Arc, RwLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use async_trait::async_trait;
use sextant_engine::{Engine, LoadedModel};
use sextant_metadata::MetadataStore;
use sextant_objects::ObjectStore;
use sextant_policies::health::Thresholds;
use sextant_rpc::{
    Infer, Load, LoadTimings, Pages, VariantUsage, Work, WorkError, WorkerInfo, WorkerStats,
};
use sextant_types::{EngineName, Variant, VariantId, WorkerId};

pub use crate::monitor::Service;
use crate::{executor::Executor, ledger::Ledger};

/// What a worker may use.
#[derive(Debug, Clone)]
pub struct Config {
    /// Its name, unique in the fleet.
    pub worker: WorkerId,
    /// CPU cores that batches may occupy at once.
    pub cores: u16,
    /// Bytes that loaded variants may occupy.
    pub memory_bytes: u64,
    /// Time between two looks at the instances, ms; heartbeats go along.
    pub period_ms: u64,
    /// How long the others believe in this worker without a heartbeat, ms.
    pub lease_ms: u64,
    /// When an instance counts as overloaded or interfered.
    pub thresholds: Thresholds,
}

/// A worker's handle; cheap to clone behind its [`Arc`].
pub struct Worker {
    config: Config,
    engines: Vec<Arc<dyn Engine>>,
    objects: Arc<dyn ObjectStore>,
    metadata: Arc<dyn MetadataStore>,
    shared: Arc<Shared>,
    executor: Executor,
    ledger: Ledger,
    /// One load or unload at a time: loads compete for the same memory and the same disk.
    moving: tokio::sync::Mutex<()>,
}

/// What executor threads need.
pub(crate) struct Shared {
    loaded: RwLock<HashMap<VariantId, Arc<Instance>>>,
    started: Instant,
    /// Core-nanoseconds spent in batches.
    busy_nanos: AtomicU64,
    /// Share of core time in the last window, in millionths.
    utilization_millionths: AtomicU64,
}

/// A loaded variant with its counters.
pub(crate) struct Instance {
    pub(crate) variant: Arc<Variant>,
    pub(crate) model: Arc<dyn LoadedModel>,
    pub(crate) rows: AtomicU64,
    pub(crate) batches: AtomicU64,
    pub(crate) run_nanos: AtomicU64,
    /// What the profile expected for the same batches.
    pub(crate) expected_nanos: AtomicU64,
    /// Nanoseconds after the worker's start.
    pub(crate) last_used: AtomicU64,
}

impl Worker {
    /// Starts the executor threads. The returned [`Service`] must be run to keep the lease.
    pub fn start(
        config: Config,
        engines: Vec<Arc<dyn Engine>>,
        objects: Arc<dyn ObjectStore>,
        metadata: Arc<dyn MetadataStore>,
    ) -> std::io::Result<(Arc<Self>, Service)> {
        let shared = Arc::new(Shared {
            loaded: RwLock::default(),
            started: Instant::now(),
            busy_nanos: AtomicU64::new(0),
            utilization_millionths: AtomicU64::new(0),
        });
        let executor = Executor::start(config.cores, &shared)?;
        let ledger = Ledger::new(config.memory_bytes);
        let moving = tokio::sync::Mutex::new(());
        let worker = Arc::new(Self {
            config,
            engines,
            objects,
            metadata,
            shared,
            executor,
            ledger,
            moving,
        });
        Ok((Arc::clone(&worker), Service::new(worker)))
    }
}

// === impl Work ===

#[async_trait]
impl Work for Worker {
    fn info(&self) -> WorkerInfo {
        let millionths = self.shared.utilization_millionths.load(Ordering::Relaxed);
        WorkerInfo {
            worker: self.config.worker.clone(),
            cores: self.config.cores,
            engines: self
                .engines
                .iter()
                .map(|engine| EngineName(engine.name().to_owned()))
                .collect(),
            pages: Pages {
                page_bytes: 1,
                total: self.config.memory_bytes,
                free: self.config.memory_bytes.saturating_sub(self.ledger.used()),
            },
            utilization: millionths as f64 / 1e6,
        }
    }

    fn usage(&self) -> Vec<VariantUsage> {
        let now = self.shared.nanos();
        let idle = |instance: &Instance| {
            now.saturating_sub(instance.last_used.load(Ordering::Relaxed)) / 1_000_000
        };
        self.shared
            .instances()
            .into_iter()
            .map(|instance| VariantUsage {
                variant: instance.variant.id.clone(),
                idle_ms: idle(&instance),
            })
            .collect()
    }

    fn infer(&self, infer: Infer) {
        self.executor.submit(infer);
    }

    async fn load(&self, load: Load) -> Result<LoadTimings, WorkError> {
        let _turn = self.moving.lock().await;
        self.load_variant(load.variant).await?;
        Ok(LoadTimings::default())
    }

    async fn unload(&self, variant: &VariantId) -> Result<(), WorkError> {
        let _turn = self.moving.lock().await;
        self.unload_variant(variant).await
    }

    async fn stats(&self) -> Result<WorkerStats, WorkError> {
        Ok(WorkerStats::default())
    }
}

// === impl Shared ===

impl Shared {
    /// The instance of a loaded variant.
    pub(crate) fn instance(&self, variant: &VariantId) -> Option<Arc<Instance>> {
        let loaded = self
            .loaded
            .read()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        loaded.get(variant).cloned()
    }

    /// All loaded instances, in order of their variants' names.
    pub(crate) fn instances(&self) -> Vec<Arc<Instance>> {
        let loaded = self
            .loaded
            .read()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut all: Vec<_> = loaded.values().cloned().collect();
        all.sort_by(|a, b| a.variant.id.cmp(&b.variant.id));
        all
    }

    pub(crate) fn insert(&self, instance: Arc<Instance>) {
        let mut loaded = self
            .loaded
            .write()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        loaded.insert(instance.variant.id.clone(), instance);
    }

    pub(crate) fn remove(&self, variant: &VariantId) -> Option<Arc<Instance>> {
        let mut loaded = self
            .loaded
            .write()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        loaded.remove(variant)
    }

    /// Nanoseconds since the worker's start.
    pub(crate) fn nanos(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }
}

/// Milliseconds since the Unix epoch, for leases.
pub(crate) fn unix_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as u64)
}
