//! The events of a [`Resident`].

use std::collections::BTreeSet;

use super::{
    BatchId, DropReason, Model, Nanos, QueueSpec, Request, Resident, ResidentAction,
    ResidentActions, ResidentDevice, ResidentModel, SmallVec, Tagged, WorkerSpec, pool,
};

impl<T> Resident<T> {
    /// A device is up, with nothing loaded and nothing running; tells the batches that were under
    /// way on it if it was up before.
    pub fn on_device_up(
        &mut self,
        now: Nanos,
        device: u32,
        spec: ResidentDevice,
        actions: &mut ResidentActions<T>,
    ) -> Vec<BatchId> {
        let lost = self.on_device_down(now, device, actions);
        let at = device as usize;
        if self.devices.len() <= at {
            self.devices.resize_with(at + 1, || None);
        }
        self.devices[at] = Some(BTreeSet::new());
        let worker = WorkerSpec {
            pool: pool(device),
            slots: spec.slots,
        };
        self.scheduler
            .on_worker_up(now, device, worker, &mut self.actions);
        self.placement
            .on_device_up(now, device, spec.pages, &mut self.moves);
        self.settle(now, actions);
        lost
    }

    /// A device is gone; tells the batches that were under way on it. Their requests are with the
    /// caller, who may hand them in again. What waited for the models on it waits on.
    pub fn on_device_down(
        &mut self,
        now: Nanos,
        device: u32,
        actions: &mut ResidentActions<T>,
    ) -> Vec<BatchId> {
        let gone = self.devices.get_mut(device as usize);
        let Some(models) = gone.and_then(Option::take) else {
            return Vec::new();
        };
        let lost = self
            .scheduler
            .on_worker_down(now, device, &mut self.actions);
        for batch in &lost {
            self.batches[batch.at as usize].0 = 0;
        }
        self.placement.on_device_down(now, device, &mut self.moves);
        for model in models {
            if let Some(of) = self.model_mut(model) {
                of.active.retain(|on| *on != device);
            }
            self.scheduler
                .on_unloaded(now, pool(device), model, &mut self.actions);
        }
        for model in 0..self.models.len() as u32 {
            self.expect_expiry(model);
        }
        self.settle(now, actions);
        lost
    }

    /// A model may be asked for from now on, or what is known of it is new; what was told by
    /// [`Self::on_queue`] is forgotten.
    pub fn on_model(
        &mut self,
        now: Nanos,
        model: u32,
        spec: ResidentModel,
        actions: &mut ResidentActions<T>,
    ) {
        let at = model as usize;
        if self.models.len() <= at {
            self.models.resize_with(at + 1, || None);
        }
        let placed = spec.placed();
        let active = match self.models[at].take() {
            Some(known) => known.active,
            None => SmallVec::new(),
        };
        for device in &active {
            let queue = spec.queue.clone();
            self.scheduler
                .on_loaded(now, pool(*device), model, queue, &mut self.actions);
        }
        self.models[at] = Some(Model {
            spec,
            queues: Vec::new(),
            active,
        });
        self.placement.on_model(now, model, placed, &mut self.moves);
        self.expect_expiry(model);
        self.settle(now, actions);
    }

    /// A model's queue is another one on one device: its run times there, above all.
    pub fn on_queue(
        &mut self,
        now: Nanos,
        device: u32,
        model: u32,
        queue: QueueSpec,
        actions: &mut ResidentActions<T>,
    ) {
        let Some(of) = self.model_mut(model) else {
            return;
        };
        of.queues.retain(|(on, _)| *on != device);
        of.queues.push((device, queue.clone()));
        if of.active.contains(&device) {
            self.scheduler
                .on_loaded(now, pool(device), model, queue, &mut self.actions);
            self.settle(now, actions);
        }
    }

    /// The LOAD of a model on one device is expected to take `load` ns.
    pub fn on_load_estimate(&mut self, now: Nanos, device: u32, model: u32, load: Nanos) {
        self.placement.on_load_estimate(now, device, model, load);
        self.expect_expiry(model);
    }

    /// A request arrives.
    pub fn on_request(
        &mut self,
        now: Nanos,
        model: u32,
        request: Request<T>,
        actions: &mut ResidentActions<T>,
    ) {
        let Some(of) = self.model(model) else {
            let reason = DropReason::Gone;
            return actions.push(ResidentAction::Drop {
                model,
                request,
                reason,
            });
        };
        let refusal = match of.active.is_empty() {
            true => self.refusal(model, &request),
            false => None,
        };
        if let Some(reason) = refusal {
            return actions.push(ResidentAction::Drop {
                model,
                request,
                reason,
            });
        }
        self.placement
            .on_request(now, model, request.deadline, &mut self.moves);
        // What the placement unloads must be gone before the scheduler chooses.
        self.carry_moves(now, actions);
        self.admit(now, model, tagged(model, request), DropReason::Infeasible);
        self.settle(now, actions);
    }

    /// A batch has left its device, whatever became of it.
    pub fn on_result(&mut self, now: Nanos, batch: BatchId, actions: &mut ResidentActions<T>) {
        let Some(known) = self.batches.get_mut(batch.at as usize) else {
            return;
        };
        if known.0 != batch.number || batch.number == 0 {
            return;
        }
        let (_, device, model) = std::mem::take(known);
        self.scheduler.on_result(now, batch, &mut self.actions);
        // What is sent next counts before the model may be taken for idle.
        self.settle(now, actions);
        self.placement
            .on_finished(now, device, model, &mut self.moves);
        self.settle(now, actions);
    }

    /// A LOAD has ended. A success without a LOAD tells of a model that was found on the device.
    pub fn on_load_result(
        &mut self,
        now: Nanos,
        device: u32,
        model: u32,
        ok: bool,
        actions: &mut ResidentActions<T>,
    ) {
        self.placement
            .on_load_result(now, device, model, ok, &mut self.moves);
        self.carry_moves(now, actions);
        self.activate(now, device, model);
        self.expect_expiry(model);
        self.settle(now, actions);
    }

    /// An UNLOAD was carried out, or a device has lost a model.
    pub fn on_unloaded(
        &mut self,
        now: Nanos,
        device: u32,
        model: u32,
        actions: &mut ResidentActions<T>,
    ) {
        self.deactivate(now, device, model);
        self.placement
            .on_unloaded(now, device, model, &mut self.moves);
        self.expect_expiry(model);
        self.settle(now, actions);
    }

    /// Time has passed.
    pub fn on_timer(&mut self, now: Nanos, actions: &mut ResidentActions<T>) {
        while let Some(model) = self.cold.expired(now) {
            self.expire(now, model, actions);
        }
        let is_due = |next: Option<Nanos>| next.is_some_and(|at| at <= now);
        if is_due(self.placement.next_timer()) {
            self.placement.on_timer(now, &mut self.moves);
            self.settle(now, actions);
        }
        if is_due(self.scheduler.next_timer()) {
            self.scheduler.on_timer(now, &mut self.actions);
            self.settle(now, actions);
        }
    }
}

fn tagged<T>(model: u32, request: Request<T>) -> Request<Tagged<T>> {
    Request {
        payload: Tagged {
            model,
            payload: request.payload,
        },
        rows: request.rows,
        deadline: request.deadline,
    }
}
