//! Devices that are reserved for the plans of pipelines.
//!
//! A plan for a pipeline says which variant runs each step on how many devices, given how queries would wait there.
//! These devices are set aside before anything else is planned, so that plans for other load cannot take them. While
//! they are idle they answer other queries, but no plan counts on that. If they leave too little for the other demand,
//! nothing is set aside, and the steps are planned for like other queries.

use sextant_types::index::{KindIx, VariantIx};

use crate::Problem;

/// The capacity that is reserved for the plans of pipelines, and the needs that it answers.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ReservedCapacity {
    /// The devices.
    pub reserved: Vec<Reservation>,
    /// Positions of the needs that it answers.
    pub needs: Vec<u32>,
}

/// Devices of one type that run a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reservation {
    /// The caller's number of the variant.
    pub variant: VariantIx,
    /// The type of device, by its position in [`Problem::devices`].
    pub device: KindIx,
    /// The number of devices that the variant occupies.
    pub devices: f64,
    /// The number of devices that the expected load keeps busy.
    pub busy: f64,
}

/// The part of a type of device that is set aside.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Reserve {
    /// The number of whole devices.
    pub devices: u32,
    /// The number of them that the load keeps busy.
    pub busy: f64,
}

impl Reservation {
    /// The number of devices on which the variant is loaded.
    pub(crate) fn loaded(&self) -> u32 {
        whole(self.devices)
    }
}

/// The number of devices, rounded up.
fn whole(devices: f64) -> u32 {
    // The cast saturates.
    (devices - 1e-9).ceil().max(0.0) as u32
}

/// By type of device: what is set aside. Steps share devices that one of them does not fill.
pub(crate) fn aside(reserved: &[Reservation], kinds: usize) -> Vec<Reserve> {
    let mut sums = vec![(0.0, 0.0); kinds];
    for of in reserved {
        if let Some((devices, busy)) = sums.get_mut(of.device.get() as usize) {
            *devices += of.devices;
            *busy += of.busy;
        }
    }
    let sums = sums.into_iter();
    sums.map(|(devices, busy)| Reserve {
        devices: whole(devices),
        busy,
    })
    .collect()
}

/// The problem without the devices that are set aside and without their cost.
pub(crate) fn without(mut problem: Problem, reserved: &[Reservation]) -> Problem {
    let aside = aside(reserved, problem.devices.len());
    for (device, aside) in problem.devices.iter_mut().zip(aside) {
        let taken = aside.devices.min(device.most.max(device.least));
        device.least = device.least.saturating_sub(taken);
        device.most = device.most.saturating_sub(taken);
        device.now = device.now.saturating_sub(taken);
        if let Some(budget) = &mut problem.budget_per_hour_usd {
            *budget = (*budget - f64::from(taken) * device.price_per_hour_usd).max(0.0);
        }
    }
    problem
}
