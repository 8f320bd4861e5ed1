//! Orders devices and sends devices away until there are as many as are desired, and computes their cost.

use std::{cmp::Reverse, collections::BTreeMap};

use sextant_scaling::fleet::{LONGEST_STAY, Leaver, RemovableDevice, leaving};

use super::{
    devices::{Device, Residency, State},
    world::{Event, World, nanos},
};
use sextant_types::index::{DeviceIx, VariantIx};

impl World<'_> {
    /// Adds the devices that are present when the run begins.
    pub(super) fn begin(&mut self) {
        for kind in 0..self.setting.types.len() {
            for _ in 0..self.setting.types[kind].initial {
                let device = self.add(kind);
                self.on_up(device);
            }
            self.count(kind);
        }
    }

    /// Orders devices and sends devices away.
    pub(super) fn balance(&mut self, desired: &[u32]) {
        for (kind, desired) in desired.iter().enumerate() {
            let there = self.staying(kind);
            let desired = *desired as usize;
            if there.len() <= desired {
                self.surplus_since[kind] = None;
                for at in &there {
                    if let Some(of) = self.devices[*at].as_mut() {
                        of.emptying = false;
                    }
                }
                for _ in there.len()..desired {
                    let device = self.order(kind);
                    let life = self.life(device);
                    let up = self.now + nanos(self.setting.types[kind].start_s * 1e3);
                    self.schedule(up, Event::Up { device, life });
                }
                continue;
            }
            let since = *self.surplus_since[kind].get_or_insert(self.now);
            let forced = u128::from(self.now - since) > LONGEST_STAY.as_nanos();
            let removable: Vec<RemovableDevice> =
                there.iter().map(|at| self.removable(*at)).collect();
            let leavers = leaving(&removable, &self.copies(), there.len() - desired);
            for leaver in &leavers {
                let device = there[leaver.at];
                if forced || leaver.alone.is_empty() {
                    self.send_away(device);
                } else {
                    self.empty(device, &leaver.alone, &leavers, &there);
                }
            }
        }
    }

    /// A device takes work from now on.
    pub(super) fn on_up(&mut self, device: DeviceIx) {
        let Some(of) = self.devices[device].as_mut() else {
            return;
        };
        of.state = State::Up;
        of.since = self.now;
        let kind = of.kind;
        self.control.device_up(self.now, device, self.setting, kind);
        self.changed();
    }

    /// Bills the devices until now.
    pub(super) fn bill(&mut self) {
        let from = self.billed.max(self.span.0);
        let until = self.now.min(self.span.1);
        self.billed = self.now;
        let hours = until.saturating_sub(from) as f64 / 3.6e12;
        for device in self.devices.iter().flatten() {
            self.report.device_hours[device.kind] += hours;
        }
    }

    /// A device finishes its work and then goes, at once if it has none.
    fn send_away(&mut self, device: DeviceIx) {
        // The device keeps what was given to it before it was told to go.
        self.carry_out();
        let Some(of) = self.devices[device].as_mut() else {
            return;
        };
        let (kind, was_up) = (of.kind, of.state == State::Up);
        of.state = State::Draining;
        if was_up {
            self.control.device_down(self.now, device);
            self.changed();
        }
        self.count(kind);
        self.leave(device);
    }

    /// A device that drains goes once nothing runs on it.
    pub(super) fn leave(&mut self, device: DeviceIx) {
        let is_done = |of: &Device| of.state == State::Draining && of.slots.is_idle();
        if self.devices[device].as_ref().is_some_and(is_done) {
            self.bill();
            self.devices[device] = None;
            self.vacant.push(Reverse(device));
        }
    }

    fn order(&mut self, kind: usize) -> DeviceIx {
        let device = self.add(kind);
        self.count(kind);
        device
    }

    fn add(&mut self, kind: usize) -> DeviceIx {
        self.bill();
        self.lives += 1;
        let of = Device::new(&self.setting.types[kind], kind, self.lives, self.now);
        let device = match self.vacant.pop() {
            Some(Reverse(device)) => device,
            None => self.devices.push(None),
        };
        self.devices[device] = Some(of);
        device
    }

    fn staying(&self, kind: usize) -> Vec<DeviceIx> {
        let all = self.devices.numbered();
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

    /// Devices that are not up serve nothing.
    fn removable(&self, at: DeviceIx) -> RemovableDevice {
        match self.devices[at].as_ref() {
            Some(of) if of.state == State::Up => RemovableDevice {
                busy_share: of.busy_share,
                holds: self.desired_on(of).collect(),
                since_ms: of.since / 1_000_000,
                emptying: of.emptying,
            },
            _ => RemovableDevice {
                since_ms: u64::MAX,
                ..RemovableDevice::default()
            },
        }
    }

    /// Moves the variants that only a device that is to leave has to devices that stay, the least busy first.
    fn empty(
        &mut self,
        from: DeviceIx,
        alone: &[VariantIx],
        leavers: &[Leaver],
        there: &[DeviceIx],
    ) {
        if let Some(of) = self.devices[from].as_mut() {
            of.emptying = true;
        }
        let leaves = |at: DeviceIx| leavers.iter().any(|leaver| there[leaver.at] == at);
        let all = self.devices.numbered();
        let up = all.filter_map(|(at, device)| Some((at, device.as_ref()?)));
        let mut to: Vec<(f64, DeviceIx)> = up
            .filter(|(at, of)| of.state == State::Up && !leaves(*at))
            .map(|(at, of)| (of.busy_share, at))
            .collect();
        to.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let to: Vec<DeviceIx> = to.into_iter().map(|(_, at)| at).collect();
        for variant in alone {
            self.control.relocate(self.now, (*variant, from), &to);
        }
    }

    /// Desired variants that are loaded on a device.
    fn desired_on<'a>(&'a self, of: &'a Device) -> impl Iterator<Item = VariantIx> + 'a {
        let desired = self.control.desired().iter();
        let desired = desired.filter(|(_, desired)| desired.devices > 0);
        let here = desired.filter(|(variant, _)| of.held.get(variant) == Some(&Residency::Loaded));
        here.map(|(variant, _)| *variant)
    }

    /// By desired variant: the number of devices that stay and on which it is loaded.
    fn copies(&self) -> BTreeMap<VariantIx, u32> {
        let mut copies = BTreeMap::new();
        let up = self.devices.iter().flatten();
        for device in up.filter(|device| device.state == State::Up) {
            for variant in self.desired_on(device) {
                *copies.entry(variant).or_default() += 1;
            }
        }
        copies
    }
}
