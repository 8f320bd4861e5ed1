//! The role `worker`: it owns a device with its memory and its engines, and runs batches on time.
//!
//! Entry points: [`Worker::start`] returns the handle (a [`sextant_rpc::Work`]) and the [`Service`], which keeps the
//! lease and watches the instances.
//!
//! **Invariant:** a worker does what it is told inside the window that it is given, or says that it did not. It never
//! retries, evicts or chooses. It knows no other worker and no query. The one exception is a model that registration
//! measures on the worker's device: the dispatcher does not know of that model, so the worker makes room for it
//! ([`Worker::host`]).

mod busy;
mod config;
mod cores;
mod executor;
mod instance;
mod ledger;
mod loader;
mod log;
mod metrics;
mod monitor;
mod pin;
mod process;
mod room;
mod shared;
mod timed_queue;

use std::{
    io,
    sync::{Arc, Weak, atomic::Ordering},
    time::Duration,
};

use async_trait::async_trait;
use sextant_engine::{Device, Engine, LiveMap};
use sextant_health::interference::{may_spread, quieter_cores};
use sextant_metadata::MetadataStore;
use sextant_objects::ObjectStore;
use sextant_rpc::{
    ActionKind, Infer, Load, LoadTimings, VariantUsage, Work, WorkError, WorkerInfo, WorkerStats,
};
use sextant_types::{EngineName, VariantId};

pub use crate::{
    config::{Config, IsolationPolicy, Watchdog},
    metrics::register_metrics,
    monitor::{End, Service},
    process::ProcessMeter,
};
use crate::{
    executor::Executor,
    instance::Instance,
    ledger::Ledger,
    loader::{records::DoubtfulRecords, turns::Turns},
    shared::Shared,
};

/// Period after which a worker that keeps to some of its cores looks at its other cores.
const SPREAD_PERIOD: Duration = Duration::from_secs(10);

/// A worker's handle: one device with its executor. Cheap to clone behind its [`Arc`].
pub struct Worker {
    this: Weak<Self>,
    config: Config,
    /// Most batches that run at the same time.
    cores: u16,
    engines: Vec<Arc<dyn Engine>>,
    objects: Arc<dyn ObjectStore>,
    metadata: Arc<dyn MetadataStore>,
    shared: Arc<Shared>,
    executor: Executor,
    turns: Turns,
    ledger: Arc<Ledger>,
    /// The locks that let only one load or unload of a variant run at a time.
    moving: LiveMap<VariantId, tokio::sync::Mutex<()>>,
    doubtful: DoubtfulRecords,
    /// The lock that lets the worker make room for one model at a time.
    making_room: tokio::sync::Mutex<()>,
    /// Each load holds it for reading as long as the load takes; `false` after the shutdown.
    open: tokio::sync::RwLock<bool>,
}

impl Worker {
    /// Starts the threads. All engines must be of the same device; without engines the device is the CPU. The caller
    /// must run the returned [`Service`]: it keeps the lease and reports broken instances.
    ///
    /// Fails with [`io::ErrorKind::InvalidInput`] if the engines are of different devices or if the process may not use
    /// the configured cores. Fails as well if threads cannot be started.
    pub fn start(
        config: Config,
        engines: Vec<Arc<dyn Engine>>,
        objects: Arc<dyn ObjectStore>,
        metadata: Arc<dyn MetadataStore>,
    ) -> io::Result<(Arc<Self>, Service)> {
        if let Some(cores) = &config.pin {
            pin::check(cores)?;
        }
        let device = device_of(&engines)?;
        let (page_bytes, pages) = match &device {
            Device::Cpu => {
                let page_bytes = config.page_bytes.max(1);
                (page_bytes, config.memory_bytes / page_bytes)
            }
            Device::Dedicated { memory, .. } => (memory.page_bytes, memory.pages),
        };
        let dedicated = device != Device::Cpu;
        let shared = Arc::new(Shared::new(config.io_bytes));
        let executor = Executor::start(&config, dedicated, &shared)?;
        config.process.join();
        let turns = Turns::start()?;
        let worker = Arc::new_cyclic(|this| Self {
            this: Weak::clone(this),
            cores: if dedicated { 1 } else { config.cores },
            executor,
            turns,
            ledger: Arc::new(Ledger::new(page_bytes, pages)),
            config,
            engines,
            objects,
            metadata,
            shared,
            moving: LiveMap::default(),
            doubtful: DoubtfulRecords::default(),
            making_room: tokio::sync::Mutex::default(),
            open: tokio::sync::RwLock::new(true),
        });
        Ok((Arc::clone(&worker), Service::new(worker)))
    }
}

impl Worker {
    /// Whether the worker's device is this machine's cores.
    fn is_processor(&self) -> bool {
        device_of(&self.engines).is_ok_and(|device| device == Device::Cpu)
    }

    /// Ids of the processes in which engines run models.
    fn processes(&self) -> Vec<u32> {
        let engines = self.engines.iter();
        engines.flat_map(|engine| engine.processes()).collect()
    }

    /// Makes the threads that run batches keep to these cores. This includes the threads that engines started.
    fn keep_to(&self, chosen: &[usize]) {
        self.executor.pins().change(chosen);
        cores::keep(chosen, &self.processes());
    }

    /// Looks at `cores` every [`SPREAD_PERIOD`]. Takes all of them again when other processes have left the rest of
    /// them.
    fn spread_later(&self, cores: Vec<usize>) {
        let this = Weak::clone(&self.this);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(SPREAD_PERIOD).await;
                let Some(worker) = this.upgrade() else { return };
                let threads = usize::from(worker.cores.max(1));
                let others = cores::others_use(&cores, &worker.processes()).await;
                let now = worker.executor.pins().now();
                if now.len() >= threads.min(cores.len()) {
                    return;
                }
                if others.is_ok_and(|others| may_spread(&others, &now, threads)) {
                    worker.keep_to(&cores);
                    tracing::info!(worker = %worker.config.worker, ?cores, "keeps to all of its cores again");
                    return;
                }
            }
        });
    }

    /// The cores that batches may run on: the configured cores, or all cores that the process may use.
    fn permitted_cores(&self) -> io::Result<Vec<usize>> {
        match &self.config.pin {
            Some(cores) => Ok(cores.clone()),
            None => pin::permitted(),
        }
    }

    /// Runs `work` in a task of its own, which goes on when the caller stops waiting: no instance is left half loaded.
    /// `None` if the runtime ends.
    async fn detached<F, T>(&self, work: impl FnOnce(Arc<Self>) -> F) -> Option<T>
    where
        F: Future<Output = T> + Send + 'static,
        T: Send + 'static,
    {
        let worker = self.this.upgrade()?;
        tokio::spawn(work(worker)).await.ok()
    }
}

/// The device that all of the engines run on.
fn device_of(engines: &[Arc<dyn Engine>]) -> io::Result<Device> {
    let mut devices = engines
        .iter()
        .map(|engine| (engine.name(), engine.device()));
    let Some((name, device)) = devices.next() else {
        return Ok(Device::Cpu);
    };
    match devices.find(|(_, other)| *other != device) {
        None => Ok(device),
        Some((other, _)) => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!(
                "engines `{name}` and `{other}` have different devices: start a worker for each"
            ),
        )),
    }
}

// === impl Work ===

#[async_trait]
impl Work for Worker {
    fn info(&self) -> WorkerInfo {
        let millionths = self.shared.utilization_millionths.load(Ordering::Relaxed);
        let name = |engine: &Arc<dyn Engine>| EngineName(engine.name().to_owned());
        WorkerInfo {
            worker: self.config.worker.clone(),
            cores: self.cores,
            engines: self.engines.iter().map(name).collect(),
            pages: self.ledger.pages(),
            utilization: millionths as f64 / 1e6,
        }
    }

    fn is_draining(&self) -> bool {
        self.shared.draining.load(Ordering::Relaxed)
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
        let load = self.detached(|worker| async move {
            let loaded = worker.load_noted(load).await;
            let now = worker.executor.pins().now();
            // Threads that the load started begin on the configured cores. They must keep to the chosen ones if those
            // differ.
            if now != worker.config.pin.as_deref().unwrap_or_default() {
                cores::keep(&now, &worker.processes());
            }
            loaded
        });
        load.await.unwrap_or(Err(WorkError::ShuttingDown))
    }

    /// Always succeeds. Nothing begins on the variant any more, and a running batch is answered with
    /// [`sextant_rpc::InferError::WeightsChanged`]. The pages are free when it returns, unless a batch does not come
    /// back.
    async fn unload(&self, variant: &VariantId) -> Result<(), WorkError> {
        let variant = variant.clone();
        let unload = self.detached(|worker| async move { worker.unload_variant(&variant).await });
        let unloaded = unload.await.ok_or(WorkError::ShuttingDown);
        let note = unloaded.as_ref().map(|()| None).map_err(WorkError::code);
        self.shared.log.note(ActionKind::Unload, note);
        unloaded
    }

    async fn repin(&self) -> Result<Vec<u16>, WorkError> {
        let rejected = |reason: String| WorkError::Rejected(reason);
        let device = device_of(&self.engines).map_err(|error| rejected(error.to_string()))?;
        if device != Device::Cpu {
            return Err(rejected("the device is not a processor".to_owned()));
        }
        let cores = self.permitted_cores();
        let cores = cores.map_err(|error| rejected(error.to_string()))?;
        let others = cores::others_use(&cores, &self.processes()).await;
        let others = others.map_err(|error| rejected(error.to_string()))?;
        let threads = usize::from(self.cores.max(1));
        let now = self.executor.pins().now();
        let chosen = quieter_cores(&others, &now, threads).ok_or_else(|| {
            rejected("none of the cores that it may use are much less used by others".to_owned())
        })?;
        self.keep_to(&chosen);
        tracing::info!(worker = %self.config.worker, ?chosen, "keeps to other cores");
        if chosen.len() < threads.min(cores.len()) {
            self.spread_later(cores);
        }
        let numbers = chosen.iter().map(|core| u16::try_from(*core));
        Ok(numbers.filter_map(Result::ok).collect())
    }

    /// Always succeeds; [`Service::run`] does the rest.
    async fn leave(&self) -> Result<(), WorkError> {
        self.shared.draining.store(true, Ordering::Relaxed);
        self.shared.leave.notify_one();
        Ok(())
    }

    async fn stats(&self) -> Result<WorkerStats, WorkError> {
        Ok(self.shared.log.stats())
    }
}
