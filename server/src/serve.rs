//! Starts the roles of this process and stops them in order.
//!
//! One short `build_*` function for each role; what they share is opened once, in [`Stores`]. A
//! process on the embedded default plays all roles over a folder of its own.

pub(crate) mod memory;

mod cuda;
mod devices;
mod engines;
mod folder;
mod protection;
mod remote;
mod stores;

use std::{future::Future, sync::Arc, time::Duration};

use anyhow::Context;
use sextant_api::{ApiParts, ApiState, Listener, WorkerPart};
use sextant_autoscaler as autoscaler;
use sextant_dispatcher::{
    Dispatcher,
    jobs::{JobConfig, JobService},
};
use sextant_engine::Engine;
use sextant_metadata::InProcessRates;
use sextant_policies::throttle::Throttle;
use sextant_rpc::{Work, WorkerClient};
use sextant_types::WorkerId;
use sextant_variant_gen::{Generator, RegistrationService, measure::Effort};
use sextant_worker::{Watchdog, Worker};
use tokio::{net::TcpListener, task::JoinSet};
use tokio_util::sync::CancellationToken;

use crate::config::{Config, DeviceSpec, Role};
use devices::{Fleet, Place};
use stores::Stores;

/// Time between two heartbeats and looks at the instances, ms.
const WORKER_PERIOD_MS: u64 = 1000;

/// How long a worker or the runner of a job is believed in without a sign of life, ms.
const LEASE_MS: u64 = 10_000;

/// Runs the configured roles until the process is told to stop. Logging has been started.
pub async fn run(config: Config) -> anyhow::Result<()> {
    check_roles(&config)?;
    let stores = Stores::open(&config).await?;
    let Fleet { places, measured } = devices::open(&config)?;
    let mut process = Process::new(stop_on_signal()?);
    let listener = TcpListener::bind(config.listen)
        .await
        .with_context(|| format!("cannot listen on `{}`", config.listen))?;
    let parts = build_workers(&config, &stores, places, &mut process).await?;
    let workers: Vec<WorkerClient> = parts.iter().map(|part| Arc::clone(&part.client)).collect();
    let dispatcher = build_dispatcher(&config, &stores, &workers, &mut process);
    build_variant_gen(&config, &stores, &measured, &mut process).await?;
    build_autoscaler(&config, &stores, workers, &mut process);
    let served = serve_http(&config, &stores, dispatcher, parts, listener, &process).await;
    process.stop().await;
    stores.registry.close().await;
    served
}

/// The roles that one process must play together while the stores are its own.
fn check_roles(config: &Config) -> anyhow::Result<()> {
    for role in [Role::Api, Role::Dispatcher, Role::Worker] {
        anyhow::ensure!(
            config.roles.contains(role),
            "role `{role}` is missing: with embedded stores one process plays `api`, \
             `dispatcher` and `worker` together"
        );
    }
    Ok(())
}

/// One worker for each device.
async fn build_workers(
    config: &Config,
    stores: &Stores,
    places: Vec<Place>,
    process: &mut Process,
) -> anyhow::Result<Vec<WorkerPart>> {
    let mut parts = Vec::with_capacity(places.len());
    for place in places {
        let Place {
            worker,
            device,
            engines,
        } = place;
        let settings = worker_settings(config, worker, &device);
        let (objects, metadata) = (Arc::clone(&stores.objects), Arc::clone(&stores.metadata));
        let (client, mut service) = Worker::start(settings, engines, objects, metadata)
            .with_context(|| format!("the worker of `{device}` cannot start"))?;
        service.announce().await;
        let stop = process.last.clone();
        process
            .tasks
            .spawn(async move { service.run(stop.cancelled()).await });
        tracing::info!(worker = %client.info().worker, device, "runs batches");
        parts.push(WorkerPart { device, client });
    }
    Ok(parts)
}

fn worker_settings(config: &Config, worker: WorkerId, device: &str) -> sextant_worker::Config {
    let settings = &config.worker;
    let is_cpu = device == DeviceSpec::Cpu.to_string();
    // A runtime is given the time that its requests may take before its batches count as stuck.
    let request_ms = settings
        .remote
        .get(device)
        .map_or(0, |remote| remote.request_timeout_ms.saturating_add(1000));
    let (cores, memory) = (config.worker_cores(), config.worker_memory_bytes());
    let pin = settings.pin.iter().map(|core| *core as usize).collect();
    sextant_worker::Config {
        page_bytes: settings.page_bytes,
        io_bytes: settings.io_bytes,
        horizon: Duration::from_millis(settings.horizon_ms),
        watchdog: Watchdog {
            batch_floor: Duration::from_millis(settings.stuck_batch_ms.max(request_ms)),
            load_floor: Duration::from_millis(settings.stuck_load_ms),
            factor: settings.stuck_factor,
        },
        pin: (is_cpu && !settings.pin.is_empty()).then_some(pin),
        period_ms: WORKER_PERIOD_MS,
        lease_ms: LEASE_MS,
        ..sextant_worker::Config::new(worker, cores, memory)
    }
}

fn build_dispatcher(
    config: &Config,
    stores: &Stores,
    workers: &[WorkerClient],
    process: &mut Process,
) -> Arc<Dispatcher> {
    let settings = sextant_dispatcher::Config {
        max_waiting_rows: config.limits.max_queue_per_variant,
        schedule: config.dispatcher.schedule.options(),
        estimation: config.dispatcher.schedule.run_times.0,
        placement: config.dispatcher.placement.options(),
        parallelism: config.dispatcher.schedule.parallelism.policy(),
        tenants: config.dispatcher.schedule.tenants(),
        ..sextant_dispatcher::Config::default()
    };
    let metadata = Arc::clone(&stores.metadata);
    let (dispatcher, service) = Dispatcher::start(settings, workers.to_vec(), metadata);
    let stop = process.last.clone();
    process
        .tasks
        .spawn(async move { service.run(stop.cancelled()).await });
    let jobs = JobConfig {
        owner: stores.owner.clone(),
        lease_ms: LEASE_MS,
        throttle: Throttle {
            pause_utilization: config.jobs.pause_utilization,
            ..Throttle::default()
        },
        look_ms: 200,
    };
    let (registry, objects) = (stores.registry.clone(), Arc::clone(&stores.objects));
    let jobs = JobService::new(jobs, Arc::clone(&dispatcher), registry, objects);
    process.spawn(|stop| async move { jobs.run(stop.cancelled()).await });
    dispatcher
}

/// Registration; without the role, what earlier lives registered is still published.
async fn build_variant_gen(
    config: &Config,
    stores: &Stores,
    engines: &[Arc<dyn Engine>],
    process: &mut Process,
) -> anyhow::Result<()> {
    let settings = sextant_variant_gen::Config {
        effort: Effort {
            budget: Duration::from_millis(config.variants.profile_ms_per_batch),
            largest_batch: config.variants.max_batch,
            evaluation_batch: u16::try_from(config.variants.evaluation_batch).unwrap_or(u16::MAX),
            ..Effort::default()
        },
        prices: config.prices.clone().into(),
        cores: config.max_threads(),
        lease: Duration::from_millis(LEASE_MS),
        ..sextant_variant_gen::Config::default()
    };
    let shared = sextant_variant_gen::Stores {
        registry: stores.registry.clone(),
        objects: Arc::clone(&stores.objects),
        metadata: Arc::clone(&stores.metadata),
    };
    let generator = Generator::new(shared, engines.to_vec(), settings);
    let published = generator
        .publisher()
        .publish_all()
        .await
        .context("cannot publish variants")?;
    tracing::info!(variants = published, "published what is registered");
    if config.roles.contains(Role::VariantGen) {
        let service = RegistrationService::new(generator, stores.owner.clone());
        process.spawn(|stop| async move { service.run(stop.cancelled()).await });
    }
    Ok(())
}

fn build_autoscaler(
    config: &Config,
    stores: &Stores,
    workers: Vec<WorkerClient>,
    process: &mut Process,
) {
    if !config.roles.contains(Role::Autoscaler) {
        return;
    }
    let settings = autoscaler::Config {
        period_ms: config.autoscaler.period_ms,
        idle_unload_s: config.autoscaler.idle_unload_s,
        warm_memory_share: config.autoscaler.warm_memory_share,
    };
    let service = autoscaler::Service::new(settings, Arc::clone(&stores.metadata), workers);
    process.spawn(|stop| async move { service.run(stop.cancelled()).await });
}

async fn serve_http(
    config: &Config,
    stores: &Stores,
    dispatcher: Arc<Dispatcher>,
    workers: Vec<WorkerPart>,
    listener: TcpListener,
    process: &Process,
) -> anyhow::Result<()> {
    let address = listener
        .local_addr()
        .context("the listener has no address")?;
    let state = ApiState::new(ApiParts {
        dispatcher,
        registry: stores.registry.clone(),
        objects: Arc::clone(&stores.objects),
        metadata: Arc::clone(&stores.metadata),
        workers: workers.into_iter().collect(),
        limits: (&config.limits).into(),
        auth: protection::auth(config)?,
        rates: Arc::new(InProcessRates::new()),
        readiness: Arc::new(|| Ok(())),
    });
    // From the first query on, targets are checked against the application's metric and defaults.
    state
        .refresh()
        .await
        .context("the applications cannot be read")?;
    let tls = protection::tls(config)?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    announce(&format!("listening on {scheme}://{address}"));
    let listener = Listener {
        socket: listener,
        tls,
    };
    sextant_api::serve(listener, state, process.first.clone()).await?;
    Ok(())
}

/// The one line on standard output that tells scripts where the service is.
#[expect(clippy::print_stdout, reason = "the address is the answer of `serve`")]
fn announce(line: &str) {
    println!("{line}");
    tracing::info!("{line}");
}

/// The background work of this process and the order in which it ends.
struct Process {
    /// Cancelled by a signal: no new work.
    first: CancellationToken,
    /// Cancelled when nothing asks any more: workers drain.
    last: CancellationToken,
    tasks: JoinSet<()>,
}

impl Process {
    fn new(first: CancellationToken) -> Self {
        Self {
            first,
            last: CancellationToken::new(),
            tasks: JoinSet::new(),
        }
    }

    /// Runs a service until the signal.
    fn spawn<F>(&mut self, service: impl FnOnce(CancellationToken) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.tasks.spawn(service(self.first.clone()));
    }

    async fn stop(&mut self) {
        self.first.cancel();
        self.last.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            if let Err(error) = ended {
                tracing::error!(%error, "a service ended by a panic");
            }
        }
    }
}

/// A token that SIGTERM and SIGINT cancel.
fn stop_on_signal() -> anyhow::Result<CancellationToken> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let token = CancellationToken::new();
    let stopped = token.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("stopping: finishing what is in flight");
        stopped.cancel();
    });
    Ok(token)
}
