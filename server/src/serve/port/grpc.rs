//! Links over gRPC.

use std::{sync::Arc, time::Duration};

use anyhow::Context;
use sextant_api::Readiness;
use sextant_config::Config;
use sextant_links::{
    front::{DispatcherHalf, FrontEnd, FrontOptions},
    grpc::{
        self, CallerLimits, ConnectorConfig, Fence, GrpcConfig, GrpcConnector, GrpcServer, Hello,
        Limits, MutualTls, Protocol, Roles, Roster, RosterOptions,
    },
    link::{self, Clock},
    mailbox::{Mailbox, MailboxOptions},
};
use sextant_rpc::{DispatcherClient, WorkerClient};

use super::{Caller, Process, Stores, WorkerEvent};

/// The port for the others, where there is one, and what opens links to them.
pub(in crate::serve) struct Port {
    roles: Option<Roles>,
    endpoint: Arc<str>,
    fleet: Arc<str>,
    protocol: Protocol,
    tls: Option<MutualTls>,
    silence: Duration,
    limits: Limits,
}

impl Port {
    /// Takes the port that is configured and answers on it as long as the process lives.
    pub(in crate::serve) async fn open(
        config: &Config,
        stores: &Stores,
        process: &mut Process,
    ) -> anyhow::Result<Self> {
        let fleet: Arc<str> = config.fleet.name.as_str().into();
        let protocol = Protocol::up_to(config.fleet.protocol.into());
        let protocol = protocol.context("`fleet.protocol` is none of this release's")?;
        let tls = tls(config);
        let mut port = Self {
            roles: None,
            endpoint: "".into(),
            fleet: Arc::clone(&fleet),
            protocol,
            tls: tls.clone(),
            silence: Duration::from_millis(config.fleet.silence_ms),
            limits: limits(config),
        };
        let Some(listen) = config.fleet.listen else {
            return Ok(port);
        };
        if tls.is_none() && !listen.ip().is_loopback() {
            tracing::warn!(
                %listen,
                "others can reach `fleet.listen`, and whoever does may give orders: set \
                 `fleet.certificate`, `fleet.key` and `fleet.ca`, or keep the port to the fleet's network"
            );
        }
        let settings = GrpcConfig {
            advertise: config.fleet.advertise.clone(),
            tls,
            limits: port.limits,
            protocol,
            callers: CallerLimits {
                most: config.fleet.max_connections,
                ..CallerLimits::default()
            },
            ..GrpcConfig::new(listen, fleet)
        };
        let server = GrpcServer::bind(settings, Arc::clone(&stores.metadata)).await?;
        port.roles = Some(server.roles());
        port.endpoint = server.endpoint();
        tracing::info!(endpoint = %port.endpoint, "reached by the fleet");
        process.spawn_last(|stop| async move {
            if let Err(error) = server.run(stop.cancelled()).await {
                tracing::error!(%error, "the fleet cannot reach this process any more");
            }
        });
        Ok(port)
    }

    /// `host:port` under which the others reach this process.
    pub(in crate::serve) fn endpoint(&self) -> Arc<str> {
        Arc::clone(&self.endpoint)
    }

    /// Lets the others reach a worker; the answer is how this process does.
    pub(in crate::serve) fn offer_worker(&self, worker: WorkerClient) -> WorkerClient {
        let mailbox = Mailbox::new(worker, MailboxOptions::default());
        if let Some(roles) = &self.roles {
            roles.add_worker(Arc::clone(&mailbox));
        }
        mailbox
    }

    /// Lets front ends reach the dispatcher.
    pub(in crate::serve) fn offer_dispatcher(
        &self,
        dispatcher: DispatcherClient,
        leads: Arc<dyn Fn() -> bool + Send + Sync>,
    ) {
        if let Some(roles) = &self.roles {
            roles.set_dispatcher(DispatcherHalf {
                dispatcher,
                leads,
                clock: Clock::system(),
            });
        }
    }

    /// What opens links on behalf of a role.
    fn connector(&self, caller: Caller) -> anyhow::Result<Arc<GrpcConnector>> {
        let (caller, fence) = match caller {
            Caller::FrontEnd => (grpc::Caller::FrontEnd, Fence::none()),
            Caller::Dispatcher(token) => (grpc::Caller::Dispatcher, Fence::following(token)),
        };
        let hello = Hello {
            protocol: self.protocol,
            fleet: Arc::clone(&self.fleet),
            caller,
            fence,
        };
        let settings = ConnectorConfig {
            tls: self.tls.clone(),
            limits: self.limits,
            ..ConnectorConfig::new(hello)
        };
        let connector = GrpcConnector::new(settings);
        Ok(Arc::new(connector.context("the fleet cannot be reached")?))
    }

    /// The dispatcher that leads, whichever that is, and whether there is one.
    pub(in crate::serve) fn reach_dispatcher(
        &self,
        config: &Config,
        stores: &Stores,
        process: &mut Process,
    ) -> anyhow::Result<(DispatcherClient, Readiness)> {
        let options = FrontOptions {
            longest: Duration::from_millis(config.fleet.query_limit_ms),
            max_waiting: config.limits.max_concurrent_queries,
            silence: self.silence,
            inline_bytes: config.fleet.inline_bytes,
            max_cache_bytes: config.dispatcher.cache.max_bytes,
            ..FrontOptions::default()
        };
        let front = FrontEnd::new(options, Clock::system());
        let connector = self.connector(Caller::FrontEnd)?;
        let (runs, metadata) = (Arc::clone(&front), Arc::clone(&stores.metadata));
        process.spawn_late(|stop| async move {
            runs.run(connector, metadata, stop.cancelled()).await;
        });
        let looked_at = Arc::clone(&front);
        let readiness = move || match looked_at.leader() {
            Some(_) => Ok(()),
            None => Err("no dispatcher leads, or none can be reached".to_owned()),
        };
        Ok((front, Arc::new(readiness)))
    }

    /// Keeps a link to every worker of the fleet on behalf of a role; `seen` is called as they come
    /// and go.
    pub(in crate::serve) fn follow_workers(
        &self,
        stores: &Stores,
        caller: Caller,
        local: &[WorkerClient],
        process: &mut Process,
        seen: impl Fn(WorkerEvent) + Send + Sync + 'static,
    ) -> anyhow::Result<()> {
        let connector = self.connector(caller)?;
        let mut options = RosterOptions::default();
        options.link = link::Options {
            silence: self.silence,
            ..options.link
        };
        let roster = Roster::new(connector, local.to_vec(), options);
        let mut workers = roster.subscribe();
        let metadata = Arc::clone(&stores.metadata);
        process.spawn_late(|stop| async move {
            let telling = async {
                while let Some(news) = workers.recv().await {
                    seen(match news {
                        grpc::RosterEvent::Up(worker, client) => WorkerEvent::Up(worker, client),
                        grpc::RosterEvent::Down(worker) => WorkerEvent::Down(worker),
                    });
                }
            };
            tokio::select! {
                () = telling => {}
                () = roster.run(metadata, stop.cancelled()) => {}
            }
        });
        Ok(())
    }
}

/// Alike in every process whose `limits.max_body_bytes` are. JSON grows at most fourfold when it becomes
/// tensors.
fn limits(config: &Config) -> Limits {
    let usual = Limits::default();
    let message_bytes = config.limits.max_body_bytes.saturating_mul(4);
    Limits {
        message_bytes: message_bytes.max(usual.message_bytes),
        queued_bytes: message_bytes.saturating_mul(4).max(usual.queued_bytes),
        ..usual
    }
}

fn tls(config: &Config) -> Option<MutualTls> {
    let fleet = &config.fleet;
    Some(MutualTls {
        ca: fleet.ca.clone()?,
        certificate: fleet.certificate.clone()?,
        key: fleet.key.clone()?,
        server_name: fleet.server_name.clone(),
        role_names: fleet.role_names,
    })
}
