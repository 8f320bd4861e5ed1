//! The whole decision: how many devices of each type there should be, and on how many of those that are up each variant
//! should be loaded.
//!
//! Each look plans twice. The first plan is free to choose the number of devices. It says how many there should be, and
//! measurements may raise that number ([`super::fleet`]). The second plan has only the devices that are up. It says
//! what should be loaded on them now. A variant that will move to a cheaper device therefore stays where it is until
//! that device is up.

mod afforded;
mod awaited;
mod preferred;
mod variants;

use std::collections::BTreeMap;

use sextant_types::{
    WorkerId,
    index::{KindIx, VariantIx},
};

use super::{
    Footprint, Infaas, Plan, Policy, Problem, RecentMaximum, Symphony,
    demand::{BAD_FADED_MS, Forecast},
    fleet::{Measurement, Trigger, bad_shares},
    instances::{self, Weights},
    reserved::{self, ReservedCapacity},
    shared::{self, Effort},
    tenants::{Cut, Grant, Tenants},
};
use awaited::Awaited;

/// How long the excess of measured load over a plan is remembered, ms. A plan that was too small is too small again
/// when the additional devices have gone.
const CORRECTED_MS: u64 = 3_600_000;

/// The share of a device's memory that is planned for. The rest is for what pages and allocators waste.
const MEMORY: f64 = 0.9;

/// Below this rate a plan counts as leaving nothing unanswered, 1/s.
const UNANSWERED_RPS: f64 = 1e-3;

/// The policy that plans, and how long things are kept.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// The policy that plans.
    pub policy: Policy,
    /// How long devices are kept that are no longer planned for, ms.
    pub hold_ms: u64,
    /// How long variants are kept that are no longer planned for, ms.
    pub variant_hold_ms: u64,
    /// The longest that the first query after a pause may have to wait for a device to start and a variant to load
    /// there, s; see [`Problem::kept`].
    pub cold_start_s: Option<f64>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            hold_ms: 600_000,
            variant_hold_ms: 60_000,
            cold_start_s: None,
        }
    }
}

/// The devices of one type, as they are now.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Kind {
    /// The caller's number of the type, the same at each look.
    pub key: u32,
    /// The number of devices that are up and stay.
    pub up: u32,
    /// Memory of each device for variants, bytes.
    pub memory_bytes: u64,
    /// Whether a provider starts and ends them by the desired count. The number of other devices is fixed.
    pub managed: bool,
    /// The measurements of the devices. `bad_share` is ignored; it is computed from the outlooks.
    pub measured: Measurement,
}

/// A variant that is loaded or being loaded on a device that is up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    /// The caller's number of the variant.
    pub variant: VariantIx,
    /// The type of the device, by its position in [`Problem::devices`].
    pub device: KindIx,
    /// The worker of the device.
    pub worker: WorkerId,
    /// Whether it serves there; otherwise it is being loaded.
    pub serves: bool,
}

/// The complete input of a look.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PlannerInput {
    /// The demand and the ways to answer it. `least` and `most` of each type are the allowed numbers; `now` is ignored.
    pub problem: Problem,
    /// By type of device, in the problem's order.
    pub kinds: Vec<Kind>,
    /// By need, in the problem's order: the forecast, and how its queries ended.
    pub outlooks: Vec<Forecast>,
    /// By choice, in the problem's order: the memory of its variant. `least` and `load` are ignored.
    pub footprints: Vec<Footprint>,
    /// The limits and priorities of applications.
    pub tenants: Tenants,
    /// By choice, in the problem's order: 0 if no choice is preferred to it for its need, then 1 and so on. Empty if
    /// the cheapest choice is preferred for all needs.
    pub preferences: Vec<u32>,
    /// The capacity that is reserved for the plans of pipelines.
    pub staffed: ReservedCapacity,
    /// The variants that are being loaded and that serve.
    pub instances: Vec<Instance>,
}

/// The desired number of devices of a type.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DeviceTarget {
    /// The number of devices.
    pub devices: u32,
    /// The measurement that requires more devices than planned.
    pub trigger: Option<Trigger>,
    /// The share of the queries for them that were late or refused for lack of time, 0 to 1.
    pub bad_share: f64,
}

/// The decision.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ScalingDecision {
    /// The plan that may choose the devices, without those that are set aside.
    pub free: Plan,
    /// The problem that this plan answers: the input's problem without what is not planned for.
    pub problem: Problem,
    /// The queries for which it does not plan.
    pub cuts: Vec<Cut>,
    /// The plan for the devices that are up.
    pub here: Plan,
    /// By type of device, in the problem's order.
    pub devices: Vec<DeviceTarget>,
    /// By type of device, in the problem's order: the number that is set aside for the plans of pipelines.
    pub reserved: Vec<u32>,
    /// By the caller's number: on how many devices a variant should be loaded. A variant that should be loaded nowhere
    /// has no entry.
    pub variants: BTreeMap<VariantIx, u32>,
}

/// Decides, and remembers its decisions.
#[derive(Debug, Clone)]
pub struct Scaler {
    options: Options,
    devices: RecentMaximum<u32>,
    variants: RecentMaximum<VariantIx>,
    known: BTreeMap<VariantIx, u32>,
    /// By type: the number of devices that was desired at the last look.
    desired: BTreeMap<u32, u32>,
    /// When devices or loaded variants were last missing, ms. It covers all types, because a query may be for several
    /// of them.
    missing_ms: Option<u64>,
    awaited: Awaited,
    /// By type: the devices beyond the plan that measured load required. `ratio` has how many devices were required for
    /// one that is busy, in thousandths.
    extra: RecentMaximum<u32>,
    ratio: RecentMaximum<u32>,
    infaas: Infaas,
    symphony: Symphony,
}

/// The number of devices in a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fleet {
    /// The best number.
    Free,
    /// The number that are up.
    AsItIs,
}

// === impl Scaler ===

impl Scaler {
    /// Makes a scaler without history.
    pub fn new(options: Options) -> Self {
        Self {
            devices: RecentMaximum::new(options.hold_ms),
            variants: RecentMaximum::new(options.variant_hold_ms),
            known: BTreeMap::new(),
            desired: BTreeMap::new(),
            missing_ms: None,
            awaited: Awaited::default(),
            extra: RecentMaximum::new(CORRECTED_MS),
            ratio: RecentMaximum::new(CORRECTED_MS),
            infaas: Infaas::new(Weights::default()),
            symphony: Symphony::default(),
            options,
        }
    }

    /// Takes over the number of devices of a type that another process has desired, as if it had been planned at
    /// `now_ms`.
    pub fn assume_devices(&mut self, key: u32, now_ms: u64, devices: u32) {
        self.devices.assume(key, now_ms, devices);
        self.desired.insert(key, devices);
    }

    /// Takes over the number of devices on which another process has desired a variant.
    pub fn assume_variant(&mut self, variant: VariantIx, now_ms: u64, devices: u32) {
        self.variants.assume(variant, now_ms, devices);
        self.known.insert(variant, devices);
    }

    /// The decision at this moment.
    pub fn decide(&mut self, input: &PlannerInput, now_ms: u64) -> ScalingDecision {
        self.awaited.look(input, now_ms);
        let kept = self.options.cold_start_s.map(|cold_start_s| PlannerInput {
            problem: input.problem.kept(cold_start_s),
            ..input.clone()
        });
        let input = kept.as_ref().unwrap_or(input);
        let (staffed, free, granted) = self.beside(input, Fleet::Free);
        let is_open = |it: &&PlannerInput| it.staffed.reserved.is_empty();
        let open = staffed.as_ref().filter(is_open);
        let (_, here, _) = self.beside(open.unwrap_or(input), Fleet::AsItIs);
        let input = staffed.as_ref().unwrap_or(input);
        let measured = self.measured(input, &here);
        let free = match self.options.policy {
            Policy::Symphony => self.advised(input, &measured, now_ms),
            _ => free,
        };
        let devices = self.devices(input, (&free, &measured), now_ms);
        let variants = self.variants(input, &here, now_ms);
        let aside = reserved::aside(&input.staffed.reserved, input.kinds.len());
        ScalingDecision {
            reserved: aside.iter().map(|aside| aside.devices).collect(),
            free,
            problem: granted.problem,
            cuts: granted.cuts,
            here,
            devices,
            variants,
        }
    }

    /// A plan beside the devices that are set aside. If it would leave something unanswered, a plan with all devices.
    /// Also returns the input for which it was planned, if that is a different one.
    fn beside(
        &mut self,
        input: &PlannerInput,
        fleet: Fleet,
    ) -> (Option<PlannerInput>, Plan, Grant) {
        if input.staffed.reserved.is_empty() {
            let (plan, granted) = self.plan(input, fleet);
            return (None, plan, granted);
        }
        let infaas = self.infaas.clone();
        let staffed = input.staffed();
        let (plan, granted) = self.plan(&staffed, fleet);
        if !is_short(&plan) {
            return (Some(staffed), plan, granted);
        }
        self.infaas = infaas;
        let open = PlannerInput {
            staffed: ReservedCapacity::default(),
            ..input.clone()
        };
        let (plan, granted) = self.plan(&open, fleet);
        (Some(open), plan, granted)
    }

    /// A plan within the limits of the applications. If it leaves something unanswered, the fleet is divided among the
    /// applications.
    fn plan(&mut self, input: &PlannerInput, fleet: Fleet) -> (Plan, Grant) {
        let mut granted = input.tenants.bounded(&of_fleet(input, fleet));
        let infaas = self.infaas.clone();
        let plan = self.preferred(input, &granted.problem, fleet);
        let divided = match is_short(&plan) {
            true => input.tenants.divided(&granted.problem),
            false => None,
        };
        let Some(divided) = divided else {
            return (plan, granted);
        };
        // The plan that is not taken must not count its waits.
        self.infaas = infaas;
        granted.problem = divided.problem;
        granted.cuts.extend(divided.cuts);
        (self.preferred(input, &granted.problem, fleet), granted)
    }

    fn answer(&mut self, problem: &Problem, fleet: Fleet) -> Plan {
        match self.options.policy {
            Policy::Sextant | Policy::Symphony => shared::plan(problem, Effort::default()),
            // The program does not know the budget.
            Policy::Ilp => instances::plan(problem, Weights::default())
                .filter(|plan| afforded::is_affordable(problem, plan))
                .unwrap_or_else(|| shared::greedy(problem)),
            // Waits are counted once per look.
            Policy::Infaas if fleet == Fleet::Free => self.infaas.clone().plan(problem),
            Policy::Infaas => self.infaas.plan(problem),
        }
    }

    /// The number of devices that Symphony advises, and what they answer.
    fn advised(&mut self, input: &PlannerInput, measured: &[Measurement], now_ms: u64) -> Plan {
        let mut problem = reserved::without(input.problem.clone(), &input.staffed.reserved);
        let kinds = input.kinds.iter().zip(measured);
        for (device, (kind, measured)) in problem.devices.iter_mut().zip(kinds) {
            let desired = self.desired.get(&kind.key).copied().unwrap_or(0);
            let is_whole = !self.awaited.has_load(kind.key) && kind.up >= desired;
            let advised = self.symphony.advise(kind.key, now_ms, *measured, is_whole);
            let devices = advised.clamp(device.least, device.most.max(device.least));
            (device.least, device.most) = (devices, devices);
        }
        shared::plan(&problem, Effort::default())
    }

    fn devices(
        &mut self,
        input: &PlannerInput,
        (free, measured): (&Plan, &[Measurement]),
        now_ms: u64,
    ) -> Vec<DeviceTarget> {
        let aside = reserved::aside(&input.staffed.reserved, input.kinds.len());
        let busy = shared::busy_devices(&input.problem, free);
        let planned = free.devices.iter().zip(busy).zip(aside);
        let planned = planned.map(|((devices, busy), aside)| {
            (devices.saturating_add(aside.devices), busy + aside.busy)
        });
        let planned: Vec<(u32, f64)> = planned.collect();
        let is_settled = self.is_settled(input, &planned, now_ms);
        let mut all = Vec::new();
        let kinds = input.kinds.iter().zip(&input.problem.devices);
        for (((kind, device), (planned, busy)), now) in kinds.zip(&planned).zip(measured) {
            let measured = match is_settled {
                true => *now,
                false => Measurement {
                    bad_share: 0.0,
                    ..*now
                },
            };
            let (must, by_states, trigger) = self.fewest(measured, (*planned, *busy));
            let most = device.most.max(device.least);
            let corrected = match self.options.policy {
                Policy::Sextant => {
                    let corrected = self.corrected((kind.key, now_ms), (*planned, *busy), must);
                    corrected.max(by_states)
                }
                Policy::Ilp | Policy::Infaas | Policy::Symphony => (*planned).max(must),
            };
            let raised = corrected.clamp(device.least, most);
            let desired = match kind.managed {
                true => self.devices.want(kind.key, now_ms, raised),
                false => kind.up,
            };
            let devices = desired.clamp(device.least, most);
            all.push(DeviceTarget {
                devices,
                bad_share: now.bad_share,
                trigger: match self.options.policy {
                    Policy::Symphony => self.symphony.trigger(kind.key),
                    _ => trigger.filter(|_| must.max(by_states) > *planned),
                },
            });
        }
        afforded::limit(input, &planned, &mut all);
        self.take_over(input, &all, now_ms);
        all
    }

    /// Remembers the present decision.
    fn take_over(&mut self, input: &PlannerInput, all: &[DeviceTarget], now_ms: u64) {
        for (kind, desired) in input.kinds.iter().zip(all) {
            let before = self.desired.insert(kind.key, desired.devices);
            if desired.devices > before.unwrap_or(0) {
                // The new devices may be up before the next look.
                self.missing_ms = Some(now_ms);
            }
        }
    }

    /// The least number of devices by the outcome of queries, which is remembered, the least number by the states of
    /// instances, which is not, and the reason if a plan has fewer.
    fn fewest(&self, measured: Measurement, plan: (u32, f64)) -> (u32, u32, Option<Trigger>) {
        let (must, trigger) = match self.options.policy {
            Policy::Sextant => measured.sextant(),
            Policy::Ilp | Policy::Infaas => measured.infaas(),
            Policy::Symphony => (0, None),
        };
        let (by_states, state) = match self.options.policy {
            Policy::Sextant => measured.by_states(plan.0, plan.1),
            Policy::Ilp | Policy::Infaas | Policy::Symphony => (0, None),
        };
        let trigger = match trigger {
            Some(trigger) if must >= by_states => Some(trigger),
            _ => state.or(trigger),
        };
        (must, by_states, trigger)
    }

    /// A plan corrected by what measured load says now and has said about earlier plans. The correction adds the same
    /// number of devices, or the same multiple of the busy devices, whichever is less. A plan has whole devices, while
    /// the busy part is fractional: of three devices that a load needed nothing remains when the load has gone,
    /// although the plan has one device as before.
    fn corrected(
        &mut self,
        (key, now_ms): (u32, u64),
        (planned, busy): (u32, f64),
        must: u32,
    ) -> u32 {
        let lacking = must.saturating_sub(planned);
        let more = self.extra.want(key, now_ms, lacking);
        let for_busy = match lacking {
            0 => 0,
            _ => (f64::from(must) / busy.max(1e-3) * 1000.0) as u32,
        };
        let for_busy = self.ratio.want(key, now_ms, for_busy);
        let multiple = (f64::from(for_busy) / 1000.0 * busy).ceil() as u32;
        let remembered = planned.saturating_add(more).min(multiple);
        remembered.max(planned).max(must)
    }

    /// By type of device: the measurements, and the outcome of the queries that its devices answer.
    fn measured(&self, input: &PlannerInput, here: &Plan) -> Vec<Measurement> {
        let up: Vec<u32> = input.kinds.iter().map(|kind| kind.up).collect();
        let outlooks = input.tenants.judged(&input.problem, &input.outlooks);
        let outlooks = self.awaited.judged(input, outlooks);
        let bad = bad_shares(&input.problem, &outlooks, here, &up);
        let each = input.kinds.iter().zip(bad);
        each.map(|(kind, bad_share)| Measurement {
            bad_share,
            ..kind.measured
        })
        .collect()
    }

    /// Whether queries that were late or refused show that more devices are needed. They do not while desired or
    /// planned devices or variants that are being loaded are awaited, nor just after more devices were desired, nor for
    /// as long afterwards as such queries still count.
    fn is_settled(&mut self, input: &PlannerInput, planned: &[(u32, f64)], now_ms: u64) -> bool {
        let kinds = input.kinds.iter().zip(&input.problem.devices).zip(planned);
        for ((kind, device), (planned, _)) in kinds {
            let desired = self.desired.get(&kind.key).copied().unwrap_or(0);
            let of = (kind.key, kind.up, kind.up < desired.max(*planned));
            let awaits_device = self.awaited.has_device(of, device.start_s, now_ms);
            if awaits_device || self.awaited.has_load(kind.key) {
                self.missing_ms = Some(now_ms);
            }
        }
        let missing_ms = *self.missing_ms.get_or_insert(now_ms);
        now_ms.saturating_sub(missing_ms) >= BAD_FADED_MS
    }
}

fn is_short(plan: &Plan) -> bool {
    plan.unserved_rps.iter().any(|rps| *rps > UNANSWERED_RPS)
}

// === impl PlannerInput ===

impl PlannerInput {
    /// The input without the needs that the reserved capacity answers.
    fn staffed(&self) -> Self {
        let mut input = self.clone();
        for need in &self.staffed.needs {
            if let Some(need) = input.problem.needs.get_mut(*need as usize) {
                need.rps = 0.0;
            }
        }
        input
    }
}

/// The problem with these devices.
fn of_fleet(input: &PlannerInput, fleet: Fleet) -> Problem {
    let mut problem = input.problem.clone();
    for (device, kind) in problem.devices.iter_mut().zip(&input.kinds) {
        device.now = kind.up;
        if fleet == Fleet::AsItIs {
            (device.least, device.most) = (kind.up, kind.up);
        }
    }
    if fleet == Fleet::AsItIs {
        problem.budget_per_hour_usd = None;
    }
    reserved::without(problem, &input.staffed.reserved)
}
