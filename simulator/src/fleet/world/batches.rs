//! Batches on devices.

use sextant_profile::Run;
use sextant_schedule::Nanos;
use sextant_types::index::{DeviceIx, VariantIx};

use super::{Batch, Event, World};
use crate::fleet::{
    control::Control,
    devices::{FinishedBatch, Job},
};

impl World<'_> {
    /// Advances the batches of a device to now.
    pub(super) fn step(&mut self, (device, life): (DeviceIx, u64)) {
        let now = self.now;
        loop {
            let Some(of) = self.devices[device].as_mut() else {
                return;
            };
            if of.life != life {
                return;
            }
            let Some(left) = of.slots.step(now) else {
                break;
            };
            of.watch.on_left(&left);
            self.on_left(left);
        }
        self.leave(device);
        if let Some(of) = self.devices[device].as_mut()
            && let Some(next) = of.slots.next()
            && of.next != next
        {
            of.next = next;
            self.schedule(next, Event::Step { device, life });
        }
    }

    /// A batch has left its device.
    pub(super) fn on_left(&mut self, left: FinishedBatch) {
        let Some(batch) = self.batches[left.batch as usize].take() else {
            return;
        };
        self.vacant_batches.push(left.batch);
        for request in &batch.requests {
            self.inside.on_batch(request.payload.class, false);
            match left.ran {
                Some(_) => self.answer(request),
                None => self.refuse(request.payload, true),
            }
        }
        let run = left.ran.map(|(nanos, _)| Run {
            rows: batch.requests.iter().map(|request| request.rows).sum(),
            nanos,
            mhz: None,
        });
        let now = self.now;
        let Control {
            controller,
            actions,
            ..
        } = &mut self.control;
        // The controller no longer knows a device that drains.
        controller.on_result(now, batch.id, run, actions);
    }

    pub(super) fn start(
        &mut self,
        (device, variant): (DeviceIx, VariantIx),
        batch: Batch,
        (earliest, latest): (Nanos, Nanos),
    ) {
        let of_variant = &self.setting.variants[variant];
        let Some(of) = self.devices[device].as_mut() else {
            return;
        };
        let Some(Some(latency)) = of_variant.on.get(of.kind) else {
            return;
        };
        for request in &batch.requests {
            self.inside.on_batch(request.payload.class, true);
        }
        let rows = batch.requests.iter().map(|request| request.rows).sum();
        let jitter = &self.setting.jitter;
        let alone = jitter.apply(latency.of(rows), &mut self.random);
        let at = self.vacant_batches.pop().unwrap_or_else(|| {
            self.batches.push(None);
            self.batches.len() as u32 - 1
        });
        self.batches[at as usize] = Some(batch);
        of.slots.push(Job {
            batch: at,
            variant,
            slots: of_variant.slots,
            earliest,
            latest,
            alone,
        });
        let life = of.life;
        self.step((device, life));
    }
}
