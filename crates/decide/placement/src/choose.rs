//! Which device loads what next.

use super::{
    Actions, Nanos,
    device::Footprint,
    machine::Machine,
    rule::{LoadSite, Rule},
};
use sextant_schedule::NEVER;
use sextant_types::index::{DeviceIx, VariantIx};

/// After this many desired variants found no room on a device, no more are tried on it.
const MOST_WITHOUT_ROOM: usize = 16;

/// How often within a look-ahead a variant that has replicas is offered, and a device on which room is missing is
/// asked.
const OFFERS_PER_LOOK_AHEAD: Nanos = 5;

/// How well a device suits, least first: whether a variant must be unloaded, the worth of that variant, and the
/// device's load.
type Fit = (bool, u64, Nanos);

impl<R: Rule> Machine<R> {
    /// Offers a variant that has changed to the devices that found nothing to load. A variant that has replicas, but
    /// not enough, is not offered again with each of its requests.
    pub(super) fn consider(&mut self, now: Nanos, variant: VariantIx, actions: &mut Actions) {
        if self.desired.key(variant).is_none() {
            return;
        }
        let pause = self.pause();
        if let Some(of) = self.variant_mut(variant)
            && !of.replicas.is_empty()
        {
            if now < of.offer_again_at {
                return;
            }
            of.offer_again_at = now.saturating_add(pause);
        }
        while self.desired.key(variant).is_some() {
            self.park_ready(now);
            let mut best: Option<(f64, Fit, DeviceIx)> = None;
            for device in self.parked.iter().copied() {
                let Ok(fit) = self.fit(now, device, variant) else {
                    continue;
                };
                let gain = self.gain(now, device, variant);
                let better =
                    best.is_none_or(|(most, best, _)| gain > most || (gain == most && fit < best));
                if gain > 0.0 && better {
                    best = Some((gain, fit, device));
                }
            }
            let Some((_, _, device)) = best else {
                self.note_shortage(now, variant);
                return;
            };
            self.load_for_requests(now, device, variant, actions);
        }
    }

    pub(super) fn pause(&self) -> Nanos {
        self.look_ahead / OFFERS_PER_LOOK_AHEAD
    }

    /// Lets a device take LOADs for as long as it may.
    pub(super) fn attempt(&mut self, now: Nanos, device: DeviceIx, actions: &mut Actions) {
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
            if let Some(variant) = self.best_for(now, device) {
                self.load_for_requests(now, device, variant, actions);
            } else if let Some(variant) = self.next_kept(now, device) {
                self.load_at_any_time(now, device, variant, actions);
            } else {
                self.busy.remove(device);
                self.parked.insert(device);
                return;
            }
        }
    }

    /// Parks the devices whose LOADs leave room for another one. They are looked at only when a variant is desired.
    pub(super) fn park_ready(&mut self, now: Nanos) {
        while let Some((at, device)) = self.busy.first()
            && at <= now
        {
            self.busy.remove(device);
            self.parked.insert(device);
        }
    }

    /// When a busy device must be asked again.
    pub(super) fn next_ready(&self) -> Option<Nanos> {
        let first = self.busy.first().map(|(at, _)| at);
        first.filter(|at| *at < NEVER && !self.desired.is_empty())
    }

    /// Whether a variant may be loaded on a device, and how well that suits. Best is a device on which nothing must be
    /// unloaded, then one whose victim is worth least, then one with the least load. The error says whether only room
    /// is missing.
    fn fit(&self, now: Nanos, device: DeviceIx, variant: VariantIx) -> Result<Fit, bool> {
        let (Some(on), Some(of)) = (self.device(device), self.variant(variant)) else {
            return Err(false);
        };
        let taken = of.replicas.on(device).is_some()
            || of.is_refused_to_requests(now, device)
            || !of.kinds.is_able(on.kind);
        let ready = on.free_at(now).saturating_add(of.load_on(device, on.kind));
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

    fn note_shortage(&mut self, now: Nanos, variant: VariantIx) {
        let short = |device: &DeviceIx| self.fit(now, *device, variant) == Err(true);
        let short: Vec<DeviceIx> = self.parked.iter().copied().filter(short).collect();
        for device in short {
            if let Some(of) = self.device_mut(device) {
                of.short = true;
            }
        }
    }

    /// The desired variant that a device should load next.
    fn best_for(&mut self, now: Nanos, device: DeviceIx) -> Option<VariantIx> {
        let (mut aside, mut without_room) = (Vec::new(), 0);
        let mut best: Option<(f64, VariantIx)> = None;
        let mut compared = 0;
        while compared < self.rule.breadth()
            && without_room < MOST_WITHOUT_ROOM
            && let Some((key, variant)) = self.desired.first()
        {
            self.rank(now, variant);
            let Some(again) = self.desired.key(variant).filter(|again| *again <= key) else {
                continue;
            };
            self.desired.remove(variant);
            aside.push((variant, again));
            match self.fit(now, device, variant) {
                Ok(_) => {
                    let gain = self.gain(now, device, variant);
                    compared += usize::from(gain > 0.0);
                    if gain > best.map_or(0.0, |(most, _)| most) {
                        best = Some((gain, variant));
                    }
                }
                Err(true) => without_room += 1,
                Err(false) => {}
            }
        }
        for (variant, key) in aside {
            self.desired.set(variant, key);
        }
        if let Some(of) = self.device_mut(device) {
            of.short = without_room > 0;
        }
        best.map(|(_, variant)| variant)
    }

    fn gain(&self, now: Nanos, device: DeviceIx, variant: VariantIx) -> f64 {
        let priority = self.demand.priority(variant);
        let (Some(view), Some(on)) = (self.view(now, variant, priority), self.device(device))
        else {
            return 0.0;
        };
        let load = view.of.load_on(device, on.kind);
        let there = LoadSite {
            ready: on.free_at(now).saturating_add(load),
            load,
            crowding: self.demand.load(device) as f64 / self.capacity as f64,
        };
        self.rule.gain(&view, &there)
    }
}
