//! Follows the fleet: links to the dispatcher that leads and to the mailboxes of the workers.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    future::Future,
    sync::{Arc, PoisonError},
    time::Duration,
};

use sextant_metadata::{Event, Leader, MetadataStore, View, Worker};
use sextant_types::WorkerId;
use tokio::{
    sync::watch,
    task::{AbortHandle, JoinSet},
    time::{Instant, Interval, MissedTickBehavior, interval},
};

use super::{Catalog, FrontEnd, Serving, entry::Settled};
use crate::{
    follow::{Follower, Step},
    front::{
        Connector, DispatcherLink, MailboxLink, Unreachable,
        wire::{FromDispatcher, FromMailbox, FrontReport, ToMailbox},
    },
    link::Broken,
};

/// The role whose leader takes queries.
const ROLE: &str = "dispatcher";

/// Time between two looks at queries that wait.
const SWEEP: Duration = Duration::from_millis(20);

/// Signs of life that are sent at once on a new link, so that the clocks are soon known.
const PRIMERS: u32 = 8;

/// Beats of the link to the dispatcher for each on a link to a mailbox.
const MAILBOX_BEATS: u32 = 5;

/// An attempt to open a link may take so long.
const CONNECT_WAIT: Duration = Duration::from_secs(2);

/// Never ends by itself.
pub(super) async fn keep(
    front: &Arc<FrontEnd>,
    connector: Arc<dyn Connector>,
    metadata: Arc<dyn MetadataStore>,
) {
    let mut follower = Follower::new(metadata, front.options.grace);
    let mut fleet = Fleet::new(Arc::clone(front), connector);
    let mut sweeps = every(SWEEP);
    loop {
        tokio::select! {
            step = follower.changed() => fleet.follow(follower.view(), &step),
            _ = sweeps.tick() => {
                let settled = front.state().sweep(front.clock.now());
                give(settled);
            }
        }
    }
}

/// The links and the tasks that keep them.
struct Fleet {
    front: Arc<FrontEnd>,
    connector: Arc<dyn Connector>,
    leader: watch::Sender<Option<Leader>>,
    mailboxes: BTreeMap<WorkerId, (Arc<str>, AbortHandle)>,
    /// Ends them when it is dropped.
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

    fn follow(&mut self, view: &View, step: &Step) {
        match step {
            Step::Anew => self.take_over(view),
            Step::Events(events) => {
                for event in events {
                    self.apply(event);
                }
                if events.iter().any(Catalog::is_changed_by) {
                    self.front.catalog.store(Arc::new(Catalog::new(view)));
                }
            }
        }
        self.lead(view.leaders.get(ROLE));
    }

    fn take_over(&mut self, view: &View) {
        self.front.catalog.store(Arc::new(Catalog::new(view)));
        *self.serving() = Serving::new(view);
        let gone = |id: &&WorkerId| !view.workers.contains_key(*id);
        let gone: Vec<_> = self.mailboxes.keys().filter(gone).cloned().collect();
        gone.iter().for_each(|id| self.leave(id));
        view.workers.values().for_each(|worker| self.join(worker));
    }

    fn apply(&mut self, event: &Event) {
        match event {
            Event::WorkerChanged(worker) => self.join(worker),
            Event::WorkerRemoved(id) => self.leave(id),
            Event::InstanceChanged(_) | Event::InstanceRemoved(_) => self.serving().follow(event),
            _ => {}
        }
    }

    fn serving(&self) -> std::sync::RwLockWriteGuard<'_, Serving> {
        let serving = self.front.serving.write();
        serving.unwrap_or_else(PoisonError::into_inner)
    }

    fn lead(&self, leader: Option<&Leader>) {
        self.leader.send_if_modified(|known| {
            let name = |leader: &Leader| (leader.token, leader.candidate.clone());
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
        self.leave(&worker.id);
        let task = self.tasks.spawn(follow_mailbox(
            Arc::clone(&self.front),
            Arc::clone(&self.connector),
            worker.id.clone(),
            Arc::clone(endpoint),
        ));
        self.mailboxes
            .insert(worker.id.clone(), (Arc::clone(endpoint), task));
        while self.tasks.try_join_next().is_some() {}
    }

    fn leave(&mut self, worker: &WorkerId) {
        if let Some((_, task)) = self.mailboxes.remove(worker) {
            task.abort();
        }
    }
}

/// Keeps a link to whoever leads.
async fn follow_leader(
    front: Arc<FrontEnd>,
    connector: Arc<dyn Connector>,
    mut leaders: watch::Receiver<Option<Leader>>,
) {
    let mut back_off = BackOff::new(&front);
    loop {
        let leader = leaders.borrow_and_update().clone();
        let following = async {
            let Some(leader) = leader else {
                return std::future::pending().await;
            };
            let endpoint = Arc::clone(&leader.candidate.endpoint);
            match open(connector.connect_dispatcher(&endpoint)).await {
                Ok(link) => {
                    let since = Instant::now();
                    let Err(Broken) = keep_dispatcher(&front, leader, link).await;
                    back_off.lasted(since.elapsed());
                    tracing::warn!(%endpoint, "the link to the dispatcher broke");
                }
                Err(error) => tracing::debug!(%endpoint, %error, "the dispatcher is not reached"),
            }
            back_off.wait().await;
        };
        tokio::select! {
            () = following => {}
            changed = leaders.changed() => match changed {
                Ok(()) => back_off.reset(),
                Err(_) => return,
            }
        }
    }
}

/// Takes in what the dispatcher says until the link breaks or falls silent.
async fn keep_dispatcher(
    front: &FrontEnd,
    leader: Leader,
    link: DispatcherLink,
) -> Result<Infallible, Broken> {
    let number = front.state().open_dispatcher(leader, Arc::clone(&link));
    let _open = OnDrop(|| give(front.state().lose_dispatcher(number)));
    for _ in 0..PRIMERS {
        front.state().beat(number)?;
    }
    let mut beats = every(front.options.beat);
    let mut heard = Instant::now();
    loop {
        tokio::select! {
            message = link.receive() => {
                take_in(front, number, message?);
                heard = Instant::now();
            }
            _ = beats.tick() => {
                if heard.elapsed() > front.options.silence {
                    return Err(Broken);
                }
                front.state().beat(number)?;
            }
        }
    }
}

fn take_in(front: &FrontEnd, number: u64, message: FromDispatcher) {
    let mut state = front.state();
    state.on_stamp(number, &message.stamp);
    let settled = match message.body {
        FrontReport::Beat { utilization, leads } => {
            state.on_beat(number, utilization, leads);
            None
        }
        FrontReport::Assign(assignment) => {
            state.on_assign(number, assignment);
            None
        }
        FrontReport::Done { query, outcome } => state.on_done(number, query, outcome),
        FrontReport::Declined { query } => {
            state.on_declined(number, query);
            None
        }
    };
    drop(state);
    give(settled);
}

/// Keeps a link to the mailbox of one worker.
async fn follow_mailbox(
    front: Arc<FrontEnd>,
    connector: Arc<dyn Connector>,
    worker: WorkerId,
    endpoint: Arc<str>,
) {
    let mut back_off = BackOff::new(&front);
    loop {
        match open(connector.connect_mailbox(&worker, &endpoint)).await {
            Ok(link) => {
                let since = Instant::now();
                let Err(Broken) = keep_mailbox(&front, &worker, link).await;
                back_off.lasted(since.elapsed());
                tracing::warn!(%worker, "the link to the worker's mailbox broke");
            }
            Err(error) => tracing::debug!(%worker, %error, "the worker's mailbox is not reached"),
        }
        back_off.wait().await;
    }
}

/// Takes in outputs until the link breaks or falls silent.
async fn keep_mailbox(
    front: &FrontEnd,
    worker: &WorkerId,
    link: MailboxLink,
) -> Result<Infallible, Broken> {
    let number = front.state().open_mailbox(worker, Arc::clone(&link));
    let _open = OnDrop(|| give(front.state().lose_mailbox(worker, number)));
    let mut beats = every(front.options.beat * MAILBOX_BEATS);
    let mut heard = Instant::now();
    loop {
        tokio::select! {
            message = link.receive() => {
                if let FromMailbox::Outputs { ticket, outcome } = message? {
                    let settled = front.state().on_outputs(ticket, outcome);
                    give(settled);
                }
                heard = Instant::now();
            }
            _ = beats.tick() => {
                if heard.elapsed() > front.options.silence {
                    return Err(Broken);
                }
                link.send(ToMailbox::Beat)?;
            }
        }
    }
}

async fn open<L>(opening: impl Future<Output = Result<L, Unreachable>>) -> Result<L, Unreachable> {
    let late = |_| Err(Unreachable("it does not answer".to_owned()));
    tokio::time::timeout(CONNECT_WAIT, opening)
        .await
        .unwrap_or_else(late)
}

fn give(settled: impl IntoIterator<Item = Settled>) {
    settled.into_iter().for_each(Settled::give);
}

fn every(period: Duration) -> Interval {
    let mut ticks = interval(period.max(Duration::from_millis(1)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// Does something however a task ends.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Growing pauses, with a random part so that front ends do not come back all at once.
struct BackOff {
    least: Duration,
    most: Duration,
    next: Duration,
}

// === impl BackOff ===

impl BackOff {
    fn new(front: &FrontEnd) -> Self {
        let (least, most) = front.options.back_off;
        Self {
            least,
            most,
            next: least,
        }
    }

    fn reset(&mut self) {
        self.next = self.least;
    }

    /// A link was open for that time.
    fn lasted(&mut self, time: Duration) {
        if time > self.most {
            self.reset();
        }
    }

    async fn wait(&mut self) {
        let pause = self.next.mul_f64(0.5 + super::random_share() / 2.0);
        self.next = (self.next * 2).min(self.most);
        tokio::time::sleep(pause).await;
    }
}
