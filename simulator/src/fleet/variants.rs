//! What is loaded on which devices.

use sextant_policies::select::Readiness;

use super::devices::{Device, Held, State};

/// A look at all devices.
pub(super) struct Presences<'a> {
    pub(super) devices: &'a [Option<Device>],
}

impl Presences<'_> {
    /// How soon a variant could start on a type of device; [`Readiness::Failed`] where none is up.
    pub(super) fn readiness(&self, variant: u32, kind: usize) -> Readiness {
        let mut up = self.up(kind).peekable();
        if up.peek().is_none() {
            return Readiness::Failed;
        }
        let best = up.filter_map(|device| device.held.get(&variant)).max();
        match best {
            Some(Held::Loaded) => Readiness::Active,
            Some(Held::Loading) => Readiness::Loading,
            None => Readiness::Inactive,
        }
    }

    /// Devices of a type on which a variant is loaded.
    pub(super) fn loaded(&self, variant: u32, kind: usize) -> u32 {
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
