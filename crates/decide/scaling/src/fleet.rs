//! How measured load corrects the number of devices, and which devices leave first.
//!
//! A plan rests on profiles. If they are wrong, measurements correct the plan: they give the least number of devices.
//!
//! - INFaaS (section 4.3) adds a device of a type when more than 80 % of it are busy, when variants are interfered on
//!   all of its devices, or when instances are overloaded on more than 80 % of them.
//! - Symphony (section 4.4) uses the *bad rate* `r`, the share of queries that were refused for lack of time or
//!   answered too late: `N r / (1 - r)` devices more.
//!
//! Our policy uses Symphony's signal and the states of instances. A device that something else slows down counts as
//! half a device: a plan that needs it has half a device more for each. Busy devices say little, because an idle device
//! starts a lone query at once, so a device is busy already at a tenth of what full batches could carry. Overloaded
//! instances therefore ask for one more device only if the plan, too, has the devices busy for half of their time.

use std::{collections::BTreeMap, time::Duration};

use sextant_types::index::{KindIx, VariantIx};

use super::{Choice, Plan, Problem, demand::Forecast};

/// How long a device on which desired variants depend is kept, before it leaves in any case.
pub const LONGEST_STAY: Duration = Duration::from_secs(120);

/// The share of busy time or of overloaded devices above which INFaaS adds a device.
const FULL: f64 = 0.8;

/// The share of a device that remains if something else slows it down: instances begin to count as interfered when runs
/// take twice as long.
const LEFT: f64 = 0.5;

/// The share of their time for which a plan must have devices busy before overloaded instances count.
const BUSY: f64 = 0.5;

/// Lower bad rates do not show that devices are missing.
pub const BAD: f64 = 0.01;

/// With fewer queries than this no share is computed.
const ENOUGH: f64 = 10.0;

/// Higher bad rates count as this one, because the offered load then says little about what it would be.
pub const MOST_BAD: f64 = 0.75;

/// The measurements of the devices of one type.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Measurement {
    /// Devices that are up.
    pub devices: u32,
    /// Share of their time in which they were busy, 0 to 1.
    pub busy_share: f64,
    /// Devices on which an instance is interfered.
    pub interfered: u32,
    /// Devices on which an instance is overloaded.
    pub overloaded: u32,
    /// The share of the queries for them that were late or refused for lack of time, 0 to 1. A [`super::Scaler`]
    /// computes it from the outlooks of its input.
    pub bad_share: f64,
}

/// Why more devices are needed than a plan has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trigger {
    /// They are busy.
    Busy,
    /// Instances are interfered.
    Interfered,
    /// Instances are overloaded on most of them.
    Overloaded,
    /// Queries are late or refused.
    BadRate,
}

/// A device that may leave.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RemovableDevice {
    /// Share of its time in which it is busy, 0 to 1.
    pub busy_share: f64,
    /// Desired variants that are loaded on it, by the caller's numbers.
    pub holds: Vec<VariantIx>,
    /// When it started, ms.
    pub since_ms: u64,
    /// Whether it is already being emptied.
    pub emptying: bool,
}

/// A device that is to leave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaver {
    /// Its position among those that may leave.
    pub at: usize,
    /// Desired variants that would be loaded nowhere without it. They must move to a device that stays before it may
    /// leave.
    pub alone: Vec<VariantIx>,
}

// === impl Measurement ===

impl Measurement {
    /// The least number of devices by INFaaS's three triggers.
    pub fn infaas(&self) -> (u32, Option<Trigger>) {
        let more = self.devices.saturating_add(1);
        let trigger = match self.devices {
            0 => None,
            _ if self.busy_share > FULL => Some(Trigger::Busy),
            count if self.interfered >= count => Some(Trigger::Interfered),
            count if f64::from(self.overloaded) > FULL * f64::from(count) => {
                Some(Trigger::Overloaded)
            }
            _ => None,
        };
        (trigger.map_or(0, |_| more), trigger)
    }

    /// The least number of devices by the bad rate.
    pub fn sextant(&self) -> (u32, Option<Trigger>) {
        if self.devices > 0 && self.bad_share > BAD {
            let more = lacking(self.devices, self.bad_share);
            return (self.devices.saturating_add(more), Some(Trigger::BadRate));
        }
        (0, None)
    }

    /// The least number of devices by the states of instances, for a plan of `planned` devices of which it keeps `busy`
    /// busy.
    pub fn by_states(&self, planned: u32, busy: f64) -> (u32, Option<Trigger>) {
        let count = f64::from(self.devices);
        if self.devices > 0 && f64::from(self.overloaded) > FULL * count && busy >= BUSY * count {
            return (self.devices.saturating_add(1), Some(Trigger::Overloaded));
        }
        // A type without demand needs no replacement for devices that are slowed down.
        if self.interfered > 0 && busy > 0.0 {
            let lost = (f64::from(self.interfered) * (1.0 - LEFT)).ceil() as u32;
            return (planned.saturating_add(lost), Some(Trigger::Interfered));
        }
        (0, None)
    }
}

// === impl Trigger ===

impl Trigger {
    /// `busy`, `interfered`, `overloaded`, `bad_rate`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::Interfered => "interfered",
            Self::Overloaded => "overloaded",
            Self::BadRate => "bad_rate",
        }
    }
}

/// The number of devices that are missing, by the share of the queries that were late or refused (Symphony, section
/// 4.4): `N r / (1 - r)`, rounded up.
pub fn lacking(devices: u32, bad_share: f64) -> u32 {
    let bad = bad_share.clamp(0.0, MOST_BAD);
    // The cast saturates.
    (f64::from(devices) * bad / (1.0 - bad)).ceil() as u32
}

/// By type of device, in the problem's order: the bad share of the queries that its devices answer; 0 if too few came.
///
/// `here` is the plan for the `up` devices of each type that are up. It determines how a need's queries are divided
/// among the types, so that queries that are refused because a cheap type is full do not ask for more devices of an
/// expensive one. A need that nothing answers counts for the type on which its queries cost least, among the types that
/// are up if any is.
pub fn bad_shares(problem: &Problem, outlooks: &[Forecast], here: &Plan, up: &[u32]) -> Vec<f64> {
    let mut counted = vec![(0.0, 0.0); problem.devices.len()];
    for (at, forecast) in outlooks.iter().enumerate() {
        let served = || {
            let choices = problem.choices_of(at);
            choices.map(|(position, choice)| (choice.device, here.served_rps[position]))
        };
        let all: f64 = served().map(|(_, rps)| rps).sum();
        let dealt: Vec<(KindIx, f64)> = match all > 0.0 {
            true => served().map(|(device, rps)| (device, rps / all)).collect(),
            false => cheapest(problem, at, up)
                .map(|device| (device, 1.0))
                .into_iter()
                .collect(),
        };
        for (device, share) in dealt {
            let (bad, recent) = &mut counted[device.get() as usize];
            *bad += forecast.bad_share * forecast.recent * share;
            *recent += forecast.recent * share;
        }
    }
    let shares = counted.into_iter();
    shares
        .map(|(bad, recent)| if recent >= ENOUGH { bad / recent } else { 0.0 })
        .collect()
}

/// The type on which the queries of a need cost least, among the types that are up if any is.
fn cheapest(problem: &Problem, need: usize, up: &[u32]) -> Option<KindIx> {
    let rank = |choice: &Choice| {
        let device = choice.kind();
        let is_away = up.get(device).is_none_or(|up| *up == 0);
        let price = problem.devices[device].price_per_hour_usd / choice.rps;
        (is_away, price)
    };
    let choices = problem.choices_of(need).map(|(_, choice)| choice);
    let least = choices.min_by(|a, b| {
        let (one, other) = (rank(a), rank(b));
        one.0.cmp(&other.0).then(one.1.total_cmp(&other.1))
    });
    least.map(|choice| choice.device)
}

/// The `surplus` devices that leave, in this order: devices on which nothing depends, devices that are already being
/// emptied, devices on which least depends, the least busy, the latest. `copies` says on how many of the devices that
/// stay, including these, each desired variant is loaded.
pub fn leaving(
    devices: &[RemovableDevice],
    copies: &BTreeMap<VariantIx, u32>,
    surplus: usize,
) -> Vec<Leaver> {
    let mut copies = copies.clone();
    let mut left: Vec<usize> = (0..devices.len()).collect();
    let mut leavers = Vec::new();
    while leavers.len() < surplus {
        let alone = |at: usize| {
            let holds = devices[at].holds.iter().copied();
            let here = holds.filter(|variant| copies.get(variant).is_none_or(|count| *count <= 1));
            here.collect::<Vec<VariantIx>>()
        };
        let first = left.iter().copied().map(|at| (at, alone(at)));
        let first = first.min_by(|(a, alone_a), (b, alone_b)| {
            let (one, other) = (&devices[*a], &devices[*b]);
            let empty = alone_b.is_empty().cmp(&alone_a.is_empty());
            empty
                .then_with(|| other.emptying.cmp(&one.emptying))
                .then_with(|| alone_a.len().cmp(&alone_b.len()))
                .then_with(|| one.busy_share.total_cmp(&other.busy_share))
                .then_with(|| other.since_ms.cmp(&one.since_ms))
                .then_with(|| a.cmp(b))
        });
        let Some((at, alone)) = first else { break };
        left.retain(|other| *other != at);
        for variant in devices[at].holds.iter().filter(|it| !alone.contains(it)) {
            if let Some(count) = copies.get_mut(variant) {
                *count -= 1;
            }
        }
        leavers.push(Leaver { at, alone });
    }
    leavers
}
