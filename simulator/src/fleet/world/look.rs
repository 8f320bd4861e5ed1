//! Looks of the autoscaler.

use sextant_health::Condition;
use sextant_scaling::demand::DemandSample;
use sextant_schedule::Nanos;

use super::{Event, World};
use crate::fleet::variants::Presences;

/// Time between two looks of the autoscaler, ns.
const LOOK: Nanos = 1_000_000_000;

impl World<'_> {
    pub(super) fn on_look(&mut self) {
        let (now, window) = (self.now, if self.looks == 0 { 0 } else { LOOK });
        self.watch();
        let ended: Vec<DemandSample> = self.ended.iter_mut().map(std::mem::take).collect();
        let now_ms = now / 1_000_000;
        if window > 0 {
            self.autoscaler.observe(now_ms, window / 1_000_000, &ended);
        }
        if self.autoscaler.reads_traffic(now_ms) {
            let traffic = self.inside.read(now);
            self.autoscaler.on_traffic(&traffic);
        }
        self.changed();
        self.show();
        let there = Presences {
            devices: &self.devices,
        };
        let there = (&there, &mut self.control.shown);
        let look = self.autoscaler.look(self.setting, now_ms, there);
        let idle_unload = self
            .setting
            .scaling
            .idle_unload_ms
            .saturating_mul(1_000_000);
        self.control.want(now, look.variants, idle_unload);
        self.carry_out();
        self.balance(&look.devices);
        self.looks += 1;
        self.schedule(now + LOOK, Event::Look);
    }

    /// Measures all devices, and the condition of the variants on them.
    pub(super) fn watch(&mut self) {
        let mut changed = false;
        for device in self.devices.iter_mut().flatten() {
            for variant in device.look(self.now) {
                changed = true;
                if device.watch.condition(variant) == Condition::Interfered {
                    let at_s = self.now as f64 / 1e9;
                    self.report.interfered.push((at_s, device.kind, variant));
                }
            }
        }
        if changed {
            self.changed();
        }
    }
}
