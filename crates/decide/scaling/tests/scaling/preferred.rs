//! Plans for queries that prefer accuracy.

use sextant_scaling::{Options, PlannerInput, Scaler, fleet::Measurement};

use crate::problems::{choice, device, input, need};

/// One need; an accurate variant answers 20 a second on a device, a cheap one 100. The accurate one is preferred.
fn asked(rps: f64, most: u32, budget_per_hour_usd: Option<f64>) -> PlannerInput {
    let mut of = input(rps, most, Measurement::default());
    let mut cheap = choice(0, 0, 100.0);
    cheap.variant = sextant_types::index::VariantIx::new(1);
    of.problem.needs = vec![need(rps)];
    of.problem.choices = vec![choice(0, 0, 20.0), cheap];
    of.problem.devices = vec![device(1.0)];
    of.problem.devices[0].most = most;
    of.problem.budget_per_hour_usd = budget_per_hour_usd;
    of.footprints = vec![of.footprints[0]; 2];
    of.footprints[1].variant = cheap.variant;
    of.preferences = vec![0, 1];
    of
}

/// Devices, and how much of the load each variant answers.
fn planned(input: &PlannerInput) -> (u32, Vec<f64>) {
    let decided = Scaler::new(Options::default()).decide(input, 1000);
    (decided.free.devices[0], decided.free.served_rps)
}

#[test]
fn devices_are_planned_for_the_preferred_variant_while_there_may_be_as_many() {
    let (devices, served) = planned(&asked(100.0, 20, None));
    assert!(devices >= 5 && served[1] == 0.0, "{devices}, {served:?}");
    let cheap = PlannerInput {
        preferences: Vec::new(),
        ..asked(100.0, 20, None)
    };
    let (devices, served) = planned(&cheap);
    assert!(devices <= 2 && served[0] == 0.0, "{devices}, {served:?}");
}

#[test]
fn the_next_best_is_planned_with_where_devices_or_money_are_not_enough() {
    for input in [asked(100.0, 2, None), asked(100.0, 20, Some(2.0))] {
        let (devices, served) = planned(&input);
        assert!(devices <= 2, "{devices}");
        assert!(served.iter().sum::<f64>() > 99.0, "{served:?}");
    }
}
