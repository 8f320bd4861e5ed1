//! Models that are published, changed, wanted and retired.

use smallvec::SmallVec;

use super::{Actions, Controller, Model, ModelSpec, Nanos, OnKind};
use sextant_placement::Wanted;

impl<T> Controller<T> {
    /// A model may be asked for from now on, or what is known of it is new.
    pub fn on_model(&mut self, now: Nanos, model: u32, spec: ModelSpec, actions: &mut Actions<T>) {
        let at = model as usize;
        if self.models.len() <= at {
            self.models.resize_with(at + 1, || None);
        }
        let (placed, before) = (spec.placed(), self.models[at].take());
        let (known, before) = match before {
            Some(before) => (before.spec.kinds.clone(), Some(before)),
            None => (Vec::new(), None),
        };
        self.models[at] = Some(Model {
            pools: before
                .as_ref()
                .map_or(SmallVec::new(), |of| of.pools.clone()),
            queues: before
                .as_ref()
                .map_or(SmallVec::new(), |of| of.queues.clone()),
            waiting_rows: before.map_or(0, |of| of.waiting_rows),
            retired: false,
            spec,
        });
        self.renew_queues(now, model);
        self.placement.on_model(now, model, placed, &mut self.moves);
        self.tell_kinds(now, model, &known);
        self.reseat(now, model);
        self.expect_expiry(model);
        self.carry_out(now, actions);
    }

    /// The kinds of devices that can run a model are known again.
    pub fn on_kinds(
        &mut self,
        now: Nanos,
        model: u32,
        kinds: Vec<OnKind>,
        actions: &mut Actions<T>,
    ) {
        let Some(Some(of)) = self.models.get_mut(model as usize) else {
            return;
        };
        let known = std::mem::replace(&mut of.spec.kinds, kinds);
        self.tell_kinds(now, model, &known);
        self.reseat(now, model);
        self.expect_expiry(model);
        self.carry_out(now, actions);
        self.give_up_if_hopeless(now, model, actions);
    }

    /// A batch of a model occupies so many slots from now on; what runs keeps its own.
    pub fn on_slots(&mut self, now: Nanos, model: u32, slots: u16, actions: &mut Actions<T>) {
        let Some(Some(of)) = self.models.get_mut(model as usize) else {
            return;
        };
        if std::mem::replace(&mut of.spec.queue.slots, slots.max(1)) != slots.max(1) {
            self.reseat(now, model);
            self.carry_out(now, actions);
        }
    }

    /// A model is asked for no more: what waits for a LOAD of it is given up, what waits for a device
    /// that has it is served, and then it is unloaded everywhere.
    pub fn on_retired(&mut self, now: Nanos, model: u32, actions: &mut Actions<T>) {
        let Some(Some(of)) = self.models.get_mut(model as usize) else {
            return;
        };
        of.retired = true;
        self.give_up(now, model, actions);
        self.placement.on_retired(now, model, &mut self.moves);
        self.carry_out(now, actions);
    }

    /// What is to be kept loaded whether or not it is asked for, by model in order; nothing of what
    /// is not listed. What is not to be kept and was not used for `idle_unload` ns is unloaded;
    /// [`NEVER`](sextant_schedule::NEVER) to leave it until its pages are needed.
    pub fn on_wanted(
        &mut self,
        now: Nanos,
        wanted: &[(u32, Wanted)],
        idle_unload: Nanos,
        actions: &mut Actions<T>,
    ) {
        self.placement
            .on_wanted(now, wanted, idle_unload, &mut self.moves);
        self.carry_out(now, actions);
        self.give_up_crowded_out(now, actions);
    }

    /// Tells the placement and the estimates where a model can run; `known` is what they were told
    /// before.
    fn tell_kinds(&mut self, now: Nanos, model: u32, known: &[OnKind]) {
        let Some(of) = self.models.get(model as usize).and_then(Option::as_ref) else {
            return;
        };
        let kinds = of.spec.kinds.iter().map(|on| (on.kind, on.load));
        let kinds: Vec<_> = kinds.collect();
        self.forget_kinds(model, known);
        for queue in self.queues_of(model) {
            self.seed(now, queue);
        }
        self.placement.on_kinds(now, model, &kinds, &mut self.moves);
    }

    fn reseat(&mut self, now: Nanos, model: u32) {
        for pool in self.pools_of(model).to_vec() {
            for queue in self.queues_of(model) {
                self.seat_queue(now, pool, queue);
            }
        }
    }
}
