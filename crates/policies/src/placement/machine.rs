//! The machinery that the placement policies share.
//!
//! Models with unfulfilled demand stand in one order, *wanted*, by the rule's key. A device that may
//! take a LOAD takes the best of them that it has not and has room for, or is *parked* until
//! something changes: a model becomes wanted, or pages that were missing can be had. So a request
//! touches its own model, and devices are looked at only when its model is wanted.
//!
//! A model's key is made anew with its own events only, as in the paper; what has changed by the
//! events of others is found when the model comes first.

use std::collections::BTreeSet;

use super::{
    Demand, ModelSpec, Nanos, Options,
    device::Device,
    model::{Counted, Model},
    rule::{Rule, View},
};
use crate::schedule::IndexedHeap;

/// A placement after a [`Rule`].
#[derive(Debug)]
pub(super) struct Machine<R> {
    pub(super) rule: R,
    pub(super) look_ahead: Nanos,
    pub(super) capacity: Nanos,
    pub(super) devices: Vec<Option<Device>>,
    pub(super) up: usize,
    pub(super) models: Vec<Option<Model>>,
    pub(super) demand: Demand,
    pub(super) wanted: IndexedHeap,
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
}

impl<R: Rule> Machine<R> {
    pub fn new(options: &Options, rule: R) -> Self {
        Self {
            rule,
            look_ahead: options.look_ahead,
            capacity: options.capacity.max(1),
            devices: Vec::new(),
            up: 0,
            models: Vec::new(),
            demand: Demand::new(options.capacity.max(1)),
            wanted: IndexedHeap::default(),
            expiries: IndexedHeap::default(),
            busy: IndexedHeap::default(),
            again: IndexedHeap::default(),
            retries: IndexedHeap::default(),
            parked: BTreeSet::new(),
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
    /// and its place among the wanted are made anew.
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
        let everywhere = everywhere >= self.up;
        let priority = self.demand.priority(model);
        let wanted = priority > 0.0 && !everywhere;
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

    /// Makes anew which replicas of a model may be unloaded, and what they are worth.
    pub(super) fn value(&mut self, now: Nanos, model: u32) {
        let Some(of) = self.models.get(model as usize).and_then(Option::as_ref) else {
            return;
        };
        for replica in &of.replicas {
            let Some(Some(device)) = self.devices.get_mut(replica.device as usize) else {
                continue;
            };
            if of.is_evictable(replica) {
                let worth = self.rule.keep(now, model, of, replica.used);
                device.offer(model, worth);
            } else {
                device.keep(model);
            }
        }
    }

    pub(super) fn view(&self, now: Nanos, model: u32, priority: f64) -> Option<View<'_>> {
        Some(View {
            now,
            of: self.model(model)?,
            priority,
            key: self.wanted.key(model),
            capacity: self.capacity,
            demand: &self.demand,
            devices: &self.devices,
        })
    }
}
