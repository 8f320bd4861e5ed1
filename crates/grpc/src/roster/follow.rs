//! What a store says about workers.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use sextant_metadata::{Cursor, Error, Event, MetadataStore, Snapshot, Worker};
use sextant_types::WorkerId;
use tokio::time::{Instant, sleep, sleep_until};

/// Time between two attempts at a store that is away.
const RETRY: Duration = Duration::from_millis(250);

/// Workers that are to be reached.
#[derive(Default)]
pub(super) struct Wanted {
    /// Where.
    pub(super) workers: BTreeMap<WorkerId, Arc<str>>,
    /// Those that have given a sign of life since the last time.
    pub(super) heard: BTreeSet<WorkerId>,
}

/// Follows a store's feed, over losses of its content.
pub(super) struct Follower<'a> {
    metadata: &'a dyn MetadataStore,
    grace: Duration,
    wanted: Wanted,
    /// Not named by the store since it lost its content, and when they are dropped.
    missing: BTreeMap<WorkerId, Instant>,
    /// The life of the store that was seen last.
    life: Option<u64>,
    /// How far the feed has been followed; none before a snapshot.
    cursor: Option<Cursor>,
}

impl<'a> Follower<'a> {
    pub(super) fn new(metadata: &'a dyn MetadataStore, grace: Duration) -> Self {
        Self {
            metadata,
            grace,
            wanted: Wanted::default(),
            missing: BTreeMap::new(),
            life: None,
            cursor: None,
        }
    }

    /// Waits for a change. May be cancelled.
    pub(super) async fn next(&mut self) -> &Wanted {
        self.wanted.heard.clear();
        loop {
            let due = self.missing.values().min().copied();
            let step = tokio::select! {
                step = step(self.metadata, self.cursor) => step,
                () = until(due) => {
                    self.forget();
                    break;
                }
            };
            match step {
                Ok(Step::All(snapshot)) => {
                    self.start(*snapshot);
                    break;
                }
                Ok(Step::Events(events, cursor)) => {
                    self.cursor = Some(cursor);
                    if self.follow(&events) {
                        break;
                    }
                }
                Err(Error::Trimmed { .. }) => self.cursor = None,
                Err(error) => {
                    tracing::debug!(%error, "the workers are not followed");
                    sleep(RETRY).await;
                }
            }
        }
        &self.wanted
    }

    fn start(&mut self, snapshot: Snapshot) {
        let lost = self.life.is_some_and(|life| life != snapshot.life);
        let mut before = std::mem::take(&mut self.wanted.workers);
        for worker in &snapshot.workers {
            before.remove(&worker.id);
            self.add(worker);
        }
        // A store that knows its content has removed the others.
        let drop_at = Instant::now() + self.grace;
        for (name, endpoint) in before {
            let due = self.missing.get(&name).copied();
            if let Some(due) = due.or(lost.then_some(drop_at)) {
                self.missing.insert(name.clone(), due);
                self.wanted.workers.insert(name, endpoint);
            }
        }
        self.life = Some(snapshot.life);
        self.cursor = Some(snapshot.cursor);
    }

    /// Returns whether anything concerned workers.
    fn follow(&mut self, events: &[Event]) -> bool {
        let mut changed = false;
        for event in events {
            match event {
                Event::WorkerChanged(worker) => self.add(worker),
                Event::WorkerRemoved(name) => {
                    self.wanted.workers.remove(name);
                    self.missing.remove(name);
                }
                _ => continue,
            }
            changed = true;
        }
        changed
    }

    fn add(&mut self, worker: &Worker) {
        self.missing.remove(&worker.id);
        match &worker.record.endpoint {
            Some(endpoint) => {
                let endpoint = Arc::clone(endpoint);
                self.wanted.workers.insert(worker.id.clone(), endpoint);
                self.wanted.heard.insert(worker.id.clone());
            }
            None => {
                self.wanted.workers.remove(&worker.id);
            }
        }
    }

    /// Drops those that the store did not name again in time.
    fn forget(&mut self) {
        let now = Instant::now();
        let wanted = &mut self.wanted.workers;
        self.missing.retain(|name, due| {
            let keep = *due > now;
            if !keep {
                wanted.remove(name);
            }
            keep
        });
    }
}

enum Step {
    All(Box<Snapshot>),
    Events(Vec<Event>, Cursor),
}

/// Everything without a position, what followed with one.
async fn step(metadata: &dyn MetadataStore, cursor: Option<Cursor>) -> Result<Step, Error> {
    let Some(cursor) = cursor else {
        return Ok(Step::All(Box::new(metadata.snapshot().await?)));
    };
    metadata.changed(cursor).await?;
    let changes = metadata.changes(cursor).await?;
    Ok(Step::Events(changes.events, changes.cursor))
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}
