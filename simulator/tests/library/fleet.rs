//! Fleets that grow and shrink.

use sextant_scaling as scaling;
use sextant_simulator::fleet::{Experiment, Policy, Report, Setting, run};
use sextant_types::index::VariantIx;

/// One application on cheap and on expensive devices.
const SMALL: &str = r#"
kind = "fleet"
name = "small"
title = "One application"
seeds = 1
warm_up_s = 0
measured_s = 300

[[device]]
name = "cpu"
price_per_hour_usd = 0.4
memory_mb = 4000
start_s = 20
most = 10
initial = 1

[[device]]
name = "gpu"
price_per_hour_usd = 3.0
memory_mb = 4000
start_s = 30
most = 4
fixed = { clipper-plus = 2 }

[[application]]
name = "classify"

[[application.variant]]
name = "small-cpu"
accuracy = 70.0
memory_mb = 400
load_ms = 500
max_rows = 8
on = { cpu = { alpha_ms = 40.0, beta_ms = 10.0 } }

[[application.variant]]
name = "large-gpu"
accuracy = 80.0
memory_mb = 900
load_ms = 2000
on = { gpu = { alpha_ms = 1.0, beta_ms = 5.0 } }

[[class]]
application = "classify"
latency_ms = 250
rate = 10.0
"#;

pub fn setting(text: &str) -> Setting {
    let experiment = Experiment::parse(text, "small").unwrap();
    experiment.cells[0].setting.clone()
}

pub fn with(changes: &[(&str, &str)]) -> Setting {
    let mut text = SMALL.to_owned();
    for (from, to) in changes {
        assert!(text.contains(from), "`{from}` is not in the file");
        text = text.replace(from, to);
    }
    setting(&text)
}

fn played(setting: &Setting) -> Report {
    run(setting, Policy::SEXTANT).unwrap()
}

#[test]
fn every_query_is_answered_or_refused() {
    let bursty = with(&[("rate = 10.0", "rate = 60.0\nshape = 0.2")]);
    for policy in Policy::ALL {
        let report = run(&bursty, policy).unwrap();
        let total = report.total();
        assert_eq!(total.sent, total.ended(), "{}", policy.name());
        assert!(total.sent > 10_000);
        assert_eq!(
            report.answers.iter().sum::<u64>(),
            total.in_time + total.late
        );
    }
}

#[test]
fn a_seed_gives_one_report() {
    let mut one = with(&[("rate = 10.0", "rate = 50.0")]);
    let first = played(&one);
    assert_eq!(first, played(&one));
    one.seed = 2;
    assert_ne!(first, played(&one));
}

#[test]
fn what_devices_cost_is_their_hours_times_their_prices() {
    let of = with(&[(
        "rate = 10.0",
        "rate = [{ seconds = 100, rps = 5.0 }, { seconds = 200, rps = 90.0 }]",
    )]);
    let report = played(&of);
    let hours = report.device_hours.iter().zip(&of.types);
    let cost: f64 = hours.map(|(hours, of)| hours * of.price_per_hour_usd).sum();
    assert!(report.cost_usd > 0.0 && (report.cost_usd - cost).abs() < 1e-9);
    // The hours are computed again from the changes of the counts: no device is ended within the hold.
    let mut hours = vec![0.0; of.types.len()];
    let mut known = vec![(0.0, 0u32); of.types.len()];
    for (at_s, kind, count) in report
        .counts
        .iter()
        .copied()
        .chain([(300.0, 0, 0), (300.0, 1, 0)])
    {
        let (since_s, before) = known[kind];
        hours[kind] += f64::from(before) * (at_s - since_s) / 3600.0;
        known[kind] = (at_s, count);
    }
    for (counted, billed) in hours.iter().zip(&report.device_hours) {
        assert!((counted - billed).abs() < 1e-9, "{counted} {billed}");
    }
}

#[test]
fn a_device_that_starts_answers_nothing() {
    // There is no device at first, and a device takes longer to start than any query waits.
    let cold = with(&[
        ("initial = 1", "initial = 0"),
        ("start_s = 20", "start_s = 400"),
        ("start_s = 30", "start_s = 400"),
    ]);
    let report = played(&cold);
    assert_eq!((report.total().in_time, report.total().late), (0, 0));
    assert!(
        report.device_hours.iter().sum::<f64>() > 0.0,
        "it is paid for"
    );
}

#[test]
fn what_nobody_answers_starts_a_device_from_zero() {
    let report = played(&with(&[("initial = 1", "initial = 0")]));
    let total = report.total();
    assert!(report.devices_at(0, 10.0) + report.devices_at(1, 10.0) > 0);
    // A device takes 20 s to start and half a second to load.
    let refused = total.refused as f64 / total.sent as f64;
    assert!((0.06..0.13).contains(&refused), "{refused}");
}

#[test]
fn devices_drain_without_losing_a_query() {
    let steps = "rate = [{ seconds = 200, rps = 90.0 }, { seconds = 600, rps = 10.0 }]";
    let of = with(&[
        ("rate = 10.0", steps),
        (
            "measured_s = 300",
            "measured_s = 800\nscaling = { hold_s = 60, warm_memory_share = 0.0 }",
        ),
        ("initial = 1", "initial = 6"),
        ("most = 4", "most = 0"),
    ]);
    let report = played(&of);
    assert!(report.devices_at(0, 700.0) < report.devices_at(0, 100.0));
    let (total, late) = (report.total(), report.total().late);
    assert_eq!(late, 0);
    // Only queries that came before the first load had ended are refused.
    assert!(total.refused < 200, "{} of {}", total.refused, total.sent);
}

#[test]
fn a_fixed_fleet_never_changes() {
    let fixed = with(&[
        ("most = 10\ninitial = 1", "least = 2\nmost = 2"),
        ("most = 4", "most = 0"),
    ]);
    for policy in [
        Policy::SEXTANT,
        Policy::Scaler(scaling::Policy::Infaas),
        Policy::SagemakerPlus,
    ] {
        let mut fixed = fixed.clone();
        fixed.types[1].fixed.clear();
        let report = run(&fixed, policy).unwrap();
        assert_eq!(report.counts.len(), 2, "{}", policy.name());
        assert!((report.device_hours[0] - 2.0 * 300.0 / 3600.0).abs() < 1e-9);
    }
    let report = run(&with(&[]), Policy::ClipperPlus).unwrap();
    assert_eq!(
        (report.devices_at(0, 300.0), report.devices_at(1, 300.0)),
        (1, 2)
    );
}

#[test]
fn load_brings_dear_hardware_and_its_end_cheap_hardware() {
    let steps = "rate = [{ seconds = 300, rps = 8.0 }, { seconds = 300, rps = 500.0 }, { seconds = 900, rps = 8.0 }]";
    let of = with(&[
        ("rate = 10.0", steps),
        (
            "measured_s = 300",
            "measured_s = 1500\nscaling = { hold_s = 120 }",
        ),
    ]);
    let report = played(&of);
    let gpus = |at_s| report.devices_at(1, at_s);
    assert_eq!(gpus(250.0), 0);
    let most = (300..600).map(|at_s| gpus(f64::from(at_s))).max();
    assert!(most > Some(gpus(1400.0)), "upgraded, and given up again");
    assert!(report.devices_at(0, 1400.0) > 0, "downgraded");
    assert!(
        report.answers.iter().all(|count| *count > 1000),
        "{:?}",
        report.answers
    );
}

#[test]
fn devices_are_planned_for_the_target_of_a_class() {
    let devices = |target_ms: &str| {
        let of = with(&[
            ("latency_ms = 250", &format!("latency_ms = {target_ms}")),
            (
                "alpha_ms = 40.0, beta_ms = 10.0",
                "alpha_ms = 10.0, beta_ms = 100.0",
            ),
            ("rate = 10.0", "rate = 60.0"),
            ("most = 4", "most = 0"),
        ]);
        played(&of).devices_at(0, 299.0)
    };
    // With the one target batches of five may run, with the other batches of fifteen.
    assert!(devices("300") > devices("500"));
    assert!(devices("520") <= devices("500"));
}

#[test]
fn targets_choose_the_variant() {
    let good = with(&[
        ("latency_ms = 250", "latency_ms = 250\nmin_accuracy = 75.0"),
        ("measured_s = 300", "measured_s = 300"),
    ]);
    let report = played(&good);
    assert_eq!(report.answers[VariantIx::new(0)], 0);
    assert!(report.answers[VariantIx::new(1)] > 1000);
    // Agreement with an uploaded file is not accuracy, whatever its value.
    let agrees = with(&[
        ("latency_ms = 250", "latency_ms = 250\nmin_accuracy = 75.0"),
        ("accuracy = 70.0", "accuracy = 100.0\nagreement = true"),
    ]);
    let report = played(&agrees);
    assert_eq!(report.answers[VariantIx::new(0)], 0);
    assert!(report.answers[VariantIx::new(1)] > 1000);
    let impossible = with(&[("latency_ms = 250", "min_accuracy = 99.0")]);
    let report = played(&impossible);
    assert_eq!(report.total().refused, report.total().sent);
    assert_eq!(report.devices_at(1, 300.0), 0, "no device helps");
}

#[test]
fn user_mistakes_are_refused() {
    let wrong = [
        ("alpha_ms = 40.0", "alpha_ms = \"x\""),
        ("on = { cpu", "on = { tpu"),
        ("application = \"classify\"", "application = \"other\""),
        ("start_s = 20", "start_s = -1"),
        ("fixed = { clipper-plus", "fixed = { clipper"),
    ];
    for (from, to) in wrong {
        assert!(
            Experiment::parse(&SMALL.replace(from, to), "mine.toml").is_err(),
            "{to}"
        );
    }
}

/// Two identical applications on two devices that suffice for one of them, each with its own limits.
fn rivals(first: &str, second: &str) -> String {
    let one = "name = \"classify\"\n";
    let text = SMALL
        .replace("most = 10", "most = 2")
        .replace("most = 4", "most = 0")
        .replace("rate = 10.0", "rate = 25.0")
        .replace(one, &format!("{one}resources = {{ {first} }}\n"));
    format!(
        r#"{text}
[[application]]
name = "rival"
resources = {{ {second} }}

[[application.variant]]
name = "rival-cpu"
accuracy = 70.0
memory_mb = 400
load_ms = 500
max_rows = 8
on = {{ cpu = {{ alpha_ms = 40.0, beta_ms = 10.0 }} }}

[[class]]
application = "rival"
latency_ms = 250
rate = 25.0
"#
    )
}

#[test]
fn a_higher_priority_is_answered_first_where_devices_are_not_enough() {
    let in_time = |first: &str, second: &str| {
        let report = played(&setting(&rivals(first, second)));
        let share = |at: usize| {
            let of = &report.classes[at];
            of.in_time as f64 / of.sent as f64
        };
        [share(0), share(1)]
    };
    let [first, rival] = in_time("priority = 200", "priority = 100");
    assert!(first > 0.8 && rival < first - 0.2, "{first} {rival}");
    let [first, rival] = in_time("priority = 100", "priority = 200");
    assert!(rival > 0.8 && first < rival - 0.2, "{first} {rival}");
}

#[test]
fn an_application_without_a_budget_has_no_devices() {
    let paid = played(&with(&[]));
    let name = "name = \"classify\"\n";
    let with_budget = |usd: &str| {
        let resources = format!("{name}resources = {{ budget_per_hour_usd = {usd} }}\n");
        played(&with(&[(name, &resources), ("initial = 1", "initial = 0")]))
    };
    let nothing = with_budget("0.0");
    assert_eq!(nothing.device_hours, [0.0, 0.0]);
    assert_eq!(nothing.total().in_time, 0);
    let enough = with_budget("100.0");
    assert!(enough.total().in_time * 10 > paid.total().in_time * 9);
}

#[test]
fn devices_are_kept_for_who_asks_seldom() {
    let kept = |resources: &str| {
        let text = rivals(resources, "").replace("rate = 25.0", "rate = 0.001");
        played(&setting(&text)).devices_at(0, 200.0)
    };
    assert_eq!(kept("least_workers = 2"), 2);
    assert!(kept("") < 2);
}

#[test]
fn what_no_application_can_be_given_is_refused() {
    for resources in [
        "budget_per_hour_usd = -1.0",
        "budget_per_hour_usd = nan",
        "weight = 0.0",
        "priority = 256",
        "least_workers = 2, most_workers = 1",
        "colour = 1",
    ] {
        let refused = Experiment::parse(&rivals(resources, ""), "rivals");
        assert!(refused.is_err(), "{resources}");
    }
}
