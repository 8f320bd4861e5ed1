//! The state that the driver's lock protects: the controller, and its time.

use sextant_controller::{Actions, Controller, Options};
use sextant_schedule::{NEVER, Nanos, PoolIx, Schedulers};

use crate::pending::Pending;
use sextant_types::index::VariantIx;

/// The controller and its time. A device is a worker's position, and a variant is its ordinal.
pub(super) struct State {
    pub(super) controller: Controller<Pending>,
    /// When the next timer is due.
    pub(super) next: Nanos,
    /// The controller's time.
    last: Nanos,
    /// Lists that are filled with what has changed.
    pub(super) pools: Vec<PoolIx>,
    pub(super) variants: Vec<VariantIx>,
}

impl State {
    pub(super) fn new<S: Schedulers>(options: &Options<S>) -> Self {
        Self {
            controller: Controller::new(options),
            next: NEVER,
            last: 0,
            pools: Vec::new(),
            variants: Vec::new(),
        }
    }

    /// Plays the timers that are due by `now`. Each is played at its time if that is no more than
    /// `precision` ago, else at `now`.
    pub(super) fn catch_up(
        &mut self,
        now: Nanos,
        precision: Nanos,
        actions: &mut Actions<Pending>,
    ) {
        while self.next <= now {
            let due = self.next;
            let at = if now - due > precision { now } else { due };
            let at = at.max(self.last);
            self.controller.on_timer(at, actions);
            self.last = at;
            self.next = self.controller.next_timer().unwrap_or(NEVER);
            if self.next <= at {
                return;
            }
        }
    }

    /// Records that an event at `now` was played.
    pub(super) fn played(&mut self, now: Nanos) {
        self.last = now;
        self.next = self.controller.next_timer().unwrap_or(NEVER);
    }
}
