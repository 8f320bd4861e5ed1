//! What has to move from workers that are to leave.

use std::collections::BTreeSet;

use sextant_metadata::View;
use sextant_types::{VariantId, WorkerId};

use super::present::Present;

/// Wanted variants that serve on a worker that is to be emptied and on none that stays: which, from which
/// position, and to which of those that stay, the least busy first.
pub(super) fn moves<'a>(
    view: &'a View,
    present: &[Present],
) -> Vec<(&'a VariantId, u32, Vec<u32>)> {
    let Some(wanted) = &view.wanted else {
        return Vec::new();
    };
    let leaves = |worker: &WorkerId| wanted.emptying.binary_search(worker).is_ok();
    let mut stay: Vec<&Present> = present
        .iter()
        .filter(|one| one.is_usable(view) && !leaves(&one.id))
        .collect();
    stay.sort_by(|a, b| {
        let by_load = a.info.utilization.total_cmp(&b.info.utilization);
        by_load.then(a.at.cmp(&b.at))
    });
    let to: Vec<u32> = stay.iter().map(|one| one.at as u32).collect();
    let staying: BTreeSet<&WorkerId> = stay.iter().map(|one| &one.id).collect();
    let all = view.instances.values();
    let serving = all.filter(|instance| instance.state.is_serving());
    let safe: BTreeSet<&VariantId> = serving
        .clone()
        .filter(|instance| staying.contains(&instance.key.worker))
        .map(|instance| &instance.key.variant)
        .collect();
    let alone = serving.filter(|instance| {
        let key = &instance.key;
        leaves(&key.worker) && !safe.contains(&key.variant) && wanted.of(&key.variant).is_some()
    });
    let moves = alone.filter_map(|instance| {
        let from = present.iter().find(|one| one.id == instance.key.worker)?;
        Some((&instance.key.variant, from.at as u32, to.clone()))
    });
    moves.collect()
}
