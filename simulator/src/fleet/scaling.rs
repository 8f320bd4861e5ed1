//! The autoscaler of a run: what a dispatcher would have counted goes in, what is wanted comes out.

use sextant_health::Condition;
use sextant_placement::Wanted;
use sextant_scaling as scaling;
use sextant_scaling::{
    Choice, Footprint, Kind, Need, Options, Problem, Scaler, Scene,
    autoscale::TICK_S,
    demand::{Ended, Load, Outlook},
    fleet::Measured,
    tenants::Tenants,
    wanted::{Candidate, Place, wanted},
};
use sextant_types::index::{KindIx, VariantIx};

use super::{
    Policy, Setting,
    replicas::{Replicas, Traffic},
    variants::Presences,
};

/// Longest time ahead that is foreseen, s; as in the live autoscaler.
const AHEAD_S: f64 = 180.0;

/// See the module.
#[derive(Debug)]
pub(super) struct Autoscaler {
    policy: Policy,
    decides: Decides,
    /// By class.
    loads: Vec<Load>,
}

/// Who decides how many devices there are.
#[derive(Debug)]
enum Decides {
    /// Nobody: everything stays as it is.
    Nobody,
    Scaler(Box<Scaler>),
    Replicas(Replicas),
}

/// What is wanted.
#[derive(Debug, Default)]
pub(super) struct Look {
    /// By type: how many devices.
    pub(super) devices: Vec<u32>,
    /// By variant in order.
    pub(super) variants: Vec<(VariantIx, Wanted)>,
}

impl Autoscaler {
    pub(super) fn new(setting: &Setting, policy: Policy) -> Self {
        let options = |policy| Options {
            policy,
            hold_ms: setting.scaling.hold_ms,
            variant_hold_ms: setting.scaling.variant_hold_ms,
            cold_start_s: setting.scaling.cold_start_s,
        };
        let scaler = |policy| {
            let mut scaler = Scaler::new(options(policy));
            for (kind, of) in (0..).zip(&setting.types) {
                scaler.assume_devices(kind, 0, of.initial);
            }
            scaler
        };
        let decides = match (policy, policy.planner()) {
            (Policy::Replicas(rule), _) => Decides::Replicas(Replicas::new(setting, rule)),
            (_, Some(planner)) => Decides::Scaler(Box::new(scaler(planner))),
            (_, None) => Decides::Nobody,
        };
        Self {
            policy,
            decides,
            loads: vec![Load::default(); setting.classes.len()],
        }
    }

    /// Queries of all classes that ended in the `window_ms` before `now_ms`.
    pub(super) fn observe(&mut self, now_ms: u64, window_ms: u64, ended: &[Ended]) {
        for (load, ended) in self.loads.iter_mut().zip(ended) {
            load.observe(now_ms, window_ms, *ended);
        }
    }

    /// Whether a tick of a rule about replicas ends at `now_ms`.
    pub(super) fn reads_traffic(&self, now_ms: u64) -> bool {
        let is_tick = now_ms.is_multiple_of(u64::from(TICK_S) * 1000);
        matches!(self.decides, Decides::Replicas(_)) && now_ms > 0 && is_tick
    }

    /// What came in the tick that ends now, by class.
    pub(super) fn on_traffic(&mut self, traffic: &[Traffic]) {
        if let Decides::Replicas(replicas) = &mut self.decides {
            replicas.observe(traffic);
        }
    }

    /// What is wanted now.
    pub(super) fn look(&mut self, setting: &Setting, now_ms: u64, there: &Presences<'_>) -> Look {
        let scaler = match &mut self.decides {
            Decides::Scaler(scaler) => scaler,
            Decides::Replicas(replicas) => {
                return Look {
                    devices: replicas.decide((now_ms / 1000) as u32, setting, there),
                    variants: preloaded(setting),
                };
            }
            Decides::Nobody => {
                return Look {
                    devices: setting.types.iter().map(|of| of.initial).collect(),
                    variants: preloaded(setting),
                };
            }
        };
        let starts = setting.types.iter().map(|of| of.start_s);
        let ahead_s = starts.fold(0.0, f64::max).min(AHEAD_S);
        let outlook = |load: &Load| load.outlook(now_ms, ahead_s, setting.scaling.idle_ms);
        let outlooks: Vec<Outlook> = self.loads.iter().map(outlook).collect();
        let planner = self.policy.planner().unwrap_or_default();
        let scene = scene(setting, &outlooks, there, planner);
        let decided = scaler.decide(&scene, now_ms);
        let planned = decided.variants.iter().map(|(variant, count)| {
            // Where memory is short, the controller knows from query to query what is worth most.
            let wanted = Wanted {
                devices: *count,
                pinned: false,
                order: 0,
            };
            (*variant, wanted)
        });
        let warm = match self.policy {
            Policy::Scaler(_) => warm(setting, there),
            _ => Vec::new(),
        };
        Look {
            devices: decided.devices.iter().map(|of| of.devices).collect(),
            variants: in_order(setting, planned.collect(), warm),
        }
    }
}

/// Variants that are pinned to applications, everywhere.
fn preloaded(setting: &Setting) -> Vec<(VariantIx, Wanted)> {
    let pinned = setting.applications.iter().filter_map(|of| of.pinned);
    let everywhere = |variant| {
        let wanted = Wanted {
            devices: u32::MAX,
            pinned: true,
            order: 0,
        };
        (variant, wanted)
    };
    in_order(setting, pinned.map(everywhere).collect(), Vec::new())
}

/// What load asks for, and beside it what is kept warm wherever it runs: first what is needed, the
/// smallest first; by variant.
fn in_order(
    setting: &Setting,
    mut wanted: Vec<(VariantIx, Wanted)>,
    warm: Vec<VariantIx>,
) -> Vec<(VariantIx, Wanted)> {
    let mut order: Vec<(bool, u32, VariantIx)> = wanted
        .iter()
        .map(|(variant, _)| (false, setting.variants[*variant].memory_mb, *variant))
        .collect();
    for variant in warm {
        match wanted.iter_mut().find(|(known, _)| *known == variant) {
            Some((_, known)) => known.devices = u32::MAX,
            None => {
                order.push((true, setting.variants[variant].memory_mb, variant));
                let kept = Wanted {
                    devices: u32::MAX,
                    pinned: false,
                    order: 0,
                };
                wanted.push((variant, kept));
            }
        }
    }
    order.sort_unstable();
    for (at, (_, _, variant)) in (0..).zip(order) {
        if let Some((_, of)) = wanted.iter_mut().find(|(known, _)| *known == variant) {
            of.order = at;
        }
    }
    wanted.sort_by_key(|(variant, _)| *variant);
    wanted
}

/// Variants that are loaded before anybody asks, as the live autoscaler chooses them. A type of device
/// counts as an engine.
fn warm(setting: &Setting, there: &Presences<'_>) -> Vec<VariantIx> {
    let share = setting.scaling.warm_memory_share;
    if share <= 0.0 {
        return Vec::new();
    }
    let mut candidates = Vec::new();
    for (at, variant) in setting.variants.numbered() {
        let on = variant.on.iter().enumerate();
        for (kind, latency) in on.filter_map(|(kind, latency)| Some((kind, latency.as_ref()?))) {
            candidates.push(Candidate {
                ordinal: at,
                model: variant.application.get(),
                engine: kind as u32,
                dominated: false,
                own_bytes: bytes(variant.memory_mb),
                shared: None,
                cost_per_1k_usd: setting.cost_per_1k_usd(variant, kind).unwrap_or(0.0),
                quality_bound: variant.accuracy,
                latency_ms: latency.of(1) as f64 / 1e6,
                load_ms: variant.load_ms,
            });
        }
    }
    let places = (0..setting.types.len()).flat_map(|kind| {
        let place = Place {
            engines: vec![kind as u32],
            memory_bytes: bytes(setting.types[kind].memory_mb),
        };
        there.up(kind).map(move |_| place.clone())
    });
    let places: Vec<Place> = places.collect();
    let wishes = wanted(&candidates, &places, share);
    let mut variants: Vec<VariantIx> = wishes.iter().map(|wish| wish.ordinal).collect();
    variants.dedup();
    variants
}

/// Everything as numbers.
fn scene(
    setting: &Setting,
    outlooks: &[Outlook],
    there: &Presences<'_>,
    planner: scaling::Policy,
) -> Scene {
    let mut scene = Scene {
        problem: Problem {
            needs: outlooks
                .iter()
                .map(|outlook| Need {
                    rps: outlook.rps,
                    weight: 1.0,
                })
                .collect(),
            choices: Vec::new(),
            devices: setting.types.iter().map(device).collect(),
            budget_per_hour_usd: setting.scaling.budget_per_hour_usd,
        },
        kinds: Vec::new(),
        outlooks: outlooks.to_vec(),
        footprints: Vec::new(),
        tenants: Tenants {
            all: setting.applications.iter().map(|of| of.tenant).collect(),
            of_need: setting.classes.iter().map(|of| of.application).collect(),
        },
    };
    for class in 0..setting.classes.len() {
        add_choices(setting, (class, planner), there, &mut scene);
    }
    let up = |kind| there.up(kind).count() as u32;
    let up: Vec<u32> = (0..setting.types.len()).map(up).collect();
    scene.kinds = (0..setting.types.len())
        .map(|kind| Kind {
            key: kind as u32,
            up: up[kind],
            memory_bytes: bytes(setting.types[kind].memory_mb),
            managed: setting.types[kind].most > setting.types[kind].least,
            measured: measured(there, kind),
        })
        .collect();
    scene
}

fn device(of: &super::DeviceType) -> scaling::Device {
    scaling::Device {
        price_per_hour_usd: of.price_per_hour_usd,
        now: 0,
        least: of.least,
        most: of.most.max(of.least),
        slots: of.slots.max(1).into(),
        start_s: of.start_s,
    }
}

/// The variants that meet the targets of a class, by type of device.
fn add_choices(
    setting: &Setting,
    (class, planner): (usize, scaling::Policy),
    there: &Presences<'_>,
    scene: &mut Scene,
) {
    let of = &setting.classes[class];
    let pinned = setting.applications[of.application].pinned;
    for (at, variant) in setting.variants.numbered() {
        let is_good = variant.is_good(of.min_accuracy);
        let is_meant = variant.application == of.application;
        if !is_good || !is_meant || pinned.is_some_and(|pinned| pinned != at) {
            continue;
        }
        for (kind, device) in setting.types.iter().enumerate() {
            let Some(rps) = setting.planned_rate(planner, (at, kind), of) else {
                continue;
            };
            let memory_share = f64::from(variant.memory_mb) / f64::from(device.memory_mb.max(1));
            if memory_share > 1.0 {
                continue;
            }
            scene.problem.choices.push(Choice {
                need: class as u32,
                variant: at,
                device: KindIx::new(kind as u32),
                rps,
                memory_share,
                load_s: variant.load_ms / 1e3,
                running: there.loaded(at, kind),
            });
            scene.footprints.push(Footprint {
                variant: at,
                own_bytes: bytes(variant.memory_mb),
                group: at.get(),
                shared_bytes: 0,
                least: 0,
                load: 0,
            });
        }
    }
}

fn measured(there: &Presences<'_>, kind: usize) -> Measured {
    let busy: Vec<f64> = there.up(kind).map(|device| device.busy_share).collect();
    Measured {
        devices: busy.len() as u32,
        busy_share: busy.iter().sum::<f64>() / busy.len().max(1) as f64,
        interfered: there.in_condition(kind, Condition::Interfered),
        overloaded: there.in_condition(kind, Condition::Overloaded),
        bad_share: 0.0,
        loading: there.is_loading(kind),
    }
}

fn bytes(mb: u32) -> u64 {
    u64::from(mb) * 1_000_000
}
