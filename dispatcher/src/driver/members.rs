//! Workers that come and go, and whether work is given out.

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

/// Receives the outcomes of a worker's loads and unloads during one of its lives.
struct Listener {
    driver: Weak<Driver>,
    at: DeviceIx,
    life: u64,
}

impl Driver {
    /// A worker can be reached. It is used after [`Self::on_worker_up`] is called.
    pub(crate) fn add_worker(&self, client: WorkerClient) {
        self.workers.add(client);
    }

    /// A worker can no longer be reached. Returns whether it was present.
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

    /// Starts or stops giving out work. A driver that stops refuses everything that waits; what is under way ends by
    /// itself. A driver that starts uses the workers once it is told that they are up.
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

    /// The worker at position `at`, of this kind, takes batches from now on, with nothing loaded as far as is known.
    /// Must be called within a runtime.
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
            // Whoever removes the worker, or stops giving out work, records that first and tells the controller
            // afterwards.
            if self.leads() && self.workers.client_in(at, life).is_some() {
                controller.on_device_up(now, at, spec, actions);
                self.count_slots(controller);
            }
        });
    }

    /// The worker at position `at` is gone or takes no new work. Its client answers what runs on it: the client calls
    /// back for every batch in any case.
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

    /// An interference slows a variant down on the worker at position `from`. The variant moves to one of the workers
    /// `to`, best first, if it can.
    pub(crate) fn relocate(&self, variant: VariantIx, from: DeviceIx, to: &[DeviceIx]) {
        self.step(|controller, now, actions| {
            let began = controller.on_relocate(now, (variant, from), to, actions);
            if began {
                self.sent.relocations.inc();
            }
        });
    }

    /// An interference slows a variant down on the worker at position `from`, and the workers `stay` have it too. It is
    /// unloaded from the former.
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
