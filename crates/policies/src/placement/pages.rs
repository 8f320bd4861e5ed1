//! What is on a device: replicas come, and go to make room.

use super::{
    Action, Actions, Nanos, Presence,
    device::{Footprint, Load},
    machine::Machine,
    model::Replica,
    rule::Rule,
};
use crate::schedule::NEVER;

impl<R: Rule> Machine<R> {
    /// Issues a LOAD, with the UNLOADs that it needs before it.
    pub(super) fn load(&mut self, now: Nanos, device: u32, model: u32, actions: &mut Actions) {
        let Some(of) = self.model(model) else { return };
        let (footprint, expected) = (Footprint::of(&of.spec), of.load_on(device));
        let before_end = of.spec.run.saturating_add(expected);
        let deadline = of.deadlines().map_or(NEVER, |(_, last)| last);
        self.make_room(now, device, footprint, actions);
        let Some(Some(on)) = self.devices.get_mut(device as usize) else {
            return;
        };
        let start = on.free_at(now);
        on.admit(model, footprint);
        on.loads.push_back(Load {
            model,
            start,
            expected,
        });
        let ready_at = on.ready_at(self.look_ahead);
        self.parked.remove(&device);
        self.busy.set(device, ready_at);
        if let Some(of) = self.model_mut(model) {
            of.replicas.push(Replica {
                device,
                presence: Presence::Loading,
                running: 0,
                used: now,
            });
        }
        self.demand.place(model, device);
        self.rank(now, model);
        actions.push(Action::Load {
            device,
            model,
            earliest: start,
            latest: match deadline {
                NEVER => NEVER,
                _ => deadline.saturating_sub(before_end).max(start),
            },
            expected,
        });
    }

    /// Unloads what is worth least until a model fits.
    fn make_room(&mut self, now: Nanos, device: u32, footprint: Footprint, actions: &mut Actions) {
        while let Some(on) = self.device_mut(device)
            && !on.is_free_for(footprint)
            && let Some(victim) = on.cheapest()
        {
            self.unload(now, device, victim, actions);
        }
    }

    /// Issues an UNLOAD; the pages are free at once.
    pub(super) fn unload(&mut self, now: Nanos, device: u32, model: u32, actions: &mut Actions) {
        let Some(of) = self.model_mut(model) else {
            return;
        };
        let Some(replica) = of.replica_mut(device) else {
            return;
        };
        replica.presence = Presence::Leaving;
        self.demand.displace(model, device);
        if let Some(on) = self.device_mut(device) {
            on.release(model);
        }
        self.value(now, model);
        self.rank(now, model);
        actions.push(Action::Unload { device, model });
    }

    /// Takes a replica away that is not there any more.
    pub(super) fn remove(&mut self, now: Nanos, device: u32, model: u32) {
        let Some(of) = self.model_mut(model) else {
            return;
        };
        let Some(at) = of.replicas.iter().position(|r| r.device == device) else {
            return;
        };
        of.replicas.swap_remove(at);
        self.demand.displace(model, device);
        if let Some(on) = self.device_mut(device) {
            on.forget(model);
            on.loaded(now, model);
        }
        self.value(now, model);
        self.rank(now, model);
    }
}
