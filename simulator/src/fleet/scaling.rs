//! The autoscaler of a run. Its input is what a dispatcher would have counted; its output is what is desired.

use std::collections::BTreeSet;

use sextant_placement::DesiredPlacement;
use sextant_scaling::{
    Options, Scaler,
    autoscale::TICK_S,
    demand::{DemandSample, Forecast, Load},
};
use sextant_types::index::VariantIx;

use super::{
    FleetView, Policy, Setting,
    replicas::{Replicas, Traffic},
    variants::Presences,
};

/// The autoscaler of a run; see the module.
#[derive(Debug)]
pub(super) struct Autoscaler {
    policy: Policy,
    decides: Decider,
    /// By class.
    loads: Vec<Load>,
}

/// What decides how many devices there are.
#[derive(Debug)]
enum Decider {
    /// Nothing: the fleet stays as it is.
    Nobody,
    Scaler(Box<Scaler>),
    Replicas(Replicas),
}

/// The desired state.
#[derive(Debug, Default)]
pub(super) struct Look {
    /// By type: the number of devices.
    pub(super) devices: Vec<u32>,
    /// By variant in order.
    pub(super) variants: Vec<(VariantIx, DesiredPlacement)>,
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
            (Policy::Replicas(rule), _) => Decider::Replicas(Replicas::new(setting, rule)),
            (_, Some(planner)) => Decider::Scaler(Box::new(scaler(planner))),
            (_, None) => Decider::Nobody,
        };
        Self {
            policy,
            decides,
            loads: vec![Load::default(); setting.classes.len()],
        }
    }

    /// Queries of all classes that ended in the `window_ms` before `now_ms`.
    pub(super) fn observe(&mut self, now_ms: u64, window_ms: u64, ended: &[DemandSample]) {
        for (load, ended) in self.loads.iter_mut().zip(ended) {
            load.observe(now_ms, window_ms, *ended);
        }
    }

    /// Whether a tick of a rule about replicas ends at `now_ms`.
    pub(super) fn reads_traffic(&self, now_ms: u64) -> bool {
        let is_tick = now_ms.is_multiple_of(u64::from(TICK_S) * 1000);
        matches!(self.decides, Decider::Replicas(_)) && now_ms > 0 && is_tick
    }

    /// The traffic of the tick that ends now, by class.
    pub(super) fn on_traffic(&mut self, traffic: &[Traffic]) {
        if let Decider::Replicas(replicas) = &mut self.decides {
            replicas.observe(traffic);
        }
    }

    /// What is desired now.
    pub(super) fn look(
        &mut self,
        setting: &Setting,
        now_ms: u64,
        (there, shown): (&Presences<'_>, &mut FleetView),
    ) -> Look {
        let scaler = match &mut self.decides {
            Decider::Scaler(scaler) => scaler,
            Decider::Replicas(replicas) => {
                return Look {
                    devices: replicas.decide((now_ms / 1000) as u32, setting, there),
                    variants: preloaded(setting),
                };
            }
            Decider::Nobody => {
                return Look {
                    devices: setting.types.iter().map(|of| of.initial).collect(),
                    variants: preloaded(setting),
                };
            }
        };
        let ahead_s = shown.ahead_s();
        let forecast = |load: &Load| load.forecast(now_ms, ahead_s, setting.scaling.idle_ms);
        let expected: Vec<Forecast> = self.loads.iter().map(forecast).collect();
        let planner = self.policy.planner().unwrap_or_default();
        let picture = shown.picture(setting, &expected, planner);
        let decided = scaler.decide(&picture.input(), now_ms);
        let warm = match self.policy {
            Policy::Scaler(_) => setting.scaling.warm_memory_share,
            _ => 0.0,
        };
        Look {
            devices: decided.devices.iter().map(|of| of.devices).collect(),
            variants: shown.in_order(&decided.variants, warm),
        }
    }
}

/// The variants that are pinned to applications, desired everywhere, the smallest first.
fn preloaded(setting: &Setting) -> Vec<(VariantIx, DesiredPlacement)> {
    let pinned = setting.applications.iter().filter_map(|of| of.pinned);
    let sized = pinned.map(|at| (setting.variants[at].memory_mb, at));
    let sized: BTreeSet<(u32, VariantIx)> = sized.collect();
    let everywhere = (0..).zip(sized).map(|(order, (_, variant))| {
        let desired = DesiredPlacement {
            devices: u32::MAX,
            pinned: true,
            order,
        };
        (variant, desired)
    });
    let mut everywhere: Vec<_> = everywhere.collect();
    everywhere.sort_by_key(|(variant, _)| *variant);
    everywhere
}
