//! The planners of INFaaS: its integer program and its greedy heuristic.

use proptest::prelude::*;
use sextant_scaling::{
    Choice, Device, Infaas, Plan, Problem, fleet::Measurement, instances, instances::Weights,
};
use sextant_types::index::VariantIx;

use crate::problems::{BARE, choice, device, input, need, table3};

/// By type of device, in the order of the table.
fn counts(problem: &Problem, plan: &Plan) -> [u32; 3] {
    let mut counts = [0; 3];
    for (choice, count) in problem.choices.iter().zip(&plan.instances) {
        counts[choice.kind()] += count;
    }
    counts
}

/// The three rows that INFaaS prints, by the integer program.
#[test]
fn the_integer_program_answers_table_3_of_infaas() {
    let rows = [
        ((10.0, 300.0), [2, 0, 0], 2.0),
        ((10.0, 50.0), [0, 1, 0], 3.0),
        ((1000.0, 300.0), [0, 2, 1], 22.0),
    ];
    for ((rps, target_ms), expected, cost) in rows {
        let problem = table3(rps, target_ms);
        let plan = instances::plan(&problem, BARE).expect("there is room");
        assert!(plan.optimal);
        assert_eq!(counts(&problem, &plan), expected, "{rps} in {target_ms} ms");
        assert_eq!(plan.cost_per_hour_usd, cost);
    }
}

/// Counts of instances by trying all, for problems of two needs of two choices.
fn by_hand(problem: &Problem, weights: Weights) -> Option<f64> {
    let mut best: Option<f64> = None;
    let most = 7u32;
    for code in 0..most.pow(4) {
        let counts: Vec<u32> = (0..4).map(|at| code / most.pow(at) % most).collect();
        let covers = (0..2).all(|need| {
            let of = problem.choices_of(need);
            let rps: f64 = of.map(|(at, it)| it.rps * f64::from(counts[at])).sum();
            rps + 1e-9 >= problem.needs[need].rps * weights.slack
        });
        let fits = problem.devices.iter().enumerate().all(|(device, of)| {
            let choices = problem.choices.iter().zip(&counts);
            let on = choices.filter(|(it, _)| it.kind() == device);
            let used: f64 = on
                .map(|(it, count)| it.memory_share * f64::from(*count))
                .sum();
            used <= f64::from(of.most) + 1e-9
        });
        if covers && fits {
            let costs = problem.choices.iter().zip(&counts).map(|(it, count)| {
                let price = problem.devices[it.kind()].price_per_hour_usd * it.memory_share;
                let loaded = count.saturating_sub(it.running);
                let loading = weights.load_per_s * it.load_s * f64::from(loaded);
                price * (f64::from(*count) + loading)
            });
            let cost: f64 = costs.sum();
            best = Some(best.map_or(cost, |best: f64| best.min(cost)));
        }
    }
    best
}

/// What the program's objective says of a plan, US dollars an hour.
fn objective(problem: &Problem, plan: &Plan, weights: Weights) -> f64 {
    let each = problem.choices.iter().zip(&plan.instances);
    each.map(|(it, count)| {
        let price = problem.devices[it.kind()].price_per_hour_usd * it.memory_share;
        let loaded = f64::from(count.saturating_sub(it.running));
        price * (f64::from(*count) + weights.load_per_s * it.load_s * loaded)
    })
    .sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn the_integer_program_is_as_good_as_trying_everything(
        rates in prop::collection::vec(0.0..5.0f64, 2),
        speeds in prop::collection::vec(1.0..6.0f64, 4),
        shares in prop::collection::vec(0.1..1.0f64, 4),
        running in prop::collection::vec(0u32..3, 4),
        prices in prop::collection::vec(0.5..4.0f64, 2),
        most in prop::collection::vec(0u32..4, 2),
    ) {
        let weights = Weights { slack: 1.05, load_per_s: 0.1, steps: 1_000_000 };
        let problem = Problem {
            needs: rates.iter().map(|rps| need(*rps)).collect(),
            choices: (0..4).map(|at| Choice {
                variant: VariantIx::new(at as u32),
                memory_share: shares[at],
                load_s: 2.0,
                running: running[at],
                ..choice(at as u32 / 2, at as u32 % 2, speeds[at])
            }).collect(),
            devices: prices.iter().zip(&most).map(|(price, most)| Device { most: *most, ..device(*price) }).collect(),
            budget_per_hour_usd: None,
        };
        let best = by_hand(&problem, weights);
        let plan = instances::plan(&problem, weights);
        let found = plan.as_ref().map(|plan| objective(&problem, plan, weights));
        match (best, found) {
            (Some(best), Some(found)) => prop_assert!((best - found).abs() < 1e-6, "{best} and not {found}: {plan:?}"),
            (best, found) => prop_assert_eq!(best, found),
        }
    }
}

#[test]
fn the_heuristic_replicates_or_upgrades_by_what_is_cheaper() {
    let mut problem = table3(4.0, 300.0);
    let mut infaas = Infaas::new(BARE);
    let mut run = |problem: &mut Problem, rps: f64| {
        problem.needs[0].rps = rps;
        let plan = infaas.plan(problem);
        for (choice, count) in problem.choices.iter_mut().zip(&plan.instances) {
            choice.running = *count;
        }
        plan.instances
    };
    // Nothing runs: the cheapest variant that alone is enough.
    assert_eq!(run(&mut problem, 4.0), [1, 0, 0]);
    // One more A costs 1, an upgrade to B 3 - 1 = 2.
    assert_eq!(run(&mut problem, 10.0), [2, 0, 0]);
    // Six more A cost 6, an upgrade to B 3 - 2 = 1.
    assert_eq!(run(&mut problem, 40.0), [0, 1, 0]);
    // One instance of B is enough for less; two A are cheaper.
    assert_eq!(run(&mut problem, 10.0), [2, 0, 0]);
    assert_eq!(run(&mut problem, 3.0), [1, 0, 0]);
    assert_eq!(run(&mut problem, 0.0), [0, 0, 0]);
}

#[test]
fn the_heuristic_waits_the_loading_time_before_it_goes_down() {
    let mut problem = table3(10.0, 300.0);
    for choice in &mut problem.choices {
        choice.load_s = 3.0;
    }
    problem.choices[0].running = 4;
    let mut infaas = Infaas::new(BARE);
    let counts: Vec<u32> = (0..5)
        .map(|_| {
            let plan = infaas.plan(&problem);
            problem.choices[0].running = plan.instances[0];
            plan.instances[0]
        })
        .collect();
    assert_eq!(counts, [4, 4, 3, 3, 3]);
}

#[test]
fn devices_have_time_for_what_instances_answer_and_not_memory_alone() {
    let mut of = input(50.0, 3, Measurement::default()).problem;
    of.choices[0].memory_share = 0.01;
    let plan = instances::plan(&of, Weights::default()).expect("there is room");
    assert_eq!(plan.devices, [3]);
}
