//! What is loaded on which devices.

use sextant_health::Condition;
use sextant_selection::Readiness;
use sextant_types::index::{DeviceIx, IndexVec, VariantIx};

use super::devices::{Device, Held, State};

/// A look at all devices.
pub(super) struct Presences<'a> {
    pub(super) devices: &'a IndexVec<DeviceIx, Option<Device>>,
}

impl Presences<'_> {
    /// How soon a variant could start on a type of device; [`Readiness::Failed`] where none is up.
    pub(super) fn readiness(&self, variant: VariantIx, kind: usize) -> Readiness {
        let mut up = self.up(kind).peekable();
        if up.peek().is_none() {
            return Readiness::Failed;
        }
        let of = up.map(|device| match device.held.get(&variant) {
            // A full device is full for whatever it has loaded.
            Some(Held::Loaded) => match device.watch.has(Condition::Overloaded) {
                true => Readiness::Degraded,
                false => Readiness::Active,
            },
            Some(Held::Loading) => Readiness::Loading,
            None => Readiness::Inactive,
        });
        of.min().unwrap_or(Readiness::Failed)
    }

    /// Devices of a type on which a variant is in that condition.
    pub(super) fn in_condition(&self, kind: usize, condition: Condition) -> u32 {
        let is = |device: &&Device| device.watch.has(condition);
        self.up(kind).filter(is).count() as u32
    }

    /// Devices of a type on which a variant is loaded.
    pub(super) fn loaded(&self, variant: VariantIx, kind: usize) -> u32 {
        let has = |device: &&Device| device.held.get(&variant) == Some(&Held::Loaded);
        self.up(kind).filter(has).count() as u32
    }

    /// Whether a variant is being loaded on a device of a type.
    pub(super) fn is_loading(&self, kind: usize) -> bool {
        let mut up = self.up(kind);
        up.any(|device| device.held.values().any(|held| *held == Held::Loading))
    }

    /// Devices of a type that are up and stay.
    pub(super) fn up(&self, kind: usize) -> impl Iterator<Item = &Device> {
        let all = self.devices.iter().flatten();
        all.filter(move |device| device.kind == kind && device.state == State::Up)
    }
}
