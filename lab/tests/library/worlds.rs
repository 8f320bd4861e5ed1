//! Every policy in a few small worlds.

use sextant_baselines::{Options, Policy};
use sextant_lab::Setting;
use sextant_schedule::{Delay, LatencyTable, NEVER};
use sextant_simulator::{
    Device, Failure, Jitter, Model, Network, Report, Shape, Span, World, profiles,
    workload::{Gaps, Rate, Stream, open_loop},
};
use sextant_types::index::DeviceIx;

const SECOND: u64 = 1_000_000_000;

fn setting(policy: Policy, target: u64) -> Setting {
    let models = profiles::load("symphony-zoo-gtx1080ti")
        .unwrap()
        .iter()
        .take(3)
        .map(|profile| Model {
            name: profile.model.clone(),
            target,
            latency: vec![Some(profile.latency(64).unwrap())],
            priority: 0,
            weight: 1.0,
        })
        .collect();
    Setting {
        models,
        devices: vec![Device { kind: 0 }; 3],
        options: Options::of(policy),
        network: Network::default(),
        jitter: Jitter::None,
        shape: Shape::default(),
        failures: Vec::new(),
        seed: 1,
        prices: Vec::new(),
        histograms: false,
    }
}

fn run(setting: &Setting, rps: f64, seed: u64) -> Report {
    let streams: Vec<Stream> = (0..setting.models.len() as u32)
        .map(|model| Stream {
            model,
            gaps: Gaps::Gamma { shape: 0.5 },
            rate: Rate::Constant(rps / setting.models.len() as f64),
        })
        .collect();
    let mut source = open_loop(&streams, seed).unwrap();
    let span = Span {
        from: SECOND / 5,
        until: SECOND + SECOND / 5,
        most_missed: Vec::new(),
    };
    World::new(setting).run(source.as_mut(), span)
}

/// Asserts that each request of the span was answered once.
fn assert_complete(report: &Report, about: &str) {
    for tally in &report.models {
        assert_eq!(
            tally.sent,
            tally.good + tally.missed(),
            "{about}: {tally:?}"
        );
    }
    assert!(report.models.iter().any(|tally| tally.sent > 0), "{about}");
}

fn late(report: &Report) -> u64 {
    report
        .models
        .iter()
        .map(|tally| tally.late + tally.failed)
        .sum()
}

/// Whether a policy may send requests that will be late.
fn may_be_late(policy: Policy) -> bool {
    matches!(
        policy,
        Policy::Timeout | Policy::ClipperAimd | Policy::ClipperQuantile
    )
}

#[test]
fn every_request_is_answered_once_and_none_is_late_by_an_exact_profile() {
    for policy in Policy::ALL {
        for (rps, target_ms) in [(100.0, 60), (500.0, 40), (1_500.0, 60), (400.0, 16)] {
            let setting = setting(*policy, target_ms * 1_000_000);
            let report = run(&setting, rps, 3);
            let about = format!("{policy} at {rps} r/s within {target_ms} ms");
            assert_complete(&report, &about);
            if !may_be_late(*policy) {
                assert_eq!(late(&report), 0, "{about}");
            }
        }
    }
}

#[test]
fn a_target_that_cannot_be_met_is_refused() {
    for policy in Policy::ALL {
        let report = run(&setting(*policy, 1_000_000), 100.0, 3);
        assert_complete(&report, policy.name());
        let good: u64 = report.models.iter().map(|tally| tally.good).sum();
        assert_eq!(good, 0, "{policy}");
    }
}

#[test]
fn without_targets_everything_is_served() {
    for policy in Policy::ALL {
        let report = run(&setting(*policy, NEVER), 100.0, 3);
        for tally in &report.models {
            assert_eq!(tally.sent, tally.good, "{policy}");
        }
    }
}

#[test]
fn scatter_delays_and_failures_lose_nothing() {
    for policy in Policy::ALL {
        let delay = Delay {
            control: 100_000,
            data_per_row: 20_000,
            response: 200_000,
        };
        let mut setting = setting(*policy, 60_000_000);
        setting.jitter = Jitter::Uniform { spread: 0.1 };
        setting.options.delay = delay;
        setting.network.base = delay;
        setting.failures = vec![
            Failure {
                device: DeviceIx::new(1),
                from: SECOND / 2,
                until: SECOND,
            },
            Failure {
                device: DeviceIx::new(0),
                from: SECOND / 2 + 10_000_000,
                until: SECOND / 2 + 90_000_000,
            },
        ];
        assert_complete(&run(&setting, 400.0, 5), policy.name());
    }
}

#[test]
fn the_same_seed_gives_the_same_report() {
    for policy in Policy::ALL {
        let mut setting = setting(*policy, 40_000_000);
        setting.jitter = Jitter::Uniform { spread: 0.2 };
        let report = run(&setting, 600.0, 9);
        assert_eq!(report, run(&setting, 600.0, 9), "{policy}");
        assert_ne!(report, run(&setting, 600.0, 10), "{policy}");
    }
}

#[test]
fn device_time_costs_what_the_kind_of_device_does() {
    let mut setting = setting(Policy::Eager, NEVER);
    setting.models.truncate(1);
    let run_of = |nanos: u64| Some(LatencyTable::new(vec![nanos]).unwrap().into());
    // 100 ms at 36 USD an hour, or 50 ms at 360 USD an hour: 1,000 rows cost 1 or 5 USD.
    setting.models[0].latency = vec![run_of(SECOND / 10), run_of(SECOND / 20)];
    setting.devices = vec![Device { kind: 0 }, Device { kind: 1 }];
    setting.prices = vec![36.0, 360.0];
    let report = |target: u64| {
        let mut setting = setting.clone();
        setting.models[0].target = target;
        run(&setting, 4.0, 1)
    };
    let cheap = report(NEVER);
    assert!(cheap.kinds[0].rows > 0);
    assert_eq!((cheap.kinds[1].rows, cheap.dear_share()), (0, 0.0));
    assert!((cheap.cost_per_1k_usd() - 1.0).abs() < 1e-9, "{cheap:?}");
    // Only the dear device meets this target.
    let dear = report(SECOND / 11);
    assert_eq!((dear.kinds[0].rows, dear.dear_share()), (0, 1.0));
    assert!((dear.cost_per_1k_usd() - 5.0).abs() < 1e-9, "{dear:?}");
}

#[test]
fn a_lognormal_scatter_has_its_mean() {
    let mut setting = setting(Policy::Eager, NEVER);
    setting.models.truncate(1);
    let run_of = LatencyTable::new(vec![SECOND / 1000]).unwrap();
    setting.models[0].latency = vec![Some(run_of.into())];
    // 0.5 + 0.4 exp(0.5 z) has a mean of 0.5 + 0.4 exp(0.125).
    setting.jitter = Jitter::Lognormal {
        least: 0.5,
        more: 0.4,
        sigma: 0.5,
    };
    let report = run(&setting, 2_000.0, 1);
    let mean_ms = 1e3 * report.kinds[0].busy_s / report.kinds[0].rows as f64;
    assert!((mean_ms - 0.9533).abs() < 0.03, "{mean_ms}");
}
