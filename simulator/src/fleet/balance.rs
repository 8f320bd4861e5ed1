//! Devices that are ordered and sent away until there are as many as are wanted, and what they cost.

use std::cmp::Reverse;

use sextant_policies::{
    scaling::fleet::{Removable, leaving},
    schedule::Nanos,
};

use super::{
    devices::{Device, Held, State},
    world::{Event, World, nanos},
};

/// How long a device is kept that variants depend on, before it goes all the same; as in the live
/// autoscaler.
const LONGEST_STAY: Nanos = 120_000_000_000;

impl World<'_> {
    /// The devices that are there when the run begins.
    pub(super) fn begin(&mut self) {
        for kind in 0..self.setting.types.len() {
            for _ in 0..self.setting.types[kind].initial {
                let device = self.order(kind);
                self.on_up(device);
            }
        }
    }

    /// Orders devices and sends devices away.
    pub(super) fn balance(&mut self, wanted: &[u32]) {
        for (kind, wanted) in wanted.iter().enumerate() {
            let there = self.staying(kind);
            let wanted = *wanted as usize;
            if there.len() <= wanted {
                self.surplus_since[kind] = None;
                for _ in there.len()..wanted {
                    let device = self.order(kind);
                    let life = self.life(device);
                    let up = self.now + nanos(self.setting.types[kind].start_s * 1e3);
                    self.schedule(up, Event::Up { device, life });
                }
                continue;
            }
            let since = *self.surplus_since[kind].get_or_insert(self.now);
            let forced = self.now - since > LONGEST_STAY;
            let removable: Vec<Removable> = there.iter().map(|at| self.removable(*at)).collect();
            for at in leaving(&removable, there.len() - wanted) {
                if forced || removable[at].needed_by == 0 {
                    self.send_away(there[at]);
                }
            }
        }
    }

    /// A device takes work from now on.
    pub(super) fn on_up(&mut self, device: u32) {
        let Some(of) = self.devices[device as usize].as_mut() else {
            return;
        };
        of.state = State::Up;
        of.since = self.now;
        let kind = of.kind;
        self.control.device_up(self.now, device, self.setting, kind);
        self.reindex(None);
    }

    /// What is paid for until now.
    pub(super) fn bill(&mut self) {
        let from = self.billed.max(self.span.0);
        let until = self.now.min(self.span.1);
        self.billed = self.now;
        let hours = until.saturating_sub(from) as f64 / 3.6e12;
        for device in self.devices.iter().flatten() {
            self.report.device_hours[device.kind] += hours;
        }
    }

    /// A device ends what it has and goes, at once where it has nothing.
    fn send_away(&mut self, device: u32) {
        // What was given to it before it was told to go is its own.
        self.carry_out();
        let Some(of) = self.devices[device as usize].as_mut() else {
            return;
        };
        let (kind, was_up) = (of.kind, of.state == State::Up);
        of.state = State::Draining;
        if was_up {
            self.control.device_down(self.now, device);
            self.reindex(None);
        }
        self.count(kind);
        self.leave(device);
    }

    /// A device that drains goes once nothing runs on it.
    pub(super) fn leave(&mut self, device: u32) {
        let is_done = |of: &Device| of.state == State::Draining && of.batches == 0;
        let at = device as usize;
        if self.devices[at].as_ref().is_some_and(is_done) {
            self.bill();
            self.devices[at] = None;
            self.vacant.push(Reverse(device));
        }
    }

    fn order(&mut self, kind: usize) -> u32 {
        self.bill();
        self.lives += 1;
        let slots = self.setting.types[kind].slots;
        let of = Device::new(kind, State::Starting, self.lives, self.now, slots);
        let device = match self.vacant.pop() {
            Some(Reverse(device)) => device,
            None => {
                self.devices.push(None);
                self.devices.len() as u32 - 1
            }
        };
        self.devices[device as usize] = Some(of);
        self.count(kind);
        device
    }

    fn staying(&self, kind: usize) -> Vec<u32> {
        let all = (0..).zip(&self.devices);
        let of = all.filter_map(|(at, device)| {
            let device = device.as_ref()?;
            (device.kind == kind && device.state != State::Draining).then_some(at)
        });
        of.collect()
    }

    fn count(&mut self, kind: usize) {
        let count = self.staying(kind).len() as u32;
        let at_s = self.now as f64 / 1e9;
        self.report.counts.push((at_s, kind, count));
    }

    /// Those that are not up serve nobody.
    fn removable(&self, at: u32) -> Removable {
        match self.devices[at as usize].as_ref() {
            Some(of) if of.state == State::Up => Removable {
                busy_share: of.busy_share,
                needed_by: self.depend_on(at, of),
                since_ms: of.since / 1_000_000,
            },
            _ => Removable {
                busy_share: 0.0,
                needed_by: 0,
                since_ms: u64::MAX,
            },
        }
    }

    /// Wanted variants that are loaded here and nowhere else.
    fn depend_on(&self, at: u32, of: &Device) -> u32 {
        let others = || {
            let all = (0..).zip(&self.devices);
            all.filter(move |(other, _)| *other != at)
                .filter_map(|(_, device)| device.as_ref())
                .filter(|device| device.state == State::Up)
        };
        let has = |device: &Device, variant: u32| device.held.get(&variant) == Some(&Held::Loaded);
        let depends = self.control.wanted().iter().filter(|(variant, wanted)| {
            wanted.devices > 0 && has(of, *variant) && !others().any(|device| has(device, *variant))
        });
        depends.count() as u32
    }
}
