//! What should be loaded, in the order of preference if there is not room for all.

use std::collections::BTreeMap;

use sextant_metadata::{Count, DesiredVariant};
use sextant_placement as placement;
use sextant_types::{DeviceType, VariantId, index::VariantIx};

use crate::Snapshot;

/// The longest time ahead for which load is forecast, s.
const AHEAD_S: f64 = 180.0;

/// The time ahead for which load is forecast, s: until a device of any of these types would be up.
pub fn ahead_s<'a>(types: impl IntoIterator<Item = &'a DeviceType>) -> f64 {
    let starts = types.into_iter().map(|facts| facts.start_ms as f64 / 1e3);
    starts.fold(0.0, f64::max).min(AHEAD_S)
}

/// What the load requires, with the number of workers, and in addition what is kept warm.
pub fn desired(
    planned: &BTreeMap<VariantId, u32>,
    warm: Vec<DesiredVariant>,
) -> Vec<DesiredVariant> {
    let needed = planned.iter().map(|(variant, count)| DesiredVariant {
        variant: variant.clone(),
        workers: Count::Workers(*count),
        // If memory is short, the dispatcher knows from query to query which variants are worth
        // most.
        pinned: false,
        needed: *count,
    });
    let mut desired: Vec<DesiredVariant> = needed.collect();
    let needed = desired.len();
    for of in warm {
        // The needed variants are sorted as the plan is.
        let known = desired[..needed].binary_search_by(|known| known.variant.cmp(&of.variant));
        match known {
            // It is kept warm on every worker that can load it, and needed on some of them.
            Ok(at) => desired[at].workers = of.workers,
            Err(_) => desired.push(of),
        }
    }
    desired
}

/// The desired variants in the form that the controller takes, by variant. Needed variants come
/// first, and smaller ones before larger ones.
pub fn in_order(
    desired: &[DesiredVariant],
    snapshot: &Snapshot,
) -> Vec<(VariantIx, placement::DesiredPlacement)> {
    let known = desired.iter().filter_map(|of| {
        let known = snapshot.variant(&of.variant)?;
        let bytes = known.variant.profile.peak_memory_bytes;
        Some(((of.needed == 0, bytes), known.ordinal, of))
    });
    let mut in_order: Vec<_> = known.collect();
    in_order.sort_by_key(|(first, ordinal, _)| (*first, *ordinal));
    let list = (0..).zip(in_order).map(|(order, (_, ordinal, of))| {
        let desired = placement::DesiredPlacement {
            devices: match of.workers {
                Count::Everywhere => u32::MAX,
                Count::Workers(count) => count,
            },
            pinned: of.pinned,
            order,
        };
        (ordinal, desired)
    });
    let mut list: Vec<_> = list.collect();
    list.sort_by_key(|(ordinal, _)| *ordinal);
    list
}
