use std::path::Path;

use serde_json::{Value, json};
use sextant_simulator::fleet::{Experiment, Policy, run};
use sextant_types::index::VariantIx;

use super::{Parts, Targets};

mod live;

fn variant(name: &str, lower: f64, ms: f64, dominated: &Value) -> Value {
    let latency = json!([
        {"batch": 2, "p50_ms": ms * 1.5},
        {"batch": 1, "p50_ms": ms},
        {"batch": 4, "p50_ms": ms * 1.4},
    ]);
    json!({
        "name": name, "threads": 1, "max_batch": 4, "peak_memory_bytes": 2_500_000,
        "accuracy": {"metric": "top1", "value": lower + 0.01, "lower": lower, "upper": 0.999},
        "dominated_by": dominated,
        "profiles": [
            {"device_type": "cpu-8", "latency": latency, "load_ms": 12.0},
            {"device_type": "away", "latency": latency, "load_ms": 99.0},
        ],
    })
}

fn application(name: &str, targets: &Value) -> Value {
    json!({
        "about": {"name": name, "metric": "top1", "default_targets": targets},
        "variants": [
            variant("small", 0.9, 2.0, &Value::Null),
            variant("large", 0.97, 20.0, &Value::Null),
            variant("worse", 0.9, 3.0, &json!("small")),
        ],
    })
}

fn workers() -> Value {
    json!({"workers": [
        {"name": "w", "device_type": {"name": "cpu-8", "slots": 8, "memory_bytes": 4e9,
            "price_per_hour_usd": 0.384, "start_ms": 30_000}},
        {"name": "old"},
    ]})
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let text = "timestamp,application\n0.5,digits\n1.5,digits\n";
    std::fs::write(folder.path().join("queries.csv"), text).expect("a file");
    folder
}

fn text(parts: &Parts<'_>) -> String {
    parts.text().expect("a question")
}

fn parts<'a>(applications: &'a [Value], all: &'a [Value; 2], workload: &'a Path) -> Parts<'a> {
    Parts {
        applications,
        workers: &all[0],
        scaling: &all[1],
        devices: None,
        targets: Targets::each(&[], &[]),
        workload,
        seconds: 1.0,
    }
}

#[test]
fn what_the_service_knows_becomes_an_experiment() {
    let folder = folder();
    let workload = folder.path().join("queries.csv");
    let applications = [application("digits", &json!({"latency_ms": 50.0}))];
    let pool = json!({"pools": [{"device_type": "cpu-8", "up": 2, "least": 1, "most": 9,
        "provider": "process"}]});
    let all = [workers(), pool];
    let mut parts = parts(&applications, &all, &workload);
    parts.targets = Targets::each(&[20.0, 40.0], &[0.95]);
    let experiment = Experiment::parse(&text(&parts), "what-if").expect("it is understood");
    let names: Vec<&str> = experiment.cells.iter().map(|cell| &*cell.name).collect();
    assert_eq!(names, ["20 ms, accuracy 0.95", "40 ms, accuracy 0.95"]);
    let setting = &experiment.cells[1].setting;
    let device = &setting.types[0];
    assert_eq!((device.least, device.most, device.initial), (1, 9, 2));
    assert_eq!((device.slots, device.memory_mb), (8, 4000));
    let names: Vec<&str> = setting.variants.iter().map(|of| &*of.name).collect();
    assert_eq!(names, ["small", "large", "worse"]);
    let by = setting.variants.iter();
    let by: Vec<Option<&str>> = by.map(|of| of.registered.dominated_by.as_deref()).collect();
    assert_eq!(by, [None, None, Some("small")]);
    let run = setting.variants[VariantIx::new(0)].on[0]
        .as_ref()
        .expect("it runs there");
    assert_eq!(
        [1, 2, 4].map(|rows| run.of(rows)),
        [2_000_000, 3_000_000, 3_000_000]
    );
    let class = &setting.classes[0];
    assert_eq!(
        (class.latency_ms, class.min_accuracy),
        (Some(40.0), Some(0.95))
    );
    assert_eq!(
        setting.recorded.as_ref().map(|trace| trace.requests.len()),
        Some(2)
    );
}

#[test]
fn workers_that_nobody_starts_are_as_many_as_there_are() {
    let folder = folder();
    let workload = folder.path().join("queries.csv");
    let applications = [application("digits", &json!({"latency_ms": 50.0}))];
    let all = [
        workers(),
        json!({"pools": [{"device_type": "cpu-8", "up": 3, "most": 3}]}),
    ];
    let parts = parts(&applications, &all, &workload);
    let experiment = Experiment::parse(&text(&parts), "what-if").expect("it is understood");
    let cell = &experiment.cells[0];
    assert_eq!(cell.name, "own targets");
    let device = &cell.setting.types[0];
    assert_eq!((device.least, device.most, device.initial), (3, 3, 3));
    assert_eq!(cell.setting.classes[0].latency_ms, Some(50.0));
}

#[test]
fn what_cannot_be_asked_is_said() {
    let folder = folder();
    let workload = folder.path().join("queries.csv");
    let applications = [application("digits", &json!({}))];
    let nobody = [json!({"workers": []}), Value::Null];
    let error = parts(&applications, &nobody, &workload).text();
    assert!(
        error
            .expect_err("no device")
            .to_string()
            .contains("--devices")
    );
    let devices = folder.path().join("devices.toml");
    let asked = |text: &str, targets: &[f64], metric: &str| {
        std::fs::write(&devices, text).expect("a file");
        let mut applications = applications.clone();
        applications[0]["about"]["metric"] = json!(metric);
        let mut parts = parts(&applications, &nobody, &workload);
        parts.devices = Some(&devices);
        parts.targets = Targets::each(&[], targets);
        parts.text().map_err(|error| error.to_string())
    };
    let other = "[[device]]\nname = \"gpu\"\n";
    for (text, targets, metric, says) in [
        ("device = 1", &[][..], "top1", "no list"),
        ("[[device]]\nslots = 1", &[], "top1", "no `name`"),
        ("[[device", &[], "top1", "devices.toml"),
        (other, &[], "top1", "no variant of `digits`"),
        (
            "[[device]]\nname = \"cpu-8\"\n",
            &[0.9],
            "mae",
            "metric is `mae`",
        ),
    ] {
        let error = asked(text, targets, metric).expect_err(says);
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn targets_that_are_none_are_refused() {
    assert!(Targets::check(&[20.0, 0.5], &[0.0, 1.0]).is_ok());
    for (latencies, accuracies) in [(&[0.0][..], &[][..]), (&[-1.0], &[]), (&[f64::NAN], &[])] {
        assert!(Targets::check(latencies, accuracies).is_err());
    }
    for accuracy in [1.5, -0.1, f64::NAN] {
        let error = Targets::check(&[], &[accuracy]).expect_err("no accuracy");
        assert!(error.to_string().contains("from 0 to 1"), "{error}");
    }
}

#[test]
fn an_error_that_no_variant_keeps_below_refuses_every_query() {
    let folder = folder();
    let workload = folder.path().join("queries.csv");
    for metric in ["rmse", "mae", "mape", "log_loss"] {
        let mut application = application("digits", &json!({"max_error": 40.0}));
        application["about"]["metric"] = json!(metric);
        let variants = application["variants"].as_array_mut().expect("a list");
        for (at, variant) in variants.iter_mut().enumerate() {
            let upper = 56.8 + at as f64;
            variant["accuracy"] = json!({"metric": metric, "value": upper - 3.0,
                "lower": upper - 6.0, "upper": upper});
        }
        let applications = [application];
        let all = [workers(), json!({"pools": []})];
        let parts = parts(&applications, &all, &workload);
        let experiment = Experiment::parse(&text(&parts), "what-if").expect("it is understood");
        let setting = &experiment.cells[0].setting;
        let report = run(setting, Policy::SEXTANT).expect("it runs");
        let total = report.total();
        assert_eq!((total.sent, total.refused), (2, 2), "{metric}");
    }
}

#[test]
fn agreement_stays_no_accuracy() {
    let folder = folder();
    let workload = folder.path().join("queries.csv");
    let mut application = application("digits", &json!({"latency_ms": 50.0}));
    for (at, kind) in ["accuracy", "agreement"].into_iter().enumerate() {
        application["variants"][at]["accuracy"]["kind"] = json!(kind);
    }
    let applications = [application];
    let all = [workers(), json!({"pools": []})];
    let parts = parts(&applications, &all, &workload);
    let experiment = Experiment::parse(&text(&parts), "what-if").expect("it is understood");
    let variants = experiment.cells[0].setting.variants.iter();
    let marked: Vec<bool> = variants.map(|of| of.agreement).collect();
    assert_eq!(marked, [false, true, false]);
}
