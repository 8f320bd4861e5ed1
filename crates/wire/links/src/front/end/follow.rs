//! Follows the fleet: keeps links to the leading dispatcher and to the mailboxes of the workers.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use parking_lot::RwLockWriteGuard;
use sextant_fleet::{Follower, News};
use sextant_metadata::{Leader, MetadataStore, View, Worker};
use sextant_types::WorkerId;
use tokio::{
    sync::{oneshot, watch},
    task::JoinSet,
    time::{Interval, MissedTickBehavior, interval},
};

use self::links::{follow_leader, follow_mailbox};
use super::{Catalog, FrontEnd, Serving, entry::Settlement};
use crate::front::Connector;

mod links;

/// The role whose leader takes queries.
const ROLE: &str = "dispatcher";

/// Time between two looks at waiting queries.
const SWEEP: Duration = Duration::from_millis(20);

/// Follows the fleet; never ends by itself.
pub(super) async fn follow(
    front: &Arc<FrontEnd>,
    connector: Arc<dyn Connector>,
    metadata: Arc<dyn MetadataStore>,
) {
    let mut follower = Follower::with_grace(metadata, front.options.grace);
    let mut fleet = Fleet::new(Arc::clone(front), connector);
    let mut sweeps = every(SWEEP);
    let sweeping = async {
        loop {
            sweeps.tick().await;
            let settled = front.state().sweep(front.clock.now());
            give(settled);
        }
    };
    let following = async {
        loop {
            if follower.changed().await == News::Structure {
                fleet.update(follower.view());
            }
        }
    };
    // These run concurrently: a sweep must not cancel a call of the store that takes longer than
    // the sweep's period.
    tokio::select! {
        () = sweeping => {}
        () = following => {}
    }
}

/// The links and the tasks that keep them.
struct Fleet {
    front: Arc<FrontEnd>,
    connector: Arc<dyn Connector>,
    leader: watch::Sender<Option<Leader>>,
    /// By worker: its endpoint, and a sender that is dropped when the worker leaves.
    mailboxes: BTreeMap<WorkerId, (Arc<str>, oneshot::Sender<()>)>,
    /// The tasks; they end when this is dropped.
    tasks: JoinSet<()>,
}

// === impl Fleet ===

impl Fleet {
    fn new(front: Arc<FrontEnd>, connector: Arc<dyn Connector>) -> Self {
        let leader = watch::Sender::new(None);
        let mut tasks = JoinSet::new();
        tasks.spawn(follow_leader(
            Arc::clone(&front),
            Arc::clone(&connector),
            leader.subscribe(),
        ));
        Self {
            front,
            connector,
            leader,
            mailboxes: BTreeMap::new(),
            tasks,
        }
    }

    fn update(&mut self, view: &View) {
        self.front.catalog.store(Arc::new(Catalog::new(view)));
        let variants = view.variants.values().map(|it| &**it);
        let most_bytes = self.front.options.max_cache_bytes;
        self.front.caches.follow(variants, most_bytes);
        *self.serving() = Serving::new(view);
        let gone = |id: &&WorkerId| !view.workers.contains_key(*id);
        let gone: Vec<_> = self.mailboxes.keys().filter(gone).cloned().collect();
        gone.iter().for_each(|id| self.leave(id));
        view.workers.values().for_each(|worker| self.join(worker));
        self.lead(view.leaders.get(ROLE));
    }

    fn serving(&self) -> RwLockWriteGuard<'_, Serving> {
        self.front.serving.write()
    }

    fn lead(&self, leader: Option<&Leader>) {
        self.leader.send_if_modified(|known| {
            // A candidate that leads again is the same: its link and its queries stay.
            let name = |leader: &Leader| leader.candidate.clone();
            let is_other = known.as_ref().map(name) != leader.map(name);
            if is_other {
                *known = leader.cloned();
            }
            is_other
        });
    }

    fn join(&mut self, worker: &Worker) {
        let Some(endpoint) = &worker.record.endpoint else {
            return self.leave(&worker.id);
        };
        if let Some((known, _)) = self.mailboxes.get(&worker.id)
            && known == endpoint
        {
            return;
        }
        let (stays, left) = oneshot::channel();
        self.tasks.spawn(follow_mailbox(
            Arc::clone(&self.front),
            Arc::clone(&self.connector),
            (worker.id.clone(), Arc::clone(endpoint)),
            left,
        ));
        self.mailboxes
            .insert(worker.id.clone(), (Arc::clone(endpoint), stays));
        while self.tasks.try_join_next().is_some() {}
    }

    fn leave(&mut self, worker: &WorkerId) {
        drop(self.mailboxes.remove(worker));
    }
}

fn give(settled: impl IntoIterator<Item = Settlement>) {
    settled.into_iter().for_each(Settlement::give);
}

fn every(period: Duration) -> Interval {
    let mut ticks = interval(period.max(Duration::from_millis(1)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}
