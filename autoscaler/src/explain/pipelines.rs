//! The part of a reason that is about the plans of pipelines.

use std::sync::Arc;

use sextant_picture::{Picture, Staff};
use sextant_scaling::ScalingDecision;
use sextant_types::VariantId;

use super::figures::rate;

/// Which steps run on workers of a type, to append to a reason; empty if none does.
pub(super) fn of_pool(picture: &Picture, decided: &ScalingDecision, at: usize) -> String {
    if decided.reserved.get(at).is_none_or(|devices| *devices == 0) {
        return String::new();
    }
    let on = picture
        .staff
        .iter()
        .filter(|it| it.device.get() as usize == at);
    let told: Vec<String> = on.map(|staff| format!("; {}", of_step(staff))).collect();
    told.concat()
}

/// Why a variant runs steps; `None` if it runs none.
pub(super) fn of_variant(picture: &Picture, name: &VariantId) -> Option<Arc<str>> {
    let own = picture.staff.iter().filter(|it| it.variant == *name);
    let told: Vec<String> = own.map(of_step).collect();
    (!told.is_empty()).then(|| told.join("; ").into())
}

fn of_step(staff: &Staff) -> String {
    format!(
        "the cheapest plan for pipeline `{}` within {} ms runs its step `{}` ({} rows a second) by `{}`, {} batches of up to \
         {} rows side by side",
        staff.pipeline,
        staff.target_ms,
        staff.step,
        rate(staff.rps),
        staff.variant,
        staff.replicas,
        staff.batch
    )
}
