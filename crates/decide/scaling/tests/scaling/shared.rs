//! Devices that variants share by turns.

use proptest::prelude::*;
use sextant_scaling::{Device, Problem, instances, shared, shared::Effort};

use crate::problems::{BARE, choice, device, need, table3};

/// Ours pays for devices; with one variant on each the answer is the same, with what the margin asks
/// for beside it.
#[test]
fn devices_that_are_shared_cost_what_table_3_says_where_nothing_shares_them() {
    // The table has 8 a second in its first row, which keep two devices busy for four fifths of their time: more than the
    // margin leaves.
    for ((rps, target_ms), expected) in [((7.5, 300.0), [2, 0, 0]), ((10.0, 50.0), [0, 1, 0])] {
        let plan = shared::plan(&table3(rps, target_ms), Effort::default());
        assert!(plan.optimal, "{plan:?}");
        assert_eq!(plan.devices, expected, "{rps} in {target_ms} ms");
    }
    let plan = shared::plan(&table3(1000.0, 300.0), Effort::default());
    assert_eq!(plan.unserved_rps, [0.0]);
    // 2 B and 1 C without a margin.
    assert!(
        plan.cost_per_hour_usd >= 22.0 && plan.cost_per_hour_usd < 35.0,
        "{plan:?}"
    );
}

/// Ten applications that each need a twentieth of a device are paid as one device, not as ten.
#[test]
fn a_device_is_paid_once_for_all_that_share_it() {
    let problem = Problem {
        needs: vec![need(5.0); 10],
        choices: (0..10).map(|at| choice(at, 0, 100.0)).collect(),
        devices: vec![device(3.0)],
        budget_per_hour_usd: None,
    };
    let plan = shared::plan(&problem, Effort::default());
    assert_eq!(plan.devices, [1]);
    assert_eq!(plan.cost_per_hour_usd, 3.0);
    let dedicated = instances::plan(&problem, BARE).expect("there is room");
    assert_eq!(dedicated.cost_per_hour_usd, 30.0);
}

/// At a low rate the cheap device, at a high one the dear device that answers more for its price.
#[test]
fn load_decides_which_hardware_is_cheapest() {
    let at = |rps: f64| {
        let problem = Problem {
            needs: vec![need(rps)],
            choices: vec![choice(0, 0, 20.0), choice(0, 1, 1000.0)],
            devices: vec![device(0.4), device(3.0)],
            budget_per_hour_usd: None,
        };
        shared::plan(&problem, Effort::default()).devices
    };
    assert_eq!(at(4.0), [1, 0]);
    assert_eq!(at(0.0), [0, 0]);
    assert_eq!(at(600.0), [0, 1]);
}

#[test]
fn bounds_and_budgets_leave_queries_of_the_least_weight_unanswered() {
    let mut problem = Problem {
        needs: vec![need(100.0), need(100.0)],
        choices: vec![choice(0, 0, 100.0), choice(1, 0, 100.0)],
        devices: vec![Device {
            most: 1,
            ..device(2.0)
        }],
        budget_per_hour_usd: None,
    };
    problem.needs[1].weight = 5.0;
    let plan = shared::plan(&problem, Effort::default());
    assert_eq!(plan.devices, [1]);
    assert!(
        plan.unserved_rps[0] > 99.0 && plan.unserved_rps[1] < plan.unserved_rps[0],
        "{plan:?}"
    );
    problem.devices[0].most = 100;
    problem.budget_per_hour_usd = Some(0.0);
    let plan = shared::plan(&problem, Effort::default());
    assert_eq!((plan.devices, plan.cost_per_hour_usd), (vec![0], 0.0));
    problem.devices[0].least = 2;
    let plan = shared::plan(&problem, Effort::default());
    assert_eq!(
        plan.devices,
        [2],
        "what must be there is there, whatever the budget"
    );
}

#[test]
fn a_need_that_nothing_can_answer_is_said_to_be_unanswered() {
    let problem = Problem {
        needs: vec![need(10.0), need(3.0)],
        choices: vec![choice(0, 0, 100.0)],
        devices: vec![device(1.0)],
        budget_per_hour_usd: None,
    };
    let plan = shared::plan(&problem, Effort::default());
    assert_eq!(plan.unserved_rps, [0.0, 3.0]);
    assert_eq!(instances::plan(&problem, BARE), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// The devices of a plan have time for what it says they answer, within all bounds; and no number
    /// of devices that is less in one type and no more in the others does.
    #[test]
    fn planned_devices_have_time_for_what_they_answer(
        rates in prop::collection::vec(0.0..500.0f64, 1..8),
        speeds in prop::collection::vec(5.0..300.0f64, 24),
        prices in prop::collection::vec(0.1..5.0f64, 3),
        slots in prop::collection::vec(1u32..9, 3),
        most in prop::collection::vec(0u32..9, 3),
    ) {
        let problem = Problem {
            needs: rates.iter().map(|rps| need(*rps)).collect(),
            choices: (0..rates.len() as u32 * 3).map(|at| choice(at / 3, at % 3, speeds[at as usize])).collect(),
            devices: (0..3).map(|at| Device { most: most[at], slots: slots[at], ..device(prices[at]) }).collect(),
            budget_per_hour_usd: None,
        };
        for plan in [shared::plan(&problem, Effort::default()), shared::greedy(&problem)] {
            let busy = shared::busy_devices(&problem, &plan);
            for (at, busy) in busy.iter().enumerate() {
                prop_assert!(plan.devices[at] <= most[at]);
                prop_assert!(*busy <= f64::from(plan.devices[at]) + 1e-6, "{plan:?}");
            }
            for (at, rps) in rates.iter().enumerate() {
                let served: f64 = problem.choices_of(at).map(|(choice, _)| plan.served_rps[choice]).sum();
                prop_assert!((served + plan.unserved_rps[at] - rps).abs() < 1e-3 * rps.max(1.0), "{plan:?}");
            }
        }
    }
}
