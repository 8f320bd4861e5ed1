//! Which variants the load requires, and on how many of the devices that are up.

use std::collections::BTreeMap;

use sextant_types::index::VariantIx;

use super::{MEMORY, PlannerInput, Scaler};
use crate::{Footprint, Plan, Policy, Room, shared, spread};

impl Scaler {
    /// The variants that the load requires, and on how many devices.
    pub(super) fn variants(
        &mut self,
        input: &PlannerInput,
        here: &Plan,
        now_ms: u64,
    ) -> BTreeMap<VariantIx, u32> {
        let mut planned: BTreeMap<VariantIx, u32> = BTreeMap::new();
        for kind in 0..input.kinds.len() {
            for (variant, count) in self.on_kind(input, here, kind) {
                *planned.entry(variant).or_default() += count;
            }
        }
        for of in &input.staffed.reserved {
            let up = (input.kinds.get(of.device.get() as usize)).map_or(0, |kind| kind.up);
            let loaded = of.loaded().min(up);
            if loaded > 0 {
                *planned.entry(of.variant).or_default() += loaded;
            }
        }
        let mut all = planned.clone();
        all.extend(
            self.known
                .keys()
                .filter(|variant| !planned.contains_key(variant))
                .map(|variant| (*variant, 0)),
        );
        let desired = all.into_iter().map(|(variant, now)| {
            let count = self.variants.want(variant, now_ms, now);
            (variant, count)
        });
        self.known = desired.filter(|(_, count)| *count > 0).collect();
        let known = &self.known;
        self.variants.retain(|variant| known.contains_key(variant));
        self.known.clone()
    }

    fn on_kind(&self, input: &PlannerInput, here: &Plan, kind: usize) -> Vec<(VariantIx, u32)> {
        let up = input.kinds[kind].up;
        let all = input.problem.choices.iter().enumerate();
        let on: Vec<_> = all.filter(|(_, choice)| choice.kind() == kind).collect();
        if self.options.policy != Policy::Sextant {
            let mut counts: BTreeMap<VariantIx, u32> = BTreeMap::new();
            for (at, choice) in on {
                *counts.entry(choice.variant).or_default() += here.instances[at];
            }
            let counts = counts
                .into_iter()
                .map(|(variant, count)| (variant, count.min(up)));
            return counts.filter(|(_, count)| *count > 0).collect();
        }
        let slots = input.problem.devices[kind].slots;
        let mut busy: BTreeMap<VariantIx, (usize, f64)> = BTreeMap::new();
        for (at, choice) in on {
            if here.served_rps[at] > 0.0 {
                let (_, sum) = busy.entry(choice.variant).or_insert((at, 0.0));
                *sum += here.served_rps[at] / choice.rps;
            }
        }
        let footprints: Vec<Footprint> = busy
            .values()
            .map(|(at, busy)| Footprint {
                least: shared::staffed(*busy, slots),
                load: (*busy * 1000.0).min(f64::from(u32::MAX)) as u32,
                ..input.footprints[*at]
            })
            .collect();
        // A variant that is alone may fill a device.
        let largest = footprints.iter();
        let largest = largest
            .map(|it| it.own_bytes.saturating_add(it.shared_bytes))
            .max();
        let usual = (input.kinds[kind].memory_bytes as f64 * MEMORY) as u64;
        let room = Room {
            devices: up,
            memory_bytes: usual.max(largest.unwrap_or(0)),
        };
        let counts = spread(&footprints, room);
        let each = footprints.iter().zip(counts);
        each.filter(|(_, count)| *count > 0)
            .map(|(footprint, count)| (footprint.variant, count))
            .collect()
    }
}
