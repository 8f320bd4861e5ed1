//! Models divided among sub-clusters: the results of the shipped experiment, and the settings that are refused.

use sextant_lab::partition::{self, Experiment, Plan};
use sextant_partition::Policy;
use sextant_simulator::{Error, Record};

fn shipped() -> Experiment {
    let experiment = Experiment::named("symphony-fig15").unwrap();
    experiment.expect("it is shipped")
}

fn run(plan: &Plan) -> Vec<Record> {
    let mut ends = Vec::new();
    let records = partition::run(&shipped(), plan, &mut |done, total| {
        ends.push((done, total));
    });
    let total = ends.len();
    assert_eq!(
        ends,
        (1..=total).map(|done| (done, total)).collect::<Vec<_>>()
    );
    records.unwrap()
}

fn mean(records: &[Record], policy: &str, metric: &str) -> f64 {
    let is = |record: &&Record| {
        record.seed.is_none() && record.policy.as_deref() == Some(policy) && record.metric == metric
    };
    let found = records.iter().find(is);
    found
        .unwrap_or_else(|| panic!("{policy} has no {metric}"))
        .value
}

#[test]
fn every_method_reports_how_even_its_partition_is() {
    let records = run(&Plan {
        quick: true,
        ..Plan::default()
    });
    for policy in Policy::ALL {
        for metric in ["rate_imbalance_percent", "memory_imbalance_percent"] {
            let value = mean(&records, policy.name(), metric);
            assert!(
                value.is_finite() && value > 0.0,
                "{policy} {metric}: {value}"
            );
        }
        assert_eq!(mean(&records, policy.name(), "found_share"), 1.0);
        assert!(mean(&records, policy.name(), "solve_s") > 0.0);
    }
    let objective = |policy| mean(&records, policy, "objective_percent");
    assert!(objective("heuristic") <= objective("random"));
    assert!(objective("milp") <= objective("heuristic") + 1e-9);
    let units = records
        .iter()
        .map(|record| (record.metric.as_str(), record.unit.as_str()));
    for (metric, unit) in units {
        assert!(metric.ends_with(&format!("_{unit}")), "{metric} {unit}");
    }
}

#[test]
fn a_seed_draws_the_same_models_each_time_and_threads_change_nothing() {
    let plan = Plan {
        quick: true,
        policies: vec![Policy::Random, Policy::Heuristic],
        ..Plan::default()
    };
    let without_times = |plan: &Plan| {
        let mut records = run(plan);
        records.retain(|record| record.metric != "solve_s");
        records
    };
    let alone = without_times(&plan);
    assert_eq!(alone, without_times(&Plan { threads: 2, ..plan }));
    let seeds: Vec<f64> = alone
        .iter()
        .filter(|record| record.seed.is_some() && record.metric == "objective_percent")
        .map(|record| record.value)
        .collect();
    assert_eq!(seeds.len(), 4);
    assert_ne!(seeds[0], seeds[1], "other seeds, other models");
}

#[test]
fn cells_are_chosen_by_name() {
    let plan = Plan {
        quick: true,
        seeds: 1,
        policies: vec![Policy::Heuristic],
        cells: vec!["40-models-4-clusters".to_owned()],
        ..Plan::default()
    };
    let records = run(&plan);
    let cells: Vec<_> = records
        .iter()
        .filter_map(|record| record.cell.as_deref())
        .collect();
    assert!(!cells.is_empty() && cells.iter().all(|cell| *cell == "40-models-4-clusters"));
    let moon = Plan {
        cells: vec!["moon".to_owned()],
        ..plan
    };
    let error = partition::run(&shipped(), &moon, &mut |_, _| {}).unwrap_err();
    assert!(error.to_string().contains("moon"), "{error}");
}

#[test]
fn settings_that_make_no_sense_are_refused_with_their_key() {
    let text = include_str!("../../experiments/symphony-fig15.toml");
    assert!(Experiment::is_in(text) && !Experiment::is_in("kind = \"goodput\""));
    for (from, to, named) in [
        (
            "mean_rate_rps = 100.0",
            "mean_rate_rps = -1.0",
            "mean_rate_rps",
        ),
        ("time_limit_s = 10.0", "time_limit_s = nan", "time_limit_s"),
        ("static_mb = 99.0", "static_mb = -99.0", "static_mb"),
        ("\"milp\"", "\"simplex\"", "simplex"),
        ("seeds = 5", "sedes = 5", "sedes"),
        (
            "cells = [\"12-models-3-clusters\"]",
            "cells = [\"moon\"]",
            "moon",
        ),
    ] {
        let error = Experiment::parse(&text.replace(from, to), "own.toml").unwrap_err();
        let message = error.to_string();
        assert!(
            message.contains("own.toml") && message.contains(named),
            "{message}"
        );
    }
    let text = text.replace("memory_limit_mb = 24000.0", "memory_limit_mb = 3000.0");
    let tight = Experiment::parse(&text, "own.toml").unwrap();
    let quick = Plan {
        quick: true,
        ..Plan::default()
    };
    let error = partition::run(&tight, &quick, &mut |_, _| {}).unwrap_err();
    assert!(matches!(error, Error::Setting(_)), "{error}");
    assert!(
        error.to_string().contains("the memory of a device"),
        "{error}"
    );
}
