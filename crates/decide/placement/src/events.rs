//! How the machinery handles the events of a placement.

use super::{
    Actions, Demand, DesiredPlacement, DeviceSpec, Nanos, Placement, Presence, VariantSpec,
    device::{Device, Footprint},
    machine::Machine,
    replicas::Replica,
    rule::Rule,
    variant::Variant,
};
use sextant_schedule::NEVER;
use sextant_types::index::{DeviceIx, KindIx, VariantIx};

impl<R: Rule> Placement for Machine<R> {
    fn on_device_up(
        &mut self,
        now: Nanos,
        device: DeviceIx,
        spec: DeviceSpec,
        actions: &mut Actions,
    ) {
        self.on_device_down(now, device, actions);
        *self.devices.grown(device) = Some(Device::new(spec.kind, spec.pages));
        self.kinds.add(spec.kind, spec.pages);
        for of in self.variants.iter_mut().flatten() {
            of.renew(device);
        }
        self.devices_changed(now, true);
        self.attempt(now, device, actions);
    }

    fn on_device_kind(&mut self, now: Nanos, device: DeviceIx, kind: KindIx) {
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

    fn on_device_down(&mut self, now: Nanos, device: DeviceIx, actions: &mut Actions) {
        let Some(gone) = self.devices.get_mut(device).and_then(Option::take) else {
            return;
        };
        self.kinds.remove(gone.kind, gone.pages);
        for of in self.variants.iter_mut().flatten() {
            of.set_known(device, false);
        }
        self.parked.remove(&device);
        self.busy.remove(device);
        self.again.remove(device);
        let residents = gone.residents();
        for variant in &residents {
            self.remove(now, device, *variant);
            self.finish_relocations(now, *variant, actions);
        }
        self.devices_changed(now, false);
        for variant in residents {
            self.consider(now, variant, actions);
        }
    }

    fn on_variant(
        &mut self,
        now: Nanos,
        variant: VariantIx,
        spec: VariantSpec,
        actions: &mut Actions,
    ) {
        match self.variants.grown(variant) {
            Some(of) => (of.spec, of.retired) = (spec, false),
            none => *none = Some(Box::new(Variant::new(spec))),
        }
        self.compare_loads(variant);
        self.rank(now, variant);
        self.expect_expiry(variant);
        self.revalue(now, variant, actions);
        self.consider(now, variant, actions);
    }

    fn on_retired(&mut self, now: Nanos, variant: VariantIx, actions: &mut Actions) {
        self.retire(now, variant, actions);
    }

    fn forget(&mut self, variant: VariantIx) -> bool {
        self.forget_retired(variant)
    }

    fn on_desired(
        &mut self,
        now: Nanos,
        desired: &[(VariantIx, DesiredPlacement)],
        idle_unload: Nanos,
        actions: &mut Actions,
    ) {
        self.set_idle_unload(now, idle_unload);
        self.keep_desired(now, desired, actions);
    }

    fn on_kinds(
        &mut self,
        now: Nanos,
        variant: VariantIx,
        kinds: &[(KindIx, Nanos)],
        actions: &mut Actions,
    ) {
        if let Some(of) = self.variant_mut(variant) {
            of.kinds.set(kinds);
            self.compare_loads(variant);
            self.rank(now, variant);
            self.consider(now, variant, actions);
            self.offer_kept(now, actions);
        }
    }

    fn on_load_estimate(&mut self, _: Nanos, kind: KindIx, variant: VariantIx, load: Nanos) {
        if let Some(of) = self.variant_mut(variant) {
            of.kinds.learn(kind, load);
            self.compare_loads(variant);
        }
    }

    fn on_unload_estimate(&mut self, _: Nanos, kind: KindIx, unload: Nanos) {
        self.kinds.learn_unload(kind, unload);
    }

    fn on_request(
        &mut self,
        now: Nanos,
        variant: VariantIx,
        deadline: Nanos,
        actions: &mut Actions,
    ) {
        let Some(of) = self.variants.known_mut(variant) else {
            return;
        };
        self.rule.requested(now, variant, of);
        let spec = of.spec;
        let counted = self.counted(&spec);
        let Some(of) = self.variant_mut(variant) else {
            return;
        };
        let first = of.waiting == 0;
        let hoped = of.hopeful() > 0;
        of.waiting += 1;
        of.hope(now, deadline, counted);
        let in_front = of.deadlines().is_some_and(|(first, _)| first == deadline);
        if !hoped || in_front {
            self.expect_expiry(variant);
        }
        if first && self.has_few(variant) {
            self.value(now, variant);
        }
        self.rank(now, variant);
        self.consider(now, variant, actions);
    }

    fn on_served(
        &mut self,
        now: Nanos,
        device: DeviceIx,
        variant: VariantIx,
        deadlines: &[Nanos],
        actions: &mut Actions,
    ) {
        let Some(of) = self.variant_mut(variant) else {
            return;
        };
        deadlines.iter().for_each(|deadline| of.leave(*deadline));
        if let Some(replica) = of.replicas.on_mut(device) {
            replica.running += 1;
            replica.used = now;
        }
        self.rank(now, variant);
        self.revalue_on(now, variant, device, actions);
    }

    fn on_finished(
        &mut self,
        now: Nanos,
        device: DeviceIx,
        variant: VariantIx,
        actions: &mut Actions,
    ) {
        let replica = self
            .variant_mut(variant)
            .and_then(|of| of.replicas.on_mut(device));
        let Some(replica) = replica else { return };
        replica.running = replica.running.saturating_sub(1);
        if replica.running == 0 {
            self.revalue_on(now, variant, device, actions);
            self.clear_retired(now, variant, actions);
            self.finish_relocations(now, variant, actions);
        }
    }

    fn on_dropped(
        &mut self,
        now: Nanos,
        variant: VariantIx,
        deadline: Nanos,
        actions: &mut Actions,
    ) {
        if let Some(of) = self.variant_mut(variant) {
            of.leave(deadline);
            self.rank(now, variant);
            if self.has_few(variant) {
                self.revalue(now, variant, actions);
            }
            self.clear_retired(now, variant, actions);
        }
    }

    fn on_missed(&mut self, now: Nanos, variant: VariantIx, actions: &mut Actions) {
        let Some(of) = self.variants.known_mut(variant) else {
            return;
        };
        self.rule.requested(now, variant, of);
        self.bring(now, variant, actions);
    }

    fn on_load_result(
        &mut self,
        now: Nanos,
        device: DeviceIx,
        variant: VariantIx,
        ok: bool,
        actions: &mut Actions,
    ) {
        match self.presence(device, variant) {
            Presence::Loading if ok => {
                self.loaded(now, device, variant, actions);
                self.clear_retired(now, variant, actions);
                self.finish_relocations(now, variant, actions);
                self.attempt(now, device, actions);
            }
            Presence::Loading => self.failed(now, device, variant, actions),
            Presence::Absent if ok => {
                self.found(now, device, variant, actions);
                self.clear_retired(now, variant, actions);
            }
            Presence::Absent | Presence::Loaded | Presence::Leaving => {}
        }
    }

    fn on_load_late(
        &mut self,
        now: Nanos,
        device: DeviceIx,
        variant: VariantIx,
        actions: &mut Actions,
    ) {
        if self.presence(device, variant) == Presence::Loading {
            self.not_loaded(now, device, variant, actions);
        }
    }

    fn on_unloaded(
        &mut self,
        now: Nanos,
        device: DeviceIx,
        variant: VariantIx,
        actions: &mut Actions,
    ) {
        match self.presence(device, variant) {
            Presence::Absent => {}
            Presence::Loading => self.failed(now, device, variant, actions),
            Presence::Loaded | Presence::Leaving => {
                // Requests may have been refused a LOAD here because it would have come after the UNLOAD.
                let waited = self.device(device).is_some_and(|on| on.unload_time() > 0);
                self.remove(now, device, variant);
                self.finish_relocations(now, variant, actions);
                self.consider(now, variant, actions);
                self.attempt_if_short(now, device, actions);
                if (waited || !self.to_keep.is_empty()) && self.parked.contains(&device) {
                    self.attempt(now, device, actions);
                }
            }
        }
    }

    fn on_lost(&mut self, now: Nanos, device: DeviceIx, variant: VariantIx, actions: &mut Actions) {
        let look_ahead = self.look_ahead;
        if let Some(of) = self.variant_mut(variant) {
            of.refuse_on(now, device, look_ahead);
        }
        self.expect_retry(now, variant);
        self.on_unloaded(now, device, variant, actions);
    }

    fn on_relocate(
        &mut self,
        now: Nanos,
        variant: VariantIx,
        from: DeviceIx,
        to: &[DeviceIx],
        actions: &mut Actions,
    ) -> bool {
        self.relocate(now, (variant, from), to, actions)
    }

    fn on_withdraw(
        &mut self,
        now: Nanos,
        variant: VariantIx,
        from: DeviceIx,
        stay: &[DeviceIx],
        actions: &mut Actions,
    ) -> bool {
        self.withdraw(now, (variant, from), stay, actions)
    }

    fn on_timer(&mut self, now: Nanos, actions: &mut Actions) {
        while let Some((at, variant)) = self.expiries.first()
            && at <= now
        {
            self.rank(now, variant);
            self.expect_expiry(variant);
        }
        while let Some((at, variant)) = self.retries.first()
            && at <= now
        {
            self.expect_retry(now, variant);
            self.rank(now, variant);
            self.consider(now, variant, actions);
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
        let ready = match self.desired.is_empty() {
            true => NEVER,
            false => self.busy.least(),
        };
        let moves = self.retries.least().min(self.again.least()).min(ready);
        let foreseen = self.rule.next_foreseen().unwrap_or(NEVER);
        let next = moves
            .min(foreseen)
            .min(self.expiries.least())
            .min(self.sweep_at);
        (next < NEVER).then_some(next)
    }

    fn last_chance(&self, variant: VariantIx, ready_by: Nanos) -> Nanos {
        let Some(of) = self.variant(variant) else {
            return 0;
        };
        if ready_by == NEVER {
            return NEVER;
        }
        let loading = |device: DeviceIx| {
            let loads = &self.device(device)?.loads;
            let load = loads.iter().find(|load| load.variant == variant)?;
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

    fn presence(&self, device: DeviceIx, variant: VariantIx) -> Presence {
        let replica = self.variant(variant).and_then(|of| of.replicas.on(device));
        replica.map_or(Presence::Absent, |replica| replica.presence)
    }

    fn may_load(&self, now: Nanos, variant: VariantIx) -> bool {
        let Some(of) = self.variant(variant).filter(|of| !of.retired) else {
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

    fn is_first_load(&self, device: DeviceIx, variant: VariantIx) -> bool {
        self.variant(variant)
            .is_some_and(|of| of.is_first_on(device))
    }

    fn pins(&self) -> bool {
        self.pins
    }

    fn free_pages(&self, device: DeviceIx) -> u32 {
        self.device(device).map_or(0, Device::free)
    }

    fn demand(&self) -> &Demand {
        &self.demand
    }

    fn entries(&self) -> usize {
        self.variants.iter().flatten().count() + self.rule.entries()
    }
}

impl<R: Rule> Machine<R> {
    /// The number of devices that could load a variant of this many pages. It is computed only for a variant whose
    /// LOADs have failed.
    fn able(&self, of: &Variant, pages: u32) -> usize {
        let devices = self.devices.iter().flatten();
        let able = |on: &&Device| on.pages >= pages && of.kinds.is_able(on.kind);
        devices.filter(able).count()
    }

    fn loaded(&mut self, now: Nanos, device: DeviceIx, variant: VariantIx, actions: &mut Actions) {
        if let Some(of) = self.variant_mut(variant) {
            of.replicas.set_presence(device, Presence::Loaded);
            of.forgive(device);
            of.set_known(device, true);
        }
        if let Some(of) = self.device_mut(device) {
            of.loaded(now, variant);
        }
        self.expect_retry(now, variant);
        self.compare_loads(variant);
        self.revalue(now, variant, actions);
    }

    fn failed(&mut self, now: Nanos, device: DeviceIx, variant: VariantIx, actions: &mut Actions) {
        let look_ahead = self.look_ahead;
        if let Some(of) = self.variant_mut(variant) {
            of.refuse(now, device, look_ahead);
        }
        self.expect_retry(now, variant);
        self.not_loaded(now, device, variant, actions);
    }

    /// A LOAD gave no result.
    fn not_loaded(
        &mut self,
        now: Nanos,
        device: DeviceIx,
        variant: VariantIx,
        actions: &mut Actions,
    ) {
        self.remove(now, device, variant);
        self.finish_relocations(now, variant, actions);
        self.consider(now, variant, actions);
        self.attempt(now, device, actions);
    }

    /// A variant was already on the device.
    fn found(&mut self, now: Nanos, device: DeviceIx, variant: VariantIx, actions: &mut Actions) {
        let Some(footprint) = self.variant(variant).map(|of| Footprint::of(&of.spec)) else {
            return;
        };
        let Some(on) = self.device_mut(device) else {
            return;
        };
        on.admit(variant, footprint);
        if let Some(of) = self.variant_mut(variant) {
            of.replicas.insert(Replica {
                device,
                presence: Presence::Loaded,
                running: 0,
                used: now,
            });
            of.forgive(device);
            of.set_known(device, true);
        }
        self.expect_retry(now, variant);
        self.compare_loads(variant);
        self.demand.place(variant, device);
        self.count_kept(variant);
        self.rank(now, variant);
        self.revalue(now, variant, actions);
    }

    fn compare_loads(&mut self, variant: VariantIx) {
        if let Some(of) = self.variants.known_mut(variant) {
            of.compare_loads(self.kinds.up());
        }
    }

    /// The set of devices that are up has changed, so the fastest device of each variant may have changed.
    fn devices_changed(&mut self, now: Nanos, more: bool) {
        self.demand.set_devices(self.kinds.devices());
        for variant in self.variants.numbers() {
            self.compare_loads(variant);
            self.count_kept(variant);
            if more {
                // A variant that is on all other devices may be loaded here.
                self.rank(now, variant);
            }
        }
    }
}
