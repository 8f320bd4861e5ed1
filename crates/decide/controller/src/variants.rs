//! Variants that are published, changed, desired and retired.

use smallvec::SmallVec;

use super::{Actions, Controller, Nanos, OnKind, Variant, VariantSpec};
use sextant_placement::DesiredPlacement;
use sextant_types::index::VariantIx;

impl<T> Controller<T> {
    /// Queries for a variant are accepted from now on, or the facts about it have changed.
    pub fn on_variant(
        &mut self,
        now: Nanos,
        variant: VariantIx,
        spec: VariantSpec,
        actions: &mut Actions<T>,
    ) {
        let (placed, before) = (spec.placed(), self.variants.grown(variant).take());
        let (known, before) = match before {
            Some(before) => (before.spec.kinds.clone(), Some(before)),
            None => (Vec::new(), None),
        };
        self.retired.retain(|retired| *retired != variant);
        self.variants[variant] = Some(Box::new(Variant {
            pools: before
                .as_ref()
                .map_or(SmallVec::new(), |of| of.pools.clone()),
            queues: before
                .as_ref()
                .map_or(SmallVec::new(), |of| of.queues.clone()),
            waiting_rows: before.map_or(0, |of| of.waiting_rows),
            retired: false,
            spec,
        }));
        self.renew_queues(now, variant);
        self.placement
            .on_variant(now, variant, placed, &mut self.moves);
        self.tell_kinds(now, variant, &known);
        self.reseat(now, variant);
        self.expect_expiry(variant);
        self.carry_out(now, actions);
    }

    /// Sets the kinds of devices that can run a variant.
    pub fn on_kinds(
        &mut self,
        now: Nanos,
        variant: VariantIx,
        kinds: Vec<OnKind>,
        actions: &mut Actions<T>,
    ) {
        let Some(of) = self.variants.known_mut(variant) else {
            return;
        };
        let known = std::mem::replace(&mut of.spec.kinds, kinds);
        self.tell_kinds(now, variant, &known);
        self.reseat(now, variant);
        self.expect_expiry(variant);
        self.carry_out(now, actions);
        self.give_up_if_hopeless(now, variant, actions);
    }

    /// A batch of a variant occupies this many slots from now on. Running batches keep their slots.
    pub fn on_slots(
        &mut self,
        now: Nanos,
        variant: VariantIx,
        slots: u16,
        actions: &mut Actions<T>,
    ) {
        let Some(of) = self.variants.known_mut(variant) else {
            return;
        };
        if std::mem::replace(&mut of.spec.queue.slots, slots.max(1)) != slots.max(1) {
            self.reseat(now, variant);
            self.carry_out(now, actions);
        }
    }

    /// Queries for a variant are no longer accepted. Requests that wait for a LOAD of it are given up. Requests that
    /// wait for a device that has it are served, then it is unloaded everywhere. What is known of it is kept for a
    /// while, because it may be published again. Returns the variants that were retired before and are forgotten now.
    pub fn on_retired(
        &mut self,
        now: Nanos,
        variant: VariantIx,
        actions: &mut Actions<T>,
    ) -> Vec<VariantIx> {
        let Some(of) = self.variants.known_mut(variant) else {
            return Vec::new();
        };
        of.retired = true;
        self.give_up(now, variant, actions);
        self.placement.on_retired(now, variant, &mut self.moves);
        self.carry_out(now, actions);
        self.retired.retain(|retired| *retired != variant);
        self.retired.push_back(variant);
        self.forget_first_retired(now)
    }

    /// Sets what is kept loaded whether or not there are queries for it, by variant in order. A variant that is not
    /// listed is not kept. A variant that is not kept and was not used for `idle_unload` ns is unloaded;
    /// [`NEVER`](sextant_schedule::NEVER) leaves it loaded until its pages are needed.
    pub fn on_desired(
        &mut self,
        now: Nanos,
        desired: &[(VariantIx, DesiredPlacement)],
        idle_unload: Nanos,
        actions: &mut Actions<T>,
    ) {
        self.placement
            .on_desired(now, desired, idle_unload, &mut self.moves);
        self.carry_out(now, actions);
        self.give_up_crowded_out(now, actions);
    }

    /// Tells the placement and the estimator where a variant can run. `known` is what they were told before.
    fn tell_kinds(&mut self, now: Nanos, variant: VariantIx, known: &[OnKind]) {
        let Some(of) = self.variants.known(variant) else {
            return;
        };
        let kinds = of.spec.kinds.iter().map(|on| (on.kind, on.load));
        let kinds: Vec<_> = kinds.collect();
        self.forget_kinds(variant, known);
        for queue in self.queues_of(variant) {
            self.seed(now, queue);
        }
        self.placement
            .on_kinds(now, variant, &kinds, &mut self.moves);
    }

    fn reseat(&mut self, now: Nanos, variant: VariantIx) {
        for pool in self.pools_of(variant).to_vec() {
            for queue in self.queues_of(variant) {
                self.seat_queue(now, pool, queue);
            }
        }
    }
}
