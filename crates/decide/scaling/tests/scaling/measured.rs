//! What measured load requires, and which devices leave first.

use sextant_scaling::{
    Device, Problem,
    demand::{Arrivals, DemandSample, Forecast, Load},
    fleet::{Leaver, Measurement, RemovableDevice, Trigger, bad_shares, leaving},
    shared,
    shared::Effort,
};
use sextant_types::index::VariantIx;

use crate::problems::{choice, device, input, need};

#[test]
fn measured_load_says_how_many_devices_there_must_be() {
    let well = Measurement {
        devices: 10,
        busy_share: 0.75,
        interfered: 9,
        overloaded: 8,
        bad_share: 0.005,
    };
    assert_eq!((well.infaas(), well.sextant()), ((0, None), (0, None)));
    let busy = Measurement {
        busy_share: 0.81,
        ..well
    };
    assert_eq!(busy.infaas(), (11, Some(Trigger::Busy)));
    let slowed = Measurement {
        interfered: 10,
        ..well
    };
    assert_eq!(slowed.infaas(), (11, Some(Trigger::Interfered)));
    assert_eq!(slowed.by_states(10, 6.0), (15, Some(Trigger::Interfered)));
    assert_eq!(slowed.by_states(10, 0.0), (0, None), "nobody asks");
    let full = Measurement {
        overloaded: 9,
        ..well
    };
    assert_eq!(full.infaas(), (11, Some(Trigger::Overloaded)));
    let full = Measurement {
        interfered: 0,
        ..full
    };
    assert_eq!(full.by_states(7, 6.0), (11, Some(Trigger::Overloaded)));
    assert_eq!(
        full.by_states(1, 0.5),
        (0, None),
        "an idle device starts lone queries"
    );
    // Symphony: N r / (1 - r) = 10 * 0.2 / 0.8 = 2.5.
    let bad = Measurement {
        bad_share: 0.2,
        ..well
    };
    assert_eq!(bad.sextant(), (13, Some(Trigger::BadRate)));
    assert_eq!(Measurement::default().infaas(), (0, None));
}

fn removable(busy_share: f64, holds: &[u32], since_ms: u64) -> RemovableDevice {
    RemovableDevice {
        busy_share,
        holds: holds.iter().copied().map(VariantIx::new).collect(),
        since_ms,
        emptying: false,
    }
}

fn positions(leavers: &[Leaver]) -> Vec<usize> {
    leavers.iter().map(|of| of.at).collect()
}

#[test]
fn those_leave_first_on_whom_nothing_depends() {
    let mut devices = [
        removable(0.0, &[7], 3),
        removable(0.5, &[8], 1),
        removable(0.1, &[8], 1),
        removable(0.1, &[], 2),
    ];
    // One that is loaded elsewhere, too.
    let copies = [(VariantIx::new(7), 1), (VariantIx::new(8), 3)].into();
    assert_eq!(positions(&leaving(&devices, &copies, 3)), [3, 2, 1]);
    let all = leaving(&devices, &copies, 9);
    assert_eq!(positions(&all), [3, 2, 1, 0]);
    assert_eq!(
        all[3].alone,
        [VariantIx::new(7)],
        "it is loaded nowhere else"
    );
    devices[1].emptying = true;
    assert_eq!(positions(&leaving(&devices, &copies, 3)), [1, 3, 2]);
}

#[test]
fn of_those_that_leave_together_one_keeps_what_they_have_in_common() {
    let devices = [removable(0.1, &[7], 1), removable(0.2, &[7], 1)];
    let leavers = leaving(&devices, &[(VariantIx::new(7), 2)].into(), 2);
    let first = Leaver {
        at: 0,
        alone: vec![],
    };
    let last = Leaver {
        at: 1,
        alone: vec![VariantIx::new(7)],
    };
    assert_eq!(leavers, [first, last]);
    // Who is emptied stays the choice while others are as empty.
    let mut devices = [removable(0.1, &[7], 1), removable(0.2, &[8], 1)];
    devices[1].emptying = true;
    let leavers = leaving(
        &devices,
        &[(VariantIx::new(7), 1), (VariantIx::new(8), 1)].into(),
        1,
    );
    assert_eq!(positions(&leavers), [1]);
}

/// Counts around a mean, spread as those of a Poisson process.
fn noisy(mean: f64, at: u64) -> f64 {
    let mut state = (at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut sum = 0.0;
    for _ in 0..12 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        sum += (state % 10_007) as f64 / 10_007.0;
    }
    (mean + mean.sqrt() * (sum - 6.0)).max(0.0)
}

#[test]
fn chance_is_no_burst_and_a_burst_counts_within_seconds() {
    let mut arrivals = Arrivals::default();
    let mut most: f64 = 0.0;
    for second in 1..=1200u64 {
        arrivals.observe(second * 1000, 1000, noisy(50.0, second));
        if second > 60 {
            most = most.max(arrivals.expect(30.0).rps());
        }
    }
    assert!(most < 60.0, "largest of 1140 looks at 50 a second: {most}");
    for second in 1201..=1206u64 {
        arrivals.observe(second * 1000, 1000, noisy(100.0, second));
    }
    let expected = arrivals.expect(30.0).rps();
    assert!((80.0..115.0).contains(&expected), "{expected}");
}

/// An autoscaler that leads again after an hour plans for what comes now.
#[test]
fn what_came_before_a_long_pause_is_not_of_the_last_minute() {
    let mut arrivals = Arrivals::default();
    for second in 1..=120u64 {
        arrivals.observe(second * 1000, 1000, 1000.0);
    }
    arrivals.observe(3_720_000, 1000, 10.0);
    let expected = arrivals.expect(30.0);
    assert!(expected.burst_rps <= 10.0, "{expected:?}");
}

#[test]
fn a_few_bad_queries_are_no_bad_share() {
    let mut load = Load::default();
    let ended = |offered, bad| DemandSample {
        offered,
        bad,
        queries: offered,
        bad_queries: bad,
    };
    for second in 1..=60u64 {
        load.observe(second * 1000, 1000, ended(50.0, 0.0));
    }
    load.observe(61_000, 1000, ended(50.0, 12.0));
    assert!(load.forecast(61_000, 0.0, 600_000).bad_share < 0.01);
    for second in 62..=90u64 {
        load.observe(second * 1000, 1000, ended(50.0, 10.0));
    }
    let forecast = load.forecast(90_000, 0.0, 600_000);
    assert!((0.08..0.2).contains(&forecast.bad_share), "{forecast:?}");
    let of = input(50.0, 3, Measurement::default());
    let here = shared::plan(&of.problem, Effort::default());
    let shares = bad_shares(&of.problem, &[forecast], &here, &[3]);
    assert!((shares[0] - forecast.bad_share).abs() < 1e-9);
}

/// One query of a thousand rows, and now and then it is late.
#[test]
fn chance_is_judged_by_queries_and_not_by_their_rows() {
    let mut load = Load::default();
    let mut most: f64 = 0.0;
    for second in 1..=1200u64 {
        let asks = f64::from(u8::from(second % 10 == 0));
        let is_late = f64::from(u8::from(second % 100 == 0));
        let ended = DemandSample {
            offered: 1000.0 * asks,
            bad: 1000.0 * is_late,
            queries: asks,
            bad_queries: is_late,
        };
        load.observe(second * 1000, 1000, ended);
        let forecast = load.forecast(second * 1000, 0.0, 600_000);
        assert!(forecast.bad_share < 0.01, "{second}: {forecast:?}");
        if second > 60 {
            most = most.max(forecast.expected.burst_rps);
        }
    }
    assert!(most < 150.0, "of a hundred rows a second: {most}");
}

/// A full cheap device refuses queries that an expensive one would answer for less each. The missing device is a cheap
/// one.
#[test]
fn refused_queries_count_for_the_devices_that_answer_them() {
    let fixed = |price, count| Device {
        least: count,
        most: count,
        ..device(price)
    };
    let problem = Problem {
        needs: vec![need(500.0), need(5.0)],
        choices: vec![choice(0, 1, 600.0), choice(1, 0, 8.0), choice(1, 1, 90.0)],
        devices: vec![fixed(0.4, 1), fixed(3.0, 1)],
        budget_per_hour_usd: None,
    };
    let forecast = |bad_share, recent| Forecast {
        bad_share,
        recent,
        ..Forecast::default()
    };
    let outlooks = [forecast(0.0, 7000.0), forecast(0.3, 70.0)];
    let here = shared::plan(&problem, Effort::default());
    let shares = bad_shares(&problem, &outlooks, &here, &[1, 1]);
    assert!(shares[0] > 0.25 && shares[1] < 0.01, "{shares:?} {here:?}");
    // Where nothing answers them: for the type that would do so for least.
    let nothing = shared::plan(
        &Problem {
            devices: vec![fixed(0.4, 0), fixed(3.0, 0)],
            ..problem.clone()
        },
        Effort::default(),
    );
    let alone = [forecast(0.0, 0.0), forecast(0.3, 70.0)];
    let shares = bad_shares(&problem, &alone, &nothing, &[0, 0]);
    assert!(
        shares[0] == 0.0 && (shares[1] - 0.3).abs() < 1e-9,
        "{shares:?}"
    );
}
