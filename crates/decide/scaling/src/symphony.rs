//! Symphony's advice to a cluster's autoscaler (section 4.4), as printed.
//!
//! For `N` devices of a type, at the end of each period: if a share `r` of their queries was refused or late, and that
//! share exceeds a threshold, `N r / (1 - r)` more. Otherwise, if the devices were idle for a share `f` of the period,
//! `N f` fewer. The first rule assumes that load beyond the peak is refused. The second assumes that devices are idle
//! in proportion to what is missing to the peak. The second holds for batches that wait as long as they may (the
//! scheduling policy `symphony`); a policy that starts lone queries at once keeps devices busy at any load. The paper
//! prints `N b / (1 - b)` with the batch size `b` in place of `r`, which its text corrects.
//!
//! The paper leaves the threshold and the period open: here they are 1 %, by which it defines the goodput, and a
//! minute. It also does not say what is advised while devices start: here nothing, and if there are no devices one is
//! advised as soon as something is refused. The advice does not consider what a device costs or what load is expected.

use std::collections::BTreeMap;

use super::fleet::{BAD, Measurement, Trigger, lacking};

/// Time between two pieces of advice, ms.
const PERIOD_MS: u64 = 60_000;

/// The advice, by the caller's number of a type.
#[derive(Debug, Clone, Default)]
pub struct Symphony {
    kinds: BTreeMap<u32, Advice>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Advice {
    devices: u32,
    /// Why more were advised than before.
    trigger: Option<Trigger>,
    /// When the period began, ms. `looks` and `busy` have the number of looks in it and the busy shares that were seen.
    since_ms: u64,
    looks: u32,
    busy: f64,
}

// === impl Symphony ===

impl Symphony {
    /// How many devices of a type there should be, by the measurements of those that are up. `is_whole` says that as
    /// many are up as were desired and that they have loaded what they run. A period begins then.
    pub fn advise(&mut self, key: u32, now_ms: u64, measured: Measurement, is_whole: bool) -> u32 {
        let of = self.kinds.entry(key).or_insert(Advice {
            devices: measured.devices,
            since_ms: now_ms,
            ..Advice::default()
        });
        if measured.devices == 0 && of.devices == 0 && measured.bad_share > BAD {
            (of.devices, of.trigger) = (1, Some(Trigger::BadRate));
        }
        if !is_whole {
            of.begin(now_ms);
            return of.devices;
        }
        of.looks += 1;
        of.busy += measured.busy_share.clamp(0.0, 1.0);
        if now_ms.saturating_sub(of.since_ms) >= PERIOD_MS {
            of.decide(measured);
            of.begin(now_ms);
        }
        of.devices
    }

    /// Why more devices of a type were last advised; `None` if they were not.
    pub fn trigger(&self, key: u32) -> Option<Trigger> {
        self.kinds.get(&key).and_then(|of| of.trigger)
    }
}

// === impl Advice ===

impl Advice {
    fn begin(&mut self, now_ms: u64) {
        (self.since_ms, self.looks, self.busy) = (now_ms, 0, 0.0);
    }

    fn decide(&mut self, measured: Measurement) {
        let count = measured.devices;
        if measured.bad_share > BAD {
            self.devices = count.saturating_add(lacking(count, measured.bad_share));
            self.trigger = Some(Trigger::BadRate);
            return;
        }
        let idle = 1.0 - self.busy / f64::from(self.looks.max(1));
        // The cast rounds down: an idle part of a device is not a device.
        self.devices = count - (f64::from(count) * idle.clamp(0.0, 1.0)) as u32;
        self.trigger = None;
    }
}
