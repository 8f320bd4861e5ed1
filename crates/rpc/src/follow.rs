//! A view of the metadata that stays current, and outlives the store's troubles.
//!
//! While the store is away the view stays as it was, and goes on from its cursor afterwards. A store
//! that came back empty ([`Snapshot::life`](sextant_metadata::Snapshot::life) changed) knows nothing
//! yet of most of what exists: what it lacks is kept for a grace period, in which those it concerns
//! announce it again.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
    time::Duration,
};

use sextant_metadata::{Error, Event, InstanceKey, MetadataStore, View};
use sextant_types::{VariantId, WorkerId};
use tokio::time::Instant;

/// How long what an emptied store lacks is kept.
pub const GRACE: Duration = Duration::from_secs(10);

/// Pause after a failure of the store before it is asked again.
const BACK_OFF: Duration = Duration::from_millis(200);

/// Follows a store's change feed.
pub struct Follower {
    store: Arc<dyn MetadataStore>,
    grace: Duration,
    view: View,
    /// The view's cursor is one of the store's.
    is_current: bool,
    /// What the store lacks, and until when it is kept.
    kept: BTreeMap<Key, Instant>,
}

/// How a view changed.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Anything may be different.
    Anew,
    /// By these events.
    Events(Vec<Event>),
}

/// Names a thing of the view.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Variant(VariantId),
    Instance(InstanceKey),
    Worker(WorkerId),
    Leader(Arc<str>),
}

// === impl Follower ===

impl Follower {
    /// Begins with an empty view. `grace`: usually [`GRACE`].
    pub fn new(store: Arc<dyn MetadataStore>, grace: Duration) -> Self {
        Self {
            store,
            grace,
            view: View::default(),
            is_current: false,
            kept: BTreeMap::new(),
        }
    }

    /// What is known now.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Waits until the view has changed; the first time, until the store has been read. May be
    /// cancelled without losing a change.
    pub async fn changed(&mut self) -> Step {
        loop {
            let until = self.kept.values().min().copied();
            let far = Instant::now() + Duration::from_secs(3600);
            let step = tokio::select! {
                step = self.read() => step,
                () = tokio::time::sleep_until(until.unwrap_or(far)) => {
                    self.let_go(Instant::now());
                    return Step::Anew;
                }
            };
            match step {
                Ok(Step::Events(events)) if events.is_empty() => {}
                Ok(step) => return step,
                Err(Error::Trimmed { .. }) => self.is_current = false,
                Err(error) => {
                    tracing::warn!(%error, "the metadata store does not answer");
                    tokio::time::sleep(BACK_OFF).await;
                }
            }
        }
    }

    async fn read(&mut self) -> Result<Step, Error> {
        if !self.is_current {
            let fresh = View::from(self.store.snapshot().await?);
            self.take_over(fresh, Instant::now());
            self.is_current = true;
            return Ok(Step::Anew);
        }
        self.store.changed(self.view.cursor).await?;
        let changes = self.store.changes(self.view.cursor).await?;
        self.view.follow(&changes);
        for event in &changes.events {
            self.kept.remove(&key(event));
        }
        Ok(Step::Events(changes.events))
    }

    /// Goes over to a snapshot. One of the same life says all there is.
    fn take_over(&mut self, fresh: View, now: Instant) {
        let before = std::mem::replace(&mut self.view, fresh);
        if before.life == self.view.life || before == View::default() {
            return self.kept.clear();
        }
        let view = &mut self.view;
        let mut kept = Vec::new();
        for (id, it) in before.variants {
            keep(&mut view.variants, id, it, Key::Variant, &mut kept);
        }
        for (id, it) in before.instances {
            keep(&mut view.instances, id, it, Key::Instance, &mut kept);
        }
        for (id, it) in before.workers {
            keep(&mut view.workers, id, it, Key::Worker, &mut kept);
        }
        for (id, it) in before.leaders {
            keep(&mut view.leaders, id, it, Key::Leader, &mut kept);
        }
        tracing::warn!(
            kept = kept.len(),
            "the metadata store has lost its content; what is known is kept for a while"
        );
        // What was kept before is not kept longer.
        let earlier = std::mem::take(&mut self.kept);
        for key in kept {
            let until = earlier.get(&key).copied();
            self.kept.insert(key, until.unwrap_or(now + self.grace));
        }
    }

    fn let_go(&mut self, now: Instant) {
        let view = &mut self.view;
        self.kept.retain(|key, until| {
            if *until > now {
                return true;
            }
            match key {
                Key::Variant(id) => drop(view.variants.remove(id)),
                Key::Instance(id) => drop(view.instances.remove(id)),
                Key::Worker(id) => drop(view.workers.remove(id)),
                Key::Leader(role) => drop(view.leaders.remove(role)),
            }
            false
        });
    }
}

fn keep<K: Ord + Clone, V>(
    fresh: &mut BTreeMap<K, V>,
    id: K,
    it: V,
    key: fn(K) -> Key,
    kept: &mut Vec<Key>,
) {
    if let Entry::Vacant(vacant) = fresh.entry(id) {
        kept.push(key(vacant.key().clone()));
        vacant.insert(it);
    }
}

/// What an event is about.
fn key(event: &Event) -> Key {
    match event {
        Event::VariantPublished(variant) => Key::Variant(variant.id.clone()),
        Event::VariantRetired(id) => Key::Variant(id.clone()),
        Event::InstanceChanged(instance) => Key::Instance(instance.key.clone()),
        Event::InstanceRemoved(key) => Key::Instance(key.clone()),
        Event::WorkerChanged(worker) => Key::Worker(worker.id.clone()),
        Event::WorkerRemoved(id) => Key::Worker(id.clone()),
        Event::LeaderChanged(leader) => Key::Leader(Arc::clone(&leader.candidate.role)),
        Event::LeaderGone(role) => Key::Leader(Arc::clone(role)),
    }
}
