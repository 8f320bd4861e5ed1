//! What the scheduler and the placement tell each other.

use super::{
    Action, BatchId, DropReason, GATHERING, Move, NEVER, Nanos, Presence, Request, Resident,
    ResidentAction, ResidentActions, Tagged, pool,
};

impl<T> Resident<T> {
    /// Carries out what was decided, until nothing follows from it. What the placement wants comes
    /// first: the scheduler must not use what is to be unloaded.
    pub(super) fn settle(&mut self, now: Nanos, out: &mut ResidentActions<T>) {
        let mut actions = std::mem::take(&mut self.actions);
        loop {
            for action in actions.drain(..) {
                self.carry_moves(now, out);
                self.carry(now, action, out);
            }
            self.carry_moves(now, out);
            if self.actions.is_empty() {
                // Its memory is used again.
                self.actions = actions;
                return;
            }
            std::mem::swap(&mut actions, &mut self.actions);
        }
    }

    pub(super) fn carry_moves(&mut self, now: Nanos, out: &mut ResidentActions<T>) {
        if self.moves.is_empty() {
            return;
        }
        let mut moves = std::mem::take(&mut self.moves);
        for step in moves.drain(..) {
            match step {
                Move::Unload { device, model } => {
                    self.deactivate(now, device, model);
                    out.push(ResidentAction::Unload { device, model });
                }
                Move::Load {
                    device,
                    model,
                    earliest,
                    latest,
                    expected,
                } => {
                    self.expect_expiry(model);
                    out.push(ResidentAction::Load {
                        device,
                        model,
                        earliest,
                        latest,
                        expected,
                    });
                }
            }
        }
        self.moves = moves;
    }

    fn carry(&mut self, now: Nanos, action: Action<Tagged<T>>, out: &mut ResidentActions<T>) {
        match action {
            Action::Infer {
                queue: model,
                worker: device,
                requests,
                earliest,
                latest,
                expected,
                id,
            } => {
                if self.placement.presence(device, model) != Presence::Loaded {
                    return self.take_back(now, device, model, requests, id);
                }
                self.deadlines.clear();
                let deadlines = requests.iter().map(|request| request.deadline);
                self.deadlines.extend(deadlines);
                self.placement
                    .on_served(now, device, model, &self.deadlines, &mut self.moves);
                let at = id.at as usize;
                if self.batches.len() <= at {
                    self.batches.resize(at + 1, (0, 0, 0));
                }
                self.batches[at] = (id.number, device, model);
                out.push(ResidentAction::Infer {
                    device,
                    model,
                    requests: requests.into_iter().map(untagged).collect(),
                    earliest,
                    latest,
                    expected,
                    id,
                });
            }
            Action::Drop {
                request,
                reason: DropReason::Gone,
            } => {
                let model = request.payload.model;
                self.admit(now, model, request, DropReason::Expired);
            }
            Action::Drop { request, reason } => {
                let model = request.payload.model;
                self.placement
                    .on_dropped(now, model, request.deadline, &mut self.moves);
                out.push(ResidentAction::Drop {
                    model,
                    request: untagged(request),
                    reason,
                });
            }
        }
    }

    /// A batch of a model that the placement has unloaded in the same moment: its requests wait
    /// again.
    fn take_back(
        &mut self,
        now: Nanos,
        device: u32,
        model: u32,
        requests: Vec<Request<Tagged<T>>>,
        id: BatchId,
    ) {
        self.deactivate(now, device, model);
        for request in requests {
            self.admit(now, model, request, DropReason::Expired);
        }
        self.scheduler.on_result(now, id, &mut self.actions);
    }

    /// Puts a request, of which the placement knows, where it has to wait; `late` is the reason when
    /// no LOAD could help it.
    pub(super) fn admit(
        &mut self,
        now: Nanos,
        model: u32,
        request: Request<Tagged<T>>,
        late: DropReason,
    ) {
        let active = self.model(model).is_some_and(|of| !of.active.is_empty());
        if active {
            self.scheduler
                .on_request(now, model, request, &mut self.actions);
            return;
        }
        let ready_by = self.ready_by(model, request.deadline, request.rows);
        let helped = ready_by.map(|by| self.placement.last_chance(model, by));
        if helped.is_none_or(|last| last < now) {
            let reason = late;
            self.actions.push(Action::Drop { request, reason });
            return;
        }
        self.cold.push(now, model, request);
        self.expect_expiry(model);
    }

    /// Why a request of a model that is loaded nowhere is refused, whatever is loaded.
    pub(super) fn refusal(&self, model: u32, request: &Request<T>) -> Option<DropReason> {
        let queue = &self.model(model)?.spec.queue;
        if request.rows > queue.max_rows.max(1) {
            return Some(DropReason::Infeasible);
        }
        let rows = self.cold.rows_of(model).saturating_add(request.rows);
        (rows > queue.max_waiting_rows).then_some(DropReason::QueueFull)
    }

    /// By when a model has to be loaded for a request to be met; `None` when it would be late even
    /// if it were loaded.
    fn ready_by(&self, model: u32, deadline: Nanos, rows: u32) -> Option<Nanos> {
        let queue = &self.model(model)?.spec.queue;
        if deadline == NEVER {
            return Some(NEVER);
        }
        let run = self.delay.before_start(rows) + queue.latency.of(rows) + self.delay.response;
        deadline.checked_sub(run)
    }

    /// Until when a LOAD helps the first request that waits for a model.
    fn last_chance(&self, model: u32) -> Option<Nanos> {
        let (deadline, rows) = self.cold.first(model)?;
        let ready_by = self.ready_by(model, deadline, rows);
        Some(ready_by.map_or(0, |by| self.placement.last_chance(model, by)))
    }

    pub(super) fn expect_expiry(&mut self, model: u32) {
        if self.cold.len_of(model) > 0 {
            let last = self.last_chance(model);
            self.cold.expect(model, last);
        }
    }

    /// Drops the requests of a model that no LOAD can help any more.
    pub(super) fn expire(&mut self, now: Nanos, model: u32, out: &mut ResidentActions<T>) {
        while self.last_chance(model).is_some_and(|last| last < now)
            && let Some(request) = self.cold.pop(model)
        {
            let reason = DropReason::Expired;
            self.actions.push(Action::Drop { request, reason });
        }
        let last = self.last_chance(model);
        self.cold.expect(model, last);
        self.settle(now, out);
    }

    /// Lets the scheduler use a model on a device that has it, with all that waits for it: together,
    /// so that the first batch is not the first request alone.
    pub(super) fn activate(&mut self, now: Nanos, device: u32, model: u32) {
        if self.placement.presence(device, model) != Presence::Loaded {
            return;
        }
        let on = self.devices.get_mut(device as usize);
        let Some(Some(models)) = on else { return };
        let Some(Some(of)) = self.models.get_mut(model as usize) else {
            return;
        };
        if !models.insert(model) {
            return;
        }
        of.active.push(device);
        let queue = of.queue_on(device).clone();
        let gather = self.cold.len_of(model) > 1;
        let (scheduler, actions) = (&mut self.scheduler, &mut self.actions);
        let first = if gather { GATHERING } else { pool(device) };
        scheduler.on_loaded(now, first, model, queue.clone(), actions);
        while let Some(request) = self.cold.pop(model) {
            let run = self.delay.before_start(request.rows)
                + queue.latency.of(request.rows)
                + self.delay.response;
            if now.saturating_add(run) > request.deadline {
                let reason = DropReason::Expired;
                actions.push(Action::Drop { request, reason });
            } else {
                scheduler.on_request(now, model, request, actions);
            }
        }
        self.cold.expect(model, None);
        if gather {
            scheduler.on_loaded(now, pool(device), model, queue, actions);
            scheduler.on_unloaded(now, GATHERING, model, actions);
        }
    }

    /// Lets the scheduler use a model on a device no more.
    pub(super) fn deactivate(&mut self, now: Nanos, device: u32, model: u32) {
        let on = self.devices.get_mut(device as usize);
        let Some(Some(models)) = on else { return };
        if !models.remove(&model) {
            return;
        }
        if let Some(of) = self.model_mut(model) {
            of.active.retain(|on| *on != device);
        }
        self.scheduler
            .on_unloaded(now, pool(device), model, &mut self.actions);
    }
}

fn untagged<T>(request: Request<Tagged<T>>) -> Request<T> {
    Request {
        payload: request.payload.payload,
        rows: request.rows,
        deadline: request.deadline,
    }
}
