//! What the machinery makes of a placement's events.

use super::{
    Actions, Demand, DeviceSpec, ModelSpec, Nanos, Placement, Presence, Wanted,
    device::{Device, Footprint},
    machine::Machine,
    model::Model,
    replicas::Replica,
    rule::Rule,
};
use sextant_schedule::{IndexedHeap, NEVER};

impl<R: Rule> Placement for Machine<R> {
    fn on_device_up(&mut self, now: Nanos, device: u32, spec: DeviceSpec, actions: &mut Actions) {
        self.on_device_down(now, device, actions);
        let at = device as usize;
        if self.devices.len() <= at {
            self.devices.resize_with(at + 1, || None);
        }
        self.devices[at] = Some(Device::new(spec.kind, spec.pages));
        self.kinds.add(spec.kind, spec.pages);
        for of in self.models.iter_mut().flatten() {
            of.forgive(device);
        }
        self.devices_changed(now, true);
        self.attempt(now, device, actions);
    }

    fn on_device_kind(&mut self, now: Nanos, device: u32, kind: u32) {
        let Some(of) = self.device_mut(device) else {
            return;
        };
        let (before, pages) = (std::mem::replace(&mut of.kind, kind), of.pages);
        if before != kind {
            self.kinds.remove(before, pages);
            self.kinds.add(kind, pages);
            self.devices_changed(now, true);
        }
    }

    fn on_device_down(&mut self, now: Nanos, device: u32, actions: &mut Actions) {
        let Some(gone) = self.devices.get_mut(device as usize).and_then(Option::take) else {
            return;
        };
        self.kinds.remove(gone.kind, gone.pages);
        self.parked.remove(&device);
        self.busy.remove(device);
        self.again.remove(device);
        let residents = gone.residents();
        for model in &residents {
            self.remove(now, device, *model);
            self.finish_relocations(now, *model, actions);
        }
        self.devices_changed(now, false);
        for model in residents {
            self.consider(now, model, actions);
        }
    }

    fn on_model(&mut self, now: Nanos, model: u32, spec: ModelSpec, actions: &mut Actions) {
        let at = model as usize;
        if self.models.len() <= at {
            self.models.resize_with(at + 1, || None);
        }
        match &mut self.models[at] {
            Some(of) => (of.spec, of.retired) = (spec, false),
            none => *none = Some(Model::new(spec)),
        }
        self.compare_loads(model);
        self.rank(now, model);
        self.expect_expiry(model);
        self.revalue(now, model, actions);
        self.consider(now, model, actions);
    }

    fn on_retired(&mut self, now: Nanos, model: u32, actions: &mut Actions) {
        self.retire(now, model, actions);
    }

    fn on_wanted(
        &mut self,
        now: Nanos,
        wanted: &[(u32, Wanted)],
        idle_unload: Nanos,
        actions: &mut Actions,
    ) {
        self.set_idle_unload(now, idle_unload);
        self.keep_wanted(now, wanted, actions);
    }

    fn on_kinds(&mut self, now: Nanos, model: u32, kinds: &[(u32, Nanos)], actions: &mut Actions) {
        if let Some(of) = self.model_mut(model) {
            of.kinds.set(kinds);
            self.compare_loads(model);
            self.rank(now, model);
            self.consider(now, model, actions);
            self.offer_kept(now, actions);
        }
    }

    fn on_load_estimate(&mut self, _: Nanos, kind: u32, model: u32, load: Nanos) {
        if let Some(of) = self.model_mut(model) {
            of.kinds.learn(kind, load);
            self.compare_loads(model);
        }
    }

    fn on_request(&mut self, now: Nanos, model: u32, deadline: Nanos, actions: &mut Actions) {
        let Some(Some(of)) = self.models.get_mut(model as usize) else {
            return;
        };
        self.rule.requested(now, model, of);
        let spec = of.spec;
        let counted = self.counted(&spec);
        let Some(of) = self.model_mut(model) else {
            return;
        };
        let first = of.waiting == 0;
        let hoped = of.hopeful() > 0;
        of.waiting += 1;
        of.hope(now, deadline, counted);
        let in_front = of.deadlines().is_some_and(|(first, _)| first == deadline);
        if !hoped || in_front {
            self.expect_expiry(model);
        }
        if first && self.has_few(model) {
            self.value(now, model);
        }
        self.rank(now, model);
        self.consider(now, model, actions);
    }

    fn on_served(
        &mut self,
        now: Nanos,
        device: u32,
        model: u32,
        deadlines: &[Nanos],
        actions: &mut Actions,
    ) {
        let Some(of) = self.model_mut(model) else {
            return;
        };
        deadlines.iter().for_each(|deadline| of.leave(*deadline));
        if let Some(replica) = of.replicas.on_mut(device) {
            replica.running += 1;
            replica.used = now;
        }
        self.rank(now, model);
        self.revalue_on(now, model, device, actions);
    }

    fn on_finished(&mut self, now: Nanos, device: u32, model: u32, actions: &mut Actions) {
        let replica = self
            .model_mut(model)
            .and_then(|of| of.replicas.on_mut(device));
        let Some(replica) = replica else { return };
        replica.running = replica.running.saturating_sub(1);
        if replica.running == 0 {
            self.revalue_on(now, model, device, actions);
            self.clear_retired(now, model, actions);
            self.finish_relocations(now, model, actions);
        }
    }

    fn on_dropped(&mut self, now: Nanos, model: u32, deadline: Nanos, actions: &mut Actions) {
        if let Some(of) = self.model_mut(model) {
            of.leave(deadline);
            self.rank(now, model);
            if self.has_few(model) {
                self.revalue(now, model, actions);
            }
            self.clear_retired(now, model, actions);
        }
    }

    fn on_missed(&mut self, now: Nanos, model: u32, actions: &mut Actions) {
        let Some(Some(of)) = self.models.get_mut(model as usize) else {
            return;
        };
        self.rule.requested(now, model, of);
        self.bring(now, model, actions);
    }

    fn on_load_result(
        &mut self,
        now: Nanos,
        device: u32,
        model: u32,
        ok: bool,
        actions: &mut Actions,
    ) {
        match self.presence(device, model) {
            Presence::Loading if ok => {
                self.loaded(now, device, model, actions);
                self.clear_retired(now, model, actions);
                self.finish_relocations(now, model, actions);
                self.attempt(now, device, actions);
            }
            Presence::Loading => self.failed(now, device, model, actions),
            Presence::Absent if ok => {
                self.found(now, device, model, actions);
                self.clear_retired(now, model, actions);
            }
            Presence::Absent | Presence::Loaded | Presence::Leaving => {}
        }
    }

    fn on_unloaded(&mut self, now: Nanos, device: u32, model: u32, actions: &mut Actions) {
        match self.presence(device, model) {
            Presence::Absent => {}
            Presence::Loading => self.failed(now, device, model, actions),
            Presence::Loaded | Presence::Leaving => {
                self.remove(now, device, model);
                self.finish_relocations(now, model, actions);
                self.consider(now, model, actions);
                self.attempt_if_short(now, device, actions);
                if !self.to_keep.is_empty() && self.parked.contains(&device) {
                    self.attempt(now, device, actions);
                }
            }
        }
    }

    fn on_lost(&mut self, now: Nanos, device: u32, model: u32, actions: &mut Actions) {
        let look_ahead = self.look_ahead;
        if let Some(of) = self.model_mut(model) {
            let again_at = of.refuse_on(now, device, look_ahead);
            self.retries.set(model, again_at);
        }
        self.on_unloaded(now, device, model, actions);
    }

    fn on_relocate(
        &mut self,
        now: Nanos,
        model: u32,
        from: u32,
        to: &[u32],
        actions: &mut Actions,
    ) {
        self.relocate(now, (model, from), to, actions);
    }

    fn on_timer(&mut self, now: Nanos, actions: &mut Actions) {
        while let Some((at, model)) = self.expiries.first()
            && at <= now
        {
            self.rank(now, model);
            self.expect_expiry(model);
        }
        while let Some((at, model)) = self.retries.first()
            && at <= now
        {
            self.retries.remove(model);
            self.rank(now, model);
            self.consider(now, model, actions);
            self.offer_kept(now, actions);
        }
        while let Some((at, device)) = self.again.first()
            && at <= now
        {
            self.again.remove(device);
            self.attempt(now, device, actions);
        }
        while self.next_ready().is_some_and(|at| at <= now)
            && let Some((_, device)) = self.busy.first()
        {
            self.attempt(now, device, actions);
        }
        self.prefetch(now, actions);
        self.sweep(now, actions);
    }

    fn next_timer(&self) -> Option<Nanos> {
        let first = |heap: &IndexedHeap| heap.first().map_or(NEVER, |(at, _)| at);
        let next = first(&self.expiries)
            .min(first(&self.retries))
            .min(first(&self.again))
            .min(self.next_ready().unwrap_or(NEVER))
            .min(self.rule.next_foreseen().unwrap_or(NEVER))
            .min(self.sweep_at);
        (next < NEVER).then_some(next)
    }

    fn last_chance(&self, model: u32, ready_by: Nanos) -> Nanos {
        let Some(of) = self.model(model) else {
            return 0;
        };
        if ready_by == NEVER {
            return NEVER;
        }
        let loading = |device: u32| {
            let loads = &self.device(device)?.loads;
            let load = loads.iter().find(|load| load.model == model)?;
            Some(load.end())
        };
        let loadings = of
            .replicas
            .iter()
            .filter(|of| of.presence == Presence::Loading);
        let first = loadings.filter_map(|of| loading(of.device)).min();
        match first {
            Some(end) if end <= ready_by => ready_by,
            _ => ready_by.saturating_sub(of.least_load),
        }
    }

    fn presence(&self, device: u32, model: u32) -> Presence {
        let replica = self.model(model).and_then(|of| of.replicas.on(device));
        replica.map_or(Presence::Absent, |replica| replica.presence)
    }

    fn may_load(&self, now: Nanos, model: u32) -> bool {
        let Some(of) = self.model(model).filter(|of| !of.retired) else {
            return false;
        };
        if of.replicas.staying() > 0 {
            return true;
        }
        let pages = Footprint::of(&of.spec).whole();
        let mut able = self.kinds.with_pages(pages);
        let able = able.any(|kind| of.kinds.is_able(kind));
        let crowded_out = || self.pins && !self.has_room_beside_pinned(of);
        if of.rests(now) || !able || crowded_out() {
            return false;
        }
        let refusals = of.refusals(now).filter(|device| {
            let on = self.device(*device);
            on.is_some_and(|on| on.pages >= pages && of.kinds.is_able(on.kind))
        });
        let refusals = refusals.count();
        refusals == 0 || refusals < self.able(of, pages)
    }

    fn pins(&self) -> bool {
        self.pins
    }

    fn free_pages(&self, device: u32) -> u32 {
        self.device(device).map_or(0, Device::free)
    }

    fn demand(&self) -> &Demand {
        &self.demand
    }
}

impl<R: Rule> Machine<R> {
    /// Devices that could load a model of so many pages. Only asked for one whose LOADs have failed.
    fn able(&self, of: &Model, pages: u32) -> usize {
        let devices = self.devices.iter().flatten();
        let able = |on: &&Device| on.pages >= pages && of.kinds.is_able(on.kind);
        devices.filter(able).count()
    }

    /// As [`Self::revalue`], after an event of one replica.
    fn revalue_on(&mut self, now: Nanos, model: u32, device: u32, actions: &mut Actions) {
        if self.has_few(model) {
            return self.revalue(now, model, actions);
        }
        self.value_on(now, model, device);
        self.attempt_if_short(now, device, actions);
    }

    /// Makes again what a model's replicas are worth; a device that lacked room may have it now.
    fn revalue(&mut self, now: Nanos, model: u32, actions: &mut Actions) {
        self.value(now, model);
        let mut at = 0;
        while let Some(replica) = self.model(model).and_then(|of| of.replicas.at(at)) {
            self.attempt_if_short(now, replica.device, actions);
            at += 1;
        }
    }

    /// Asks a device again on which room was missing, though not with every batch that ends there.
    fn attempt_if_short(&mut self, now: Nanos, device: u32, actions: &mut Actions) {
        let Some(of) = self.device(device).filter(|of| of.short) else {
            return;
        };
        let at = of.attempted.saturating_add(self.pause());
        if !self.parked.contains(&device) {
            return;
        }
        if at <= now {
            self.attempt(now, device, actions);
        } else if self.again.key(device).is_none() {
            self.again.set(device, at);
        }
    }

    fn loaded(&mut self, now: Nanos, device: u32, model: u32, actions: &mut Actions) {
        if let Some(of) = self.model_mut(model) {
            of.replicas.set_presence(device, Presence::Loaded);
            of.forgive(device);
        }
        if let Some(of) = self.device_mut(device) {
            of.loaded(now, model);
        }
        self.revalue(now, model, actions);
    }

    fn failed(&mut self, now: Nanos, device: u32, model: u32, actions: &mut Actions) {
        let look_ahead = self.look_ahead;
        if let Some(of) = self.model_mut(model) {
            let again_at = of.refuse(now, device, look_ahead);
            self.retries.set(model, again_at);
        }
        self.remove(now, device, model);
        self.finish_relocations(now, model, actions);
        self.consider(now, model, actions);
        self.attempt(now, device, actions);
    }

    /// A model was on the device already.
    fn found(&mut self, now: Nanos, device: u32, model: u32, actions: &mut Actions) {
        let Some(footprint) = self.model(model).map(|of| Footprint::of(&of.spec)) else {
            return;
        };
        let Some(on) = self.device_mut(device) else {
            return;
        };
        on.admit(model, footprint);
        if let Some(of) = self.model_mut(model) {
            of.replicas.insert(Replica {
                device,
                presence: Presence::Loaded,
                running: 0,
                used: now,
            });
            of.forgive(device);
        }
        self.demand.place(model, device);
        self.count_kept(model);
        self.rank(now, model);
        self.revalue(now, model, actions);
    }

    fn compare_loads(&mut self, model: u32) {
        if let Some(Some(of)) = self.models.get_mut(model as usize) {
            of.compare_loads(self.kinds.up());
        }
    }

    /// Which devices are up has changed: so may have the fastest of each model.
    fn devices_changed(&mut self, now: Nanos, more: bool) {
        self.demand.set_devices(self.kinds.devices());
        for model in 0..self.models.len() as u32 {
            self.compare_loads(model);
            self.count_kept(model);
            if more {
                // What is everywhere else may be loaded here.
                self.rank(now, model);
            }
        }
    }
}
