//! The workers of a fleet as they come and go.

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
    /// Signs of life and silence.
    pub link: link::Options,
    /// Least and longest time between two attempts to reach a worker. It doubles from one to the
    /// other; a heartbeat of the worker in the metadata makes for an attempt at once.
    pub retry: (Duration, Duration),
    /// The clock here.
    pub clock: Clock,
}

/// A worker came or went.
#[derive(Clone)]
pub enum RosterEvent {
    /// It can be reached; a later client replaces an earlier one.
    Up(WorkerId, WorkerClient),
    /// It cannot be reached any more. Calls that waited have been answered.
    Down(WorkerId),
}

/// Links to every live worker that a store names, and to those of this process.
pub struct Roster {
    connector: Arc<GrpcConnector>,
    options: RosterOptions,
    /// Reached without a link.
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
    /// A roster of the workers of this process; [`run`](Self::run) adds the others.
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

    /// What comes and goes, beginning with the workers that can be reached now.
    pub fn subscribe(&self) -> mpsc::UnboundedReceiver<RosterEvent> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let mut present = self.present();
        for (name, worker) in &present.workers {
            // The receiver is here.
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

/// One keeper for each worker elsewhere.
struct Keepers<'a> {
    roster: &'a Arc<Roster>,
    kept: BTreeMap<WorkerId, Keeper>,
    /// Ended; what they have to say comes before anything of a later keeper of the same worker.
    leaving: BTreeMap<WorkerId, JoinHandle<()>>,
}

impl Keepers<'_> {
    /// Ends and begins what has changed.
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

    /// Workers that are not reached and have given the store a sign of life are tried at once.
    fn nudge(&mut self, view: &View) {
        for (name, keeper) in &mut self.kept {
            if let Some(worker) = view.workers.get(name) {
                keeper.nudge(worker.lease_until_ms);
            }
        }
    }
}
