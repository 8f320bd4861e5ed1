//! A fleet in one process, in which every link is a separate cable.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use sextant_links::{
    front::{
        Connector, DispatcherHalf, DispatcherLink, FrontEnd, FrontOptions, MailboxLink,
        Unreachable, serve,
    },
    link::{Options, RemoteWorker, serve_worker},
    mailbox::{Mailbox, MailboxOptions, serve_mailbox},
};
use sextant_metadata::{
    Candidate, Command, InProcessStore, InstanceKey, MetadataStore, Transition, WorkerRecord,
};
use sextant_rpc::{Answer, Dispatch, Query, QueryError};
use sextant_types::{ApplicationId, NamedTensor, Route, Targets, WorkerId};

use super::placer::Placer;
use crate::{
    double::{Double, part, variant},
    transport::{Cable, HERE_NS, cable, clock},
};

/// What can be connected to, and the cables.
#[derive(Default)]
pub struct Net {
    seed: AtomicU64,
    dispatchers: Mutex<BTreeMap<String, Arc<Placer>>>,
    mailboxes: Mutex<BTreeMap<WorkerId, Arc<Mailbox>>>,
    /// By the name of an endpoint or a worker.
    cables: Mutex<BTreeMap<String, Cable>>,
    unreachable: Mutex<Vec<String>>,
}

pub struct Fleet {
    pub front: Arc<FrontEnd>,
    pub net: Arc<Net>,
    pub store: Arc<InProcessStore>,
    pub doubles: BTreeMap<WorkerId, Arc<Double>>,
    running: tokio::task::AbortHandle,
}

impl Net {
    fn next_seed(&self) -> u64 {
        self.seed.fetch_add(0x1_0001, Ordering::Relaxed)
    }

    fn check(&self, name: &str) -> Result<(), Unreachable> {
        let unreachable = self.unreachable.lock().expect("sound");
        match unreachable.iter().any(|other| other == name) {
            true => Err(Unreachable("no way there".to_owned())),
            false => Ok(()),
        }
    }

    fn keep(&self, name: &str, cable: Cable) {
        let mut cables = self.cables.lock().expect("sound");
        cables.insert(name.to_owned(), cable);
    }

    /// Cuts the cable to a dispatcher or a mailbox. It may be connected again.
    pub fn cut(&self, name: &str) {
        drop(self.cables.lock().expect("sound").remove(name));
    }

    /// Cuts the cable and sets whether it may be connected again.
    pub fn set_reachable(&self, name: &str, is_reachable: bool) {
        let mut unreachable = self.unreachable.lock().expect("sound");
        unreachable.retain(|other| other != name);
        if !is_reachable {
            unreachable.push(name.to_owned());
            drop(unreachable);
            self.cut(name);
        }
    }

    /// Connects a dispatcher to every worker.
    pub async fn connect_workers(&self, placer: &Placer) {
        let mailboxes = self.mailboxes.lock().expect("sound").clone();
        for (worker, mailbox) in mailboxes {
            let (client, server, cable) = cable(self.next_seed());
            let there = clock(HERE_NS + 5_000_000_000);
            tokio::spawn(serve_worker(mailbox, server, there, std::future::pending()));
            let connected = RemoteWorker::connect(client, clock(7 << 50), Options::default());
            let (client, connection) = connected.await.expect("the link holds");
            tokio::spawn(connection.run(std::future::pending()));
            placer.set_worker(&worker, client);
            // This cable is never cut.
            self.keep(&format!("{worker} from {placer:p}"), cable);
        }
    }

    pub fn add_dispatcher(&self, endpoint: &str, placer: &Arc<Placer>) {
        let mut dispatchers = self.dispatchers.lock().expect("sound");
        dispatchers.insert(endpoint.to_owned(), Arc::clone(placer));
    }

    pub fn mailbox(&self, worker: &WorkerId) -> Arc<Mailbox> {
        Arc::clone(&self.mailboxes.lock().expect("sound")[worker])
    }
}

#[async_trait]
impl Connector for Net {
    async fn connect_dispatcher(&self, endpoint: &str) -> Result<DispatcherLink, Unreachable> {
        self.check(endpoint)?;
        let placer = self
            .dispatchers
            .lock()
            .expect("sound")
            .get(endpoint)
            .cloned();
        let placer = placer.ok_or_else(|| Unreachable("nobody is there".to_owned()))?;
        let (client, server, cable) = cable(self.next_seed());
        self.keep(endpoint, cable);
        let leading = Arc::clone(&placer);
        let half = DispatcherHalf {
            dispatcher: placer,
            leads: Arc::new(move || leading.leads.load(Ordering::Relaxed)),
            clock: clock(7 << 50),
        };
        tokio::spawn(serve(half, server, std::future::pending()));
        Ok(client)
    }

    async fn connect_mailbox(
        &self,
        worker: &WorkerId,
        endpoint: &str,
    ) -> Result<MailboxLink, Unreachable> {
        assert_eq!(endpoint, format!("{worker}.example:7070"));
        self.check(worker.as_str())?;
        let (client, server, cable) = cable(self.next_seed());
        self.keep(worker.as_str(), cable);
        tokio::spawn(serve_mailbox(
            self.mailbox(worker),
            server,
            std::future::pending(),
        ));
        Ok(client)
    }
}

impl Fleet {
    /// Workers with mailboxes, a published variant that all serve, and a front end; no dispatcher.
    pub async fn start(workers: &[&str], seed: u64, options: FrontOptions) -> Self {
        let store = Arc::new(InProcessStore::new());
        let net = Arc::<Net>::default();
        net.seed.store(seed << 20, Ordering::Relaxed);
        store.publish_variant(variant("m-a")).await.expect("stored");
        let mut doubles = BTreeMap::new();
        for name in workers {
            let (worker, double) = (worker(name), Arc::<Double>::default());
            let mailbox = Mailbox::new(Arc::clone(&double) as _, MailboxOptions::default());
            net.mailboxes
                .lock()
                .expect("sound")
                .insert(worker.clone(), mailbox);
            announce(&store, &worker).await;
            doubles.insert(worker, double);
        }
        let front = FrontEnd::new(options, clock(HERE_NS));
        let running = Arc::clone(&front).run(
            Arc::clone(&net) as _,
            Arc::clone(&store) as _,
            std::future::pending(),
        );
        let running = tokio::spawn(running).abort_handle();
        tokio::time::sleep(Duration::from_millis(100)).await;
        Self {
            front,
            net,
            store,
            doubles,
            running,
        }
    }

    /// A dispatcher at `endpoint` that is connected to the workers and leads.
    pub async fn lead(&self, endpoint: &str, seed: u64) -> Arc<Placer> {
        let placer = Placer::start(seed);
        self.net.connect_workers(&placer).await;
        self.net.add_dispatcher(endpoint, &placer);
        self.elect(endpoint).await;
        placer
    }

    /// Makes the dispatcher at `endpoint` the leader.
    pub async fn elect(&self, endpoint: &str) {
        let snapshot = self.store.snapshot().await.expect("a snapshot");
        for leader in snapshot.leaders {
            self.store.resign(&leader.candidate).await.expect("stored");
        }
        let candidate = Candidate {
            role: "dispatcher".into(),
            holder: endpoint.into(),
            endpoint: endpoint.into(),
        };
        let campaign = self.store.campaign(&candidate, 1_000_000, 0).await;
        assert_eq!(campaign.expect("stored").candidate, candidate);
    }

    /// Waits until the front end has a leader.
    pub async fn led(&self) {
        while self.front.leader().is_none() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    pub async fn ask(&self, value: f32, latency_ms: Option<f64>) -> Result<Answer, QueryError> {
        self.front.query(query(part(value), latency_ms)).await
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.running.abort();
    }
}

/// A heartbeat and an active instance.
async fn announce(store: &InProcessStore, worker: &WorkerId) {
    let record = WorkerRecord {
        endpoint: Some(format!("{worker}.example:7070").into()),
        device: "cpu".into(),
        engines: Vec::new(),
        draining: false,
        cores: 1,
        memory_bytes: 1 << 30,
        memory_used_bytes: 0,
        utilization: 0.0,
        ..WorkerRecord::default()
    };
    let beat = store.heartbeat(worker, record, 1_000_000, 0).await;
    beat.expect("stored");
    for command in [Command::Load, Command::Loaded] {
        let transition = Transition {
            key: InstanceKey::new(variant("m-a").id.clone(), worker.clone()),
            application: application(),
            expected_version: None,
            command,
        };
        store.transition(&transition, 0).await.expect("stored");
    }
}

pub fn query(inputs: Vec<NamedTensor>, latency_ms: Option<f64>) -> Query {
    Query {
        targets: Targets {
            latency_ms,
            ..Targets::default()
        },
        ..Query::new(
            Route::Application(application()),
            inputs,
            tokio::time::Instant::now().into_std(),
        )
    }
}

pub fn worker(name: &str) -> WorkerId {
    WorkerId::new(name).expect("a name")
}

fn application() -> ApplicationId {
    ApplicationId::new("a").expect("a name")
}
