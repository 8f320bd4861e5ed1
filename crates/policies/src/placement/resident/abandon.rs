//! Giving up what waits for a LOAD that will not come.

use super::{DropReason, Nanos, Resident, ResidentActions};
use crate::schedule::Action;

impl<T> Resident<T> {
    /// No LOAD of a model is to be expected any more: everything that waits for one is dropped as
    /// [`DropReason::Gone`]. What a device that has the model will run is left alone.
    pub fn give_up(&mut self, now: Nanos, model: u32, actions: &mut ResidentActions<T>) {
        while let Some(request) = self.cold.pop(model) {
            let reason = DropReason::Expired;
            self.actions.push(Action::Drop { request, reason });
        }
        self.cold.expect(model, None);
        let first = actions.len();
        self.settle(now, actions);
        for action in &mut actions[first..] {
            if let super::ResidentAction::Drop {
                model: of, reason, ..
            } = action
                && *of == model
                && *reason == DropReason::Expired
            {
                *reason = DropReason::Gone;
            }
        }
    }
}
