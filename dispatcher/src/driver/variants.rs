//! Variants that are published, wanted, loaded, unloaded and retired.

use std::sync::Arc;

use sextant_controller::{Loaded, ModelSpec, OnKind};
use sextant_placement::Wanted;
use sextant_schedule::Nanos;
use sextant_types::{Variant, VariantId};

use super::Driver;
use crate::loads::{LoadOrder, LoadOutcome};

impl Driver {
    /// A variant is published, or published again.
    pub(crate) fn on_variant(&self, model: u32, variant: &Arc<Variant>, spec: ModelSpec) {
        self.loads.know(model, variant);
        self.step(|controller, now, actions| controller.on_model(now, model, spec, actions));
    }

    /// Workers have come or gone: these are the kinds that can run a variant.
    pub(crate) fn on_kinds(&self, model: u32, kinds: Vec<OnKind>) {
        self.step(|controller, now, actions| controller.on_kinds(now, model, kinds, actions));
    }

    /// A batch of a variant occupies so many slots from now on.
    pub(crate) fn set_slots(&self, model: u32, slots: u16) {
        self.step(|controller, now, actions| {
            self.gauges.set_slots(model, slots);
            controller.on_slots(now, model, slots, actions);
        });
    }

    /// A variant may not be asked for any more.
    pub(crate) fn on_retired(&self, model: u32) {
        self.step(|controller, now, actions| controller.on_retired(now, model, actions));
    }

    /// What the autoscaler wants loaded, by variant in order, and after how long without a query
    /// other variants may be unloaded, ns.
    pub(crate) fn on_wanted(&self, wanted: &[(u32, Wanted)], idle_unload: Nanos) {
        self.step(|controller, now, actions| {
            controller.on_wanted(now, wanted, idle_unload, actions);
        });
    }

    /// A query was turned away that this variant would have answered if it had been loaded.
    pub(crate) fn on_missed(&self, model: u32) {
        self.step(|controller, now, actions| controller.on_missed(now, model, actions));
    }

    /// The worker at position `at` serves `model`, whoever had it loaded.
    pub(crate) fn on_found(&self, at: usize, model: u32) {
        self.on_load_result(at, model, Loaded::Found);
    }

    /// The worker at position `at` serves `model` no longer.
    pub(crate) fn on_unloaded(&self, at: usize, model: u32) {
        self.step(|controller, now, actions| {
            controller.on_unloaded(now, at as u32, model, actions);
        });
    }

    /// The worker at position `at` has something loaded that is published no more and that this
    /// dispatcher never knew.
    pub(crate) fn unload_stray(&self, at: usize, model: u32, variant: VariantId) {
        self.loads.send(at, LoadOrder::Unload { model, variant });
    }

    /// What came of a LOAD or UNLOAD at the worker at position `at`.
    pub(super) fn on_load_outcome(&self, at: usize, moved: LoadOutcome) {
        match moved {
            LoadOutcome::Loaded { model, took } => {
                let nanos = took.as_nanos().try_into().unwrap_or(Nanos::MAX);
                self.on_load_result(at, model, Loaded::After(nanos));
            }
            LoadOutcome::LoadFailed { model } => self.on_load_result(at, model, Loaded::Failed),
            LoadOutcome::Unloaded { model } => self.on_unloaded(at, model),
        }
    }

    fn on_load_result(&self, at: usize, model: u32, loaded: Loaded) {
        self.step(|controller, now, actions| {
            controller.on_load_result(now, at as u32, model, loaded, actions);
        });
    }

    /// Why the last LOAD of a variant failed, if it did.
    pub(crate) fn load_failure(&self, model: u32) -> Option<String> {
        self.loads.failure(model)
    }
}
