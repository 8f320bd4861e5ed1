//! Variants that are loaded on devices and unloaded.

use sextant_controller::LoadResult;
use sextant_placement as placement;

use super::{Event, World, nanos};
use crate::fleet::{
    control::Control,
    devices::{Device, Residency, State},
    variants::Presences,
};
use sextant_types::index::{DeviceIx, VariantIx};

impl World<'_> {
    /// The device in that life, if it still takes work.
    pub(super) fn device(&mut self, (device, life): (DeviceIx, u64)) -> Option<&mut Device> {
        let of = self.devices[device].as_mut()?;
        (of.life == life && of.state == State::Up).then_some(of)
    }

    pub(super) fn on_loaded(&mut self, at: (DeviceIx, u64), variant: VariantIx, ok: bool) {
        let now = self.now;
        let Some(device) = self.device(at) else {
            return;
        };
        match ok {
            true => device.held.insert(variant, Residency::Loaded),
            false => device.held.remove(&variant),
        };
        self.report.loads += u64::from(ok);
        self.changed();
        let load = nanos(self.setting.variants[variant].load_ms);
        let loaded = match ok {
            true => LoadResult::After(load),
            false => LoadResult::Failed,
        };
        let Control {
            controller,
            actions,
            ..
        } = &mut self.control;
        controller.on_load_result(now, at.0, variant, loaded, actions);
    }

    pub(super) fn on_unloaded(&mut self, at: (DeviceIx, u64), variant: VariantIx) {
        if self.device(at).is_none() {
            return;
        }
        let now = self.now;
        let Control {
            controller,
            actions,
            ..
        } = &mut self.control;
        controller.on_unloaded(now, at.0, variant, actions);
    }

    pub(super) fn move_variant(&mut self, moved: placement::Action) {
        match moved {
            placement::Action::Load {
                device,
                variant,
                earliest,
                latest,
                ..
            } => {
                let (now, life) = (self.now, self.life(device));
                let load = nanos(self.setting.variants[variant].load_ms);
                let Some(of) = self.device((device, life)) else {
                    return;
                };
                let start = of.load(earliest.max(now), load);
                let at = start + load;
                if start > latest {
                    let failed = Event::LoadFailed {
                        device,
                        life,
                        variant,
                    };
                    return self.schedule(now, failed);
                }
                of.held.insert(variant, Residency::Loading);
                self.changed();
                let loaded = Event::Loaded {
                    device,
                    life,
                    variant,
                };
                self.schedule(at, loaded);
            }
            placement::Action::Unload { device, variant } => {
                let life = self.life(device);
                if let Some(of) = self.device((device, life)) {
                    of.held.remove(&variant);
                    self.changed();
                }
                let unloaded = Event::Unloaded {
                    device,
                    life,
                    variant,
                };
                self.schedule(self.now, unloaded);
            }
        }
    }

    /// The state of the fleet has changed.
    pub(in crate::fleet) fn changed(&mut self) {
        self.control.is_stale = true;
    }

    /// Shows the state to dispatcher and autoscaler, if it has changed.
    pub(in crate::fleet) fn show(&mut self) {
        if std::mem::replace(&mut self.control.is_stale, false) {
            let there = Presences {
                devices: &self.devices,
            };
            let seen = there.seen();
            self.control.shown.show(seen);
        }
    }
}
