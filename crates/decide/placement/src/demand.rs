//! Demand, allocation and priority (Clockwork, section 5.3), updated variant by variant.
//!
//! - `d_m`, the demand of a variant, is given by the caller;
//! - `a_{m,g}` is its allocation to a device that has it, with `sum_g a_{m,g} = d_m`;
//! - `l_g = sum_m a_{m,g}` is the load of a device;
//! - `p_m = d_m - sum_g a_{m,g} * capacity / l_g` is the part that the devices with the variant leave unfulfilled.
//!   Without a replica it is `d_m`. On a device with less work than its capacity it is negative.
//!
//! The paper splits a demand in proportion to `1 / l_g`, and `l_g` contains the very share that is to be found. Taken
//! literally, shares swap places with every event. Here a share depends on the load that *other* variants put on a
//! device, plus [`FLOOR`]. Everything but the priority is in whole nanoseconds, so that sums stay exact however long
//! they are kept.

use smallvec::SmallVec;

use super::Nanos;
use sextant_types::index::{DeviceIx, IndexVec, VariantIx};

/// A device without load counts as loaded with this much, ns, when demands are split: 1 ms.
const FLOOR: Nanos = 1_000_000;

/// A demand on more devices than this is *wide*: it is assumed to be spread evenly over all devices, so that a request
/// costs the same however many devices there are. A variant on so many devices is either on nearly all of them, or the
/// loads of other variants on them even out.
const MOST_SHARES: usize = 4;

#[derive(Debug, Clone, Copy)]
struct Share {
    device: DeviceIx,
    work: Nanos,
}

#[derive(Debug, Clone, Default)]
struct Variant {
    work: Nanos,
    shares: SmallVec<[Share; 2]>,
}

/// The demands of all variants and their allocation to devices. Each change concerns one variant and costs O(1).
#[derive(Debug, Clone)]
pub struct Demand {
    capacity: Nanos,
    variants: IndexVec<VariantIx, Variant>,
    /// The load of each device, without wide demand.
    loads: IndexVec<DeviceIx, Nanos>,
    /// The sum of the loads.
    total: Nanos,
    /// The wide demand of all variants together.
    wide: Nanos,
    /// The number of devices that are up.
    devices: usize,
    /// The number of devices whose load reaches their capacity, without wide demand.
    crowded: usize,
}

impl Demand {
    /// Makes an instance without variants, in which every device can fulfil `capacity` ns.
    pub fn new(capacity: Nanos) -> Self {
        Self {
            capacity,
            variants: IndexVec::default(),
            loads: IndexVec::default(),
            total: 0,
            wide: 0,
            devices: 0,
            crowded: 0,
        }
    }

    /// The demand of a variant, `d_m`, ns.
    pub fn of(&self, variant: VariantIx) -> Nanos {
        self.variants.get(variant).map_or(0, |of| of.work)
    }

    /// Sets the number of devices that are up.
    pub fn set_devices(&mut self, devices: usize) {
        self.devices = devices;
    }

    /// The part of a variant's demand that is allocated to a device, `a_{m,g}`, ns; 0 for wide demand.
    pub fn allocation(&self, variant: VariantIx, device: DeviceIx) -> Nanos {
        let of = self.variants.get(variant);
        let share = of.and_then(|of| of.shares.iter().find(|share| share.device == device));
        share.map_or(0, |share| share.work)
    }

    /// The demand that is allocated to a device, `l_g`, ns.
    pub fn load(&self, device: DeviceIx) -> Nanos {
        let own = self.loads.get(device).copied().unwrap_or(0);
        own + self.wide_load()
    }

    /// The wide demand per device.
    fn wide_load(&self) -> Nanos {
        self.wide / self.devices.max(1) as Nanos
    }

    /// The unfulfilled part of a variant's demand, `p_m`, ns, at the present loads. It is negative if there is capacity
    /// to spare.
    pub fn priority(&self, variant: VariantIx) -> f64 {
        let Some(of) = self.variants.get(variant) else {
            return 0.0;
        };
        let capacity = self.capacity as f64;
        if of.is_wide() {
            let mean = (self.wide + self.total) as f64 / self.devices.max(1) as f64;
            let work = of.work as f64;
            return work - work * capacity / mean.max(1.0);
        }
        let fulfilled = of.shares.iter().map(|share| match share.work {
            0 => 0.0,
            work => work as f64 * capacity / self.load(share.device) as f64,
        });
        of.work as f64 - fulfilled.sum::<f64>()
    }

    /// Whether no demand of a variant can be unfulfilled because no device has more work than it can do.
    /// [`Self::priority`] is then not above 0. The demand of a variant without a replica is not met.
    #[inline]
    pub fn is_met(&self, variant: VariantIx) -> bool {
        self.variants
            .get(variant)
            .is_some_and(|of| match of.is_wide() {
                true => {
                    self.wide + self.total <= self.capacity.saturating_mul(self.devices as Nanos)
                }
                false => self.crowded == 0 && self.wide == 0 && !of.shares.is_empty(),
            })
    }

    /// Whether a device that is up has capacity to spare.
    pub fn is_spare(&self) -> bool {
        self.devices > self.crowded && self.wide_load() < self.capacity
    }

    /// Sets the demand of a variant to `work` ns.
    pub fn set(&mut self, variant: VariantIx, work: Nanos) {
        let of = self.know(variant);
        let before = std::mem::replace(&mut of.work, work);
        match of.is_wide() {
            true => self.wide = self.wide - before + work,
            false => self.split(variant),
        }
    }

    /// A device has the variant from now on.
    pub fn place(&mut self, variant: VariantIx, device: DeviceIx) {
        self.loads.grown(device);
        let of = self.know(variant);
        if of.shares.iter().any(|share| share.device == device) {
            return;
        }
        if of.shares.len() == MOST_SHARES {
            self.widen(variant);
        }
        let of = &mut self.variants[variant];
        of.shares.push(Share { device, work: 0 });
        if !of.is_wide() {
            self.split(variant);
        }
    }

    /// Makes a split demand wide.
    fn widen(&mut self, variant: VariantIx) {
        let mut shares = std::mem::take(&mut self.variants[variant].shares);
        for share in &mut shares {
            let work = std::mem::take(&mut share.work);
            self.set_load(share.device, |load| load - work);
        }
        let of = &mut self.variants[variant];
        of.shares = shares;
        self.wide += of.work;
    }

    /// A device no longer has the variant.
    pub fn displace(&mut self, variant: VariantIx, device: DeviceIx) {
        let Some(of) = self.variants.get_mut(variant) else {
            return;
        };
        let Some(at) = of.shares.iter().position(|share| share.device == device) else {
            return;
        };
        let was_wide = of.is_wide();
        let (share, work) = (of.shares.swap_remove(at), of.work);
        let is_wide = of.is_wide();
        self.set_load(device, |load| load - share.work);
        if was_wide && !is_wide {
            self.wide -= work;
        }
        if !is_wide {
            self.split(variant);
        }
    }

    fn know(&mut self, variant: VariantIx) -> &mut Variant {
        self.variants.grown(variant)
    }

    /// Allocates a demand again. The first device gets the rounding remainder.
    fn split(&mut self, variant: VariantIx) {
        let mut shares = std::mem::take(&mut self.variants[variant].shares);
        let work = self.variants[variant].work;
        for share in &shares {
            self.set_load(share.device, |load| load - share.work);
        }
        let weight = |loads: &IndexVec<DeviceIx, Nanos>, device: DeviceIx| {
            1.0 / (loads[device] + FLOOR) as f64
        };
        let weights = shares.iter().map(|share| weight(&self.loads, share.device));
        let total: f64 = weights.sum();
        let mut rest = work;
        for share in shares.iter_mut().skip(1) {
            let part = weight(&self.loads, share.device) / total;
            share.work = ((work as f64 * part) as Nanos).min(rest);
            rest -= share.work;
        }
        if let Some(first) = shares.first_mut() {
            first.work = rest;
        }
        for share in &shares {
            self.set_load(share.device, |load| load + share.work);
        }
        self.variants[variant].shares = shares;
    }

    fn set_load(&mut self, device: DeviceIx, to: impl Fn(Nanos) -> Nanos) {
        let load = &mut self.loads[device];
        let was_crowded = *load >= self.capacity;
        self.total -= *load;
        *load = to(*load);
        self.total += *load;
        let is_crowded = *load >= self.capacity;
        self.crowded = self.crowded + usize::from(is_crowded) - usize::from(was_crowded);
    }
}

// === impl Variant ===

impl Variant {
    fn is_wide(&self) -> bool {
        self.shares.len() > MOST_SHARES
    }
}
