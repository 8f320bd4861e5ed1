//! Which variants are loaded on which devices.

use sextant_health::Condition;
use sextant_metadata::InstanceState;
use sextant_types::index::{DeviceIx, IndexVec, VariantIx};

use super::{
    ShownDevice,
    devices::{Device, Residency, State},
};

/// A look at all devices.
pub(super) struct Presences<'a> {
    pub(super) devices: &'a IndexVec<DeviceIx, Option<Device>>,
}

impl Presences<'_> {
    /// Devices of a type that are up and stay.
    pub(super) fn up(&self, kind: usize) -> impl Iterator<Item = &Device> {
        let all = self.devices.iter().flatten();
        all.filter(move |device| device.kind == kind && device.state == State::Up)
    }

    /// All devices that are up and stay, as their workers would report them.
    pub(super) fn seen(&self) -> Vec<ShownDevice> {
        let all = self.devices.numbered();
        let up = all.filter_map(|(at, device)| Some((at, device.as_ref()?)));
        let up = up.filter(|(_, device)| device.state == State::Up);
        let seen = up.map(|(at, device)| ShownDevice {
            device: at,
            kind: device.kind,
            busy_share: device.busy_share,
            variants: states(device),
        });
        seen.collect()
    }
}

fn states(device: &Device) -> Vec<(VariantIx, InstanceState)> {
    let held = device.held.iter().map(|(variant, held)| {
        let state = match (held, device.watch.condition(*variant)) {
            (Residency::Loading, _) => InstanceState::Loading,
            (Residency::Loaded, Condition::Healthy) => InstanceState::Active,
            (Residency::Loaded, Condition::Overloaded) => InstanceState::Overloaded,
            (Residency::Loaded, Condition::Interfered) => InstanceState::Interfered,
        };
        (*variant, state)
    });
    held.collect()
}
