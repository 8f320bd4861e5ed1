//! Variants that are published, desired, loaded, unloaded and retired.

use std::{sync::Arc, time::Duration};

use sextant_controller::{LoadResult, OnKind, VariantSpec};
use sextant_placement::DesiredPlacement;
use sextant_schedule::Nanos;
use sextant_types::{
    Variant, VariantId,
    index::{DeviceIx, VariantIx},
};

use super::Driver;
use crate::loads::{LoadOrder, LoadOutcome};

impl Driver {
    /// A variant is published, or published again.
    pub(crate) fn on_variant(
        &self,
        number: VariantIx,
        variant: &Arc<Variant>,
        mut spec: VariantSpec,
    ) {
        self.loads.know(number, variant);
        self.step(|controller, now, actions| {
            // The number of slots that was chosen remains.
            if let Some(slots) = self.gauges.slots(number) {
                spec.queue.slots = slots;
            }
            controller.on_variant(now, number, spec, actions);
        });
    }

    /// Workers have come or gone. `kinds` are now the kinds of worker that can run the variant.
    pub(crate) fn on_kinds(&self, variant: VariantIx, kinds: Vec<OnKind>) {
        self.step(|controller, now, actions| controller.on_kinds(now, variant, kinds, actions));
    }

    /// A batch of a variant occupies this many slots from now on.
    pub(crate) fn set_slots(&self, variant: VariantIx, slots: u16) {
        self.step(|controller, now, actions| {
            self.gauges.set_slots(variant, slots);
            controller.on_slots(now, variant, slots, actions);
        });
    }

    /// Queries for the variant are no longer accepted.
    pub(crate) fn on_retired(&self, variant: VariantIx) {
        let mut forgotten = Vec::new();
        self.step(|controller, now, actions| {
            forgotten = controller.on_retired(now, variant, actions);
        });
        self.loads.retire(variant);
        self.loads.forget(&forgotten);
    }

    /// Whether a variant was published to this dispatcher. It may be retired by now; the controller then has it
    /// unloaded. A variant that was retired long ago is not known any more.
    pub(crate) fn knows(&self, variant: VariantIx) -> bool {
        self.loads.meant(variant).is_some()
    }

    /// Sets what the autoscaler wants loaded, by variant in order, and the time without a query after which other
    /// variants may be unloaded, ns.
    pub(crate) fn on_desired(&self, desired: &[(VariantIx, DesiredPlacement)], idle_unload: Nanos) {
        self.step(|controller, now, actions| {
            controller.on_desired(now, desired, idle_unload, actions);
        });
    }

    /// A query was refused that this variant would have answered if it had been loaded.
    pub(crate) fn on_missed(&self, variant: VariantIx) {
        self.step(|controller, now, actions| controller.on_missed(now, variant, actions));
    }

    /// The worker at position `at` serves `variant`, no matter who had it loaded.
    pub(crate) fn on_found(&self, at: DeviceIx, variant: VariantIx) {
        self.on_load_result(at, variant, LoadResult::Found);
    }

    /// The worker at position `at` no longer serves `variant`.
    pub(crate) fn on_unloaded(&self, at: DeviceIx, variant: VariantIx) {
        self.step(|controller, now, actions| {
            controller.on_unloaded(now, at, variant, actions);
        });
    }

    /// Has the workers that serve these variants run them where their applications say.
    pub(crate) fn renew(&self, loaded: impl IntoIterator<Item = (DeviceIx, VariantIx)>) {
        self.loads.renew(loaded);
    }

    /// The worker at position `at` has a variant loaded that is no longer published and that this dispatcher never
    /// knew.
    pub(crate) fn unload_stray(&self, at: DeviceIx, variant: VariantIx, id: VariantId) {
        self.loads.send(at, LoadOrder::Unload { variant, id });
    }

    /// The outcome of a LOAD or UNLOAD at the worker at position `at`.
    pub(super) fn on_load_outcome(&self, at: DeviceIx, moved: LoadOutcome) {
        match moved {
            LoadOutcome::Loaded { variant, took } => {
                self.on_load_result(at, variant, LoadResult::After(nanos(took)));
            }
            LoadOutcome::LoadFailed { variant } => {
                self.on_load_result(at, variant, LoadResult::Failed);
            }
            LoadOutcome::LoadLate { variant } => {
                self.on_load_result(at, variant, LoadResult::TooLate);
            }
            LoadOutcome::Unloaded {
                variant,
                took: Some(took),
            } => self.step(|controller, now, actions| {
                controller.on_unload_result(now, at, variant, nanos(took), actions);
            }),
            LoadOutcome::Unloaded {
                variant,
                took: None,
            } => self.on_unloaded(at, variant),
        }
    }

    fn on_load_result(&self, at: DeviceIx, variant: VariantIx, loaded: LoadResult) {
        self.step(|controller, now, actions| {
            controller.on_load_result(now, at, variant, loaded, actions);
        });
    }

    /// Why the last LOAD of a variant failed, if it did.
    pub(crate) fn load_failure(&self, variant: VariantIx) -> Option<String> {
        self.loads.failure(variant)
    }
}

fn nanos(took: Duration) -> Nanos {
    took.as_nanos().try_into().unwrap_or(Nanos::MAX)
}
