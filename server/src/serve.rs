//! Starts the roles of this process and stops them in order.
//!
//! Each role has one short module or `build_*` function; what they share is opened once, in
//! [`Stores`]. A process with the embedded default has all roles and a folder of its own; in a
//! fleet a [`Port`] connects it with the processes that have the others.

pub(crate) mod backup;
mod cuda;
mod descriptors;
mod devices;
mod dispatcher;
pub mod engines;
pub mod examine;
mod folder;
mod front;
mod host;
mod measure;
mod pools;
mod port;
mod process;
mod python;
mod remote;
mod roles;
mod storage;
mod stores;
mod workers;

use std::{io::Write, sync::Arc, time::Duration};

use anyhow::Context;
use prometheus_client::registry::Registry;
use sextant_api::Metrics;
use sextant_autoscaler as autoscaler;
use sextant_engine::Engine;
use sextant_fleet::Leadership;
use sextant_metadata::Candidate;
use sextant_rpc::WorkerClient;
use sextant_types::DeviceType;
use sextant_variant_gen::{Generator, Publisher, RegistrationService, measure::Effort};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use devices::Fleet;
pub(crate) use host::{Host, isolated};
pub(crate) use measure::Measure;
use port::Port;
use process::Process;
pub(crate) use python::Step;
use sextant_config::{Config, Role};
use stores::Stores;

/// How long the runner of a job is believed in without a sign of life, ms.
const LEASE_MS: u64 = 10_000;

#[cfg(not(feature = "fleet"))]
const UNBUILT: &str = "this binary was built without the feature `fleet`, as the demo is: build the whole \
                       one with `cargo build --release --package sextant`";

/// Runs the configured roles until the process is told to stop. Logging has been started.
pub async fn run(config: Config) -> anyhow::Result<()> {
    roles::check(&config)?;
    pools::check(&config)?;
    front::check_access(&config)?;
    descriptors::raise();
    let told = process::stop_on_signal()?;
    process::keep_up(&told, process::PAUSES, async |process: &mut Process| {
        live(&config, process, &told).await
    })
    .await
}

/// Runs the configured roles once, until they end.
async fn live(
    config: &Config,
    process: &mut Process,
    told: &CancellationToken,
) -> anyhow::Result<()> {
    let stores = tokio::select! {
        opened = Stores::wait_for(config) => opened?,
        () = told.cancelled() => return Ok(()),
    };
    let listener = TcpListener::bind(config.listen)
        .await
        .with_context(|| format!("cannot listen on `{}`", config.listen))?;
    let served = play(config, &stores, listener, process).await;
    process.stop().await;
    stores.close().await;
    served
}

/// Starts every role of this process, and serves until it is told to stop.
async fn play(
    config: &Config,
    stores: &Stores,
    listener: TcpListener,
    process: &mut Process,
) -> anyhow::Result<()> {
    let plays = |role| config.roles.contains(role);
    let port = match roles::is_split(config) {
        true => Some(Port::open(config, stores, process).await?),
        false => None,
    };
    let port = port.as_ref();
    let mut metrics = Metrics::registry();
    let Fleet {
        places,
        mut measured,
        types,
        ..
    } = match plays(Role::Worker) || plays(Role::VariantGen) {
        true => devices::open(config)?,
        false => Fleet::default(),
    };
    let parts = match plays(Role::Worker) {
        true => {
            let of = (places, &mut measured[..]);
            workers::build(config, stores, of, (port, &mut metrics), process).await?
        }
        false => Vec::new(),
    };
    let clients: Vec<WorkerClient> = parts.iter().map(|part| Arc::clone(&part.client)).collect();
    let dispatcher = match plays(Role::Dispatcher) {
        true => Some(dispatcher::build(config, stores, &clients, port, process)?),
        false => None,
    };
    if let Some(dispatcher) = &dispatcher {
        dispatcher.register_metrics(&mut metrics);
        storage::sweep(stores.storage.clone(), dispatcher.leading(), process);
    }
    let publisher = match plays(Role::VariantGen) || port.is_none() {
        true => {
            let measured = (&measured[..], types);
            Some(build_variant_gen(config, stores, measured, &mut metrics, process).await?)
        }
        false => None,
    };
    if plays(Role::Autoscaler) {
        let service = build_autoscaler(config, stores, port, process).await?;
        service.register_metrics(&mut metrics);
        process.spawn(|stop| async move { service.run(stop.cancelled()).await });
    }
    match plays(Role::Api) {
        true => {
            let roles = front::Roles {
                dispatcher,
                workers: parts,
                publisher,
                metrics,
            };
            front::serve(config, stores, roles, port, listener, process).await
        }
        false => front::observe(listener, metrics, stores.kept.clone(), process).await,
    }
}

/// Registration; without the role, what earlier lives registered is still published.
async fn build_variant_gen(
    config: &Config,
    stores: &Stores,
    (engines, devices): (&[Arc<dyn Engine>], Vec<Arc<DeviceType>>),
    metrics: &mut Registry,
    process: &mut Process,
) -> anyhow::Result<Publisher> {
    let usual = match config.variants.effort {
        sextant_config::Effort::Quick => Effort::quick(),
        sextant_config::Effort::Default => Effort::default(),
        sextant_config::Effort::Thorough => Effort::thorough(),
    };
    let settings = sextant_variant_gen::Config {
        effort: Effort {
            budget: Duration::from_millis(config.variants.time_per_batch_ms()),
            largest_batch: config.variants.max_batch,
            evaluation_batch: u16::try_from(config.variants.evaluation_batch).unwrap_or(u16::MAX),
            concurrent_cores: match config.dispatcher.schedule.parallelism() {
                Some(choice) => choice.cores.unwrap_or(u16::MAX).min(config.max_threads()),
                None => 0,
            },
            memory_bytes: config
                .variants_memory_bytes()
                .min(config.worker_memory_bytes()),
            ..usual
        },
        budget: config.variants.budget_s.map(Duration::from_secs),
        extremes_only: config.variants.effort == sextant_config::Effort::Quick,
        devices,
        cores: config.max_threads(),
        registers: config.variants.register,
        isolation: measure::isolation(config, engines)?,
        most_at_once: config.max_registrations().into(),
        slow_after: Duration::from_millis(config.variants.slow_registration_ms),
        lease: Duration::from_millis(LEASE_MS),
        map_from_bytes: config.limits.map_model_bytes,
        ..sextant_variant_gen::Config::default()
    };
    let shared = sextant_variant_gen::Stores {
        registry: stores.registry()?,
        objects: Arc::clone(&stores.objects),
        metadata: Arc::clone(&stores.metadata),
    };
    let generator = Generator::new(shared, engines.to_vec(), settings);
    let publisher = generator.publisher().clone();
    let published = publisher
        .publish_all()
        .await
        .context("cannot publish variants")?;
    tracing::info!(variants = published, "published what is registered");
    if config.roles.contains(Role::VariantGen) {
        let service = RegistrationService::new(generator, stores.owner.clone());
        service.register_metrics(metrics);
        let together = stores.together();
        process.spawn(|stop| async move {
            tokio::select! {
                () = together => service.run(stop.cancelled()).await,
                () = stop.cancelled() => {}
            }
        });
    }
    Ok(publisher)
}

/// The autoscaler: alone over a store of this process, as a candidate over one that others share.
async fn build_autoscaler(
    config: &Config,
    stores: &Stores,
    port: Option<&Port>,
    process: &mut Process,
) -> anyhow::Result<autoscaler::Service> {
    let own = &config.autoscaler;
    let network = dispatcher::network(config, roles::is_split(config));
    let settings = autoscaler::Config {
        period_ms: own.period_ms,
        idle_unload_s: own.idle_unload_s,
        warm_memory_share: own.warm_memory_share,
        policy: own.policy.0,
        hold_ms: own.hold_s.saturating_mul(1000),
        cold_start_s: own.cold_start_s,
        idle_ms: own.idle_s.saturating_mul(1000),
        budget_per_hour_usd: own.budget_per_hour_usd,
        estimate_factor: config.variants.estimate_factor,
        round_trip_ns: network.before_start(1).saturating_add(network.response),
        pools: pools::build(config).await?,
    };
    pools::end_with(process, &settings.pools);
    let metadata = Arc::clone(&stores.metadata);
    #[cfg(feature = "keda")]
    pools::serve_keda(config, Arc::clone(&metadata), process).await?;
    let mut service = autoscaler::Service::new(settings, Arc::clone(&metadata));
    if config.metadata.url.is_some() {
        let candidate = Candidate {
            role: "autoscaler".into(),
            holder: stores.owner.as_str().into(),
            endpoint: port.map_or_else(|| "".into(), Port::endpoint),
        };
        let ttl = Duration::from_millis(config.fleet.leader_lease_ms);
        let leadership = Leadership::new(metadata, candidate, ttl);
        service = service.led_by(leadership.token());
        process.spawn(|stop| async move { leadership.run(stop.cancelled()).await });
    }
    Ok(service)
}

/// The one line on standard output that tells scripts where the service is.
fn announce(line: &str) {
    // The program that started the service may have stopped reading.
    writeln!(std::io::stdout(), "{line}").ok();
    tracing::info!("{line}");
}
