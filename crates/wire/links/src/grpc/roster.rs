//! The workers of a fleet, as they appear and disappear.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    sync::Arc,
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use sextant_fleet::{Follower, News};
use sextant_metadata::{MetadataStore, View};
use sextant_rpc::WorkerClient;
use sextant_types::WorkerId;
use tokio::{sync::mpsc, task::JoinHandle};

use crate::{
    grpc::GrpcConnector,
    link::{self, Clock},
};

mod keeper;

use self::keeper::Keeper;

/// How links to workers are kept.
#[derive(Debug, Clone, Copy)]
pub struct RosterOptions {
    /// The options of each link.
    pub link: link::Options,
    /// Shortest and longest time between two attempts to reach a worker. The time doubles from one
    /// to the other. A heartbeat of the worker in the metadata store causes an immediate attempt.
    pub retry: (Duration, Duration),
    /// The local clock.
    pub clock: Clock,
}

/// A worker appeared or disappeared.
#[derive(Clone)]
pub enum RosterEvent {
    /// The worker can be reached. A later client replaces an earlier one.
    Up(WorkerId, WorkerClient),
    /// The worker cannot be reached any more. Its waiting calls have been answered.
    Down(WorkerId),
}

/// Links to every live worker in a store, and to the workers of this process.
pub struct Roster {
    connector: Arc<GrpcConnector>,
    options: RosterOptions,
    /// Workers that are reached without a link.
    local: BTreeSet<WorkerId>,
    present: Mutex<Present>,
}

#[derive(Default)]
struct Present {
    workers: BTreeMap<WorkerId, WorkerClient>,
    subscribers: Vec<mpsc::UnboundedSender<RosterEvent>>,
}

impl Default for RosterOptions {
    fn default() -> Self {
        Self {
            link: link::Options {
                silence: Duration::from_secs(1),
                ..link::Options::default()
            },
            retry: (Duration::from_millis(50), Duration::from_secs(2)),
            clock: Clock::system(),
        }
    }
}

impl Roster {
    /// A roster with the workers of this process. [`run`](Self::run) adds the others.
    pub fn new(
        connector: Arc<GrpcConnector>,
        local: Vec<WorkerClient>,
        options: RosterOptions,
    ) -> Arc<Self> {
        let workers = local.into_iter().map(|it| (it.info().worker, it));
        let workers: BTreeMap<_, _> = workers.collect();
        Arc::new(Self {
            connector,
            options,
            local: workers.keys().cloned().collect(),
            present: Mutex::new(Present {
                workers,
                subscribers: Vec::new(),
            }),
        })
    }

    /// The workers that can be reached now.
    pub fn workers(&self) -> BTreeMap<WorkerId, WorkerClient> {
        self.present().workers.clone()
    }

    /// The events of workers, starting with the workers that can be reached now.
    pub fn subscribe(&self) -> mpsc::UnboundedReceiver<RosterEvent> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let mut present = self.present();
        for (name, worker) in &present.workers {
            // The receiver is alive, so this cannot fail.
            drop(sender.send(RosterEvent::Up(name.clone(), Arc::clone(worker))));
        }
        present.subscribers.push(sender);
        receiver
    }

    /// Follows the store and keeps the links until `shutdown`. While the store is away the links
    /// stay as they are.
    pub async fn run(
        self: Arc<Self>,
        metadata: Arc<dyn MetadataStore>,
        shutdown: impl Future<Output = ()> + Send,
    ) {
        let mut keepers = Keepers {
            roster: &self,
            kept: BTreeMap::new(),
            leaving: BTreeMap::new(),
        };
        let following = async {
            let mut follower = Follower::new(metadata);
            loop {
                let news = follower.changed().await;
                if news == News::Structure {
                    keepers.update(follower.view());
                }
                keepers.nudge(follower.view());
            }
        };
        tokio::select! {
            () = following => {}
            () = shutdown => {}
        }
    }

    fn publish(&self, seen: &RosterEvent) {
        let mut present = self.present();
        match seen {
            RosterEvent::Up(name, worker) => {
                let (name, worker) = (name.clone(), Arc::clone(worker));
                present.workers.insert(name, worker);
            }
            RosterEvent::Down(name) => {
                present.workers.remove(name);
            }
        }
        let subscribers = &mut present.subscribers;
        subscribers.retain(|it| it.send(seen.clone()).is_ok());
    }

    fn present(&self) -> MutexGuard<'_, Present> {
        self.present.lock()
    }
}

/// One keeper for each worker in another process.
struct Keepers<'a> {
    roster: &'a Arc<Roster>,
    kept: BTreeMap<WorkerId, Keeper>,
    /// Keepers that were ended. Their events must come before those of a later keeper of the same
    /// worker.
    leaving: BTreeMap<WorkerId, JoinHandle<()>>,
}

impl Keepers<'_> {
    /// Ends and starts keepers after a change.
    fn update(&mut self, view: &View) {
        let elsewhere = view.workers.values().filter_map(|worker| {
            let endpoint = worker.record.endpoint.as_ref()?;
            let local = self.roster.local.contains(&worker.id);
            (!local).then_some((&worker.id, endpoint))
        });
        let elsewhere: BTreeMap<_, _> = elsewhere.collect();
        self.leaving.retain(|_, ended| !ended.is_finished());
        for (name, keeper) in &mut self.kept {
            if elsewhere.get(name) != Some(&&keeper.endpoint) {
                self.leaving.insert(name.clone(), keeper.end());
            }
        }
        self.kept.retain(|_, keeper| !keeper.has_ended());
        for (name, endpoint) in elsewhere {
            if self.kept.contains_key(name) {
                continue;
            }
            let before = self.leaving.remove(name);
            let keeper = Keeper::start(self.roster, name, endpoint, before);
            self.kept.insert(name.clone(), keeper);
        }
    }

    /// Tries at once the workers that are not reached and have sent the store a heartbeat.
    fn nudge(&mut self, view: &View) {
        for (name, keeper) in &mut self.kept {
            if let Some(worker) = view.workers.get(name) {
                keeper.nudge(worker.lease_until_ms);
            }
        }
    }
}
