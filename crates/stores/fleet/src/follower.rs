//! A view of the metadata store that is kept current, whatever happens to the store.
//!
//! While the store is away, the follower keeps the last view. It then resumes the feed where it stopped. A store that
//! has lost its content does not know the running workers and the served variants. Their owners write them again within
//! a heartbeat or two. So the follower keeps what a store of another life lacks for a time of grace, unless the store
//! announces it again. The time of grace does not advance while the store is away.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use sextant_metadata::{Changes, Error, Event, InstanceKey, MetadataStore, Snapshot, View};
use sextant_types::{VariantId, WorkerId};
use tokio::time::{Instant, sleep_until};

/// Default of the time for which the follower keeps what a new life of the store lacks.
pub const GRACE: Duration = Duration::from_secs(10);

/// Shortest pause after a failure of the store.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// What has changed in a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum News {
    /// Loads, utilisations, ends of leases and demand: a list of what may be used does not show them.
    Figures,
    /// Variants, instances, workers, their states, leaders, or the desired state.
    Structure,
}

/// Follows the feed of a metadata store.
pub struct Follower {
    metadata: Arc<dyn MetadataStore>,
    grace: Duration,
    view: View,
    followed: FeedState,
    kept: Remnant,
    /// After a failure: when the store is asked again, and the length of the pause until then.
    again: Option<(Instant, Duration)>,
}

/// How far the view follows the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FeedState {
    Never,
    /// The feed no longer holds the events after the view.
    Trimmed,
    Current,
}

/// What the view has of an earlier life of the store.
#[derive(Debug, Default)]
struct Remnant {
    variants: BTreeSet<VariantId>,
    instances: BTreeSet<InstanceKey>,
    workers: BTreeSet<WorkerId>,
    /// Roles.
    leaders: BTreeSet<Arc<str>>,
    desired: bool,
    demand: bool,
    until: Option<Instant>,
}

impl Follower {
    /// A follower with an empty view.
    pub fn new(metadata: Arc<dyn MetadataStore>) -> Self {
        Self::with_grace(metadata, GRACE)
    }

    /// The same with another time of grace.
    pub fn with_grace(metadata: Arc<dyn MetadataStore>, grace: Duration) -> Self {
        Self {
            metadata,
            grace,
            view: View::default(),
            followed: FeedState::Never,
            kept: Remnant::default(),
            again: None,
        }
    }

    /// The view; empty before the first [`Self::changed`].
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Waits until the view has changed; at first, until there is one. Waits out failures of the store. May be
    /// cancelled at any time.
    pub async fn changed(&mut self) -> News {
        loop {
            if let Some((at, _)) = self.again {
                sleep_until(at).await;
            }
            match self.advance().await {
                Ok(news) => {
                    self.go_on();
                    if let Some(news) = news {
                        return news;
                    }
                }
                Err(Error::Trimmed { .. }) => self.followed = FeedState::Trimmed,
                Err(error) => self.back_off(&error),
            }
        }
    }

    async fn advance(&mut self) -> Result<Option<News>, Error> {
        if self.followed != FeedState::Current {
            let snapshot = self.metadata.snapshot().await?;
            self.replace(snapshot);
            return Ok(Some(News::Structure));
        }
        // A store that was away is asked at once: the follower must know whether it is back before it drops anything.
        if self.again.is_none() {
            tokio::select! {
                changed = self.metadata.changed(self.view.cursor) => changed?,
                () = expiry(self.kept.until) => {
                    self.forget_kept();
                    return Ok(Some(News::Structure));
                }
            }
        }
        let changes = self.metadata.changes(self.view.cursor).await?;
        Ok(self.take_over(&changes))
    }

    fn take_over(&mut self, changes: &Changes) -> Option<News> {
        let mut news = None;
        for event in &changes.events {
            news = news.max(Some(weigh(&self.view, event)));
            self.kept.tell(event);
            self.view.apply(event);
        }
        self.view.cursor = changes.cursor;
        news
    }

    fn replace(&mut self, snapshot: Snapshot) {
        let known = self.followed != FeedState::Never;
        let before = std::mem::replace(&mut self.view, View::from(snapshot));
        self.followed = FeedState::Current;
        if known && before.life != self.view.life {
            tracing::warn!(
                life = self.view.life,
                "the metadata store has lost its content; keeping what was known for a while"
            );
            self.kept = Remnant::all(&before, Instant::now() + self.grace);
        }
        self.kept.add_to(&mut self.view, &before);
    }

    fn forget_kept(&mut self) {
        let kept = std::mem::take(&mut self.kept);
        tracing::warn!(
            variants = kept.variants.len(),
            instances = kept.instances.len(),
            workers = kept.workers.len(),
            leaders = kept.leaders.len(),
            "forgetting what nobody has told the metadata store again"
        );
        let view = &mut self.view;
        kept.variants
            .iter()
            .for_each(|id| drop(view.variants.remove(id)));
        kept.instances
            .iter()
            .for_each(|key| drop(view.instances.remove(key)));
        kept.workers
            .iter()
            .for_each(|id| drop(view.workers.remove(id)));
        kept.leaders
            .iter()
            .for_each(|role| drop(view.leaders.remove(role)));
        view.desired = view.desired.take().filter(|_| !kept.desired);
        view.demand = view.demand.take().filter(|_| !kept.demand);
    }

    /// The store has answered. While it was away its owners could not write to it, so the time of grace starts again.
    fn go_on(&mut self) {
        if self.again.take().is_some() && self.kept.until.is_some() {
            self.kept.until = Some(Instant::now() + self.grace);
        }
    }

    fn back_off(&mut self, error: &Error) {
        let pause = match self.again {
            None => {
                tracing::warn!(%error, "the metadata store is away; going on with what is known");
                FIRST_PAUSE
            }
            Some((_, pause)) => (pause * 2).min(LONGEST_PAUSE),
        };
        self.again = Some((Instant::now() + pause, pause));
    }
}

/// Resolves when what is kept is to be dropped; never if nothing is kept.
async fn expiry(until: Option<Instant>) {
    match until {
        Some(until) => sleep_until(until).await,
        None => std::future::pending().await,
    }
}

/// The kind of change of an event to a view to which it was not applied yet.
fn weigh(view: &View, event: &Event) -> News {
    let same = match event {
        Event::InstanceChanged(instance) => {
            let known = view.instances.get(&instance.key);
            known.is_some_and(|known| known.state == instance.state)
        }
        Event::WorkerChanged(worker) => view.workers.get(&worker.id).is_some_and(|known| {
            let stays = known.leaving == worker.leaving;
            let (known, told) = (&known.record, &worker.record);
            let same = known.draining == told.draining && known.endpoint == told.endpoint;
            let alike = known.device_type == told.device_type;
            stays
                && same
                && alike
                && known.engines == told.engines
                && known.memory_bytes == told.memory_bytes
        }),
        Event::DemandChanged(_) => true,
        _ => false,
    };
    if same { News::Figures } else { News::Structure }
}

// === impl Remnant ===

impl Remnant {
    fn all(view: &View, until: Instant) -> Self {
        Self {
            variants: view.variants.keys().cloned().collect(),
            instances: view.instances.keys().cloned().collect(),
            workers: view.workers.keys().cloned().collect(),
            leaders: view.leaders.keys().cloned().collect(),
            desired: view.desired.is_some(),
            demand: view.demand.is_some(),
            until: Some(until),
        }
    }

    /// Adds to the new view what it lacks, and keeps only that.
    fn add_to(&mut self, view: &mut View, before: &View) {
        self.variants.retain(|id| !view.variants.contains_key(id));
        self.instances
            .retain(|key| !view.instances.contains_key(key));
        self.workers.retain(|id| !view.workers.contains_key(id));
        self.leaders.retain(|role| !view.leaders.contains_key(role));
        for id in &self.variants {
            let known = before.variants.get(id);
            view.variants
                .extend(known.map(|known| (id.clone(), Arc::clone(known))));
        }
        for key in &self.instances {
            let known = before.instances.get(key);
            view.instances
                .extend(known.map(|known| (key.clone(), known.clone())));
        }
        for id in &self.workers {
            let known = before.workers.get(id);
            view.workers
                .extend(known.map(|known| (id.clone(), known.clone())));
        }
        for role in &self.leaders {
            let known = before.leaders.get(role);
            view.leaders
                .extend(known.map(|known| (Arc::clone(role), known.clone())));
        }
        self.desired &= view.desired.is_none();
        if self.desired {
            view.desired.clone_from(&before.desired);
        }
        self.demand &= view.demand.is_none();
        if self.demand {
            view.demand.clone_from(&before.demand);
        }
        self.rest_if_empty();
    }

    /// Stops keeping what the store announces again.
    fn tell(&mut self, event: &Event) {
        if self.until.is_none() {
            return;
        }
        match event {
            Event::VariantPublished(variant) => drop(self.variants.remove(&variant.id)),
            Event::VariantRetired(id) => drop(self.variants.remove(id)),
            Event::InstanceChanged(instance) => drop(self.instances.remove(&instance.key)),
            Event::InstanceRemoved(key) => drop(self.instances.remove(key)),
            Event::WorkerChanged(worker) => drop(self.workers.remove(&worker.id)),
            Event::WorkerRemoved(id) => drop(self.workers.remove(id)),
            Event::LeaderChanged(leader) => drop(self.leaders.remove(&leader.candidate.role)),
            Event::LeaderGone(role) => drop(self.leaders.remove(role)),
            Event::DesiredChanged(_) => self.desired = false,
            Event::DemandChanged(_) => self.demand = false,
        }
        self.rest_if_empty();
    }

    fn rest_if_empty(&mut self) {
        let served = self.variants.is_empty() && self.instances.is_empty();
        let played = self.workers.is_empty() && self.leaders.is_empty();
        if served && played && !self.desired && !self.demand {
            self.until = None;
        }
    }
}
