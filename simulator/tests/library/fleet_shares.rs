//! Two applications on one device that cannot serve both: selection, scheduler and device together.

use sextant_simulator::fleet::{Policy, Report, run};

use crate::fleet::setting;

/// Queries a second that need 15 % of the device.
const QUIET: f64 = 36.0;

/// Queries a second that need the whole device.
const ALL: f64 = 240.0;

/// `quiet` with 100 ms beside `loud`, which sends at this rate; a batch of n rows takes 6 + 4 n ms.
fn beside(rate: f64, target: &str, resources: &str) -> Report {
    let application = |name: &str, resources: &str, rate: f64, target: &str| {
        format!(
            r#"
[[application]]
name = "{name}"
resources = {{ {resources} }}

[[application.variant]]
name = "{name}-model"
accuracy = 70.0
memory_mb = 400
load_ms = 100
max_rows = 16
on = {{ gpu = {{ alpha_ms = 4.0, beta_ms = 6.0 }} }}

[[class]]
application = "{name}"
rate = {rate:.1}
{target}
"#
        )
    };
    let text = format!(
        r#"
kind = "fleet"
name = "shares"
title = "One device for two"
seeds = 1
warm_up_s = 10
measured_s = 60

[[device]]
name = "gpu"
price_per_hour_usd = 1.0
memory_mb = 4000
start_s = 0
least = 1
most = 1
{quiet}{loud}"#,
        quiet = application("quiet", "", QUIET, "latency_ms = 100"),
        loud = application("loud", resources, rate, target),
    );
    run(&setting(&text), Policy::SEXTANT).unwrap()
}

fn in_time(report: &Report, class: usize) -> f64 {
    let of = &report.classes[class];
    of.in_time as f64 / of.sent as f64
}

#[test]
fn who_asks_little_is_answered_in_time_whatever_others_ask() {
    for (times, target) in [
        (1.5, "latency_ms = 100"),
        (3.0, "latency_ms = 100"),
        (10.0, "latency_ms = 100"),
        (3.0, ""),
        (3.0, "latency_ms = 1000"),
    ] {
        let report = beside(times * ALL, target, "");
        let context = format!("{times} times, {target}: {:?}", report.classes);
        assert!(in_time(&report, 0) >= 0.99, "{context}");
        // The other application gets the rest.
        let loud = &report.classes[1];
        assert!(loud.in_time + loud.late > 60 * 130, "{context}");
    }
}

#[test]
fn a_weight_or_a_priority_of_the_other_one_does_not_take_its_share_away() {
    // A tenth of the device is 24 rows a second in large batches; `quiet` demands more.
    let heavy = beside(3.0 * ALL, "latency_ms = 100", "weight = 9.0");
    assert!(in_time(&heavy, 0) < 0.9, "{:?}", heavy.classes);
    let first = beside(3.0 * ALL, "latency_ms = 100", "priority = 200");
    assert!(in_time(&first, 0) < 0.5, "{:?}", first.classes);
    let last = beside(
        3.0 * ALL,
        "latency_ms = 100",
        "priority = 50, weight = 1000.0",
    );
    assert!(in_time(&last, 0) >= 0.99, "{:?}", last.classes);
}
