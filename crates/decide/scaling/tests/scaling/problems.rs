//! Small problems that the tests share.

use sextant_scaling::{
    Choice, Device, Footprint, Kind, Need, PlannerInput, Problem, demand::Forecast,
    fleet::Measurement, instances::Weights,
};
use sextant_types::index::{KindIx, VariantIx};

/// Weights under which nothing but running instances is paid for, and no slack is kept.
pub const BARE: Weights = Weights {
    slack: 1.0,
    load_per_s: 0.0,
    steps: 1_000_000,
};

pub fn device(price_per_hour_usd: f64) -> Device {
    Device {
        price_per_hour_usd,
        now: 0,
        least: 0,
        most: 1000,
        slots: 1,
        start_s: 0.0,
    }
}

pub fn choice(need: u32, device: u32, rps: f64) -> Choice {
    Choice {
        need,
        variant: VariantIx::new(device),
        device: KindIx::new(device),
        rps,
        memory_share: 1.0,
        load_s: 0.0,
        running: 0,
    }
}

pub fn need(rps: f64) -> Need {
    Need { rps, weight: 1.0 }
}

/// Table 3 of INFaaS: A answers 5 a second in 200 ms for 1 USD, B 100 in 20 ms for 3, C 800 in 15 ms
/// for 16. Each on a device of its own.
pub fn table3(rps: f64, target_ms: f64) -> Problem {
    let variants = [(200.0, 5.0, 1.0), (20.0, 100.0, 3.0), (15.0, 800.0, 16.0)];
    let in_time = (0..).zip(variants).filter(|(_, (ms, ..))| *ms <= target_ms);
    Problem {
        needs: vec![need(rps)],
        choices: in_time
            .map(|(at, (_, rps, _))| choice(0, at, rps))
            .collect(),
        devices: variants.iter().map(|(.., price)| device(*price)).collect(),
        budget_per_hour_usd: None,
    }
}

/// A look at one type of device on which one variant answers 20 queries a second.
pub fn input(rps: f64, up: u32, measured: Measurement) -> PlannerInput {
    PlannerInput {
        tenants: Default::default(),
        preferences: Vec::new(),
        staffed: Default::default(),
        instances: Vec::new(),
        problem: Problem {
            needs: vec![need(rps)],
            choices: vec![choice(0, 0, 20.0)],
            devices: vec![device(1.0)],
            budget_per_hour_usd: None,
        },
        kinds: vec![Kind {
            key: 0,
            up,
            memory_bytes: 100,
            managed: true,
            measured: Measurement {
                devices: up,
                ..measured
            },
        }],
        outlooks: vec![Forecast {
            rps,
            bad_share: measured.bad_share,
            recent: 1000.0,
            ..Forecast::default()
        }],
        footprints: vec![footprint_of(0, 95, 0)],
    }
}

pub fn footprint_of(variant: u32, own_bytes: u64, least: u32) -> Footprint {
    Footprint {
        variant: VariantIx::new(variant),
        own_bytes,
        group: variant,
        shared_bytes: 0,
        least,
        load: 0,
    }
}
