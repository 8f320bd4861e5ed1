//! The workers that may end, and which of them must be emptied first.

use std::collections::BTreeMap;

use sextant_metadata::{DesiredState, Instance, View, Worker};
use sextant_scaling::fleet::{RemovableDevice, leaving};
use sextant_types::{DeviceTypeName, WorkerId, index::VariantIx};

use crate::Interner;

/// A worker that may end.
pub struct Seat {
    /// Its id.
    pub id: WorkerId,
    /// What depends on it.
    pub removable: RemovableDevice,
}

/// The workers of a type that stay, with what depends on each.
pub fn seats(
    view: &View,
    desired: &DesiredState,
    name: &DeviceTypeName,
    interner: &Interner,
) -> Vec<Seat> {
    let workers = view.workers.values();
    let workers = workers.filter(|worker| worker.stays() && is_of(worker, name));
    let mut holds = holdings(view, desired, interner);
    let emptying = view
        .desired
        .as_ref()
        .map_or(&[][..], |known| &known.emptying);
    workers
        .map(|worker| Seat {
            id: worker.id.clone(),
            removable: RemovableDevice {
                busy_share: worker.record.utilization,
                holds: holds.remove(&worker.id).unwrap_or_default(),
                since_ms: worker.record.since_ms,
                emptying: emptying.contains(&worker.id),
            },
        })
        .collect()
}

/// The workers of a type that somebody has taken out, and whether they drain already.
pub fn leavers(view: &View, name: &DeviceTypeName) -> Vec<(WorkerId, bool)> {
    let workers = view.workers.values();
    let leavers = workers.filter(|worker| worker.leaving && is_of(worker, name));
    let leavers = leavers.map(|worker| (worker.id.clone(), worker.record.draining));
    leavers.collect()
}

fn is_of(worker: &Worker, name: &DeviceTypeName) -> bool {
    let facts = worker.record.device_type.as_ref();
    facts.is_some_and(|facts| facts.name == *name)
}

/// By desired variant: the workers that stay and on which it serves.
pub fn copies(
    view: &View,
    desired: &DesiredState,
    interner: &Interner,
) -> BTreeMap<VariantIx, u32> {
    let mut copies = BTreeMap::new();
    for variant in holdings(view, desired, interner).into_values().flatten() {
        *copies.entry(variant).or_default() += 1;
    }
    copies
}

/// Returns the workers to be emptied before they end: those that an administrator has taken out, and surplus workers
/// that hold the only copy of a desired variant.
pub fn emptying(view: &View, desired: &DesiredState, interner: &Interner) -> Vec<WorkerId> {
    let copies = copies(view, desired, interner);
    let managed = desired.pools.iter().filter(|pool| pool.provider.is_some());
    let workers = view.workers.values();
    let leavers = workers.filter(|worker| worker.leaving && !worker.record.draining);
    let mut emptying: Vec<WorkerId> = leavers.map(|worker| worker.id.clone()).collect();
    for pool in managed {
        let seats = seats(view, desired, &pool.device_type, interner);
        let surplus = seats.len().saturating_sub(pool.desired as usize);
        let removable: Vec<RemovableDevice> =
            seats.iter().map(|seat| seat.removable.clone()).collect();
        let leavers = leaving(&removable, &copies, surplus);
        let full = leavers.iter().filter(|leaver| !leaver.alone.is_empty());
        emptying.extend(full.map(|leaver| seats[leaver.at].id.clone()));
    }
    emptying
}

/// By worker that stays: the desired variants that serve on it.
fn holdings(
    view: &View,
    desired: &DesiredState,
    interner: &Interner,
) -> BTreeMap<WorkerId, Vec<VariantIx>> {
    let mut holdings: BTreeMap<WorkerId, Vec<VariantIx>> = BTreeMap::new();
    let stays = |instance: &&Instance| {
        let worker = view.workers.get(&instance.key.worker);
        instance.state.is_serving() && worker.is_some_and(Worker::stays)
    };
    for instance in view.instances.values().filter(stays) {
        let key = &instance.key;
        let is_desired = desired
            .variants
            .binary_search_by(|of| of.variant.cmp(&key.variant));
        let number = is_desired.ok().and_then(|_| interner.number(&key.variant));
        if let Some(number) = number {
            let of = holdings.entry(key.worker.clone()).or_default();
            of.push(number);
        }
    }
    holdings
}
