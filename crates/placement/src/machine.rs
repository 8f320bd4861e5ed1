//! The machinery that the placement policies share.
//!
//! Models with unfulfilled demand stand in one order, *wanted*, by the rule's key. A device that may
//! take a LOAD takes the best of them that it has not and has room for, or is *parked* until
//! something changes: a model becomes wanted, or pages that were missing can be had. So a request
//! touches its own model, and devices are looked at only when its model is wanted.
//!
//! A model's key is made again with its own events only, as in the paper; what has changed by the
//! events of others is found when the model comes first. Of a model with many replicas an event
//! touches the one that it is about: what the others are worth is found when one of them is to go.
//!
//! Beside what requests ask for there is what is *to be kept*: wanted loaded by whoever looks after
//! the fleet. A device that has nothing else to load takes the first of these that it lacks, into
//! free pages; nothing is unloaded for it, unless it is pinned.

use std::collections::BTreeSet;

use super::{
    Demand, ModelSpec, Nanos, Options,
    device::Device,
    kinds::Kinds,
    model::{Counted, Model},
    rule::{Rule, View},
};
use sextant_schedule::{IndexedHeap, NEVER};

/// A placement after a [`Rule`].
#[derive(Debug)]
pub(super) struct Machine<R> {
    pub(super) rule: R,
    pub(super) look_ahead: Nanos,
    pub(super) capacity: Nanos,
    pub(super) devices: Vec<Option<Device>>,
    pub(super) kinds: Kinds,
    pub(super) models: Vec<Option<Model>>,
    pub(super) demand: Demand,
    pub(super) wanted: IndexedHeap,
    /// Whether something may not be unloaded, whatever else is asked for.
    pub(super) pins: bool,
    /// By model: no later than when its first hope ends.
    pub(super) expiries: IndexedHeap,
    /// By device: from when it may take another LOAD, where one is under way.
    pub(super) busy: IndexedHeap,
    /// By device: when one on which room was missing, and which was asked lately, is asked again.
    pub(super) again: IndexedHeap,
    /// By model: when a device that failed to load it may be asked again.
    pub(super) retries: IndexedHeap,
    /// Devices that may take a LOAD and found none.
    pub(super) parked: BTreeSet<u32>,
    /// Models of which more replicas are to be kept than there are, in the order in which they are.
    pub(super) to_keep: BTreeSet<(u32, u32)>,
    /// What is not to be kept and was not asked for so long is unloaded, ns.
    pub(super) idle_unload: Nanos,
    /// When that is looked at next.
    pub(super) sweep_at: Nanos,
}

/// Most replicas of a model that are all valued again with each of its events.
const FEW: usize = 4;

impl<R: Rule> Machine<R> {
    pub fn new(options: &Options, rule: R) -> Self {
        Self {
            rule,
            look_ahead: options.look_ahead,
            capacity: options.capacity.max(1),
            devices: Vec::new(),
            kinds: Kinds::default(),
            models: Vec::new(),
            demand: Demand::new(options.capacity.max(1)),
            wanted: IndexedHeap::default(),
            pins: false,
            expiries: IndexedHeap::default(),
            busy: IndexedHeap::default(),
            again: IndexedHeap::default(),
            retries: IndexedHeap::default(),
            parked: BTreeSet::new(),
            to_keep: BTreeSet::new(),
            idle_unload: NEVER,
            sweep_at: NEVER,
        }
    }

    pub(super) fn device(&self, device: u32) -> Option<&Device> {
        self.devices.get(device as usize)?.as_ref()
    }

    pub(super) fn device_mut(&mut self, device: u32) -> Option<&mut Device> {
        self.devices.get_mut(device as usize)?.as_mut()
    }

    pub(super) fn model(&self, model: u32) -> Option<&Model> {
        self.models.get(model as usize)?.as_ref()
    }

    pub(super) fn model_mut(&mut self, model: u32) -> Option<&mut Model> {
        self.models.get_mut(model as usize)?.as_mut()
    }

    pub(super) fn counted(&self, spec: &ModelSpec) -> Counted {
        Counted {
            run: spec.run,
            capacity: self.capacity,
            margin: self.rule.margin(),
            least_window: 2 * self.look_ahead.max(1),
        }
    }

    /// Nobody is helped by a LOAD any more, or something else about a model has changed: its demand
    /// and its place among the wanted are made again.
    pub(super) fn rank(&mut self, now: Nanos, model: u32) {
        let margin = self.rule.margin();
        let Some(of) = self.model_mut(model) else {
            return;
        };
        of.expire(now, margin);
        let (work, everywhere) = (of.hoped_work(), of.replicas.len());
        if self.demand.of(model) != work {
            self.demand.set(model, work);
        }
        let everywhere = everywhere >= self.kinds.devices();
        let retired = self.model(model).is_none_or(|of| of.retired);
        let priority = self.demand.priority(model);
        let wanted = priority > 0.0 && !everywhere && !retired;
        let view = wanted.then(|| self.view(now, model, priority)).flatten();
        match view.and_then(|view| self.rule.want(&view)) {
            Some(key) => self.wanted.set(model, key),
            None => drop(self.wanted.remove(model)),
        }
    }

    /// Sees to it that the end of a model's first hope is noticed.
    pub(super) fn expect_expiry(&mut self, model: u32) {
        let margin = self.rule.margin();
        match self.model(model).and_then(|of| of.next_expiry(margin)) {
            Some(at) => self.expiries.set(model, at),
            None => drop(self.expiries.remove(model)),
        }
    }

    /// Makes again which replicas of a model may be unloaded, and what they are worth.
    pub(super) fn value(&mut self, now: Nanos, model: u32) {
        let Some(of) = self.models.get(model as usize).and_then(Option::as_ref) else {
            return;
        };
        for replica in of.replicas.iter() {
            let Some(Some(device)) = self.devices.get_mut(replica.device as usize) else {
                continue;
            };
            if of.is_evictable(replica) {
                let worth = self.rule.worth(now, model, of, replica.used);
                device.offer(model, worth);
            } else {
                device.protect(model);
            }
        }
    }

    /// Whether all replicas of a model are valued again with each of its events.
    pub(super) fn has_few(&self, model: u32) -> bool {
        self.model(model).is_some_and(|of| of.replicas.len() <= FEW)
    }

    /// Makes again whether one replica of a model may be unloaded, and what it is worth.
    pub(super) fn value_on(&mut self, now: Nanos, model: u32, device: u32) {
        let of = self.models.get(model as usize).and_then(Option::as_ref);
        let Some((of, replica)) = of.and_then(|of| Some((of, of.replicas.on(device)?))) else {
            return;
        };
        let Some(Some(on)) = self.devices.get_mut(device as usize) else {
            return;
        };
        if of.is_evictable(replica) {
            let worth = self.rule.worth(now, model, of, replica.used);
            on.offer(model, worth);
        } else {
            on.protect(model);
        }
    }

    /// Finds out again whether replicas of a model are missing that are to be kept.
    pub(super) fn count_kept(&mut self, model: u32) {
        let devices = self.kinds.devices();
        let Some(of) = self.models.get(model as usize).and_then(Option::as_ref) else {
            return;
        };
        let Some(wanted) = of.wanted else { return };
        if of.lacks_wanted(devices) && !of.retired {
            self.to_keep.insert((wanted.order, model));
        } else {
            self.to_keep.remove(&(wanted.order, model));
        }
    }

    pub(super) fn view(&self, now: Nanos, model: u32, priority: f64) -> Option<View<'_>> {
        Some(View {
            now,
            of: self.model(model)?,
            priority,
            key: self.wanted.key(model),
            spare: self.demand.is_spare(),
        })
    }
}
