//! The dispatcher, and the offline jobs that it runs.

use std::{sync::Arc, time::Duration};

use sextant_dispatcher::{
    Dispatcher, ShadowService,
    jobs::{JobConfig, JobService},
    profiles::{ProfileConfig, ProfileService},
};
use sextant_fleet::{GRACE, LEADING_ROLE, Leadership, Token, expire_leases};
use sextant_health::throttle::Throttle;
use sextant_metadata::Candidate;
use sextant_registry::AnsweredBy;
use sextant_rpc::WorkerClient;
use sextant_schedule::Delay;
use sextant_webhook::{Options, Webhooks};
use tokio::time::timeout;

use super::{
    LEASE_MS, Process,
    port::{Caller, Port, WorkerEvent},
    stores::Stores,
};
use sextant_config::Config;

/// Time between two looks at the leases of workers.
const EXPIRY: Duration = Duration::from_millis(500);

/// A dispatcher over `workers`, and in a fleet over all that come and go.
pub(super) fn build(
    config: &Config,
    stores: &Stores,
    workers: &[WorkerClient],
    port: Option<&Port>,
    process: &mut Process,
) -> anyhow::Result<Arc<Dispatcher>> {
    let settings = settings(config, port.is_some());
    let metadata = Arc::clone(&stores.metadata);
    let own = match port {
        Some(_) => Vec::new(),
        None => workers.to_vec(),
    };
    let (dispatcher, mut service) = Dispatcher::start(settings, own, metadata);
    match port {
        Some(port) => {
            let token = lead(config, stores, port, &dispatcher, process)?;
            service = service.led_by(token);
        }
        None if config.metadata.url.is_some() => {
            service = service.led_by(tell_of_demand(config, stores, process));
        }
        None => {}
    }
    process.spawn_late(|stop| async move { service.run(stop.cancelled()).await });
    build_jobs(config, stores, &dispatcher, process)?;
    build_profiles(config, stores, &dispatcher, process)?;
    build_shadows(stores, &dispatcher, process)?;
    Ok(dispatcher)
}

/// What messages cost where front ends and workers are other processes.
pub(super) fn network(config: &Config, is_split: bool) -> Delay {
    let message = config.fleet.network_us.saturating_mul(1000);
    match is_split {
        // Messages go to the front end, and from there with the inputs to the worker.
        true => Delay {
            control: message * 2,
            data_per_row: 0,
            response: message,
        },
        false => Delay::default(),
    }
}

fn settings(config: &Config, is_split: bool) -> sextant_dispatcher::Config {
    let schedule = &config.dispatcher.schedule;
    sextant_dispatcher::Config {
        max_waiting_rows: config.limits.max_queue_per_variant,
        schedule: schedule.options(),
        network: network(config, is_split),
        estimation: schedule.run_times.0,
        placement: config.dispatcher.placement.options(),
        parallelism: schedule.parallelism(),
        estimate_factor: config.variants.estimate_factor,
        tenants: schedule.tenants(),
        agreement: config.dispatcher.agreement.sampling(),
        max_cache_bytes: config.dispatcher.cache.max_bytes,
        ..sextant_dispatcher::Config::default()
    }
}

/// Stands for telling what is asked for: of the services that share a store and nothing else, one does.
fn tell_of_demand(config: &Config, stores: &Stores, process: &mut Process) -> Token {
    let candidate = Candidate {
        role: "demand".into(),
        holder: stores.owner.as_str().into(),
        endpoint: "".into(),
    };
    let ttl = Duration::from_millis(config.fleet.leader_lease_ms);
    let leadership = Leadership::new(Arc::clone(&stores.metadata), candidate, ttl);
    let token = leadership.token();
    process.spawn(|stop| async move { leadership.run(stop.cancelled()).await });
    token
}

/// Stands for the leadership, and takes queries of front ends while it is held; the token says
/// whether it is.
fn lead(
    config: &Config,
    stores: &Stores,
    port: &Port,
    dispatcher: &Arc<Dispatcher>,
    process: &mut Process,
) -> anyhow::Result<Token> {
    dispatcher.set_leading(false);
    let candidate = Candidate {
        role: LEADING_ROLE.into(),
        holder: stores.owner.as_str().into(),
        endpoint: port.endpoint(),
    };
    let ttl = Duration::from_millis(config.fleet.leader_lease_ms);
    let metadata = Arc::clone(&stores.metadata);
    let leadership = Leadership::new(metadata, candidate, ttl).outlasting_the_store();
    let token = leadership.token();
    let leaving = Arc::clone(dispatcher);
    process.spawn(|stop| async move {
        let (stopped, informed) = (stop.clone(), Arc::clone(&leaving));
        let stood_down = async {
            stop.cancelled().await;
            // Running queries are reported before another dispatcher leads, for at most the time of a lease.
            drop(timeout(ttl, leaving.stand_down()).await);
        };
        // A dispatcher without the state of the store would not find what is registered.
        tokio::select! {
            () = informed.informed() => leadership.run(stood_down).await,
            () = stopped.cancelled() => {}
        }
    });
    let (follower, follows) = (Arc::clone(dispatcher), token.clone());
    process.spawn_late(|stop| async move {
        tokio::select! {
            () = follower.lead_with(follows) => {}
            () = stop.cancelled() => {}
        }
    });
    let patience = Duration::from_millis(config.fleet.worker_lease_ms).min(GRACE);
    let (metadata, holds) = (Arc::clone(&stores.metadata), token.clone());
    process.spawn(|stop| async move {
        expire_leases(metadata, holds, EXPIRY, patience, stop.cancelled()).await;
    });
    let known = Arc::clone(dispatcher);
    let caller = Caller::Dispatcher(token.clone());
    // It reaches the workers of this process through the port, too, which refuses a dispatcher that no longer leads.
    port.follow_workers(stores, caller, &[], process, move |seen| match seen {
        WorkerEvent::Up(worker, client) => {
            tracing::info!(%worker, "reached");
            known.add_worker(client);
        }
        WorkerEvent::Down(worker) => {
            tracing::warn!(%worker, "lost");
            known.remove_worker(&worker);
        }
    })?;
    let leads = Arc::clone(dispatcher);
    let leads = Arc::new(move || leads.is_leading());
    port.offer_dispatcher(Arc::clone(dispatcher) as _, leads);
    Ok(token)
}

/// Measures variants on the types of devices on which they were not registered.
fn build_profiles(
    config: &Config,
    stores: &Stores,
    dispatcher: &Arc<Dispatcher>,
    process: &mut Process,
) -> anyhow::Result<()> {
    let settings = ProfileConfig {
        budget: Duration::from_millis(config.variants.time_per_batch_ms()),
        quiet_utilization: config.variants.profile_below_utilization,
        ..ProfileConfig::default()
    };
    let (registry, metadata) = (stores.registry()?, Arc::clone(&stores.metadata));
    let profiles = ProfileService::new(settings, Arc::clone(dispatcher), registry, metadata);
    let leading = dispatcher.leading();
    process.spawn(|stop| async move { profiles.run_while(leading, stop.cancelled()).await });
    Ok(())
}

/// Keeps what shadows have answered until feedback comes.
fn build_shadows(
    stores: &Stores,
    dispatcher: &Arc<Dispatcher>,
    process: &mut Process,
) -> anyhow::Result<()> {
    let shadows = ShadowService::new(Arc::clone(dispatcher), stores.registry()?);
    let leading = dispatcher.leading();
    process.spawn(|stop| async move { shadows.run_while(leading, stop.cancelled()).await });
    Ok(())
}

fn build_jobs(
    config: &Config,
    stores: &Stores,
    dispatcher: &Arc<Dispatcher>,
    process: &mut Process,
) -> anyhow::Result<()> {
    let settings = job_settings(config, stores, AnsweredBy::Variants);
    let (registry, objects) = (stores.registry()?, Arc::clone(&stores.objects));
    let webhooks = webhooks(config);
    let jobs = JobService::new(settings, Arc::clone(dispatcher) as _, registry, objects)
        .with_notifier(Arc::new(webhooks));
    let (leading, together) = (dispatcher.leading(), stores.together());
    process.spawn(|stop| async move {
        tokio::select! {
            () = together => jobs.run_while(leading, stop.cancelled()).await,
            () = stop.cancelled() => {}
        }
    });
    Ok(())
}

/// How offline jobs run that such a runner can answer.
pub(super) fn job_settings(config: &Config, stores: &Stores, answered_by: AnsweredBy) -> JobConfig {
    JobConfig {
        owner: stores.owner.clone(),
        answered_by,
        lease_ms: LEASE_MS,
        throttle: Throttle {
            pause_utilization: config.jobs.pause_utilization,
            ..Throttle::default()
        },
        look_ms: 200,
    }
}

/// What tells webhooks of jobs, and of models that should be trained again.
pub(super) fn webhooks(config: &Config) -> Webhooks {
    Webhooks::new(Options {
        // A signature with an empty secret proves nothing.
        secret: config
            .jobs
            .webhook_secret
            .clone()
            .filter(|it| !it.is_empty()),
        allow_link_local: config.jobs.webhook_allow_link_local,
    })
}
