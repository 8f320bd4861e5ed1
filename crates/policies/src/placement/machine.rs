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
    Action, Actions, Demand, ModelSpec, Nanos, Options, Presence,
    device::{Device, Load},
    model::{Counted, Model, Replica},
    rule::{Rule, There, View},
};
use crate::schedule::{IndexedHeap, NEVER};

/// Wanted models that found no room on a device before it is left alone.
const MOST_WITHOUT_ROOM: usize = 16;

/// How often a model that has replicas is offered, and a device on which room is missing is asked,
/// within a look-ahead.
const OFFERS_PER_LOOK_AHEAD: Nanos = 5;

/// A placement after a [`Rule`].
#[derive(Debug)]
pub(super) struct Machine<R> {
    pub(super) rule: R,
    pub(super) look_ahead: Nanos,
    capacity: Nanos,
    pub(super) devices: Vec<Option<Device>>,
    pub(super) up: usize,
    pub(super) models: Vec<Option<Model>>,
    pub(super) demand: Demand,
    wanted: IndexedHeap,
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
            run: self.rule.run(spec),
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
                if device.victims.key(model).is_none() {
                    device.evictable += replica.pages;
                }
                device.victims.set(model, worth);
            } else if device.victims.remove(model).is_some() {
                device.evictable -= replica.pages;
            }
        }
    }

    /// Offers a model, about which something has changed, to the devices that found nothing. A model
    /// that has replicas, but not enough, is not offered again with each of its requests.
    pub(super) fn consider(&mut self, now: Nanos, model: u32, actions: &mut Actions) {
        if self.wanted.key(model).is_none() {
            return;
        }
        let pause = self.pause();
        if let Some(of) = self.model_mut(model)
            && !of.replicas.is_empty()
        {
            if now < of.offer_again_at {
                return;
            }
            of.offer_again_at = now.saturating_add(pause);
        }
        while self.wanted.key(model).is_some() {
            self.park_ready(now);
            let mut best: Option<(f64, (bool, Nanos), u32)> = None;
            for device in self.parked.iter().copied() {
                let Ok(fit) = self.fit(now, device, model) else {
                    continue;
                };
                let gain = self.gain(now, device, model);
                let better =
                    best.is_none_or(|(most, best, _)| gain > most || (gain == most && fit < best));
                if gain > 0.0 && better {
                    best = Some((gain, fit, device));
                }
            }
            let Some((_, _, device)) = best else {
                self.note_shortage(now, model);
                return;
            };
            self.load(now, device, model, actions);
        }
    }

    pub(super) fn pause(&self) -> Nanos {
        self.look_ahead / OFFERS_PER_LOOK_AHEAD
    }

    /// Lets a device take LOADs as long as it may.
    pub(super) fn attempt(&mut self, now: Nanos, device: u32, actions: &mut Actions) {
        let ahead = self.look_ahead;
        loop {
            let Some(of) = self.device_mut(device) else {
                return;
            };
            of.short = false;
            of.attempted = now;
            let ready_at = of.ready_at(ahead);
            if ready_at > now {
                self.parked.remove(&device);
                self.busy.set(device, ready_at);
                return;
            }
            let Some(model) = self.best_for(now, device) else {
                self.busy.remove(device);
                self.parked.insert(device);
                return;
            };
            self.load(now, device, model, actions);
        }
    }

    /// Devices whose LOADs leave room for another one join the parked; they are only looked at when
    /// something is wanted.
    pub(super) fn park_ready(&mut self, now: Nanos) {
        while let Some((at, device)) = self.busy.first()
            && at <= now
        {
            self.busy.remove(device);
            self.parked.insert(device);
        }
    }

    /// When a busy device has to be asked again.
    pub(super) fn next_ready(&self) -> Option<Nanos> {
        let first = self.busy.first().map(|(at, _)| at);
        first.filter(|at| *at < NEVER && !self.wanted.is_empty())
    }

    /// Whether a model may be loaded on a device, and how well that suits: without unloading
    /// anything is better, then by load. The error tells whether only room is missing.
    fn fit(&self, now: Nanos, device: u32, model: u32) -> Result<(bool, Nanos), bool> {
        let (Some(on), Some(of)) = (self.device(device), self.model(model)) else {
            return Err(false);
        };
        let taken =
            of.replica(device).is_some() || of.is_refused(now, device) || of.is_barred(device);
        let ready = on.free_at(now).saturating_add(of.load_on(device));
        let ready = ready.saturating_add(self.rule.margin());
        if taken || of.saved_by(ready) == 0 {
            return Err(false);
        }
        if !on.has_room(of.spec.pages) {
            return Err(of.spec.pages <= on.pages);
        }
        Ok((on.free < of.spec.pages, self.demand.load(device)))
    }

    fn note_shortage(&mut self, now: Nanos, model: u32) {
        let short = |device: &u32| self.fit(now, *device, model) == Err(true);
        let short: Vec<u32> = self.parked.iter().copied().filter(short).collect();
        for device in short {
            if let Some(of) = self.device_mut(device) {
                of.short = true;
            }
        }
    }

    /// The wanted model that a device should load next.
    fn best_for(&mut self, now: Nanos, device: u32) -> Option<u32> {
        let (mut aside, mut without_room) = (Vec::new(), 0);
        let mut best: Option<(f64, u32)> = None;
        let mut compared = 0;
        while compared < self.rule.breadth()
            && without_room < MOST_WITHOUT_ROOM
            && let Some((key, model)) = self.wanted.first()
        {
            self.rank(now, model);
            let Some(anew) = self.wanted.key(model).filter(|anew| *anew <= key) else {
                continue;
            };
            self.wanted.remove(model);
            aside.push((model, anew));
            match self.fit(now, device, model) {
                Ok(_) => {
                    let gain = self.gain(now, device, model);
                    compared += usize::from(gain > 0.0);
                    if gain > best.map_or(0.0, |(most, _)| most) {
                        best = Some((gain, model));
                    }
                }
                Err(true) => without_room += 1,
                Err(false) => {}
            }
        }
        for (model, key) in aside {
            self.wanted.set(model, key);
        }
        if let Some(of) = self.device_mut(device) {
            of.short = without_room > 0;
        }
        best.map(|(_, model)| model)
    }

    fn gain(&self, now: Nanos, device: u32, model: u32) -> f64 {
        let priority = self.demand.priority(model);
        let (Some(view), Some(on)) = (self.view(now, model, priority), self.device(device)) else {
            return 0.0;
        };
        let load = view.of.load_on(device);
        let there = There {
            ready: on.free_at(now).saturating_add(load),
            load,
            crowding: self.demand.load(device) as f64 / self.capacity as f64,
        };
        self.rule.gain(&view, &there)
    }

    fn view(&self, now: Nanos, model: u32, priority: f64) -> Option<View<'_>> {
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

    /// Issues a LOAD, with the UNLOADs that it needs before it.
    pub(super) fn load(&mut self, now: Nanos, device: u32, model: u32, actions: &mut Actions) {
        let Some(of) = self.model(model) else { return };
        let (pages, expected) = (of.spec.pages, of.load_on(device));
        let before_end = of.spec.run.saturating_add(expected);
        let deadline = of.deadlines().map_or(NEVER, |(_, last)| last);
        self.make_room(now, device, pages, actions);
        let Some(Some(on)) = self.devices.get_mut(device as usize) else {
            return;
        };
        let start = on.free_at(now);
        on.free -= pages;
        on.residents.push((model, pages));
        on.loads.push_back(Load {
            model,
            start,
            expected,
        });
        let ready_at = on.ready_at(self.look_ahead);
        self.parked.remove(&device);
        self.busy.set(device, ready_at);
        if let Some(of) = self.model_mut(model) {
            of.replicas.push(Replica {
                device,
                presence: Presence::Loading,
                pages,
                running: 0,
                used: now,
            });
        }
        self.demand.place(model, device);
        self.rank(now, model);
        actions.push(Action::Load {
            device,
            model,
            earliest: start,
            latest: match deadline {
                NEVER => NEVER,
                _ => deadline.saturating_sub(before_end).max(start),
            },
            expected,
        });
    }

    /// Unloads what is worth least until `pages` are free.
    fn make_room(&mut self, now: Nanos, device: u32, pages: u32, actions: &mut Actions) {
        while let Some(on) = self.device_mut(device)
            && on.free < pages
            && let Some((_, victim)) = on.victims.first()
        {
            self.unload(now, device, victim, actions);
        }
    }

    /// Issues an UNLOAD; the pages are free at once.
    pub(super) fn unload(&mut self, now: Nanos, device: u32, model: u32, actions: &mut Actions) {
        let Some(of) = self.model_mut(model) else {
            return;
        };
        let Some(replica) = of.replica_mut(device) else {
            return;
        };
        replica.presence = Presence::Leaving;
        let pages = replica.pages;
        self.demand.displace(model, device);
        if let Some(on) = self.device_mut(device) {
            on.free += pages;
            if on.victims.remove(model).is_some() {
                on.evictable -= pages;
            }
        }
        self.value(now, model);
        self.rank(now, model);
        actions.push(Action::Unload { device, model });
    }

    /// Takes a replica away that is not there any more.
    pub(super) fn remove(&mut self, now: Nanos, device: u32, model: u32) {
        let Some(of) = self.model_mut(model) else {
            return;
        };
        let Some(at) = of.replicas.iter().position(|r| r.device == device) else {
            return;
        };
        let replica = of.replicas.swap_remove(at);
        self.demand.displace(model, device);
        if let Some(on) = self.device_mut(device) {
            on.forget(model);
            on.loaded(now, model);
            if replica.presence != Presence::Leaving {
                on.free += replica.pages;
            }
            if on.victims.remove(model).is_some() {
                on.evictable -= replica.pages;
            }
        }
        self.value(now, model);
        self.rank(now, model);
    }
}
