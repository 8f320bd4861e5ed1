//! Fleets: interference, and others' rules for the number of devices.

use sextant_baselines as schedule;
use sextant_scaling as scaling;
use sextant_scaling::autoscale;
use sextant_simulator::fleet::{Experiment, Plan, Policy, play, run, run_by};
use sextant_types::index::VariantIx;

use crate::fleet::{setting, with};

/// Two applications that share a device with two slots.
const SHARED: &str = r#"
kind = "fleet"
name = "shared"
title = "Two applications on one device"
policies = ["sextant", "infaas"]
warm_up_s = 0
measured_s = 200

[[device]]
name = "gpu"
price_per_hour_usd = 3.0
slots = 2
slowdown = [1.0, 3.0]
memory_mb = 4000
start_s = 20
least = 1
most = 3

[[application]]
name = "large"

[[application.variant]]
name = "large"
accuracy = 80.0
memory_mb = 900
load_ms = 1000
on = { gpu = { alpha_ms = 2.0, beta_ms = 30.0 } }

[[application]]
name = "small"

[[application.variant]]
name = "small"
accuracy = 70.0
memory_mb = 300
load_ms = 500
on = { gpu = { alpha_ms = 0.5, beta_ms = 3.0 } }

[[class]]
application = "large"
latency_ms = 400
rate = 40.0

[[class]]
application = "small"
latency_ms = 200
rate = 30.0
"#;

const ALONE: &str = "slowdown = [1.0, 3.0]";

fn rule(of: autoscale::Policy) -> Policy {
    Policy::Replicas(of)
}

#[test]
fn variants_that_slow_each_other_down_are_found_and_bring_a_device() {
    for policy in [Policy::SEXTANT, Policy::Scaler(scaling::Policy::Infaas)] {
        let report = run(&setting(SHARED), policy).unwrap();
        let (first_s, kind, variant) = report.interfered[0];
        assert_eq!(
            (kind, variant),
            (0, VariantIx::new(1)),
            "the small one is slowed down most"
        );
        let before = report.devices_at(0, first_s - 1.0);
        assert!(
            report.devices_at(0, first_s + 4.0) > before,
            "{}: {:?}",
            policy.name(),
            report.counts
        );
    }
}

#[test]
fn nothing_interferes_with_batches_of_one_variant_or_one_after_the_other() {
    let by_turns = SHARED.replace("slots = 2", "slots = 1");
    let unharmed = SHARED.replace(ALONE, "slowdown = [1.0, 1.0]");
    let one = SHARED.replace("rate = 30.0", "rate = 0.0");
    for text in [by_turns, unharmed, one] {
        let report = run(&setting(&text), Policy::SEXTANT).unwrap();
        assert_eq!(report.interfered, []);
        assert!(report.total().in_time > 5_000);
    }
}

#[test]
fn figures_say_when_interference_was_found_and_what_was_needed() {
    let experiment = Experiment::parse(SHARED, "shared").unwrap();
    let records = play(&experiment, &Plan::default(), &mut |_, _| {}).unwrap();
    let value = |metric: &str| {
        let ours = records
            .iter()
            .filter(|it| it.policy.as_deref() == Some("sextant"));
        let mut named = ours.filter(|it| it.metric == metric && it.seed.is_none());
        named.next().map(|it| it.value)
    };
    let (found, more) = (value("first_interfered_s"), value("first_more_devices_s"));
    assert!(found > Some(0.0) && found <= more, "{found:?} {more:?}");
    // Full batches take half the target: 64 rows of the large model take 158 ms, of the small one 35 ms, and two run
    // side by side.
    let device = 40.0 / (2.0 * 64.0 / 0.158) + 30.0 / (2.0 * 64.0 / 0.035);
    let needed = value("needed_cost_usd").unwrap();
    let expected = device * 3.0 * 200.0 / 3600.0;
    assert!(
        (needed / expected - 1.0).abs() < 0.01,
        "{needed} {expected}"
    );
}

/// Eight queries a second of 50 ms keep 0.4 devices busy, 160 keep eight.
#[test]
fn rules_about_replicas_follow_the_load() {
    let steps = "rate = [{ seconds = 300, rps = 8.0 }, { seconds = 400, rps = 150.0 }, { seconds = 800, rps = 8.0 }]";
    let of = with(&[
        ("rate = 10.0", steps),
        ("measured_s = 300", "measured_s = 1500"),
        (
            "name = \"classify\"\n\n",
            "name = \"classify\"\npinned = \"small-cpu\"\n\n",
        ),
    ]);
    for rule in [rule(autoscale::Policy::Hpa), rule(autoscale::Policy::Kpa)] {
        let report = run(&of, rule).unwrap();
        let devices = |at_s| report.devices_at(0, at_s);
        assert!(devices(250.0) <= 2, "{}", rule.name());
        assert!(devices(650.0) >= 6, "{}: {:?}", rule.name(), report.counts);
        assert!(devices(1400.0) <= 2, "{}: {:?}", rule.name(), report.counts);
        assert_eq!(
            report.devices_at(1, 650.0),
            0,
            "nothing is pinned to run there"
        );
        assert_eq!(report.answers[VariantIx::new(1)], 0);
    }
}

#[test]
fn queries_that_wait_bring_devices_under_the_rule_about_queues() {
    // No query that may take any time is refused.
    let of = with(&[
        ("latency_ms = 250\n", ""),
        ("rate = 10.0", "rate = 60.0"),
        (
            "name = \"classify\"\n\n",
            "name = \"classify\"\npinned = \"small-cpu\"\n\n",
        ),
    ]);
    let report = run(&of, rule(autoscale::Policy::KedaQueue)).unwrap();
    assert!(report.devices_at(0, 250.0) > 2, "{:?}", report.counts);
}

#[test]
fn symphony_adds_where_queries_are_refused_and_removes_what_is_idle() {
    let steps = "rate = [{ seconds = 600, rps = 90.0 }, { seconds = 600, rps = 5.0 }]";
    let of = with(&[
        ("rate = 10.0", steps),
        (
            "measured_s = 300",
            "measured_s = 1200\nscaling = { hold_s = 60 }",
        ),
        ("most = 4", "most = 0"),
    ]);
    let scheduler = schedule::Options::of(schedule::Policy::Symphony);
    let report = run_by(&of, Policy::Scaler(scaling::Policy::Symphony), &scheduler).unwrap();
    let most = (0..600)
        .map(|at_s| report.devices_at(0, f64::from(at_s)))
        .max();
    assert!(most >= Some(4), "{:?}", report.counts);
    assert!(report.devices_at(0, 1190.0) < most.unwrap_or(0));
}

#[test]
fn turns_count_among_the_changes_of_ten_minutes() {
    let mut report = run(&with(&[]), Policy::ClipperPlus).unwrap();
    let turns = |report: &mut sextant_simulator::fleet::Report, counts: &[(f64, u32)]| {
        report.counts = counts
            .iter()
            .map(|(at_s, count)| (*at_s, 0, *count))
            .collect();
        report.reversals_in_ten_minutes()
    };
    assert_eq!(turns(&mut report, &[(0.0, 5), (600.0, 3), (630.0, 4)]), 1);
    assert_eq!(turns(&mut report, &[(0.0, 5), (10.0, 6), (700.0, 5)]), 0);
    let twice = [(0.0, 5), (10.0, 6), (300.0, 5), (609.0, 6)];
    assert_eq!(turns(&mut report, &twice), 2);
}

#[test]
fn a_trace_begins_where_it_is_told_to() {
    let at = |from_line: u32| {
        let trace = format!(
            "rate = {{ trace = \"twitter-minutes\", range_rps = [0.0, 100.0], line_s = 2.0, from_line = {from_line} }}"
        );
        with(&[("rate = 10.0", &trace)]).classes[0].rate.clone()
    };
    let (whole, later) = (at(0), at(7));
    for line in 0..1440 {
        let at_s = f64::from(line) * 2.0 + 1.0;
        assert_eq!(later.at(at_s), whole.at(at_s + 14.0));
    }
}

#[test]
fn slow_downs_that_make_batches_faster_are_refused() {
    for wrong in ["slowdown = [0.5]", "slowdown = [1.0, -2.0]", "slowdown = 2"] {
        let text = SHARED.replace(ALONE, wrong);
        assert!(Experiment::parse(&text, "mine.toml").is_err(), "{wrong}");
    }
}
