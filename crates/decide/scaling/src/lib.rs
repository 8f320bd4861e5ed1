//! How many devices of each type the fleet should have, and which variants on how many of them.
//!
//! A [`Problem`] says what is demanded ([`Need`]), which variants on which type of device can answer it ([`Choice`])
//! and what devices cost ([`Device`]). A [`Plan`] answers it. Planners have names ([`Policy`]):
//!
//! - [`shared`], our planner: a device runs several variants by turns, so it is paid once for all of them.
//! - [`instances`], the integer program of INFaaS (section 4.2), solved exactly: each instance is paid for separately.
//! - [`Infaas`], the greedy heuristic that INFaaS runs in place of the program, as printed.
//! - [`Symphony`], which uses no plan: more devices if queries are refused, fewer if devices are idle.
//!
//! [`tenants`] is applied before them: what applications may use, and which goes first.
//!
//! [`Scaler`] joins all of these: [`demand`] forecasts each need, a planner finds the best fleet, [`fleet`] corrects
//! the plan by measured load and chooses the devices that leave first, and [`RecentMaximum`] decides when a plan
//! becomes the desired count.
//!
//! [`presence`] determines since when a machine has been without its worker.
//!
//! [`warm`] chooses the variants that should be loaded before anyone asks. [`autoscale`] chooses how many replicas each
//! application has if all share the same processors.
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

/// The devices that the fleet may have, and the demand that it must answer.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Problem {
    /// The demand.
    pub needs: Vec<Need>,
    /// The ways to answer it.
    pub choices: Vec<Choice>,
    /// Types of devices.
    pub devices: Vec<Device>,
    /// The most that all devices together may cost, US dollars an hour; `None` without a limit.
    pub budget_per_hour_usd: Option<f64>,
}

/// Queries of one application with similar targets.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Need {
    /// The rate, 1/s, at least 0.
    pub rps: f64,
    /// The weight of leaving one of its queries unanswered relative to one of another need, above 0.
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
    /// Queries a second that one device answers within the target if it runs nothing else, above 0.
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
    /// Price of one device, US dollars an hour.
    pub price_per_hour_usd: f64,
    /// The number of devices that are up or about to be.
    pub now: u32,
    /// The least number of devices.
    pub least: u32,
    /// The greatest number of devices, at least `least`.
    pub most: u32,
    /// Batches that one device runs side by side, at least 1.
    pub slots: u32,
    /// Time until a new device is up, s.
    pub start_s: f64,
}

/// The fleet and the assignment that should be.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Plan {
    /// By type: the number of devices.
    pub devices: Vec<u32>,
    /// By choice: the queries of its need that it answers, 1/s.
    pub served_rps: Vec<f64>,
    /// By choice: devices on which its variant is loaded.
    pub instances: Vec<u32>,
    /// By need: the queries that nothing answers, 1/s.
    pub unserved_rps: Vec<f64>,
    /// Price of all devices, US dollars an hour.
    pub cost_per_hour_usd: f64,
    /// Whether it is optimal.
    pub optimal: bool,
}

/// The rate that is planned for if a device is kept for the first query after a pause, 1/s.
const KEPT_RPS: f64 = 0.002;

/// The least share of a rate that is planned for if the target leaves no time for waiting.
const LEAST_SHARE: f64 = 0.1;

named! {
    /// Planners by name.
    Policy,
    /// There is no planner with that name.
    UnknownPolicy of "scaling policy",
    /// Our planner: devices that variants share by time.
    #[default]
    Sextant = "sextant",
    /// The integer program of INFaaS, solved exactly.
    Ilp = "ilp",
    /// The greedy heuristic of INFaaS.
    Infaas = "infaas",
    /// Symphony's advice from refused queries and idle time.
    Symphony = "symphony",
}

/// Queries a second that a device answers within a target if it runs only one variant; `None` if it does not answer
/// even one in time.
///
/// A query that has just missed a batch waits for the batch to end and runs in the next one, so batches may take half
/// the target (Clipper section 4.3, Nexus section 4.1). If not even a lone query is that quick, queries run alone.
///
/// `run_ms` gives the run time of a batch of a number of rows, ms. `most` is the largest batch. `side_by_side` is the
/// number of batches that a device runs at once.
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

/// The same for queries that are counted together and whose targets lie between these two, ms. All count as if they had
/// the strictest target, so that a batch is in time for each. A variant that is quick enough for only some of them is
/// also one of their choices; if it is too slow for the strictest target, it runs queries alone.
///
/// `tail_ms` is the 99th percentile of a lone query, ms. The planned rate is lower by [`Policy::planned_share`] for a
/// target in the middle.
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
    /// The share of the rate of [`rate_in_time`] that is planned for, above 0 to 1. It is the ratio of the time that
    /// the target leaves for waiting to the run time of a lone query, if that is less than one.
    ///
    /// A query that comes while another runs waits for the rest of that run. If the target is twice the run time, the
    /// query is in time whenever it came. If it is one and a half times the run time, every other such query is
    /// refused, however low the mean load is. A device with such queries must therefore be idle more often. The
    /// planners of others have no such share, as printed.
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

    /// The problem in which the first query after a pause waits no longer than `cold_start_s`. A need without current
    /// demand counts as if it had a query now and then, so that a device stays for it. This does not apply if a device
    /// can be started and a variant that answers the need loaded within that time.
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
            // A need that nothing can answer gets nothing.
            if soonest_s.is_finite() && soonest_s > cold_start_s {
                need.rps = need.rps.max(KEPT_RPS);
            }
        }
        kept
    }

    /// The choices of a need, with their positions.
    pub fn choices_of(&self, need: usize) -> impl Iterator<Item = (usize, &Choice)> {
        let all = self.choices.iter().enumerate();
        all.filter(move |(_, choice)| choice.need as usize == need)
    }
}
