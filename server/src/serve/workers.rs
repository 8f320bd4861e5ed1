//! The workers of this process: one for each device.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::Context;
use prometheus_client::registry::Registry;
use sextant_api::WorkerPart;
use sextant_engine::Engine;
use sextant_rpc::WorkerClient;
use sextant_types::WorkerId;
use sextant_worker::{End, IsolationPolicy, Watchdog, Worker};
use tokio_util::sync::CancellationToken;

use super::{Process, devices::Place, port::Port, stores::Stores};
use sextant_config::{Config, DeviceSpec, Role, WorkerIsolation};

/// Time between two heartbeats and looks at the instances, ms.
const PERIOD_MS: u64 = 1000;

/// Ends a process that has nothing but workers when the last of them has left.
struct LastWorkerGuard {
    /// Workers that have not left.
    count: AtomicUsize,
    /// Ends the process as a signal does; none where it plays other roles.
    stop: Option<CancellationToken>,
}

/// Starts one worker for each place. What is `measured` with an engine that one of them serves with finds room beside
/// what it has loaded.
pub(super) async fn build(
    config: &Config,
    stores: &Stores,
    (places, measured): (Vec<Place>, &mut [Arc<dyn Engine>]),
    (port, metrics): (Option<&Port>, &mut Registry),
    process: &mut Process,
) -> anyhow::Result<Vec<WorkerPart>> {
    let mut parts = Vec::with_capacity(places.len());
    let mut workers = Vec::with_capacity(places.len());
    let last = Arc::new(LastWorkerGuard::new(config, places.len(), process));
    let meter = Arc::default();
    for place in places {
        let Place {
            worker,
            device,
            device_type,
            engines,
        } = place;
        let settings = sextant_worker::Config {
            device_type: Some(device_type),
            process: Arc::clone(&meter),
            ..settings(config, worker, &device, port)
        };
        let (objects, metadata) = (Arc::clone(&stores.objects), Arc::clone(&stores.metadata));
        let (worker, mut service) = Worker::start(settings, engines, objects, metadata)
            .with_context(|| format!("the worker of `{device}` cannot start"))?;
        for engine in &mut *measured {
            if let Some(host) = worker.host(engine) {
                *engine = host;
            }
        }
        workers.push(Arc::clone(&worker));
        let client: WorkerClient = match port {
            // The port offers the worker before the others learn of it.
            Some(port) => port.offer_worker(worker),
            None => worker,
        };
        service.announce().await;
        let last = Arc::clone(&last);
        process.spawn_late(|stop| async move {
            if service.run(stop.cancelled()).await == End::Left {
                last.left();
            }
        });
        tracing::info!(worker = %client.info().worker, device, "runs batches");
        parts.push(WorkerPart { device, client });
    }
    sextant_worker::register_metrics(&workers, metrics);
    Ok(parts)
}

fn settings(
    config: &Config,
    worker: WorkerId,
    device: &str,
    port: Option<&Port>,
) -> sextant_worker::Config {
    let settings = &config.worker;
    let is_cpu = device == DeviceSpec::Cpu.to_string();
    // A runtime gets the time that its requests may take before its batches count as stuck.
    let request_ms = settings
        .remote
        .get(device)
        .map_or(0, |remote| remote.request_timeout_ms.saturating_add(1000));
    let (cores, memory) = (config.worker_cores(), config.worker_memory_bytes());
    let pin = settings.pin.iter().map(|core| *core as usize).collect();
    let lease_ms = config.fleet.worker_lease_ms;
    sextant_worker::Config {
        endpoint: port.map(Port::endpoint),
        device: device.into(),
        page_bytes: settings.page_bytes,
        io_bytes: settings.io_bytes,
        horizon: Duration::from_millis(settings.horizon_ms),
        map_from_bytes: config.limits.map_model_bytes,
        watchdog: Watchdog {
            batch_floor: Duration::from_millis(settings.stuck_batch_ms.max(request_ms)),
            load_floor: Duration::from_millis(settings.stuck_load_ms),
            factor: settings.stuck_factor,
            ..Watchdog::default()
        },
        thresholds: settings.health.thresholds(),
        isolated: match is_cpu {
            true => isolated(settings.isolation),
            false => IsolationPolicy::Nothing,
        },
        pin: (is_cpu && !settings.pin.is_empty()).then_some(pin),
        period_ms: PERIOD_MS.min(lease_ms / 3),
        drain: Duration::from_millis(config.limits.drain_timeout_ms),
        lease_ms,
        ..sextant_worker::Config::new(worker, cores, memory)
    }
}

fn isolated(setting: WorkerIsolation) -> IsolationPolicy {
    match setting {
        WorkerIsolation::None => IsolationPolicy::Nothing,
        WorkerIsolation::Keys => IsolationPolicy::Foreign,
        WorkerIsolation::Process => IsolationPolicy::Everything,
    }
}

// === impl LastWorkerGuard ===

impl LastWorkerGuard {
    fn new(config: &Config, count: usize, process: &Process) -> Self {
        let alone = config.roles.0.iter().all(|role| *role == Role::Worker);
        Self {
            count: AtomicUsize::new(count),
            stop: alone.then(|| process.first()),
        }
    }

    /// Notes that a worker was told to leave and has left.
    fn left(&self) {
        let was_last = self.count.fetch_sub(1, Ordering::AcqRel) == 1;
        if let (true, Some(stop)) = (was_last, &self.stop) {
            tracing::info!("stopping: every worker has left");
            stop.cancel();
        }
    }
}
