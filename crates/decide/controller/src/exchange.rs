//! How the scheduler and the placement inform each other.

use super::{
    Action, Actions, Batch, BatchId, Controller, DropReason, NEVER, Nanos, Request, TaggedPayload,
};
use sextant_placement::{Action as Move, Presence};
use sextant_schedule::Action as Decided;
use sextant_types::index::{DeviceIx, VariantIx};

impl<T> Controller<T> {
    /// Carries out what was decided, until nothing further follows from it. The decisions of the placement come first,
    /// because the scheduler must not use what is to be unloaded.
    #[inline]
    pub(super) fn carry_out(&mut self, now: Nanos, out: &mut Actions<T>) {
        if !self.actions.is_empty() || !self.moves.is_empty() {
            self.carry_out_all(now, out);
        }
    }

    fn carry_out_all(&mut self, now: Nanos, out: &mut Actions<T>) {
        let mut actions = std::mem::take(&mut self.actions);
        loop {
            for action in actions.drain(..) {
                self.carry_out_moves(now, out);
                self.carry_out_one(now, action, out);
            }
            self.carry_out_moves(now, out);
            if self.actions.is_empty() {
                // Its memory is reused.
                self.actions = actions;
                return;
            }
            std::mem::swap(&mut actions, &mut self.actions);
        }
    }

    #[inline]
    pub(super) fn carry_out_moves(&mut self, now: Nanos, out: &mut Actions<T>) {
        if !self.moves.is_empty() {
            self.carry_out_all_moves(now, out);
        }
    }

    fn carry_out_all_moves(&mut self, now: Nanos, out: &mut Actions<T>) {
        let mut moves = std::mem::take(&mut self.moves);
        for step in moves.drain(..) {
            match step {
                Move::Unload { device, variant } => self.deactivate(now, device, variant),
                Move::Load { variant, .. } => self.expect_expiry(variant),
            }
            out.push(Action::Move(step));
        }
        self.moves = moves;
    }

    fn carry_out_one(
        &mut self,
        now: Nanos,
        action: Decided<TaggedPayload<T>>,
        out: &mut Actions<T>,
    ) {
        match action {
            Decided::Infer {
                queue,
                device,
                requests,
                earliest,
                latest,
                expected,
                id,
            } => {
                let variant = self.variant_of(queue);
                if self.placement.presence(device, variant) != Presence::Loaded {
                    return self.take_back(now, device, variant, requests, id);
                }
                let rows = requests.iter().map(|request| request.rows).sum();
                self.count_left(queue, requests.len() as u32, rows);
                self.count_running(queue, true);
                self.deadlines.clear();
                let deadlines = requests.iter().map(|request| request.deadline);
                self.deadlines.extend(deadlines);
                self.placement
                    .on_served(now, device, variant, &self.deadlines, &mut self.moves);
                if let Some(pool) = self.pool_of(device) {
                    self.changed_pools.add(pool);
                }
                let at = id.at as usize;
                if self.batches.len() <= at {
                    self.batches.resize(at + 1, Batch::default());
                }
                self.batches[at] = Batch {
                    number: id.number,
                    device,
                    queue,
                };
                out.push(Action::Infer {
                    device,
                    variant,
                    requests: requests.into_iter().map(untagged).collect(),
                    earliest,
                    latest,
                    expected,
                    id,
                });
            }
            Decided::Drop {
                request,
                reason: DropReason::Gone,
            } if !self.is_retired(self.variant_of(request.payload.queue)) => {
                self.admit(now, request, DropReason::Expired);
            }
            Decided::Drop { request, reason } => {
                let queue = request.payload.queue;
                let variant = self.variant_of(queue);
                self.count_left(queue, 1, request.rows);
                self.placement
                    .on_dropped(now, variant, request.deadline, &mut self.moves);
                out.push(Action::Drop {
                    variant,
                    request: untagged(request),
                    reason,
                });
            }
        }
    }

    /// Takes back a batch of a variant that the placement has unloaded at the same moment. Its requests wait again.
    fn take_back(
        &mut self,
        now: Nanos,
        device: DeviceIx,
        variant: VariantIx,
        requests: Vec<Request<TaggedPayload<T>>>,
        id: BatchId,
    ) {
        self.deactivate(now, device, variant);
        for request in requests {
            self.admit(now, request, DropReason::Expired);
        }
        self.scheduler.on_result(now, id, &mut self.actions);
    }

    /// Puts a request that the placement knows where it has to wait. `late` is the reason for dropping it if no LOAD
    /// could help it.
    pub(super) fn admit(
        &mut self,
        now: Nanos,
        request: Request<TaggedPayload<T>>,
        late: DropReason,
    ) {
        let queue = request.payload.queue;
        let variant = self.variant_of(queue);
        if self.is_loaded(variant) {
            self.scheduler
                .on_request(now, queue, request, &mut self.actions);
            return;
        }
        if self.is_retired(variant) {
            let reason = DropReason::Gone;
            self.actions.push(Decided::Drop { request, reason });
            return;
        }
        let ready_by = self.ready_by(&request);
        let helped = ready_by.map(|by| self.placement.last_chance(variant, by));
        if helped.is_none_or(|last| last < now) {
            let reason = late;
            self.actions.push(Decided::Drop { request, reason });
            return;
        }
        self.cold.push(now, variant, request);
        self.expect_expiry(variant);
    }

    fn is_retired(&self, variant: VariantIx) -> bool {
        self.variant(variant).is_none_or(|of| of.retired)
    }

    /// Whether a variant that is loaded nowhere can take this many more rows, or why not.
    pub(super) fn accept_cold(&self, variant: VariantIx, rows: u32) -> Result<(), DropReason> {
        let of = self.variant(variant).ok_or(DropReason::Gone)?;
        let queue = &of.spec.queue;
        if rows > queue.max_rows.max(1) {
            return Err(DropReason::Infeasible);
        }
        let rows = self.cold.rows_of(variant).saturating_add(rows);
        match rows > queue.max_waiting_rows {
            true => Err(DropReason::QueueFull),
            false => Ok(()),
        }
    }

    /// The time by which the variant has to be loaded for a request to be met; `None` if the request would be late even
    /// if it were loaded.
    fn ready_by(&self, request: &Request<TaggedPayload<T>>) -> Option<Nanos> {
        let (deadline, rows) = (request.deadline, request.rows);
        if deadline == NEVER {
            return Some(NEVER);
        }
        let run = self.queues[request.payload.queue].latency.of(rows);
        let run = self.delay.before_start(rows) + run + self.delay.response;
        deadline.checked_sub(run)
    }

    /// The time until which a LOAD helps the first request that waits for a variant.
    fn last_chance(&self, variant: VariantIx) -> Option<Nanos> {
        let ready_by = self.ready_by(self.cold.first(variant)?);
        Some(ready_by.map_or(0, |by| self.placement.last_chance(variant, by)))
    }

    pub(super) fn expect_expiry(&mut self, variant: VariantIx) {
        if self.cold.len_of(variant) > 0 {
            let last = self.last_chance(variant);
            self.cold.expect(variant, last);
        }
    }

    /// Drops the requests of a variant that no LOAD can help any longer.
    pub(super) fn expire(&mut self, now: Nanos, variant: VariantIx, out: &mut Actions<T>) {
        while self.last_chance(variant).is_some_and(|last| last < now)
            && let Some(request) = self.cold.pop(variant)
        {
            let reason = DropReason::Expired;
            self.actions.push(Decided::Drop { request, reason });
        }
        let last = self.last_chance(variant);
        self.cold.expect(variant, last);
        self.carry_out(now, out);
    }
}

pub(super) fn untagged<T>(request: Request<TaggedPayload<T>>) -> Request<T> {
    Request {
        payload: request.payload.payload,
        rows: request.rows,
        deadline: request.deadline,
    }
}
