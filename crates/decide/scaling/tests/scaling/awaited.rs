//! Devices and loads that are awaited, and those that are not.

use sextant_scaling::{
    Instance, Options, PlannerInput, Scaler,
    fleet::{Measurement, Trigger},
};
use sextant_types::{
    WorkerId,
    index::{KindIx, VariantIx},
};

use crate::problems::input;

/// The variant that answers the demand, and one without demand here.
const ASKED: u32 = 0;
const OTHER: u32 = 1;

/// A variant is being loaded.
pub fn loads(variant: u32) -> Instance {
    Instance {
        variant: VariantIx::new(variant),
        device: KindIx::new(0),
        worker: WorkerId::new("w").expect("a name"),
        serves: false,
    }
}

/// This share of the demand is late or refused.
fn bad(bad_share: f64, up: u32) -> PlannerInput {
    let measured = Measurement {
        bad_share,
        ..Measurement::default()
    };
    input(45.0, up, measured)
}

/// Devices that are desired after this many seconds, if in each minute a load begins that takes two.
fn after(seconds: u64, variant: u32, serves: bool) -> u32 {
    let mut scaler = Scaler::new(Options::default());
    let mut of = bad(0.2, 3);
    let mut devices = 0;
    for second in 0..seconds {
        let loaded = Instance {
            serves,
            ..loads(variant)
        };
        of.instances = match second % 60 {
            0 | 1 => vec![loads(variant)],
            _ if serves => vec![loaded],
            _ => Vec::new(),
        };
        devices = scaler.decide(&of, second * 1000).devices[0].devices;
    }
    devices
}

#[test]
fn a_load_that_always_fails_is_not_awaited_for_ever() {
    assert_eq!(after(180, OTHER, false), 3, "it was tried three times");
    assert_eq!(after(400, OTHER, false), 4, "of three a fifth is late");
}

/// On a second device it serves since its first load there failed.
#[test]
fn a_load_that_always_fails_on_one_device_is_not_awaited_for_what_serves_on_another() {
    let mut scaler = Scaler::new(Options::default());
    let mut of = bad(0.2, 3);
    let other = |serves| Instance {
        worker: WorkerId::new("other").unwrap(),
        serves,
        ..loads(OTHER)
    };
    let mut devices = 0;
    for second in 0..400u64 {
        of.instances = match second {
            0 => vec![other(false)],
            1 | 2 => Vec::new(),
            _ => vec![other(true)],
        };
        if second % 60 == 10 {
            of.instances.push(loads(OTHER));
        }
        devices = scaler.decide(&of, second * 1000).devices[0].devices;
    }
    assert_eq!(devices, 4);
}

#[test]
fn each_load_that_succeeds_is_awaited() {
    assert_eq!(after(400, OTHER, true), 3);
}

/// More devices could not load the variant either.
#[test]
fn what_nothing_can_load_asks_for_no_more_devices() {
    assert_eq!(after(400, ASKED, false), 3);
}

#[test]
fn devices_that_never_come_are_not_awaited_for_ever() {
    let mut scaler = Scaler::new(Options::default());
    let of = bad(0.9, 1);
    for second in 0..100 {
        let desired = scaler.decide(&of, second * 1000).devices[0];
        assert_eq!((desired.devices, desired.trigger), (3, None));
    }
    let desired = scaler.decide(&of, 200_000).devices[0];
    assert_eq!(
        (desired.devices, desired.trigger),
        (4, Some(Trigger::BadRate))
    );
}
