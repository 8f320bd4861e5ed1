//! Devices that are reserved for the plans of pipelines.

use sextant_scaling::{
    Options, PlannerInput, Reservation, ReservedCapacity, Scaler, fleet::Measurement,
};
use sextant_types::index::{KindIx, VariantIx};

use crate::problems::{input, need};

/// A variant of a pipeline's.
const STEP: u32 = 7;

/// The demand of others, and an equal demand of a step for which this many devices are reserved.
fn staffed(rps: f64, devices: f64, most: u32) -> PlannerInput {
    let mut input = input(rps, 0, Measurement::default());
    input.problem.devices[0].most = most;
    input.problem.needs.push(need(rps));
    input.outlooks.push(input.outlooks[0]);
    let mut of_step = input.problem.choices[0];
    of_step.need = 1;
    input.problem.choices.push(of_step);
    input.footprints.push(input.footprints[0]);
    input.staffed = ReservedCapacity {
        reserved: vec![Reservation {
            variant: VariantIx::new(STEP),
            device: KindIx::new(0),
            devices,
            busy: devices / 2.0,
        }],
        needs: vec![1],
    };
    input
}

#[test]
fn what_is_set_aside_is_desired_beside_what_others_need() {
    let alone =
        Scaler::new(Options::default()).decide(&input(45.0, 0, Measurement::default()), 1000);
    let decided = Scaler::new(Options::default()).decide(&staffed(45.0, 2.5, 100), 1000);
    assert_eq!(decided.reserved, [3], "two and a half devices are three");
    assert_eq!(
        decided.free.devices, alone.free.devices,
        "the step's queries count once"
    );
    assert_eq!(decided.devices[0].devices, alone.devices[0].devices + 3);
}

#[test]
fn its_variant_is_desired_on_as_many_devices_as_are_up() {
    let mut up = staffed(45.0, 2.0, 100);
    up.kinds[0].up = 8;
    let decided = Scaler::new(Options::default()).decide(&up, 1000);
    assert_eq!(decided.variants.get(&VariantIx::new(STEP)), Some(&2));
    up.kinds[0].up = 1;
    let decided = Scaler::new(Options::default()).decide(&up, 1000);
    assert_eq!(decided.variants.get(&VariantIx::new(STEP)), Some(&1));
}

#[test]
fn nothing_is_set_aside_where_others_would_go_without() {
    // 60 queries a second need more than three devices of 20; six have time for both needs by turns.
    let decided = Scaler::new(Options::default()).decide(&staffed(60.0, 5.0, 7), 1000);
    assert_eq!(decided.reserved, [0]);
    let served: f64 = decided.free.served_rps.iter().sum();
    assert!((served - 120.0).abs() < 1.0, "{served}");
}
