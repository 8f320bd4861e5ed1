//! Which device loads what next.

use super::{
    Actions, Nanos,
    device::Footprint,
    machine::Machine,
    rule::{Rule, There},
};
use sextant_schedule::NEVER;

/// Wanted models that found no room on a device before it is left alone.
const MOST_WITHOUT_ROOM: usize = 16;

/// How often a model that has replicas is offered, and a device on which room is missing is asked,
/// within a look-ahead.
const OFFERS_PER_LOOK_AHEAD: Nanos = 5;

/// How well a device suits, least first: whether something has to go, what that is worth, and the
/// device's load.
type Fit = (bool, u64, Nanos);

impl<R: Rule> Machine<R> {
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
            let mut best: Option<(f64, Fit, u32)> = None;
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
            let best = self.best_for(now, device);
            let Some(model) = best.or_else(|| self.next_kept(now, device)) else {
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
    /// anything is better, then where what has to go is worth least, then by load. The error tells
    /// whether only room is missing.
    fn fit(&self, now: Nanos, device: u32, model: u32) -> Result<Fit, bool> {
        let (Some(on), Some(of)) = (self.device(device), self.model(model)) else {
            return Err(false);
        };
        let taken = of.replicas.on(device).is_some()
            || of.is_refused(now, device)
            || !of.kinds.is_able(on.kind);
        let ready = on.free_at(now).saturating_add(of.load_on(on.kind));
        let ready = ready.saturating_add(self.rule.margin());
        if taken || of.saved_by(ready) == 0 {
            return Err(false);
        }
        let footprint = Footprint::of(&of.spec);
        if !on.has_room(footprint) {
            return Err(footprint.whole() <= on.pages);
        }
        let full = !on.is_free_for(footprint);
        let victim = on
            .cheapest()
            .filter(|_| full && self.rule.compares_victims());
        let lost = victim.map_or(0, |(worth, _)| worth);
        Ok((full, lost, self.demand.load(device)))
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
            let Some(again) = self.wanted.key(model).filter(|again| *again <= key) else {
                continue;
            };
            self.wanted.remove(model);
            aside.push((model, again));
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
        let load = view.of.load_on(on.kind);
        let there = There {
            ready: on.free_at(now).saturating_add(load),
            load,
            crowding: self.demand.load(device) as f64 / self.capacity as f64,
        };
        self.rule.gain(&view, &there)
    }
}
