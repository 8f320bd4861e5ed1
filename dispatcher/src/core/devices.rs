//! Devices that come and go, and what can be loaded on them.

use sextant_policies::{
    placement::ResidentDevice,
    schedule::{NEVER, Nanos},
};

use super::{Actions, Core, Model};

impl Core {
    /// A device takes batches and LOADs from now on, with nothing loaded as far as is known.
    pub(crate) fn device_up(
        &mut self,
        now: Nanos,
        device: u32,
        spec: ResidentDevice,
        actions: &mut Actions,
    ) {
        self.make_room_for(now, device + 1);
        self.up.insert(device, spec);
        for failed in self.failed.values_mut() {
            failed.remove(&device);
        }
        self.resident.on_device_up(now, device, spec, actions);
    }

    /// A device takes nothing any more. What waits for a model that no other device could load is
    /// given up.
    pub(crate) fn device_down(&mut self, now: Nanos, device: u32, actions: &mut Actions) {
        if self.up.remove(&device).is_none() {
            return;
        }
        self.resident.on_device_down(now, device, actions);
        if self.resident.cold() == 0 {
            return;
        }
        for model in self.models.keys().copied().collect::<Vec<_>>() {
            let loaded = !self.resident.loaded_on(model).is_empty();
            if !loaded && self.homes(model).next().is_none() {
                self.resident.give_up(now, model, actions);
            }
        }
    }

    /// Positions that devices have been at.
    pub(crate) fn devices(&self) -> u32 {
        self.devices
    }

    /// Slots of the devices that are up.
    pub(crate) fn slots(&self) -> u64 {
        self.up.values().map(|device| u64::from(device.slots)).sum()
    }

    /// The devices that are up.
    pub(crate) fn devices_up(&self) -> Vec<u32> {
        self.up.keys().copied().collect()
    }

    /// There may be devices up to `devices`: of the models that are known, new ones can load those
    /// that are said to be eligible there and no others.
    fn make_room_for(&mut self, now: Nanos, devices: u32) {
        for device in self.devices..devices {
            let barred = |(model, of): (&u32, &Model)| {
                let barred = !of.eligible.contains(&device);
                barred.then_some(*model)
            };
            let barred = self.models.iter().filter_map(barred);
            for model in barred.chain(self.retired.iter().copied()) {
                self.resident.on_load_estimate(now, device, model, NEVER);
            }
        }
        self.devices = self.devices.max(devices);
    }

    /// Which devices have a variant's engine is known anew.
    pub(crate) fn set_eligible(&mut self, now: Nanos, model: u32, eligible: Vec<u32>) {
        let devices = eligible.iter().max().map_or(0, |last| last + 1);
        self.make_room_for(now, devices);
        for device in 0..self.devices {
            let barred = !eligible.contains(&device);
            let load = if barred { NEVER } else { 0 };
            self.resident.on_load_estimate(now, device, model, load);
        }
        if let Some(known) = self.models.get_mut(&model) {
            known.eligible = eligible;
        }
    }

    /// The devices that could load a variant if nothing else were there.
    pub(super) fn homes(&self, model: u32) -> impl Iterator<Item = u32> + '_ {
        let known = self.models.get(&model);
        let eligible = known.into_iter().flat_map(|known| {
            let pages = known.pages;
            known.eligible.iter().map(move |device| (*device, pages))
        });
        eligible
            .filter(|(device, pages)| self.up.get(device).is_some_and(|up| up.pages >= *pages))
            .map(|(device, _)| device)
    }
}
