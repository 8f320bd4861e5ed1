//! The same service in the shape of a fleet: each worker, the dispatcher and the front end reach each other over gRPC
//! on this machine.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use sextant_dispatcher::Dispatcher;
use sextant_fleet::Leadership;
use sextant_links::{
    front::{DispatcherHalf, FrontEnd, FrontOptions},
    grpc::{
        Caller, ConnectorConfig, Fence, GrpcConfig, GrpcConnector, GrpcServer, Hello, Protocol,
        Roles, Roster, RosterEvent, RosterOptions,
    },
    link::Clock,
    mailbox::{Mailbox, MailboxOptions},
};
use sextant_metadata::{Candidate, MetadataStore};
use sextant_rpc::{DispatcherClient, WorkerClient};
use sextant_schedule::Delay;

const FLEET: &str = "agreement";

/// Upper bound of a message's time, ns, as in the configuration.
const MESSAGE: u64 = 200_000;

/// Longest wait for the parts to find each other.
const PATIENCE: Duration = Duration::from_secs(20);

/// The time of messages in a fleet, for which the dispatcher leaves room.
pub fn network() -> Delay {
    Delay {
        control: 2 * MESSAGE,
        data_per_row: 0,
        response: MESSAGE,
    }
}

/// A role's own port.
pub struct Port {
    roles: Roles,
    /// `host:port`.
    pub endpoint: Arc<str>,
}

impl Port {
    /// Takes a free port and answers on it as long as the process lives.
    pub async fn open(metadata: &Arc<dyn MetadataStore>) -> Result<Self> {
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let server = GrpcServer::bind(GrpcConfig::new(listen, FLEET), Arc::clone(metadata)).await?;
        let port = Self {
            roles: server.roles(),
            endpoint: server.endpoint(),
        };
        tokio::spawn(server.run(std::future::pending()));
        Ok(port)
    }

    /// Lets the others reach a worker.
    pub fn offer_worker(&self, worker: WorkerClient) {
        self.roles
            .add_worker(Mailbox::new(worker, MailboxOptions::default()));
    }
}

/// Makes a dispatcher the leader, connects it with its workers and starts a front end for it.
pub async fn join(
    dispatcher: &Arc<Dispatcher>,
    metadata: &Arc<dyn MetadataStore>,
    workers: usize,
) -> Result<DispatcherClient> {
    let port = Port::open(metadata).await?;
    dispatcher.set_leading(false);
    let candidate = Candidate {
        role: sextant_fleet::LEADING_ROLE.into(),
        holder: "agreement".into(),
        endpoint: Arc::clone(&port.endpoint),
    };
    let ttl = Duration::from_secs(10);
    let leadership = Leadership::new(Arc::clone(metadata), candidate, ttl);
    let token = leadership.token();
    tokio::spawn(leadership.run(std::future::pending()));
    let (leader, held) = (Arc::clone(dispatcher), token.clone());
    tokio::spawn(async move { leader.lead_with(held).await });
    let connector = connector(Caller::Dispatcher, Fence::following(token))?;
    let roster = Roster::new(connector, Vec::new(), RosterOptions::default());
    let mut seen = roster.subscribe();
    tokio::spawn(roster.run(Arc::clone(metadata), std::future::pending()));
    let found = async {
        let mut there = 0;
        while there < workers {
            if let RosterEvent::Up(_, client) = seen.recv().await.context("the roster has ended")? {
                dispatcher.add_worker(client);
                there += 1;
            }
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(PATIENCE, found)
        .await
        .context("the workers are not found")??;
    let leads = Arc::clone(dispatcher);
    port.roles.set_dispatcher(DispatcherHalf {
        dispatcher: Arc::clone(dispatcher) as _,
        leads: Arc::new(move || leads.is_leading()),
        clock: Clock::system(),
    });
    let front = FrontEnd::new(FrontOptions::default(), Clock::system());
    let connector = self::connector(Caller::FrontEnd, Fence::none())?;
    let running = Arc::clone(&front);
    tokio::spawn(running.run(connector, Arc::clone(metadata), std::future::pending()));
    let led = async {
        while front.leader().is_none() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, led)
        .await
        .context("the front end finds no dispatcher")?;
    Ok(front)
}

fn connector(caller: Caller, fence: Fence) -> Result<Arc<GrpcConnector>> {
    let hello = Hello {
        protocol: Protocol::OWN,
        fleet: FLEET.into(),
        caller,
        fence,
    };
    Ok(Arc::new(GrpcConnector::new(ConnectorConfig::new(hello))?))
}
