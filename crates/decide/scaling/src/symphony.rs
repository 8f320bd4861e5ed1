//! Symphony's advice to a cluster's autoscaler (section 4.4), as printed.
//!
//! For `N` devices of a type, at the end of each period: where a share `r` of their queries was refused or
//! late and that is more than a threshold, `N r / (1 - r)` more; else, where they were idle for a share `f`
//! of the period, `N f` fewer. The first assumes that what is offered beyond the peak is refused, the second
//! that devices idle in proportion to what is missing to the peak. The second holds for batches that wait as
//! long as they may (the scheduling policy `symphony`): one that starts lone queries at once keeps devices
//! busy at any load. The paper prints `N b / (1 - b)` with the batch size `b` in place of `r`, which its
//! text corrects.
//!
//! It leaves the threshold and the period open: here 1 %, by which it defines the goodput, and a minute. Nor
//! does it say what is advised while devices start: here nothing, and from none at all one is advised as soon
//! as something is refused. The advice knows neither what a device costs nor what is expected.

use std::collections::BTreeMap;

use super::fleet::{BAD, Measurement, Trigger, lacking};

/// Time between two pieces of advice, ms.
const PERIOD_MS: u64 = 60_000;

/// What is advised, by the caller's number of a type.
#[derive(Debug, Clone, Default)]
pub struct Symphony {
    kinds: BTreeMap<u32, Advice>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Advice {
    devices: u32,
    /// Why there are more than before.
    trigger: Option<Trigger>,
    /// When the period began, ms, how often was looked in it, and the busy shares that were seen.
    since_ms: u64,
    looks: u32,
    busy: f64,
}

// === impl Symphony ===

impl Symphony {
    /// How many devices of a type there should be, from what was measured of those that are up.
    /// `is_whole`: as many are up as were desired, and they have loaded what they run. A period begins then.
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

    /// Why more devices of a type were advised last; `None` where they were not.
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
        // The cast cuts off: what is idle of a device is not a device.
        self.devices = count - (f64::from(count) * idle.clamp(0.0, 1.0)) as u32;
        self.trigger = None;
    }
}
