//! A process with a worker, and its callers.

use std::sync::Arc;

use sextant_links::{
    grpc::{
        Caller, ConnectorConfig, Error, Fence, GrpcConfig, GrpcConnector, GrpcServer, Hello,
        Limits, Protocol, Roles,
    },
    link::{Broken, Clock, Options, RemoteWorker},
    mailbox::{Mailbox, MailboxOptions},
};
use sextant_metadata::{Candidate, InProcessStore, MetadataStore};
use sextant_rpc::Infer;
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

use crate::double::{Double, there};

pub const FLEET: &str = "test";

/// The token of the first leader.
pub const FIRST: u64 = 1;

/// A process that is reached over a port.
pub struct Process {
    pub endpoint: Arc<str>,
    /// The store that names the leader.
    pub metadata: Arc<InProcessStore>,
    pub double: Arc<Double>,
    pub kept: mpsc::UnboundedReceiver<Infer>,
    pub roles: Roles,
    stop: CancellationToken,
    server: JoinHandle<Result<(), Error>>,
}

/// A worker in another process, and its connection.
pub struct RemoteProcess {
    pub worker: Arc<RemoteWorker>,
    pub connection: JoinHandle<Result<(), Broken>>,
}

pub fn config() -> GrpcConfig {
    GrpcConfig::new(([127, 0, 0, 1], 0).into(), FLEET)
}

impl Process {
    /// Starts a process with worker `there`.
    pub async fn start(config: GrpcConfig) -> Self {
        let metadata = Arc::new(InProcessStore::new());
        let server = GrpcServer::bind(config, Arc::clone(&metadata) as _).await;
        let server = server.expect("a port is free");
        let (double, kept) = Double::new("there");
        let mailbox = Mailbox::new(Arc::clone(&double) as _, MailboxOptions::default());
        server.roles().add_worker(mailbox);
        let stop = CancellationToken::new();
        let stopped = stop.clone().cancelled_owned();
        let process = Self {
            endpoint: server.endpoint(),
            metadata,
            double,
            kept,
            roles: server.roles(),
            stop,
            server: tokio::spawn(server.run(stopped)),
        };
        assert_eq!(process.elect("first").await, FIRST);
        process
    }

    /// The leader resigns, and `holder` leads with the returned token.
    pub async fn elect(&self, holder: &str) -> u64 {
        let role = sextant_fleet::LEADING_ROLE;
        if let Some(leader) = self.metadata.leader(role).await.expect("leader") {
            let resigned = self.metadata.resign(&leader.candidate).await;
            assert!(resigned.expect("resign"));
        }
        let candidate = Candidate {
            role: role.into(),
            holder: holder.into(),
            endpoint: "127.0.0.1:1".into(),
        };
        let leader = self.metadata.campaign(&candidate, 3_600_000, 0).await;
        leader.expect("campaign").token
    }

    /// Ends it and waits for its end.
    pub async fn stop(self) {
        self.stop.cancel();
        self.server.await.expect("no panic").expect("a clean end");
    }
}

pub fn hello(caller: Caller, token: Option<u64>) -> Hello {
    Hello {
        protocol: Protocol::OWN,
        fleet: FLEET.into(),
        caller,
        fence: Fence::following(watch::Sender::new(token).subscribe()),
    }
}

/// A leading dispatcher.
pub fn dispatcher() -> GrpcConnector {
    connector(Limits::default(), hello(Caller::Dispatcher, Some(FIRST)))
}

pub fn connector(limits: Limits, hello: Hello) -> GrpcConnector {
    let config = ConnectorConfig {
        limits,
        ..ConnectorConfig::new(hello)
    };
    GrpcConnector::new(config).expect("no certificates are to be read")
}

/// Reaches worker `there`.
pub async fn reach(connector: &GrpcConnector, endpoint: &str) -> RemoteProcess {
    let link = connector.connect_worker(there(), endpoint);
    let link = link.await.expect("it is let in");
    let connected = RemoteWorker::connect(link, Clock::system(), Options::default()).await;
    let (worker, connection) = connected.expect("the link holds");
    RemoteProcess {
        worker,
        connection: tokio::spawn(connection.run(std::future::pending())),
    }
}
