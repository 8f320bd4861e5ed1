//! How many devices of each type the fleet should have, and which variants on how many of them.
//!
//! A [`Problem`] says what is asked for ([`Need`]), which variants on which type of device can answer it
//! ([`Choice`]) and what devices cost ([`Device`]). A [`Plan`] answers it. Planners are known by name
//! ([`Policy`]):
//!
//! - [`shared`], ours: a device runs several variants by turns, so it is paid once for all of them.
//! - [`instances`], the integer program of INFaaS (section 4.2), solved exactly: each instance is paid
//!   for itself.
//! - [`Infaas`], the greedy heuristic that INFaaS runs in its place, as printed.
//! - [`Symphony`], which looks at no plan: more devices where queries are refused, fewer where they are idle.
//!
//! [`tenants`] comes before them: what applications may use, and who goes first.
//!
//! [`Scaler`] joins all of it: [`demand`] says what to expect of each need, a planner what would be
//! best, [`fleet`] what measured load says beside the plan and which devices leave first, and [`RecentMaximum`]
//! when a plan becomes what is desired.
//!
//! [`presence`] says since when a machine has been without its worker.
//!
//! [`warm`] says which variants should be loaded before anyone asks, [`autoscale`] how many replicas each
//! application has where all share the same processors.
//!
//! **Invariant:** no clock, no async, no lock, no I/O, no logging. Time is an argument, order never
//! depends on a hash, and the same inputs give the same answer.

pub mod autoscale;
pub mod demand;
pub mod fleet;
mod infaas;
pub mod instances;
mod packing;
pub mod presence;
mod recent_maximum;
mod reserved;
mod scaler;
pub mod shared;
mod symphony;
pub mod tenants;
pub mod warm;

pub use infaas::Infaas;
pub use packing::{Footprint, Room, spread};
pub use recent_maximum::RecentMaximum;
pub use reserved::{Reservation, ReservedCapacity};
pub use scaler::{DeviceTarget, Instance, Kind, Options, PlannerInput, Scaler, ScalingDecision};
pub use symphony::Symphony;

use sextant_types::{
    index::{KindIx, VariantIx},
    named,
};

/// What the fleet may be made of, and what it must do.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Problem {
    /// What is asked for.
    pub needs: Vec<Need>,
    /// How it can be answered.
    pub choices: Vec<Choice>,
    /// Types of devices.
    pub devices: Vec<Device>,
    /// Most that all devices together may cost, US dollars an hour; `None` without a bound.
    pub budget_per_hour_usd: Option<f64>,
}

/// Queries of one application with like targets.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Need {
    /// How many a second, at least 0.
    pub rps: f64,
    /// What leaving one of them unanswered counts beside one of another need, above 0.
    pub weight: f64,
}

/// A variant that meets the targets of a need, on a type of device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choice {
    /// Position of the need in [`Problem::needs`].
    pub need: u32,
    /// The caller's number of the variant.
    pub variant: VariantIx,
    /// The type of device, by its position in [`Problem::devices`].
    pub device: KindIx,
    /// Queries a second that one device answers within the target when it runs nothing else, above 0.
    pub rps: f64,
    /// Share of one device's memory that it occupies, 0 to 1.
    pub memory_share: f64,
    /// Time to load it, s.
    pub load_s: f64,
    /// Devices on which it is loaded.
    pub running: u32,
}

/// A type of device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Device {
    /// Price of one, US dollars an hour.
    pub price_per_hour_usd: f64,
    /// How many there are or are about to be.
    pub now: u32,
    /// How many there must be.
    pub least: u32,
    /// How many there may be; at least `least`.
    pub most: u32,
    /// Batches that one runs side by side, at least 1.
    pub slots: u32,
    /// Time until a new one is up, s.
    pub start_s: f64,
}

/// What should be.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Plan {
    /// By type: how many.
    pub devices: Vec<u32>,
    /// By choice: queries of its need that it answers, 1/s.
    pub served_rps: Vec<f64>,
    /// By choice: devices on which its variant is loaded.
    pub instances: Vec<u32>,
    /// By need: queries that nothing answers, 1/s.
    pub unserved_rps: Vec<f64>,
    /// Price of all devices, US dollars an hour.
    pub cost_per_hour_usd: f64,
    /// Whether nothing is cheaper.
    pub optimal: bool,
}

/// What is planned for where a device is kept for the first query after a pause, 1/s.
const KEPT_RPS: f64 = 0.002;

/// What is planned for at least of a rate whose target leaves no time for waiting.
const LEAST_SHARE: f64 = 0.1;

named! {
    /// Planners by name.
    Policy,
    /// There is no planner of that name.
    UnknownPolicy of "scaling policy",
    /// Ours: devices that variants share by time.
    #[default]
    Sextant = "sextant",
    /// The integer program of INFaaS, solved exactly.
    Ilp = "ilp",
    /// The greedy heuristic of INFaaS.
    Infaas = "infaas",
    /// Symphony's advice by refused queries and idle time.
    Symphony = "symphony",
}

/// Queries a second that a device answers within a target by running nothing but one variant; `None`
/// where it does not answer even one in time.
///
/// A query that has just missed a batch waits for it to end and runs in the next: batches may take half
/// the target (Clipper section 4.3, Nexus section 4.1). Where not even a lone query is that quick, they
/// run alone.
///
/// `run_ms` gives the run time of a batch of so many rows, ms; `most` is the largest batch,
/// `side_by_side` how many batches a device runs at once.
pub fn rate_in_time(
    run_ms: impl Fn(u32) -> f64,
    most: u32,
    side_by_side: f64,
    target_ms: Option<f64>,
) -> Option<f64> {
    let rate = |batch: u32| f64::from(batch) / run_ms(batch).max(1e-6) * 1000.0;
    if target_ms.is_some_and(|target| run_ms(1) > target) {
        return None;
    }
    let in_time = (2..=most.max(1))
        .filter(|batch| target_ms.is_none_or(|target| 2.0 * run_ms(*batch) <= target));
    let best = in_time.map(rate).fold(rate(1), f64::max);
    (best.is_finite() && best > 0.0).then_some(best * side_by_side)
}

/// The same for queries whose targets lie between these two, ms, and that are counted together: as if all had
/// the strictest, so that a batch is in time for each. A variant that is quick enough for some of them is
/// one of theirs; where it is not for the strictest, it runs queries alone.
///
/// `tail_ms` is the 99th percentile of a lone query, ms. What is planned for is less by
/// [`Policy::planned_share`] of a target in the middle.
pub fn rate_for_class(
    policy: Policy,
    run_ms: impl Fn(u32) -> f64,
    tail_ms: f64,
    (most, side_by_side): (u32, f64),
    targets_ms: Option<(f64, f64)>,
) -> Option<f64> {
    if targets_ms.is_some_and(|(_, loosest)| tail_ms > loosest) {
        return None;
    }
    let lone_ms = run_ms(1);
    let at_most = targets_ms.map(|(strictest, _)| strictest.max(lone_ms));
    let middle = targets_ms.map(|(strictest, loosest)| f64::midpoint(strictest, loosest));
    let rate = rate_in_time(run_ms, most, side_by_side, at_most)?;
    Some(rate * policy.planned_share(lone_ms, middle.map(|middle| middle.max(lone_ms))))
}

// === impl Policy ===

impl Policy {
    /// Share of the rate of [`rate_in_time`] that is planned for, above 0 to 1: by how much of the run time
    /// of a lone query the target leaves for waiting, where it leaves less than all of it.
    ///
    /// A query that comes while another runs waits for what is left of that run. Where the target is twice
    /// the run time it is in time whenever it came; where it is one and a half times the run time, every
    /// other one is refused, however little there is to do on average. So a device with such queries must be
    /// idle more often. The planners of others have no such share, as printed.
    pub fn planned_share(self, lone_ms: f64, target_ms: Option<f64>) -> f64 {
        match (self, target_ms) {
            (Self::Sextant, Some(target_ms)) => {
                let wait = (target_ms - lone_ms) / lone_ms.max(1e-6);
                wait.clamp(LEAST_SHARE, 1.0)
            }
            _ => 1.0,
        }
    }
}

// === impl Choice ===

impl Choice {
    /// The position of its type of device, in lists by type.
    pub fn kind(&self) -> usize {
        self.device.get() as usize
    }
}

// === impl Problem ===

impl Problem {
    /// Price of the devices of a plan, US dollars an hour.
    pub fn cost_per_hour_usd(&self, devices: &[u32]) -> f64 {
        let each = self.devices.iter().zip(devices);
        each.map(|(device, count)| device.price_per_hour_usd * f64::from(*count))
            .sum()
    }

    /// The problem where the first query after a pause waits no longer than `cold_start_s`: a need that
    /// nobody asks for now counts as if it were asked for now and then, so that a device stays for it. Not
    /// where a device and a variant that answer it can be started and loaded within that time.
    pub fn kept(&self, cold_start_s: f64) -> Self {
        let mut kept = self.clone();
        let mut soonest_s = vec![f64::INFINITY; self.needs.len()];
        for choice in &self.choices {
            let device = &self.devices[choice.kind()];
            if device.most > 0 {
                let soonest_s = &mut soonest_s[choice.need as usize];
                *soonest_s = soonest_s.min(device.start_s + choice.load_s);
            }
        }
        for (need, soonest_s) in kept.needs.iter_mut().zip(soonest_s) {
            // What nothing can answer needs nothing.
            if soonest_s.is_finite() && soonest_s > cold_start_s {
                need.rps = need.rps.max(KEPT_RPS);
            }
        }
        kept
    }

    /// Choices of a need with their positions.
    pub fn choices_of(&self, need: usize) -> impl Iterator<Item = (usize, &Choice)> {
        let all = self.choices.iter().enumerate();
        all.filter(move |(_, choice)| choice.need as usize == need)
    }
}
