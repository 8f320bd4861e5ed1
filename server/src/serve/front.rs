//! The HTTP front end, with a dispatcher in this process or in another.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::Context;
use prometheus_client::registry::Registry;
use sextant_api::{
    ApiParts, ApiState, Limits, Listener, Readiness, Tls, TlsFiles, WorkerPart, Workers,
    auth::{self, AdminKey},
    cors,
};
use sextant_dispatcher::{Dispatcher, jobs::JobService};
use sextant_metadata::MetadataStore;
use sextant_registry::{AnsweredBy, ApiKey};
use sextant_rpc::DispatcherClient;
use sextant_types::{WorkerId, time::unix_ms};
use sextant_variant_gen::Publisher;
use tokio::net::TcpListener;

use super::{
    Process, announce,
    descriptors::max_connections,
    folder::{HeldFolders, ready_while_kept},
    port::{Caller, Port, WorkerEvent},
    python,
    stores::Stores,
};
use crate::logging;
use sextant_config::{AuthMode, Config};

/// What the front end finds in its process.
pub(super) struct Roles {
    pub(super) dispatcher: Option<Arc<Dispatcher>>,
    pub(super) workers: Vec<WorkerPart>,
    /// Of a process that publishes: what changes there takes turns.
    pub(super) publisher: Option<Publisher>,
    /// Of the other roles.
    pub(super) metrics: Registry,
}

/// Who may ask; refuses a service that others can reach and nobody protects.
pub(super) fn check_access(config: &Config) -> anyhow::Result<auth::Config> {
    let open = config
        .grpc
        .listen
        .filter(|_| config.listen.ip().to_canonical().is_loopback());
    let mode = config.auth.mode.map(|mode| match mode {
        AuthMode::Off => auth::Mode::Off,
        AuthMode::Keys => auth::Mode::Keys,
    });
    let key = config.auth.admin_key.as_deref();
    let key = key.filter(|key| !key.is_empty()).map(AdminKey::new);
    Ok(auth::Config {
        mode: auth::check(open.unwrap_or(config.listen), mode)?,
        admin_key: key.transpose().context("`auth.admin_key`")?,
        metrics: config.auth.metrics,
        max_concurrent_per_key: concurrent_per_key(config),
        audit_patience: None,
    })
}

/// Says that nobody can do anything where nobody has a key: all else looks well then.
async fn warn_without_keys(
    access: &auth::Config,
    registry: &sextant_registry::Registry,
) -> anyhow::Result<()> {
    if access.mode == auth::Mode::Off || access.admin_key.is_some() {
        return Ok(());
    }
    let now_ms = unix_ms();
    let keys = registry.keys().await.context("the keys cannot be read")?;
    let is_valid = |key: &ApiKey| {
        key.revoked_ms.is_none() && key.expires_ms.is_none_or(|expires_ms| now_ms < expires_ms)
    };
    if !keys.iter().any(is_valid) {
        tracing::warn!(
            "`auth.mode` is `keys` and there is no key, so nobody can do anything: set `auth.admin_key` to at \
             least 20 bytes, best by `SEXTANT_AUTH__ADMIN_KEY`, start again, and make a key with `sextant key create`"
        );
    }
    Ok(())
}

/// Places of one key; a quarter of all by default, so that no key takes the places of the others.
fn concurrent_per_key(config: &Config) -> Option<usize> {
    let quarter = config.limits.max_concurrent_queries.div_ceil(4);
    let places = config.auth.max_concurrent_per_key.unwrap_or(quarter);
    (places > 0).then_some(places)
}

/// Serves HTTP until the process is told to stop.
pub(super) async fn serve(
    config: &Config,
    stores: &Stores,
    roles: Roles,
    port: Option<&Port>,
    listener: TcpListener,
    process: &mut Process,
) -> anyhow::Result<()> {
    let address = listener
        .local_addr()
        .context("the listener has no address")?;
    let grpc = match config.grpc.listen {
        Some(address) => Some(bind_grpc(address).await?),
        None => None,
    };
    let Roles {
        dispatcher,
        workers,
        publisher,
        metrics,
    } = roles;
    let parts: Workers = workers.iter().cloned().collect();
    let (client, readiness) = match (port, dispatcher) {
        (Some(port), _) => port.reach_dispatcher(config, stores, process)?,
        (None, Some(dispatcher)) => (dispatcher as DispatcherClient, always_ready()),
        (None, None) => anyhow::bail!("role `api` needs a dispatcher"),
    };
    if let Some(port) = port {
        follow_workers(stores, port, &workers, &parts, process)?;
    }
    let registry = stores.registry()?;
    let access = check_access(config)?;
    warn_without_keys(&access, &registry).await?;
    let mut limits = limits(&config.limits);
    limits.max_connections = max_connections(limits.max_connections);
    let publisher =
        publisher.unwrap_or_else(|| Publisher::new(registry.clone(), Arc::clone(&stores.metadata)));
    let state = ApiState::new(ApiParts {
        dispatcher: client,
        publisher: Arc::new(publisher),
        registry,
        objects: Arc::clone(&stores.objects),
        storage: stores
            .storage
            .clone()
            .context("role `api` needs the registry")?,
        metadata: Arc::clone(&stores.metadata),
        workers: parts,
        estimate_factor: config.variants.estimate_factor,
        limits,
        auth: access,
        rates: Arc::clone(&stores.rates),
        metrics,
        readiness: process.ready_if(ready_while_kept(stores.kept.clone(), readiness)),
        origins: cors::origins(&config.cors.origins)
            .map_err(|reason| anyhow::anyhow!("`cors.origins`: {reason}"))?,
        shared_memory: config.v2.shared_memory,
        raw_answers: config.v2.raw_answers,
        logging: logging::control(),
        notifier: Some(Arc::new(super::dispatcher::webhooks(config))),
        python: python::build(config)?,
        examiner: Arc::new(sextant_variant_gen::Examiner),
    });
    // From the first query on, targets are checked against the application's metric and defaults.
    state
        .refresh()
        .await
        .context("the applications cannot be read")?;
    build_jobs(config, stores, &state, process)?;
    let tls = tls(config)?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    announce(&format!("listening on {scheme}://{address}"));
    let mut listeners = vec![Listener {
        socket: listener,
        tls: tls.clone(),
    }];
    if let Some((socket, address)) = grpc {
        announce(&format!("listening for gRPC on {scheme}://{address}"));
        listeners.push(Listener { socket, tls });
    }
    sextant_api::serve_all(listeners, state, process.first()).await?;
    Ok(())
}

/// Offline jobs of pipelines, which front ends run. The leading dispatcher tells webhooks of their end, too.
fn build_jobs(
    config: &Config,
    stores: &Stores,
    state: &ApiState,
    process: &mut Process,
) -> anyhow::Result<()> {
    let settings = super::dispatcher::job_settings(config, stores, AnsweredBy::Pipelines);
    let (registry, objects) = (stores.registry()?, Arc::clone(&stores.objects));
    let jobs = JobService::new(settings, state.offline(), registry, objects);
    let together = stores.together();
    process.spawn(|stop| async move {
        tokio::select! {
            () = together => jobs.run(stop.cancelled()).await,
            () = stop.cancelled() => {}
        }
    });
    Ok(())
}

/// The port of gRPC's own.
async fn bind_grpc(address: SocketAddr) -> anyhow::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(address).await;
    let listener = listener.with_context(|| format!("cannot listen for gRPC on `{address}`"))?;
    let bound = listener
        .local_addr()
        .context("the listener has no address")?;
    Ok((listener, bound))
}

/// A process without the role `api` shows how it is.
pub(super) async fn observe(
    listener: TcpListener,
    metrics: Registry,
    kept: HeldFolders,
    process: &Process,
) -> anyhow::Result<()> {
    let address = listener
        .local_addr()
        .context("the listener has no address")?;
    announce(&format!("listening on http://{address}"));
    Ok(sextant_api::observe(
        listener,
        process.ready_if(ready_while_kept(kept, always_ready())),
        metrics,
        process.first(),
    )
    .await?)
}

fn always_ready() -> Readiness {
    Arc::new(|| Ok(()))
}

/// The workers of the fleet, for their statistics.
fn follow_workers(
    stores: &Stores,
    port: &Port,
    local: &[WorkerPart],
    parts: &Workers,
    process: &mut Process,
) -> anyhow::Result<()> {
    let local: Vec<_> = local.iter().map(|part| Arc::clone(&part.client)).collect();
    let own: Vec<WorkerId> = local.iter().map(|client| client.info().worker).collect();
    let (metadata, parts) = (Arc::clone(&stores.metadata), parts.clone());
    port.follow_workers(
        stores,
        Caller::FrontEnd,
        &local,
        process,
        move |seen| match seen {
            WorkerEvent::Up(worker, _) if own.contains(&worker) => {}
            WorkerEvent::Up(worker, client) => {
                // The worker may go, or come again, before the store has reported its device.
                let (metadata, arrival) = (Arc::clone(&metadata), parts.arriving(client));
                tokio::spawn(async move {
                    arrival.enter(device_of(metadata.as_ref(), &worker).await);
                });
            }
            WorkerEvent::Down(worker) => {
                parts.remove(&worker);
            }
        },
    )
}

/// What a worker runs batches on, as it says itself.
async fn device_of(metadata: &dyn MetadataStore, worker: &WorkerId) -> String {
    let workers = metadata.workers(0).await.unwrap_or_default();
    let found = workers.into_iter().find(|it| it.id == *worker);
    found.map_or_else(String::new, |it| it.record.device.to_string())
}

fn tls(config: &Config) -> anyhow::Result<Option<Tls>> {
    let (Some(certificate), Some(key)) = (&config.tls.certificate, &config.tls.key) else {
        return Ok(None);
    };
    let tls = Tls::load(TlsFiles {
        certificate: certificate.clone(),
        key: key.clone(),
        client_ca: config.tls.client_ca.clone(),
    });
    Ok(Some(tls.context("the HTTP API cannot be encrypted")?))
}

fn limits(configured: &sextant_config::Limits) -> Limits {
    Limits {
        max_body_bytes: configured.max_body_bytes,
        max_body_bytes_in_flight: configured.max_body_bytes_in_flight,
        max_model_bytes: configured.max_model_bytes,
        max_concurrent_queries: configured.max_concurrent_queries,
        body_timeout: Duration::from_millis(configured.body_timeout_ms),
        max_connections: configured.max_connections,
        head_timeout: Duration::from_millis(configured.head_timeout_ms),
        idle_timeout: Duration::from_millis(configured.idle_timeout_ms),
        min_transfer_bytes_per_s: configured.min_transfer_bytes_per_s,
        transfer_grace: Duration::from_millis(configured.transfer_grace_ms),
        drain_timeout: Duration::from_millis(configured.drain_timeout_ms),
        shutdown_delay: Duration::from_millis(configured.shutdown_delay_ms),
    }
}
