//! Shipped experiments with fleets.

use sextant_lab::fleets;
use sextant_simulator::{
    Record,
    fleet::{Plan, Policy},
};

#[test]
fn every_shipped_experiment_compares_costs() {
    for name in fleets::names() {
        let experiment = fleets::named(name).unwrap().unwrap();
        let plan = Plan {
            quick: true,
            ..Plan::default()
        };
        let records = fleets::play(&experiment, &plan, &mut |_, _| {}).unwrap();
        let is_ratio = |metric: &str| metric == "cost_vs_infaas_ratio";
        assert!(records.iter().any(|it| is_ratio(&it.metric)), "{name}");
    }
}

#[test]
fn bursts_on_a_fixed_number_of_devices_cost_accuracy_before_answers() {
    let experiment = fleets::named("accuracy-scaling").unwrap().unwrap();
    let plan = Plan {
        policies: vec![Policy::SEXTANT],
        quick: true,
        ..Plan::default()
    };
    let records = fleets::play(&experiment, &plan, &mut |_, _| {}).unwrap();
    let figure = |cell: &str, metric: &str| {
        let of = |it: &&Record| it.metric == metric && it.cell.as_deref() == Some(cell);
        let found = records.iter().find(of);
        found.unwrap_or_else(|| panic!("{records:?}")).value
    };
    let of = |cell| {
        (
            figure(cell, "violation_percent"),
            figure(cell, "accuracy_percent"),
        )
    };
    let (accurate, cheap) = (of("accuracy"), of("cost"));
    let best = of("nothing but the best");
    let all = format!("{accurate:?}, {cheap:?}, {best:?}");
    assert!(accurate.0 < 0.75 * best.0 && accurate.1 > 93.0, "{all}");
    assert!(cheap.0 < 1.0 && cheap.1 < accurate.1, "{all}");
}
