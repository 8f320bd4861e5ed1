//! The end that is called.

use std::{
    collections::BTreeMap,
    future::Future,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use futures::future::Either;
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use sextant_metadata::MetadataStore;
use sextant_rpc::Work;
use sextant_types::WorkerId;
use tokio::net::TcpListener;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::transport::Server;

use crate::{
    front::DispatcherHalf,
    grpc::{
        Error, Limits, MutualTls, Protocol,
        error::chain,
        hello::Tokens,
        proto::{dispatcher_server::DispatcherServer, worker_server::WorkerServer},
        tls::ServerTls,
        transport::{
            CONNECTION_WINDOW_BYTES, FRAME_BYTES, KEEP_ALIVE, KEEP_ALIVE_TIMEOUT,
            STREAM_WINDOW_BYTES,
        },
    },
    link::Clock,
    mailbox::Mailbox,
};

mod calls;
mod incoming;

pub use self::incoming::CallerLimits;

use self::{calls::Calls, incoming::Callers};

/// Time after a shutdown within which open calls end.
const GRACE: Duration = Duration::from_secs(2);

/// Where a process listens, and for which callers.
#[derive(Debug, Clone)]
pub struct GrpcConfig {
    /// Address and port; port 0 takes a free one.
    pub listen: SocketAddr,
    /// `host:port` for other processes. By default this is the address, with this machine's name if the address stands
    /// for all interfaces.
    pub advertise: Option<String>,
    /// The fleet that may call.
    pub fleet: Arc<str>,
    /// The versions of the messages that are understood.
    pub protocol: Protocol,
    /// Encryption; `None` for none.
    pub tls: Option<MutualTls>,
    /// The size limits.
    pub limits: Limits,
    /// The limits of connections.
    pub callers: CallerLimits,
}

/// A port on which the roles of this process are reached.
pub struct GrpcServer {
    listener: TcpListener,
    endpoint: Arc<str>,
    tls: Option<ServerTls>,
    limits: Limits,
    roles: Roles,
}

/// The roles behind a port. They may change while it is served.
#[derive(Clone)]
pub struct Roles(Arc<Shared>);

struct Shared {
    fleet: Arc<str>,
    protocol: Protocol,
    limits: Limits,
    clock: Clock,
    /// Whether certificates must name the roles of callers; `None` without encryption.
    role_names: Option<bool>,
    tokens: Tokens,
    callers: Arc<Callers>,
    workers: RwLock<BTreeMap<WorkerId, Arc<Mailbox>>>,
    dispatcher: RwLock<Option<DispatcherHalf>>,
    calls: TaskTracker,
    /// Cancelled when open calls must end.
    ending: CancellationToken,
}

impl GrpcConfig {
    /// Without encryption, with the default limits.
    pub fn new(listen: SocketAddr, fleet: impl Into<Arc<str>>) -> Self {
        Self {
            listen,
            advertise: None,
            fleet: fleet.into(),
            protocol: Protocol::OWN,
            tls: None,
            limits: Limits::default(),
            callers: CallerLimits::default(),
        }
    }
}

// === impl GrpcServer ===

impl GrpcServer {
    /// Binds the port. Callers are answered once [`run`](Self::run) runs. `metadata` tells which caller leads.
    ///
    /// # Errors
    /// If the port cannot be bound, if the certificates cannot be read, or if no address of this process can be given
    /// to others.
    pub async fn bind(config: GrpcConfig, metadata: Arc<dyn MetadataStore>) -> Result<Self, Error> {
        let listen = |error: std::io::Error| Error::Listen {
            address: config.listen,
            reason: error.to_string(),
        };
        let role_names = config.tls.as_ref().map(|tls| tls.role_names);
        let tls = config.tls.map(MutualTls::called).transpose()?;
        let listener = TcpListener::bind(config.listen).await.map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let endpoint = match config.advertise {
            Some(endpoint) => endpoint,
            None => advertised(address)?,
        };
        let shared = Shared {
            fleet: config.fleet,
            protocol: config.protocol,
            limits: config.limits,
            clock: Clock::system(),
            role_names,
            tokens: Tokens::new(metadata),
            callers: Callers::new(config.callers),
            workers: RwLock::default(),
            dispatcher: RwLock::default(),
            calls: TaskTracker::new(),
            ending: CancellationToken::new(),
        };
        Ok(Self {
            listener,
            endpoint: endpoint.into(),
            tls,
            limits: config.limits,
            roles: Roles(Arc::new(shared)),
        })
    }

    /// The `host:port` at which other processes reach this one.
    pub fn endpoint(&self) -> Arc<str> {
        Arc::clone(&self.endpoint)
    }

    /// The roles that are reached here.
    pub fn roles(&self) -> Roles {
        self.roles.clone()
    }

    /// Answers callers until `shutdown`, then ends their calls.
    ///
    /// # Errors
    /// If the system gives no more connections.
    pub async fn run(self, shutdown: impl Future<Output = ()> + Send) -> Result<(), Error> {
        let most = self.limits.frame_bytes();
        let mut server = Server::builder()
            .tcp_nodelay(true)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_frame_size(FRAME_BYTES)
            .http2_keepalive_interval(Some(KEEP_ALIVE))
            .http2_keepalive_timeout(Some(KEEP_ALIVE_TIMEOUT));
        let roles = self.roles;
        let worker = WorkerServer::new(Calls(roles.clone())).max_decoding_message_size(most);
        let dispatcher =
            DispatcherServer::new(Calls(roles.clone())).max_decoding_message_size(most);
        let stop = CancellationToken::new();
        let signal = stop.clone();
        // Any caller can ask whether the process serves: the standard `grpc.health.v1`.
        let (_, health) = tonic_health::server::health_reporter();
        let services = server
            .add_service(health)
            .add_service(worker)
            .add_service(dispatcher);
        let signal = async move { signal.cancelled().await };
        let serving = match self.tls {
            Some(tls) => {
                let incoming = incoming::encrypted(self.listener, tls, &roles.0.callers);
                Either::Left(services.serve_with_incoming_shutdown(incoming, signal))
            }
            None => {
                let incoming = incoming::plain(self.listener, &roles.0.callers);
                Either::Right(services.serve_with_incoming_shutdown(incoming, signal))
            }
        };
        let ending = async {
            shutdown.await;
            stop.cancel();
            roles.end().await;
            tokio::time::sleep(GRACE).await;
        };
        tokio::select! {
            served = serving => served.map_err(|error| Error::Serve(chain(&error))),
            () = ending => Ok(()),
        }
    }
}

/// The address that is given to other processes.
fn advertised(address: SocketAddr) -> Result<String, Error> {
    let unspecified = match address.ip() {
        IpAddr::V4(ip) => ip.is_unspecified(),
        IpAddr::V6(ip) => ip.is_unspecified(),
    };
    if !unspecified {
        return Ok(address.to_string());
    }
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" | "localhost" | "(none)" => Err(Error::Advertise),
        name => Ok(format!("{name}:{}", address.port())),
    }
}

// === impl Roles ===

impl Roles {
    /// Lets callers reach a worker.
    pub fn add_worker(&self, mailbox: Arc<Mailbox>) {
        let name = mailbox.info().worker;
        self.workers_mut().insert(name, mailbox);
    }

    /// Refuses new links to the worker; existing links stay.
    pub fn remove_worker(&self, worker: &WorkerId) {
        self.workers_mut().remove(worker);
    }

    /// Lets front ends reach the dispatcher.
    pub fn set_dispatcher(&self, dispatcher: DispatcherHalf) {
        *self.0.dispatcher.write() = Some(dispatcher);
    }

    /// Ends the open calls and waits for them.
    async fn end(&self) {
        self.0.ending.cancel();
        self.0.calls.close();
        drop(tokio::time::timeout(GRACE, self.0.calls.wait()).await);
    }

    pub(crate) fn tokens(&self) -> &Tokens {
        &self.0.tokens
    }

    fn dispatcher(&self) -> Option<DispatcherHalf> {
        self.0.dispatcher.read().clone()
    }

    fn workers(&self) -> RwLockReadGuard<'_, BTreeMap<WorkerId, Arc<Mailbox>>> {
        self.0.workers.read()
    }

    fn workers_mut(&self) -> RwLockWriteGuard<'_, BTreeMap<WorkerId, Arc<Mailbox>>> {
        self.0.workers.write()
    }
}
