//! The condition of the variants on a device, by the rule of the live worker's monitor.

use std::collections::BTreeMap;

use sextant_health::{Condition, Health, Thresholds, Window};
use sextant_types::index::VariantIx;

use super::{Residency, slots::FinishedBatch};

/// The observations of the variants that are loaded on a device.
#[derive(Debug, Default)]
pub(in crate::fleet) struct Watch {
    seen: BTreeMap<VariantIx, InstanceObservation>,
}

#[derive(Debug, Default)]
struct InstanceObservation {
    health: Health,
    /// Since the last look: the number of batches that ran, their run time, and their run time by the profile, ns.
    batches: u64,
    ran: f64,
    expected: f64,
    /// Batches that came too late to start.
    late: u64,
}

// === impl Watch ===

impl Watch {
    /// A batch has left the device.
    pub(in crate::fleet) fn on_left(&mut self, left: &FinishedBatch) {
        let seen = self.seen.entry(left.variant).or_default();
        match left.ran {
            Some((ran, alone)) => {
                seen.batches += 1;
                seen.ran += ran as f64;
                seen.expected += alone as f64;
            }
            None => seen.late += 1,
        }
    }

    /// Evaluates the time since the last look. `shares` are shares of the device's slots by variant, 0 to 1. Returns
    /// the variants whose condition has changed.
    pub(in crate::fleet) fn look(
        &mut self,
        held: &BTreeMap<VariantIx, Residency>,
        shares: &[(VariantIx, f64)],
    ) -> Vec<VariantIx> {
        let is_loaded = |variant: &VariantIx| held.get(variant) == Some(&Residency::Loaded);
        self.seen.retain(|variant, _| is_loaded(variant));
        let device_load: f64 = shares.iter().map(|(_, share)| share).sum();
        let busy = shares.iter().filter(|(_, share)| *share > 0.0).count() as u32;
        let limits = Thresholds::default();
        let mut changed = Vec::new();
        for (variant, seen) in &mut self.seen {
            let of = shares.iter().find(|(known, _)| known == variant);
            let window = Window {
                load: of.map_or(0.0, |(_, share)| *share).clamp(0.0, 1.0),
                device_load: device_load.clamp(0.0, 1.0),
                busy_instances: busy,
                late: seen.late,
                slow_down: seen.ran / seen.expected.max(1.0),
                batches: seen.batches,
                run_ms: seen.ran / 1e6,
            };
            let health = InstanceObservation {
                health: seen.health,
                ..InstanceObservation::default()
            };
            *seen = health;
            if seen.health.observe(window, &limits).is_some() {
                changed.push(*variant);
            }
        }
        changed
    }

    /// The condition of a variant here.
    pub(in crate::fleet) fn condition(&self, variant: VariantIx) -> Condition {
        let seen = self.seen.get(&variant);
        seen.map_or(Condition::default(), |seen| seen.health.condition())
    }
}
