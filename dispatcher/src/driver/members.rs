//! Workers that come and go, and whether work is given out at all.

use std::sync::{Weak, atomic::Ordering};

use sextant_controller::{Controller, DeviceSpec};
use sextant_rpc::WorkerClient;
use sextant_types::{
    WorkerId,
    index::{DeviceIx, KindIx, VariantIx},
};

use super::Driver;
use crate::{
    loads::{LoadOutcome, Outcomes},
    pending::Pending,
};

/// Hears of the moves of a worker during one of its lives.
struct Listener {
    driver: Weak<Driver>,
    at: DeviceIx,
    life: u64,
}

impl Driver {
    /// A worker can be reached. It is used once [`Self::on_worker_up`] is called.
    pub(crate) fn add_worker(&self, client: WorkerClient) {
        self.workers.add(client);
    }

    /// A worker cannot be reached any more. Returns whether it was there.
    pub(crate) fn remove_worker(&self, worker: &WorkerId) -> bool {
        let at = self.workers.remove(worker);
        if let Some(at) = at {
            self.on_worker_down(at);
        }
        at.is_some()
    }

    /// Whether work is given out.
    pub(crate) fn leads(&self) -> bool {
        self.leads.load(Ordering::Acquire)
    }

    /// Begins or stops to give work out. Who stops refuses all that waits; what is under way ends by
    /// itself. Who begins uses the workers once they are told to be up.
    pub(crate) fn set_leads(&self, leads: bool) {
        if self.leads.swap(leads, Ordering::AcqRel) == leads {
            return;
        }
        self.workers.renew();
        if leads {
            return;
        }
        self.step(|controller, now, actions| {
            let up: Vec<DeviceIx> = controller.devices().map(|(device, _)| device).collect();
            for device in up {
                controller.on_device_down(now, device, actions);
            }
            self.count_slots(controller);
        });
    }

    /// The worker at position `at`, of this kind, takes batches from now on, with nothing loaded as
    /// far as is known. Must be called within a runtime.
    pub(crate) fn on_worker_up(&self, at: DeviceIx, life: u64, kind: KindIx) {
        let Some(client) = self.workers.client_in(at, life) else {
            return;
        };
        let info = client.info();
        let spec = DeviceSpec {
            kind,
            pages: u32::try_from(info.pages.total).unwrap_or(u32::MAX),
            slots: info.cores.max(1),
        };
        let driver = Weak::clone(&self.this);
        self.loads.start(at, client, Listener { driver, at, life });
        self.step(|controller, now, actions| {
            // Who takes it away, or stops giving work out, says so first and tells the controller
            // after.
            if self.leads() && self.workers.client_in(at, life).is_some() {
                controller.on_device_up(now, at, spec, actions);
                self.count_slots(controller);
            }
        });
    }

    /// The worker at position `at` is gone or takes nothing new. What runs on it is answered by its
    /// client, which calls back for every batch whatever happens.
    pub(crate) fn on_worker_down(&self, at: DeviceIx) {
        self.loads.end(at);
        self.step(|controller, now, actions| {
            controller.on_device_down(now, at, actions);
            self.count_slots(controller);
        });
    }

    /// The worker at position `at` is of another kind from now on.
    pub(crate) fn on_worker_kind(&self, at: DeviceIx, kind: KindIx) {
        self.step(|controller, now, actions| {
            controller.on_device_kind(now, at, kind, actions);
        });
    }

    /// Something else slows a variant down on the worker at position `from`: it moves to one of these,
    /// the best first, if it can.
    pub(crate) fn relocate(&self, variant: VariantIx, from: DeviceIx, to: &[DeviceIx]) {
        self.step(|controller, now, actions| {
            let began = controller.on_relocate(now, (variant, from), to, actions);
            if began {
                self.sent.relocations.inc();
            }
        });
    }

    /// Something else slows a variant down on the worker at position `from`, and these have it: it leaves that worker.
    pub(crate) fn withdraw(&self, variant: VariantIx, from: DeviceIx, stay: &[DeviceIx]) {
        self.step(|controller, now, actions| {
            let began = controller.on_withdraw(now, (variant, from), stay, actions);
            if began {
                self.sent.relocations.inc();
            }
        });
    }

    pub(super) fn count_slots(&self, controller: &Controller<Pending>) {
        let slots = controller.devices().map(|(at, of)| (at, of.slots));
        self.online.set_cores(slots);
    }
}

impl Outcomes for Listener {
    fn are_wanted(&self) -> bool {
        let driver = self.driver.upgrade();
        driver.is_some_and(|driver| driver.workers.client_in(self.at, self.life).is_some())
    }

    fn tell(&self, outcome: LoadOutcome) {
        if let Some(driver) = self.driver.upgrade()
            && driver.workers.client_in(self.at, self.life).is_some()
        {
            driver.on_load_outcome(self.at, outcome);
        }
    }
}
