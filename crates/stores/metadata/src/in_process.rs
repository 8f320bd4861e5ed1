//! The store for a single process: the product's default, not a stand-in.
//!
//! One mutex, held only for operations on maps, makes every call linearizable. The content is a
//! [`View`] that only events change. So followers and the store cannot disagree: the store applies
//! exactly what it emits.

use std::{collections::VecDeque, sync::Arc};

use async_trait::async_trait;
use parking_lot::{Mutex, MutexGuard};
use sextant_types::{Variant, VariantId, WorkerId};
use tokio::sync::watch;

use crate::{
    Candidate, Changes, Command, Cursor, Demand, DesiredState, Error, Event, Instance, InstanceKey,
    Leader, Lease, MetadataStore, Snapshot, Transition, View, Worker, WorkerRecord, apply,
    carry_out,
};

/// Number of events that are kept for followers that lag behind.
pub const DEFAULT_HISTORY: usize = 4096;

/// Metadata in this process's memory.
#[derive(Debug)]
pub struct InProcessStore {
    content: Mutex<Content>,
    head: watch::Sender<Cursor>,
}

impl InProcessStore {
    /// An empty store that keeps [`DEFAULT_HISTORY`] events.
    pub fn new() -> Self {
        Self::with_history(DEFAULT_HISTORY)
    }

    /// An empty store that keeps `capacity` events, at least one.
    pub fn with_history(capacity: usize) -> Self {
        Self {
            content: Mutex::new(Content {
                view: View::default(),
                history: VecDeque::new(),
                capacity: capacity.max(1),
                version_floor: 0,
                demand_at: None,
                desired_fence: Fence::of("desired"),
                demand_fence: Fence::of("demand"),
            }),
            head: watch::Sender::new(Cursor::default()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Content> {
        // Every critical section applies whole events, so a panic elsewhere leaves no event half
        // applied.
        self.content.lock()
    }

    fn write<T>(&self, change: impl FnOnce(&mut Content) -> T) -> T {
        let mut content = self.lock();
        let before = content.view.cursor;
        let result = change(&mut content);
        let after = content.view.cursor;
        if after != before {
            // This is done inside the lock, so that the head never goes backwards.
            self.head.send_replace(after);
        }
        result
    }
}

impl Default for InProcessStore {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl MetadataStore for InProcessStore {
    async fn publish_variant(&self, variant: Arc<Variant>) -> Result<bool, Error> {
        Ok(self.write(|content| {
            let known = content.view.variants.get(&variant.id);
            let changes = known.is_none_or(|known| **known != *variant);
            if changes {
                content.emit(Event::VariantPublished(variant));
            }
            changes
        }))
    }

    async fn retire_variant(&self, variant: &VariantId) -> Result<bool, Error> {
        Ok(self.write(|content| {
            let known = content.view.variants.contains_key(variant);
            if known {
                content.emit(Event::VariantRetired(variant.clone()));
            }
            known
        }))
    }

    async fn variants(&self) -> Result<Vec<Arc<Variant>>, Error> {
        Ok(self.lock().view.variants.values().cloned().collect())
    }

    async fn transition(&self, transition: &Transition, now_ms: u64) -> Result<Instance, Error> {
        self.write(|content| content.transition(transition, now_ms))
    }

    async fn instances(&self) -> Result<Vec<Instance>, Error> {
        Ok(self.lock().view.instances.values().cloned().collect())
    }

    async fn instance(&self, key: &InstanceKey) -> Result<Option<Instance>, Error> {
        Ok(self.lock().view.instances.get(key).cloned())
    }

    async fn heartbeat(
        &self,
        worker: &WorkerId,
        record: WorkerRecord,
        ttl_ms: u64,
        now_ms: u64,
    ) -> Result<Lease, Error> {
        let until_ms = now_ms.saturating_add(ttl_ms);
        Ok(self.write(|content| {
            let known = content.view.workers.get(worker);
            let fresh = known.is_none();
            let leaving = known
                .is_some_and(|known| known.leaving && known.record.since_ms == record.since_ms);
            content.emit(Event::WorkerChanged(Worker {
                id: worker.clone(),
                record,
                lease_until_ms: until_ms,
                leaving,
            }));
            Lease {
                until_ms,
                fresh,
                leaving,
            }
        }))
    }

    async fn workers(&self, now_ms: u64) -> Result<Vec<Worker>, Error> {
        let content = self.lock();
        let live = content.view.workers.values();
        Ok(live
            .filter(|worker| worker.lease_until_ms > now_ms)
            .cloned()
            .collect())
    }

    async fn mark_leaving(&self, worker: &WorkerId) -> Result<Option<Worker>, Error> {
        Ok(self.write(|content| {
            let known = content.view.workers.get(worker)?.clone();
            let marked = Worker {
                leaving: true,
                ..known.clone()
            };
            if !known.leaving {
                content.emit(Event::WorkerChanged(marked.clone()));
            }
            Some(marked)
        }))
    }

    async fn remove_worker(&self, worker: &WorkerId) -> Result<bool, Error> {
        Ok(self.write(|content| {
            let known = content.view.workers.contains_key(worker);
            if known {
                content.remove_worker(worker, None);
            }
            known
        }))
    }

    async fn expire(&self, now_ms: u64) -> Result<Vec<WorkerId>, Error> {
        Ok(self.write(|content| {
            let workers = content.view.workers.values();
            let dead: Vec<WorkerId> = workers
                .filter(|worker| worker.lease_until_ms <= now_ms)
                .map(|worker| worker.id.clone())
                .collect();
            for worker in &dead {
                content.remove_worker(worker, Some(now_ms));
            }
            dead
        }))
    }

    async fn campaign(
        &self,
        candidate: &Candidate,
        ttl_ms: u64,
        now_ms: u64,
    ) -> Result<Leader, Error> {
        Ok(self.write(|content| content.campaign(candidate, ttl_ms, now_ms)))
    }

    async fn leader(&self, role: &str) -> Result<Option<Leader>, Error> {
        Ok(self.lock().view.leaders.get(role).cloned())
    }

    async fn resign(&self, candidate: &Candidate) -> Result<bool, Error> {
        Ok(self.write(|content| {
            let leader = content.view.leaders.get(&candidate.role);
            let held = leader.is_some_and(|leader| leader.candidate.holder == candidate.holder);
            if held {
                content.emit(Event::LeaderGone(Arc::clone(&candidate.role)));
            }
            held
        }))
    }

    async fn set_desired(&self, desired: DesiredState) -> Result<(), Error> {
        self.write(|content| content.set_desired(desired))
    }

    async fn set_demand(&self, demand: Demand) -> Result<(), Error> {
        demand.check()?;
        self.write(|content| content.set_demand(demand))
    }

    async fn snapshot(&self) -> Result<Snapshot, Error> {
        Ok(self.lock().view.snapshot())
    }

    async fn changes(&self, cursor: Cursor) -> Result<Changes, Error> {
        self.lock().changes(cursor)
    }

    async fn changed(&self, cursor: Cursor) -> Result<(), Error> {
        let mut head = self.head.subscribe();
        // The sender lives as long as `self`, so the wait ends only when the condition holds.
        let _ = head.wait_for(|head| *head != cursor).await;
        Ok(())
    }
}

// === impl Content ===

#[derive(Debug)]
struct Content {
    view: View,
    /// The latest events; the last one has the cursor of `view`.
    history: VecDeque<Event>,
    capacity: usize,
    /// Greatest version of any removed instance. A key that comes back starts beyond it, so that a
    /// version names only one record for ever.
    version_floor: u64,
    /// Cursor of the event that has the demand.
    demand_at: Option<Cursor>,
    desired_fence: Fence,
    demand_fence: Fence,
}

/// The fence of a record: who may write it.
#[derive(Debug)]
struct Fence {
    record: &'static str,
    /// The greatest token seen.
    seen: u64,
}

impl Fence {
    fn of(record: &'static str) -> Self {
        Self { record, seen: 0 }
    }

    fn admit(&mut self, token: u64) -> Result<(), Error> {
        let Self { record, seen } = *self;
        if token < seen {
            return Err(Error::Fenced {
                record,
                token,
                seen,
            });
        }
        self.seen = token;
        Ok(())
    }
}

impl Content {
    fn emit(&mut self, event: Event) {
        self.view.apply(&event);
        self.view.cursor = Cursor(self.view.cursor.0 + 1);
        if self.history.len() == self.capacity {
            self.history.pop_front();
        }
        self.history.push_back(event);
    }

    fn transition(&mut self, transition: &Transition, now_ms: u64) -> Result<Instance, Error> {
        let key = &transition.key;
        let Some(worker) = self.view.workers.get(&key.worker) else {
            return Err(Error::UnknownWorker(key.worker.clone()));
        };
        let lease_until_ms = worker.lease_until_ms;
        let current = self.view.instances.get(key);
        let version = current.map_or(0, |current| current.version);
        if let Some(expected) = transition.expected_version
            && expected != version
        {
            return Err(Error::Conflict {
                key: key.clone(),
                expected,
                current: current.cloned().map(Box::new),
            });
        }
        let next = match current {
            Some(current) => carry_out(current, transition, now_ms)?,
            None => carry_out(&self.absent(transition, lease_until_ms), transition, now_ms)?,
        };
        self.emit(Event::InstanceChanged(next.clone()));
        Ok(next)
    }

    fn campaign(&mut self, candidate: &Candidate, ttl_ms: u64, now_ms: u64) -> Leader {
        let lease_until_ms = now_ms.saturating_add(ttl_ms);
        match self.view.leaders.get_mut(&candidate.role) {
            Some(leader) if leader.candidate.holder == candidate.holder => {
                leader.lease_until_ms = leader.lease_until_ms.max(lease_until_ms);
                leader.clone()
            }
            Some(leader) if leader.lease_until_ms > now_ms => leader.clone(),
            _ => {
                // Cursors of the feed only grow.
                let leader = Leader {
                    candidate: candidate.clone(),
                    token: self.view.cursor.0 + 1,
                    lease_until_ms,
                };
                self.emit(Event::LeaderChanged(leader.clone()));
                leader
            }
        }
    }

    fn set_desired(&mut self, desired: DesiredState) -> Result<(), Error> {
        self.desired_fence.admit(desired.token)?;
        let known = self.view.desired.as_ref();
        if known.is_none_or(|known| !known.says_the_same(&desired)) {
            self.emit(Event::DesiredChanged(Arc::new(desired)));
        }
        Ok(())
    }

    fn set_demand(&mut self, demand: Demand) -> Result<(), Error> {
        self.demand_fence.admit(demand.token)?;
        let known = self.view.demand.as_ref();
        if known.is_none_or(|known| !known.says_the_same(&demand)) {
            self.forget_demand();
            self.emit(Event::DemandChanged(Some(Arc::new(demand))));
            self.demand_at = Some(self.view.cursor);
        }
        Ok(())
    }

    /// Removes the demand from the history, because a new one replaces it.
    fn forget_demand(&mut self) {
        let oldest = self.oldest();
        let index = self.demand_at.and_then(|at| at.0.checked_sub(oldest.0 + 1));
        let event = index.and_then(|index| self.history.get_mut(index as usize));
        if let Some(event) = event {
            *event = Event::DemandChanged(None);
        }
    }

    fn absent(&self, transition: &Transition, lease_until_ms: u64) -> Instance {
        let application = transition.application.clone();
        Instance {
            lease_until_ms,
            ..Instance::absent(transition.key.clone(), application, self.version_floor)
        }
    }

    /// Removes a worker and its instances. `lapsed_ms` is the time at which its lease was found
    /// lapsed, `None` if the worker leaves by itself.
    fn remove_worker(&mut self, worker: &WorkerId, lapsed_ms: Option<u64>) {
        let instances = self.view.instances.values();
        let held: Vec<Instance> = instances
            .filter(|instance| instance.key.worker == *worker)
            .cloned()
            .collect();
        for instance in held {
            let last = lapsed_ms.and_then(|now| apply(&instance, &Command::Expire, now).ok());
            let version = last.map_or(instance.version, |last| last.version);
            self.version_floor = self.version_floor.max(version);
            self.emit(Event::InstanceRemoved(instance.key));
        }
        self.emit(Event::WorkerRemoved(worker.clone()));
    }

    /// The cursor just before the first event of the history.
    fn oldest(&self) -> Cursor {
        Cursor(self.view.cursor.0 - self.history.len() as u64)
    }

    fn changes(&self, cursor: Cursor) -> Result<Changes, Error> {
        let head = self.view.cursor;
        let oldest = self.oldest();
        if cursor < oldest || cursor > head {
            return Err(Error::Trimmed { cursor, oldest });
        }
        let seen = (cursor.0 - oldest.0) as usize;
        Ok(Changes {
            events: self.history.range(seen..).cloned().collect(),
            cursor: head,
        })
    }
}

#[cfg(test)]
mod tests;
