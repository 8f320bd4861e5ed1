//! What the driver's lock protects: the scheduler with its placement, their time, and the estimates
//! they work with.

mod devices;

use std::collections::{BTreeMap, BTreeSet};

use sextant_policies::{
    placement::{self, Resident, ResidentAction, ResidentActions, ResidentDevice, ResidentModel},
    profile::{Estimates, Estimation, Run},
    schedule::{BatchId, DropReason, LatencyTable, NEVER, Nanos, Options, QueueSpec, Request},
};

use crate::pending::Pending;

/// Estimates that no result has confirmed for this long go back to the profile, ns.
const PATIENCE: Nanos = 5_000_000_000;

/// What has to be carried out.
pub(crate) type Actions = ResidentActions<Pending>;

/// What is known of a variant.
struct Model {
    pages: u32,
    /// Its queue by its profile.
    queue: QueueSpec,
    /// Devices that have its engine.
    eligible: Vec<u32>,
}

/// See the module. A device is a worker by its position, a model a variant by its ordinal.
pub(crate) struct Core {
    pub(crate) resident: Resident<Pending>,
    /// When the next timer is due.
    pub(crate) next: Nanos,
    /// The scheduler's time.
    pub(crate) last: Nanos,
    /// Positions that devices have been at.
    devices: u32,
    estimates: Estimates,
    /// Devices that are up.
    up: BTreeMap<u32, ResidentDevice>,
    models: BTreeMap<u32, Model>,
    /// Models that may not be asked for any more.
    retired: BTreeSet<u32>,
    /// By model: devices on which its last LOAD failed.
    failed: BTreeMap<u32, BTreeSet<u32>>,
}

impl Core {
    pub(crate) fn new(
        scheduling: &Options,
        placing: &placement::Options,
        estimation: Estimation,
    ) -> Self {
        Self {
            resident: Resident::of(scheduling, placing),
            next: NEVER,
            last: 0,
            devices: 0,
            estimates: Estimates::new(estimation),
            up: BTreeMap::new(),
            models: BTreeMap::new(),
            retired: BTreeSet::new(),
            failed: BTreeMap::new(),
        }
    }

    /// Plays the timers that are due by `now`.
    pub(crate) fn catch_up(&mut self, now: Nanos, precision: Nanos, actions: &mut Actions) {
        while self.next <= now {
            let due = self.next;
            let at = if now - due > precision { now } else { due };
            let at = at.max(self.last);
            self.resident.on_timer(at, actions);
            self.next = self.resident.next_timer().unwrap_or(NEVER);
            if self.next <= at {
                return;
            }
        }
    }

    /// A variant is published, or published anew; `eligible` are the devices that have its engine.
    pub(crate) fn know(
        &mut self,
        now: Nanos,
        model: u32,
        spec: ResidentModel,
        eligible: Vec<u32>,
        actions: &mut Actions,
    ) {
        let loaded = self.resident.loaded_on(model).to_vec();
        let shared = spec.shared.map_or(0, |shared| shared.pages);
        let (pages, queue) = (spec.pages.saturating_add(shared), spec.queue.clone());
        self.resident.on_model(now, model, spec, actions);
        let known = Model {
            pages,
            queue,
            eligible: Vec::new(),
        };
        self.models.insert(model, known);
        self.retired.remove(&model);
        self.failed.remove(&model);
        self.set_eligible(now, model, eligible);
        for device in loaded {
            self.tell(now, (device, model), actions);
        }
    }

    /// A batch of a variant occupies so many slots from now on; what runs keeps its own.
    pub(crate) fn set_slots(&mut self, now: Nanos, model: u32, slots: u16, actions: &mut Actions) {
        if let Some(known) = self.models.get_mut(&model) {
            known.queue.slots = slots.max(1);
        }
        for device in self.resident.loaded_on(model).to_vec() {
            self.tell(now, (device, model), actions);
        }
    }

    /// A variant may not be asked for any more: it is loaded nowhere again, and what waits for it is
    /// given up.
    pub(crate) fn retire(&mut self, now: Nanos, model: u32, actions: &mut Actions) {
        for device in 0..self.devices {
            self.resident.on_load_estimate(now, device, model, NEVER);
        }
        self.models.remove(&model);
        self.retired.insert(model);
        self.failed.remove(&model);
        self.resident.give_up(now, model, actions);
    }

    /// A variant is ready on a device, whoever had it loaded.
    pub(crate) fn loaded(
        &mut self,
        now: Nanos,
        (device, model): (u32, u32),
        actions: &mut Actions,
    ) {
        if let Some(failed) = self.failed.get_mut(&model) {
            failed.remove(&device);
        }
        self.tell(now, (device, model), actions);
        self.resident
            .on_load_result(now, device, model, true, actions);
    }

    /// A LOAD has failed. Where no device is left to try, what waits for the variant is given up.
    pub(crate) fn load_failed(
        &mut self,
        now: Nanos,
        (device, model): (u32, u32),
        actions: &mut Actions,
    ) {
        let failed = self.failed.entry(model).or_default();
        failed.insert(device);
        let failed = failed.clone();
        if !self.homes(model).any(|device| !failed.contains(&device)) {
            self.failed.remove(&model);
            self.resident.give_up(now, model, actions);
        }
        self.resident
            .on_load_result(now, device, model, false, actions);
    }

    /// A query for a variant. One that no device can load is given up at once.
    pub(crate) fn request(
        &mut self,
        now: Nanos,
        model: u32,
        request: Request<Pending>,
        actions: &mut Actions,
    ) {
        let loaded = !self.resident.loaded_on(model).is_empty();
        if loaded || self.homes(model).next().is_some() {
            return self.resident.on_request(now, model, request, actions);
        }
        let reason = DropReason::Gone;
        actions.push(ResidentAction::Drop {
            model,
            request,
            reason,
        });
    }

    /// A variant is gone from a device.
    pub(crate) fn unloaded(
        &mut self,
        now: Nanos,
        (device, model): (u32, u32),
        actions: &mut Actions,
    ) {
        self.estimates.forget(device, model);
        self.resident.on_unloaded(now, device, model, actions);
    }

    /// A batch has left its device.
    pub(crate) fn finished(&mut self, now: Nanos, batch: BatchId, actions: &mut Actions) {
        self.resident.on_result(now, batch, actions);
    }

    /// Learns from a run; whether the scheduler was given a new table.
    pub(crate) fn observe(
        &mut self,
        now: Nanos,
        (device, model): (u32, u32),
        run: Run,
        actions: &mut Actions,
    ) -> bool {
        let Some(latency) = self.estimates.observe(now, device, model, run) else {
            return false;
        };
        self.tell_latency(now, (device, model), latency, actions);
        true
    }

    /// Takes stale estimates back to their profiles; the models concerned.
    pub(crate) fn refresh(&mut self, now: Nanos, actions: &mut Actions) -> Vec<u32> {
        let stale = self.estimates.refresh(now, PATIENCE);
        let models = stale.iter().map(|(_, model, _)| *model).collect();
        for (device, model, latency) in stale {
            self.tell_latency(now, (device, model), latency, actions);
        }
        models
    }

    /// What the profile says of a batch, ns.
    pub(crate) fn profiled(&self, (device, model): (u32, u32), rows: u32) -> Option<Nanos> {
        Some(self.estimates.profile(device, model)?.of(rows))
    }

    /// How much longer than by its profile a lone query takes where it takes least, ns.
    pub(crate) fn excess(&self, model: u32) -> Nanos {
        let excess = |device: &u32| {
            let known = self.estimates.table(*device, model)?;
            let profile = self.estimates.profile(*device, model)?;
            Some(known.of(1).saturating_sub(profile.of(1)))
        };
        self.resident
            .loaded_on(model)
            .iter()
            .filter_map(excess)
            .min()
            .unwrap_or(0)
    }

    /// Gives the scheduler what is known best of a variant on a device.
    fn tell(&mut self, now: Nanos, (device, model): (u32, u32), actions: &mut Actions) {
        let Some(known) = self.models.get(&model) else {
            return;
        };
        self.estimates
            .seed(now, device, model, &known.queue.latency);
        if let Some(known) = self.estimates.table(device, model).cloned() {
            self.tell_latency(now, (device, model), known, actions);
        }
    }

    fn tell_latency(
        &mut self,
        now: Nanos,
        (device, model): (u32, u32),
        latency: LatencyTable,
        actions: &mut Actions,
    ) {
        if let Some(known) = self.models.get(&model) {
            let queue = QueueSpec {
                latency,
                ..known.queue.clone()
            };
            self.resident.on_queue(now, device, model, queue, actions);
        }
    }
}
