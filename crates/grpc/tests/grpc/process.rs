//! A process with a worker, and those who call it.

use std::sync::Arc;

use sextant_grpc::{
    Caller, ConnectorConfig, Error, Fence, GrpcConfig, GrpcConnector, GrpcServer, Hello, Limits,
    Roles,
};
use sextant_rpc::{
    Infer,
    front::{Mailbox, MailboxOptions},
    link::{Broken, Clock, Options, RemoteWorker},
};
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

use crate::double::{Double, there};

pub const FLEET: &str = "test";

/// A process that is reached over a port.
pub struct Process {
    pub endpoint: Arc<str>,
    pub double: Arc<Double>,
    pub kept: mpsc::UnboundedReceiver<Infer>,
    pub roles: Roles,
    stop: CancellationToken,
    server: JoinHandle<Result<(), Error>>,
}

/// A worker in another process, and its connection.
pub struct Reached {
    pub worker: Arc<RemoteWorker>,
    pub connection: JoinHandle<Result<(), Broken>>,
}

pub fn config() -> GrpcConfig {
    GrpcConfig::new(([127, 0, 0, 1], 0).into(), FLEET)
}

impl Process {
    /// A process with worker `there`.
    pub async fn start(config: GrpcConfig) -> Self {
        let server = GrpcServer::bind(config).await.expect("a port is free");
        let (double, kept) = Double::new("there");
        let mailbox = Mailbox::new(Arc::clone(&double) as _, MailboxOptions::default());
        server.roles().add_worker(mailbox);
        let stop = CancellationToken::new();
        let stopped = stop.clone().cancelled_owned();
        Self {
            endpoint: server.endpoint(),
            double,
            kept,
            roles: server.roles(),
            stop,
            server: tokio::spawn(server.run(stopped)),
        }
    }

    /// Ends it and waits for its end.
    pub async fn stop(self) {
        self.stop.cancel();
        self.server.await.expect("no panic").expect("a clean end");
    }
}

pub fn hello(caller: Caller, token: Option<u64>) -> Hello {
    Hello {
        fleet: FLEET.into(),
        caller,
        fence: Fence::following(watch::Sender::new(token).subscribe()),
    }
}

/// A leading dispatcher.
pub fn dispatcher() -> GrpcConnector {
    connector(Limits::default(), hello(Caller::Dispatcher, Some(1)))
}

pub fn connector(limits: Limits, hello: Hello) -> GrpcConnector {
    let config = ConnectorConfig {
        limits,
        ..ConnectorConfig::new(hello)
    };
    GrpcConnector::new(config).expect("no certificates are to be read")
}

/// Reaches worker `there`.
pub async fn reach(connector: &GrpcConnector, endpoint: &str) -> Reached {
    let link = connector.connect_worker(there(), endpoint);
    let link = link.await.expect("it is let in");
    let connected = RemoteWorker::connect(link, Clock::system(), Options::default()).await;
    let (worker, connection) = connected.expect("the link holds");
    Reached {
        worker,
        connection: tokio::spawn(connection.run(std::future::pending())),
    }
}
