//! On how many devices each variant is loaded, and whether the variants fit there.
//!
//! Devices of a type that have the same variants loaded can take each other's queries, so every variant that is used on
//! a type is loaded on all devices of the type that have room. If there is not enough room, each variant is loaded on
//! as many devices as its load requires: first fit, largest memory first, with weights that variants share counted
//! once. The remaining room goes to further copies, each to the variant with the most load per copy (D'Hondt): a
//! variant on a single device waits for whatever else runs there, and more devices without the variant would not help
//! its queries.

use std::collections::BTreeMap;

use sextant_types::index::VariantIx;

/// The memory and load of a variant on devices of a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Footprint {
    /// The caller's number of the variant.
    pub variant: VariantIx,
    /// Memory for itself, bytes.
    pub own_bytes: u64,
    /// Identifies the variants that share their weights.
    pub group: u32,
    /// The shared weights, bytes.
    pub shared_bytes: u64,
    /// The fewest devices that its load requires.
    pub least: u32,
    /// Its load relative to that of other variants, in any unit.
    pub load: u32,
}

/// Devices of one type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// The number of devices.
    pub devices: u32,
    /// Memory of each device that may be filled, bytes.
    pub memory_bytes: u64,
}

/// By footprint: the number of devices on which it is loaded. It is less than `least` if there is not enough room.
pub fn spread(footprints: &[Footprint], room: Room) -> Vec<u32> {
    let mut whole = Bin::default();
    for footprint in footprints {
        whole.take(footprint);
    }
    if whole.bytes <= room.memory_bytes {
        return vec![room.devices; footprints.len()];
    }
    let mut devices = vec![Bin::default(); room.devices as usize];
    let mut order: Vec<usize> = (0..footprints.len()).collect();
    order.sort_by_key(|at| {
        let it = &footprints[*at];
        (
            std::cmp::Reverse(it.own_bytes.saturating_add(it.shared_bytes)),
            it.variant,
        )
    });
    let mut spread = vec![0; footprints.len()];
    for at in order {
        let footprint = &footprints[at];
        let fits = devices.iter_mut().filter(|filled| {
            filled.needs(footprint).saturating_add(filled.bytes) <= room.memory_bytes
        });
        for filled in fits.take(footprint.least as usize) {
            filled.take(footprint);
            spread[at] += 1;
        }
    }
    fill(footprints, room, &mut devices, &mut spread);
    spread
}

/// Gives the remaining room to further copies of variants with load.
fn fill(footprints: &[Footprint], room: Room, devices: &mut [Bin], spread: &mut [u32]) {
    let mut open: Vec<usize> = (0..footprints.len())
        .filter(|at| footprints[*at].least > 0)
        .collect();
    loop {
        // The first of the variants with the most load per copy.
        let key = |at: &usize| {
            let (load, copies) = (u64::from(footprints[*at].load), u64::from(spread[*at]));
            (load * 1000 / (copies + 1), std::cmp::Reverse(*at))
        };
        let Some(next) = open.iter().copied().max_by_key(key) else {
            return;
        };
        let footprint = &footprints[next];
        let free = devices.iter_mut().find(|filled| {
            !filled.has(footprint.variant)
                && filled.needs(footprint).saturating_add(filled.bytes) <= room.memory_bytes
        });
        match free {
            Some(filled) => {
                filled.take(footprint);
                spread[next] += 1;
            }
            None => open.retain(|at| *at != next),
        }
    }
}

/// The variants that are loaded on a device.
#[derive(Debug, Clone, Default)]
struct Bin {
    bytes: u64,
    groups: BTreeMap<u32, u64>,
    variants: Vec<VariantIx>,
}

// === impl Bin ===

impl Bin {
    /// Bytes that a variant takes in addition to what is there.
    fn needs(&self, footprint: &Footprint) -> u64 {
        let there = self.groups.get(&footprint.group).copied().unwrap_or(0);
        let shared = footprint.shared_bytes.saturating_sub(there);
        footprint.own_bytes.saturating_add(shared)
    }

    fn has(&self, variant: VariantIx) -> bool {
        self.variants.contains(&variant)
    }

    fn take(&mut self, footprint: &Footprint) {
        self.variants.push(footprint.variant);
        self.bytes = self.bytes.saturating_add(self.needs(footprint));
        let there = self.groups.entry(footprint.group).or_default();
        *there = footprint.shared_bytes.max(*there);
    }
}
