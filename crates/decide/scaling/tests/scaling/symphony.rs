//! Symphony's advice.

use sextant_scaling::{
    Options, Policy, Scaler, Symphony,
    fleet::{Measurement, Trigger},
};

use crate::problems::input;

const MINUTE_MS: u64 = 60_000;

fn measured(devices: u32, busy_share: f64, bad_share: f64) -> Measurement {
    Measurement {
        devices,
        busy_share,
        bad_share,
        ..Measurement::default()
    }
}

/// What is advised once a period of such looks has ended.
fn advised(of: Measurement) -> (u32, Option<Trigger>) {
    let mut symphony = Symphony::default();
    let mut last = 0;
    for second in 0..=60 {
        last = symphony.advise(7, second * 1000, of, true);
    }
    (last, symphony.trigger(7))
}

#[test]
fn refused_queries_ask_for_more_and_idle_time_for_fewer() {
    // N r / (1 - r) = 10 * 0.2 / 0.8 = 2.5.
    assert_eq!(
        advised(measured(10, 0.5, 0.2)),
        (13, Some(Trigger::BadRate))
    );
    // N f = 10 * 0.35 = 3.5: what is idle of a device is not a device.
    assert_eq!(advised(measured(10, 0.65, 0.0)), (7, None));
    assert_eq!(advised(measured(10, 0.95, 0.005)), (10, None));
    assert_eq!(advised(measured(1, 0.0, 0.0)), (0, None));
}

#[test]
fn nothing_is_advised_before_a_period_ends_or_while_devices_start() {
    let mut symphony = Symphony::default();
    let idle = measured(8, 0.25, 0.0);
    for second in 0..60 {
        assert_eq!(symphony.advise(0, second * 1000, idle, true), 8);
    }
    assert_eq!(symphony.advise(0, MINUTE_MS, idle, false), 8, "one starts");
    for second in 61..120 {
        assert_eq!(symphony.advise(0, second * 1000, idle, true), 8);
    }
    assert_eq!(symphony.advise(0, 2 * MINUTE_MS, idle, true), 2);
}

#[test]
fn of_no_devices_one_is_advised_as_soon_as_something_is_refused() {
    let mut symphony = Symphony::default();
    assert_eq!(symphony.advise(0, 0, measured(0, 0.0, 0.0), true), 0);
    assert_eq!(symphony.advise(0, 1000, measured(0, 0.0, 1.0), true), 1);
    assert_eq!(symphony.trigger(0), Some(Trigger::BadRate));
}

/// By name, in the frame of all planners: bounds hold, and what was advised stays for the hold.
#[test]
fn the_scaler_carries_the_advice_out() {
    let mut scaler = Scaler::new(Options {
        policy: Policy::Symphony,
        hold_ms: 2 * MINUTE_MS,
        ..Options::default()
    });
    let mut desired = |second: u64, up: u32, busy: f64, bad: f64| {
        let look = input(50.0, up, measured(up, busy, bad));
        scaler.decide(&look, second * 1000).devices[0]
    };
    let mut last = desired(0, 4, 1.0, 0.5);
    for second in 1..=61 {
        last = desired(second, 4, 1.0, 0.5);
    }
    assert_eq!((last.devices, last.trigger), (8, Some(Trigger::BadRate)));
    for second in 62..=150 {
        last = desired(second, 8, 0.25, 0.0);
    }
    assert_eq!(last.devices, 8, "within the hold");
    for second in 151..=400 {
        last = desired(second, 8, 0.25, 0.0);
    }
    assert_eq!((last.devices, last.trigger), (2, None));
}
