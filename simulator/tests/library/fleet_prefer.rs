//! Queries that prefer accuracy or latency, on a fixed number of devices.

use sextant_simulator::fleet::{Policy, Report, run};
use sextant_types::index::VariantIx;

use crate::fleet::setting;

/// One device on which a large variant answers 80 queries a second in time, and a small one 330.
fn preferring(rate: f64, targets: &str) -> Report {
    let text = format!(
        r#"
kind = "fleet"
name = "prefer"
title = "One device"
seeds = 1
warm_up_s = 20
measured_s = 120

[[device]]
name = "gpu"
price_per_hour_usd = 1.0
memory_mb = 4000
start_s = 0
least = 1
most = 1

[[application]]
name = "classify"

[[application.variant]]
name = "small"
accuracy = 0.70
memory_mb = 100
load_ms = 100
max_rows = 16
on = {{ gpu = {{ alpha_ms = 2.5, beta_ms = 4.0 }} }}

[[application.variant]]
name = "large"
accuracy = 0.80
memory_mb = 400
load_ms = 300
max_rows = 16
on = {{ gpu = {{ alpha_ms = 10.0, beta_ms = 15.0 }} }}

[[class]]
application = "classify"
rate = {rate:.1}
{targets}
"#
    );
    run(&setting(&text), Policy::SEXTANT).unwrap()
}

fn share_of_large(report: &Report) -> f64 {
    let answers = |at| report.answers[VariantIx::new(at)] as f64;
    answers(1) / (answers(0) + answers(1))
}

fn bad_percent(report: &Report) -> f64 {
    let total = report.total();
    100.0 * (total.late + total.refused) as f64 / total.sent as f64
}

#[test]
fn who_prefers_accuracy_gets_the_most_accurate_that_is_in_time() {
    let cheap = preferring(20.0, "latency_ms = 200");
    assert_eq!(share_of_large(&cheap), 0.0);
    let accurate = preferring(20.0, "latency_ms = 200\nprefer = \"accuracy\"");
    let large = share_of_large(&accurate);
    assert!(large > 0.95 && bad_percent(&accurate) < 1.0, "{large}");
    let quick = preferring(20.0, "latency_ms = 200\nprefer = \"latency\"");
    assert_eq!(share_of_large(&quick), 0.0);
}

#[test]
fn accuracy_gives_way_before_answers_do_and_not_below_what_is_asked_for() {
    let busy = preferring(150.0, "latency_ms = 200\nprefer = \"accuracy\"");
    let (large, bad) = (share_of_large(&busy), bad_percent(&busy));
    assert!((0.05..0.9).contains(&large) && bad < 4.0, "{large}, {bad}");
    let strict = preferring(
        150.0,
        "latency_ms = 200\nprefer = \"accuracy\"\nmin_accuracy = 0.75",
    );
    assert_eq!(share_of_large(&strict), 1.0);
    assert!(bad_percent(&strict) > 20.0);
}
