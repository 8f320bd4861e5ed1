//! A replica of the store's content, kept current by events.

use std::{collections::BTreeMap, sync::Arc};

use sextant_types::{Variant, VariantId, WorkerId};

use crate::{
    Changes, Cursor, Demand, DesiredState, Event, Instance, InstanceKey, Leader, Snapshot, Worker,
};

/// What a follower of the feed knows. It starts from a [`Snapshot`] and continues with [`Changes`].
/// The maps are ordered, so that iteration never depends on hashing.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct View {
    /// Published variants.
    pub variants: BTreeMap<VariantId, Arc<Variant>>,
    /// Recorded instances.
    pub instances: BTreeMap<InstanceKey, Instance>,
    /// Workers that were not expired.
    pub workers: BTreeMap<WorkerId, Worker>,
    /// The leaders of roles, by role.
    pub leaders: BTreeMap<Arc<str>, Leader>,
    /// The desired state; `None` before an autoscaler has written it.
    pub desired: Option<Arc<DesiredState>>,
    /// The demand; `None` before a dispatcher has written it.
    pub demand: Option<Arc<Demand>>,
    /// The life of the store from which this was read; see [`Snapshot::life`].
    pub life: u64,
    /// How far the feed has been followed.
    pub cursor: Cursor,
}

impl View {
    /// Whether workers may appear without an operator: the autoscaler has pools that it fills.
    pub fn has_pools(&self) -> bool {
        let desired = self.desired.iter();
        let mut pools = desired.flat_map(|desired| &desired.pools);
        pools.any(|pool| pool.provider.is_some() && pool.most > 0)
    }

    /// Applies the events after this view's cursor.
    pub fn follow(&mut self, changes: &Changes) {
        for event in &changes.events {
            self.apply(event);
        }
        self.cursor = changes.cursor;
    }

    /// Applies one event. Does not change the cursor.
    pub fn apply(&mut self, event: &Event) {
        match event {
            Event::VariantPublished(variant) => {
                self.variants.insert(variant.id.clone(), variant.clone());
            }
            Event::VariantRetired(id) => {
                self.variants.remove(id);
            }
            Event::InstanceChanged(instance) => {
                self.instances
                    .insert(instance.key.clone(), instance.clone());
            }
            Event::InstanceRemoved(key) => {
                self.instances.remove(key);
            }
            Event::WorkerChanged(worker) => self.renew(worker),
            Event::WorkerRemoved(id) => {
                self.workers.remove(id);
            }
            Event::LeaderChanged(leader) => {
                let role = Arc::clone(&leader.candidate.role);
                self.leaders.insert(role, leader.clone());
            }
            Event::LeaderGone(role) => {
                self.leaders.remove(role);
            }
            Event::DesiredChanged(desired) => self.desired = Some(Arc::clone(desired)),
            Event::DemandChanged(Some(demand)) => self.demand = Some(Arc::clone(demand)),
            // A later event has the demand.
            Event::DemandChanged(None) => {}
        }
    }

    /// The whole content as a snapshot.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            variants: self.variants.values().cloned().collect(),
            instances: self.instances.values().cloned().collect(),
            workers: self.workers.values().cloned().collect(),
            leaders: self.leaders.values().cloned().collect(),
            desired: self.desired.clone(),
            demand: self.demand.clone(),
            life: self.life,
            cursor: self.cursor,
        }
    }

    fn renew(&mut self, worker: &Worker) {
        for instance in self.instances.values_mut() {
            if instance.key.worker == worker.id {
                instance.lease_until_ms = worker.lease_until_ms;
            }
        }
        self.workers.insert(worker.id.clone(), worker.clone());
    }
}

impl From<Snapshot> for View {
    fn from(snapshot: Snapshot) -> Self {
        let Snapshot {
            variants,
            instances,
            workers,
            leaders,
            desired,
            demand,
            life,
            cursor,
        } = snapshot;
        Self {
            variants: variants.into_iter().map(|v| (v.id.clone(), v)).collect(),
            instances: instances.into_iter().map(|i| (i.key.clone(), i)).collect(),
            workers: workers.into_iter().map(|w| (w.id.clone(), w)).collect(),
            leaders: leaders
                .into_iter()
                .map(|leader| (Arc::clone(&leader.candidate.role), leader))
                .collect(),
            desired,
            demand,
            life,
            cursor,
        }
    }
}
