//! Workers that appear and disappear.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use sextant_links::grpc::{Roster, RosterEvent, RosterOptions};
use sextant_metadata::{InProcessStore, MetadataStore, WorkerRecord};
use sextant_rpc::WorkerClient;
use sextant_types::WorkerId;
use tokio::{sync::mpsc, time::timeout};

use crate::{
    cable::Cable,
    double::{Double, infer, part, there, worker_id},
    process::{Process, config, dispatcher},
};

/// Longer than anything here takes; only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(30);

struct World {
    store: Arc<InProcessStore>,
    roster: Arc<Roster>,
    seen: mpsc::UnboundedReceiver<RosterEvent>,
}

impl World {
    fn new(local: Vec<WorkerClient>) -> Self {
        let store = Arc::<InProcessStore>::default();
        let roster = Roster::new(Arc::new(dispatcher()), local, RosterOptions::default());
        let seen = roster.subscribe();
        let metadata = Arc::clone(&store) as Arc<dyn MetadataStore>;
        tokio::spawn(Arc::clone(&roster).run(metadata, std::future::pending()));
        Self {
            store,
            roster,
            seen,
        }
    }

    /// Announces the worker's endpoint.
    async fn announce(&self, name: &str, endpoint: &str) {
        let record = WorkerRecord {
            endpoint: Some(endpoint.into()),
            device: "emulated:0".into(),
            engines: Vec::new(),
            draining: false,
            cores: 1,
            memory_bytes: 1,
            memory_used_bytes: 0,
            utilization: 0.0,
            ..WorkerRecord::default()
        };
        let now_ms = SystemTime::UNIX_EPOCH.elapsed().expect("after 1970");
        let now_ms = u64::try_from(now_ms.as_millis()).expect("before the year 584,000,000");
        let worker = worker_id(name);
        let lease = self.store.heartbeat(&worker, record, 60_000, now_ms);
        lease.await.expect("the store is here");
    }

    async fn next(&mut self) -> RosterEvent {
        let next = timeout(PATIENCE, self.seen.recv()).await;
        next.expect("something is seen").expect("the roster runs")
    }

    async fn up(&mut self, name: &str) -> WorkerClient {
        match self.next().await {
            RosterEvent::Up(worker, client) => {
                assert_eq!(worker, worker_id(name));
                client
            }
            RosterEvent::Down(worker) => panic!("{worker} went"),
        }
    }

    async fn down(&mut self, name: &str) {
        match self.next().await {
            RosterEvent::Down(worker) => assert_eq!(worker, worker_id(name)),
            RosterEvent::Up(worker, _) => panic!("{worker} came"),
        }
    }

    fn present(&self) -> Vec<WorkerId> {
        self.roster.workers().into_keys().collect()
    }
}

#[tokio::test]
async fn workers_are_reached_as_they_come_and_lost_as_they_go() {
    let mut world = World::new(Vec::new());
    let process = Process::start(config()).await;
    let cable = Cable::to(&process.endpoint).await;
    world.announce("there", &cable.endpoint).await;
    let client = world.up("there").await;
    assert!(infer(&*client, vec![part(1.0)]).await.is_ok());
    assert_eq!(world.present(), [worker_id("there")]);

    // A cut: the worker is lost, and reached again as soon as possible.
    cable.cut();
    world.down("there").await;
    assert_eq!(world.present(), []);
    assert!(infer(&*client, vec![part(1.0)]).await.is_err());
    cable.mend();
    let client = world.up("there").await;
    assert!(infer(&*client, vec![part(1.0)]).await.is_ok());

    // The cable is held: the worker is lost after a second of silence.
    cable.hold();
    world.down("there").await;
    cable.mend();
    world.up("there").await;

    // The worker moves.
    let moved = Process::start(config()).await;
    world.announce("there", &moved.endpoint).await;
    world.down("there").await;
    let client = world.up("there").await;
    assert!(infer(&*client, vec![part(1.0)]).await.is_ok());
    process.stop().await;

    // The worker leaves.
    let left = world.store.remove_worker(there()).await;
    assert!(left.expect("the store is here"));
    world.down("there").await;
    assert!(infer(&*client, vec![part(1.0)]).await.is_err());
    moved.stop().await;
}

#[tokio::test]
async fn workers_of_this_process_need_no_link() {
    let (here, _kept) = Double::new("here");
    let mut world = World::new(vec![here]);
    world.announce("here", "127.0.0.1:1").await;
    let client = world.up("here").await;
    assert!(infer(&*client, vec![part(1.0)]).await.is_ok());

    let process = Process::start(config()).await;
    world.announce("there", &process.endpoint).await;
    world.up("there").await;
    let mut late = world.roster.subscribe();
    for _ in 0..2 {
        assert!(matches!(late.recv().await, Some(RosterEvent::Up(..))));
    }
    assert_eq!(world.present(), [worker_id("here"), worker_id("there")]);
    process.stop().await;
    world.down("there").await;
    assert_eq!(world.present(), [worker_id("here")]);
}
