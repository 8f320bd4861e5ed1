//! Requests, results and time.

use super::{
    Action, Actions, BatchId, Controller, DropReason, LoadResult, Nanos, Request, Shape,
    TaggedPayload,
};
use sextant_profile::Run;
use sextant_types::index::{DeviceIx, QueueIx, VariantIx};

impl<T> Controller<T> {
    /// A request arrives for a variant whose queries come in one size. It is dropped at once if no device can load the
    /// variant.
    pub fn on_request(
        &mut self,
        now: Nanos,
        variant: VariantIx,
        request: Request<T>,
        actions: &mut Actions<T>,
    ) {
        self.on_shaped_request(now, (variant, Shape::default()), request, actions);
    }

    /// A request of a shape arrives for a variant. It is dropped at once if no device can load the variant.
    pub fn on_shaped_request(
        &mut self,
        now: Nanos,
        (variant, shape): (VariantIx, Shape),
        request: Request<T>,
        actions: &mut Actions<T>,
    ) {
        let accepted = self.accept(now, variant, request.rows);
        let queue = accepted.and_then(|()| {
            let queue = self.queue_for(now, variant, shape);
            queue.ok_or(DropReason::Gone)
        });
        let queue = match queue {
            Ok(queue) => queue,
            Err(reason) => {
                return actions.push(Action::Drop {
                    variant,
                    request,
                    reason,
                });
            }
        };
        self.count_request(now, queue, request.rows);
        self.placement
            .on_request(now, variant, request.deadline, &mut self.moves);
        // Variants that the placement unloads must be gone before the scheduler chooses.
        self.carry_out_moves(now, actions);
        self.admit(now, tagged(queue, request), DropReason::Infeasible);
        self.carry_out(now, actions);
        let of = self.variants.known(variant);
        for pool in of.iter().flat_map(|of| &of.pools) {
            self.changed_pools.add(*pool);
        }
    }

    /// A request was refused that the variant would have met if it had been loaded. It counts as demand, and the
    /// variant is loaded where the variants that must leave for it are worth less.
    pub fn on_missed(&mut self, now: Nanos, variant: VariantIx, actions: &mut Actions<T>) {
        if self.variant(variant).is_some_and(|of| !of.retired) && !self.is_loaded(variant) {
            self.placement.on_missed(now, variant, &mut self.moves);
            self.carry_out(now, actions);
        }
    }

    /// A batch has left its device, whatever its outcome. `run` says how it ran, if it did.
    pub fn on_result(
        &mut self,
        now: Nanos,
        batch: BatchId,
        run: Option<Run>,
        actions: &mut Actions<T>,
    ) {
        let Some(known) = self.batches.get_mut(batch.at as usize) else {
            return;
        };
        if known.number != batch.number || batch.number == 0 {
            return;
        }
        let of = std::mem::take(known);
        let variant = self.variant_of(of.queue);
        self.count_running(of.queue, false);
        if let Some(pool) = self.pool_of(of.device) {
            self.changed_pools.add(pool);
        }
        self.scheduler.on_result(now, batch, &mut self.actions);
        // The next batch counts before the variant may be considered idle.
        self.carry_out(now, actions);
        self.placement
            .on_finished(now, of.device, variant, &mut self.moves);
        self.carry_out(now, actions);
        if let Some(run) = run {
            self.learn_run(now, (of.device, of.queue), run, actions);
        }
    }

    /// A LOAD has ended, or a variant was found on a device. If no device is left to try, the requests that wait for
    /// the variant are given up.
    pub fn on_load_result(
        &mut self,
        now: Nanos,
        device: DeviceIx,
        variant: VariantIx,
        loaded: LoadResult,
        actions: &mut Actions<T>,
    ) {
        if let LoadResult::After(nanos) = loaded {
            self.learn_load(now, device, variant, nanos);
        }
        let (placement, moves) = (&mut self.placement, &mut self.moves);
        match loaded {
            LoadResult::After(_) | LoadResult::Found => {
                placement.on_load_result(now, device, variant, true, moves);
            }
            LoadResult::TooLate => placement.on_load_late(now, device, variant, moves),
            LoadResult::Failed => placement.on_load_result(now, device, variant, false, moves),
        }
        self.carry_out_moves(now, actions);
        self.activate(now, device, variant);
        self.expect_expiry(variant);
        self.carry_out(now, actions);
        if loaded == LoadResult::Failed {
            self.give_up_if_hopeless(now, variant, actions);
        }
        self.give_up_crowded_out(now, actions);
    }

    /// Something else slows a variant down on a device. The variant moves to the first of `to` that can take it; see
    /// [`placement::Placement::on_relocate`](sextant_placement::Placement::on_relocate). Returns whether it moves.
    pub fn on_relocate(
        &mut self,
        now: Nanos,
        (variant, from): (VariantIx, DeviceIx),
        to: &[DeviceIx],
        actions: &mut Actions<T>,
    ) -> bool {
        let begins = self
            .placement
            .on_relocate(now, variant, from, to, &mut self.moves);
        self.carry_out(now, actions);
        begins
    }

    /// Something else slows a variant down on a device, and one of `stay` has the variant too. The variant is unloaded
    /// from that device; see [`placement::Placement::on_withdraw`](sextant_placement::Placement::on_withdraw).
    pub fn on_withdraw(
        &mut self,
        now: Nanos,
        (variant, from): (VariantIx, DeviceIx),
        stay: &[DeviceIx],
        actions: &mut Actions<T>,
    ) -> bool {
        let begins = self
            .placement
            .on_withdraw(now, variant, from, stay, &mut self.moves);
        self.carry_out(now, actions);
        begins
    }

    /// An UNLOAD was carried out, and for this time, ns, its device could not begin the next LOAD.
    pub fn on_unload_result(
        &mut self,
        now: Nanos,
        device: DeviceIx,
        variant: VariantIx,
        nanos: Nanos,
        actions: &mut Actions<T>,
    ) {
        self.learn_unload(now, device, nanos);
        self.on_unloaded(now, device, variant, actions);
    }

    /// An UNLOAD was carried out, or a device has lost a variant.
    pub fn on_unloaded(
        &mut self,
        now: Nanos,
        device: DeviceIx,
        variant: VariantIx,
        actions: &mut Actions<T>,
    ) {
        self.deactivate(now, device, variant);
        self.placement
            .on_unloaded(now, device, variant, &mut self.moves);
        self.expect_expiry(variant);
        self.carry_out(now, actions);
    }

    /// A device no longer takes work for a variant. It is not asked to load the variant again for a while.
    pub fn on_lost(
        &mut self,
        now: Nanos,
        device: DeviceIx,
        variant: VariantIx,
        actions: &mut Actions<T>,
    ) {
        self.deactivate(now, device, variant);
        self.placement
            .on_lost(now, device, variant, &mut self.moves);
        self.expect_expiry(variant);
        self.carry_out(now, actions);
    }

    /// Time has passed.
    pub fn on_timer(&mut self, now: Nanos, actions: &mut Actions<T>) {
        while let Some(variant) = self.cold.expired(now) {
            self.expire(now, variant, actions);
        }
        let is_due = |next: Option<Nanos>| next.is_some_and(|at| at <= now);
        if is_due(self.placement.next_timer()) {
            self.placement.on_timer(now, &mut self.moves);
            self.carry_out(now, actions);
        }
        if is_due(self.scheduler.next_timer()) {
            self.scheduler.on_timer(now, &mut self.actions);
            self.carry_out(now, actions);
        }
        self.refresh(now, actions);
    }

    /// Whether a variant can take this many more rows, or why not. The scheduler also refuses requests, but it does not
    /// know variants that are loaded nowhere.
    fn accept(&self, now: Nanos, variant: VariantIx, rows: u32) -> Result<(), DropReason> {
        let of = self.variant(variant).filter(|of| !of.retired);
        let of = of.ok_or(DropReason::Gone)?;
        if of.pools.is_empty() && !self.placement.may_load(now, variant) {
            return Err(DropReason::Gone);
        }
        if self.is_full(variant, rows) {
            return Err(DropReason::QueueFull);
        }
        match self.is_loaded(variant) {
            true => Ok(()),
            false => self.accept_cold(variant, rows),
        }
    }

    /// Gives up the requests that wait for a variant if no device could load it now.
    pub(super) fn give_up_if_hopeless(
        &mut self,
        now: Nanos,
        variant: VariantIx,
        actions: &mut Actions<T>,
    ) {
        if self.cold.len_of(variant) > 0 && !self.placement.may_load(now, variant) {
            self.give_up(now, variant, actions);
        }
    }

    /// Gives up the requests that wait for variants for which pinned variants leave no room.
    pub(super) fn give_up_crowded_out(&mut self, now: Nanos, actions: &mut Actions<T>) {
        if !self.placement.pins() {
            return;
        }
        for variant in self.cold.variants() {
            self.give_up_if_hopeless(now, variant, actions);
        }
    }

    /// No further LOAD of a variant is expected. Drops every request that waits for one as [`DropReason::Gone`].
    /// Requests that a device with the variant will run are not affected.
    pub(super) fn give_up(&mut self, now: Nanos, variant: VariantIx, actions: &mut Actions<T>) {
        while let Some(request) = self.cold.pop(variant) {
            self.count_left(request.payload.queue, 1, request.rows);
            self.placement
                .on_dropped(now, variant, request.deadline, &mut self.moves);
            actions.push(Action::Drop {
                variant,
                request: super::exchange::untagged(request),
                reason: DropReason::Gone,
            });
        }
        self.cold.expect(variant, None);
        self.carry_out(now, actions);
    }
}

fn tagged<T>(queue: QueueIx, request: Request<T>) -> Request<TaggedPayload<T>> {
    Request {
        payload: TaggedPayload {
            queue,
            payload: request.payload,
        },
        rows: request.rows,
        deadline: request.deadline,
    }
}
