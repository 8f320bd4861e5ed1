//! What is on a device: replicas come, and go to make room.

use super::{
    Action, Actions, Nanos, Presence, device::Load, machine::Machine, model::Replica, rule::Rule,
};
use crate::schedule::NEVER;

impl<R: Rule> Machine<R> {
    /// Issues a LOAD, with the UNLOADs that it needs before it.
    pub(super) fn load(&mut self, now: Nanos, device: u32, model: u32, actions: &mut Actions) {
        let Some(of) = self.model(model) else { return };
        let (pages, expected) = (of.spec.pages, of.load_on(device));
        let before_end = of.spec.run.saturating_add(expected);
        let deadline = of.deadlines().map_or(NEVER, |(_, last)| last);
        self.make_room(now, device, pages, actions);
        let Some(Some(on)) = self.devices.get_mut(device as usize) else {
            return;
        };
        let start = on.free_at(now);
        on.free -= pages;
        on.residents.push((model, pages));
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
                pages,
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

    /// Unloads what is worth least until `pages` are free.
    fn make_room(&mut self, now: Nanos, device: u32, pages: u32, actions: &mut Actions) {
        while let Some(on) = self.device_mut(device)
            && on.free < pages
            && let Some((_, victim)) = on.victims.first()
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
        let pages = replica.pages;
        self.demand.displace(model, device);
        if let Some(on) = self.device_mut(device) {
            on.free += pages;
            if on.victims.remove(model).is_some() {
                on.evictable -= pages;
            }
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
        let replica = of.replicas.swap_remove(at);
        self.demand.displace(model, device);
        if let Some(on) = self.device_mut(device) {
            on.forget(model);
            on.loaded(now, model);
            if replica.presence != Presence::Leaving {
                on.free += replica.pages;
            }
            if on.victims.remove(model).is_some() {
                on.evictable -= replica.pages;
            }
        }
        self.value(now, model);
        self.rank(now, model);
    }
}
