//! Demand, allocation and priority (Clockwork, section 5.3), kept up to date model by model.
//!
//! - `d_m`, the demand of a model, is given by the caller;
//! - `a_{m,g}`, its allocation to a device that has it, with `sum_g a_{m,g} = d_m`;
//! - `l_g = sum_m a_{m,g}`, the load of a device;
//! - `p_m = d_m - sum_g a_{m,g} * capacity / l_g`, what the devices that have the model leave
//!   unfulfilled. Without a replica it is `d_m`; on a device with less than its capacity to do it
//!   is negative.
//!
//! The paper splits a demand in proportion to `1 / l_g`, and `l_g` contains the very share that is
//! to be found: taken by the letter, shares swap places with every event. Here a share goes by what
//! *other* models load a device with, plus [`FLOOR`]. Everything but the priority is in whole
//! nanoseconds, so that sums stay exact however long they are kept.

use smallvec::SmallVec;

use super::Nanos;

/// A device without load counts as loaded with this much, ns, when demands are split: 1 ms.
const FLOOR: Nanos = 1_000_000;

/// A demand on more devices than this is *wide*: it is taken to be spread evenly over all devices,
/// so that a request costs the same however many there are. A model on so many is on nearly all of
/// them, or what others load them with evens out.
const MOST_SHARES: usize = 4;

#[derive(Debug, Clone, Copy)]
struct Share {
    device: u32,
    work: Nanos,
}

#[derive(Debug, Clone, Default)]
struct Model {
    work: Nanos,
    shares: SmallVec<[Share; 2]>,
}

/// The demands of all models and their allocation to devices. Each change concerns one model and
/// costs O(1).
#[derive(Debug, Clone)]
pub struct Demand {
    capacity: Nanos,
    models: Vec<Model>,
    /// By device, without what is wide.
    loads: Vec<Nanos>,
    /// Their sum.
    total: Nanos,
    /// What is wide, together.
    wide: Nanos,
    /// Devices that are up.
    devices: usize,
    /// Devices with at least their capacity to do, without what is wide.
    crowded: usize,
}

impl Demand {
    /// Without models; every device can fulfil `capacity` ns.
    pub fn new(capacity: Nanos) -> Self {
        Self {
            capacity,
            models: Vec::new(),
            loads: Vec::new(),
            total: 0,
            wide: 0,
            devices: 0,
            crowded: 0,
        }
    }

    /// The demand of a model, `d_m`, ns.
    pub fn of(&self, model: u32) -> Nanos {
        self.models.get(model as usize).map_or(0, |of| of.work)
    }

    /// So many devices are up.
    pub fn set_devices(&mut self, devices: usize) {
        self.devices = devices;
    }

    /// The part of it that is allocated to a device, `a_{m,g}`, ns; 0 for a wide one.
    pub fn allocation(&self, model: u32, device: u32) -> Nanos {
        let of = self.models.get(model as usize);
        let share = of.and_then(|of| of.shares.iter().find(|share| share.device == device));
        share.map_or(0, |share| share.work)
    }

    /// What is allocated to a device, `l_g`, ns.
    pub fn load(&self, device: u32) -> Nanos {
        let own = self.loads.get(device as usize).copied().unwrap_or(0);
        own + self.wide_load()
    }

    /// What is wide, for each device.
    fn wide_load(&self) -> Nanos {
        self.wide / self.devices.max(1) as Nanos
    }

    /// The unfulfilled part of a model's demand, `p_m`, ns, after the present loads; negative where
    /// there is capacity to spare.
    pub fn priority(&self, model: u32) -> f64 {
        let Some(of) = self.models.get(model as usize) else {
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

    /// Whether a device that is up has capacity to spare.
    pub fn is_spare(&self) -> bool {
        self.devices > self.crowded && self.wide_load() < self.capacity
    }

    /// The demand of a model is `work` ns from now on.
    pub fn set(&mut self, model: u32, work: Nanos) {
        let of = self.know(model);
        let before = std::mem::replace(&mut of.work, work);
        match of.is_wide() {
            true => self.wide = self.wide - before + work,
            false => self.split(model),
        }
    }

    /// A device has the model from now on.
    pub fn place(&mut self, model: u32, device: u32) {
        if self.loads.len() <= device as usize {
            self.loads.resize(device as usize + 1, 0);
        }
        let of = self.know(model);
        if of.shares.iter().any(|share| share.device == device) {
            return;
        }
        if of.shares.len() == MOST_SHARES {
            self.widen(model);
        }
        let of = &mut self.models[model as usize];
        of.shares.push(Share { device, work: 0 });
        if !of.is_wide() {
            self.split(model);
        }
    }

    /// What was split is wide from now on.
    fn widen(&mut self, model: u32) {
        let mut shares = std::mem::take(&mut self.models[model as usize].shares);
        for share in &mut shares {
            let work = std::mem::take(&mut share.work);
            self.set_load(share.device, |load| load - work);
        }
        let of = &mut self.models[model as usize];
        of.shares = shares;
        self.wide += of.work;
    }

    /// A device has not the model any more.
    pub fn displace(&mut self, model: u32, device: u32) {
        let Some(of) = self.models.get_mut(model as usize) else {
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
            self.split(model);
        }
    }

    fn know(&mut self, model: u32) -> &mut Model {
        let at = model as usize;
        if self.models.len() <= at {
            self.models.resize_with(at + 1, Model::default);
        }
        &mut self.models[at]
    }

    /// Allocates a demand again; what rounding leaves goes to the first device.
    fn split(&mut self, model: u32) {
        let mut shares = std::mem::take(&mut self.models[model as usize].shares);
        let work = self.models[model as usize].work;
        for share in &shares {
            self.set_load(share.device, |load| load - share.work);
        }
        let weight = |loads: &[Nanos], device: u32| 1.0 / (loads[device as usize] + FLOOR) as f64;
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
        self.models[model as usize].shares = shares;
    }

    fn set_load(&mut self, device: u32, to: impl Fn(Nanos) -> Nanos) {
        let load = &mut self.loads[device as usize];
        let was_crowded = *load >= self.capacity;
        self.total -= *load;
        *load = to(*load);
        self.total += *load;
        let is_crowded = *load >= self.capacity;
        self.crowded = self.crowded + usize::from(is_crowded) - usize::from(was_crowded);
    }
}

// === impl Model ===

impl Model {
    fn is_wide(&self) -> bool {
        self.shares.len() > MOST_SHARES
    }
}
