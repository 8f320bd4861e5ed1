//! What applications may use of a fleet: budgets, bounds, priorities and weights.

use proptest::prelude::*;
use sextant_scaling::{
    Choice, Device, Footprint, Kind, Need, Options, Plan, PlannerInput, Policy, Problem, Scaler,
    ScalingDecision,
    demand::Forecast,
    fleet::Measurement,
    shared,
    shared::{Effort, staffed},
    tenants::{Cut, Limit, Tenant, Tenants},
};
use sextant_types::index::{ApplicationIx, KindIx, VariantIx};

/// Queries a second that a device answers with any variant here.
const RPS: f64 = 100.0;

fn device(price_per_hour_usd: f64, most: u32) -> Device {
    Device {
        price_per_hour_usd,
        now: 0,
        least: 0,
        most,
        slots: 4,
        start_s: 0.0,
    }
}

fn choice(need: u32, device: u32, rps: f64) -> Choice {
    Choice {
        need,
        variant: VariantIx::new(need),
        device: KindIx::new(device),
        rps,
        memory_share: 0.1,
        load_s: 0.0,
        running: 0,
    }
}

/// Needs with these rates on one type of device, of which there may be so many.
fn problem(rates: &[f64], most: u32) -> Problem {
    Problem {
        needs: rates
            .iter()
            .map(|rps| Need {
                rps: *rps,
                weight: 1.0,
            })
            .collect(),
        choices: (0..rates.len() as u32)
            .map(|need| choice(need, 0, RPS))
            .collect(),
        devices: vec![device(1.0, most)],
        budget_per_hour_usd: None,
    }
}

/// Each need is of an application of its own.
fn each(all: Vec<Tenant>) -> Tenants {
    let of_need = (0..all.len() as u32).map(ApplicationIx::new).collect();
    Tenants {
        all: all.into_iter().collect(),
        of_need,
    }
}

fn claims(priority: u8, weight: f64) -> Tenant {
    Tenant {
        priority,
        weight,
        ..Tenant::default()
    }
}

fn rates(problem: &Problem) -> Vec<f64> {
    problem.needs.iter().map(|need| need.rps).collect()
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 0.01 * b.abs().max(1.0)
}

fn unserved(plan: &Plan) -> f64 {
    plan.unserved_rps.iter().sum()
}

/// What a scaler plans where nothing is up yet.
fn decide(problem: Problem, tenants: Tenants, policy: Policy) -> ScalingDecision {
    let footprints = problem.choices.iter().map(|choice| Footprint {
        variant: choice.variant,
        own_bytes: 1,
        group: choice.variant.get(),
        shared_bytes: 0,
        least: 0,
        load: 0,
    });
    let kinds = (0..problem.devices.len() as u32).map(|key| Kind {
        key,
        up: 0,
        memory_bytes: 100,
        managed: true,
        measured: Measurement::default(),
    });
    let input = PlannerInput {
        outlooks: Vec::new(),
        kinds: kinds.collect(),
        footprints: footprints.collect(),
        problem,
        tenants,
        preferences: Vec::new(),
        staffed: Default::default(),
        instances: Vec::new(),
    };
    let options = Options {
        policy,
        ..Options::default()
    };
    Scaler::new(options).decide(&input, 1000)
}

#[test]
fn a_budget_leaves_out_the_dearest_queries_first() {
    // The second need takes twice the device time for a query.
    let mut problem = problem(&[300.0, 100.0], 100);
    problem.choices[1].rps = RPS / 2.0;
    let tenants = Tenants {
        all: [Tenant {
            budget_per_hour_usd: Some(4.0),
            ..Tenant::default()
        }]
        .into_iter()
        .collect(),
        of_need: vec![ApplicationIx::default(); 2],
    };
    // By hand: 300 a second cost 3 dollars an hour, and the dollar that is left pays 50 of the others.
    let granted = tenants.bounded(&problem);
    assert_eq!(rates(&granted.problem), [300.0, 50.0]);
    let cut = Cut {
        need: 1,
        rps: 50.0,
        limit: Limit::Budget,
    };
    assert_eq!(granted.cuts, [cut]);
    problem.needs[1].rps = 50.0;
    assert_eq!(tenants.bounded(&problem).cuts, []);
}

#[test]
fn the_cheapest_choice_counts_and_what_is_free_is_never_left_out() {
    let mut problem = problem(&[300.0], 100);
    problem.devices.push(device(8.0, 100));
    problem.choices.push(choice(0, 1, 4.0 * RPS));
    let budget = |usd| {
        each(vec![Tenant {
            budget_per_hour_usd: Some(usd),
            ..Tenant::default()
        }])
    };
    assert_eq!(budget(3.0).bounded(&problem).cuts, []);
    assert_eq!(rates(&budget(0.0).bounded(&problem).problem), [0.0]);
    problem.devices[0].price_per_hour_usd = 0.0;
    assert_eq!(rates(&budget(0.0).bounded(&problem).problem), [300.0]);
}

#[test]
fn an_application_has_no_more_devices_planned_than_it_may() {
    let tenants = |most| {
        each(vec![Tenant {
            most: Some(most),
            ..Tenant::default()
        }])
    };
    for most in 0..5 {
        let decided = decide(problem(&[1000.0], 100), tenants(most), Policy::Sextant);
        assert_eq!(decided.devices[0].devices, most);
        assert!(decided.cuts.iter().all(|cut| cut.limit == Limit::Most));
        assert_eq!(unserved(&decided.free), 0.0, "the rest is not planned for");
    }
    let enough = decide(problem(&[100.0], 100), tenants(10), Policy::Sextant);
    assert_eq!(enough.cuts, []);
}

#[test]
fn devices_are_kept_for_an_application_that_nobody_asks() {
    for policy in [Policy::Sextant, Policy::Ilp] {
        for least in 0..4 {
            let tenants = each(vec![Tenant {
                least,
                ..Tenant::default()
            }]);
            let decided = decide(problem(&[0.0], 100), tenants, policy);
            assert_eq!(decided.devices[0].devices, least, "{policy:?}");
        }
    }
    // What is asked for counts, too: no more is kept than is missing.
    let tenants = each(vec![
        Tenant {
            least: 2,
            ..Tenant::default()
        },
        Tenant::default(),
    ]);
    let asked = [10.0, 350.0];
    let granted = tenants.bounded(&problem(&asked, 100));
    let busy = rates(&granted.problem)[0] / RPS;
    assert_eq!(staffed(busy, 4), 2);
    assert_eq!(rates(&granted.problem)[1], 350.0);
}

#[test]
fn a_budget_of_nothing_keeps_what_is_kept() {
    let tenants = each(vec![Tenant {
        budget_per_hour_usd: Some(0.0),
        least: 1,
        ..Tenant::default()
    }]);
    let decided = decide(problem(&[500.0], 100), tenants, Policy::Sextant);
    assert_eq!(decided.devices[0].devices, 1);
    assert_eq!(decided.cuts[0].limit, Limit::Budget);
}

#[test]
fn a_higher_priority_has_all_before_a_lower_one_has_anything() {
    for policy in [Policy::Sextant, Policy::Ilp] {
        // Three devices for what takes five.
        let tenants = each(vec![claims(1, 1000.0), claims(2, 0.001)]);
        let mut short = problem(&[300.0, 150.0], 3);
        for choice in &mut short.choices {
            // The integer program of INFaaS counts memory: an instance fills a device.
            choice.memory_share = 1.0;
        }
        let decided = decide(short, tenants, policy);
        let planned = rates(&decided.problem);
        assert_eq!(planned[1], 150.0, "{policy:?}");
        assert!(
            planned[0] > 0.0 && planned[0] < 150.0,
            "{policy:?}: {planned:?}"
        );
        assert!(unserved(&decided.free) < 1.0, "{policy:?}");
        assert_eq!(decided.cuts.len(), 1);
        assert_eq!(
            (decided.cuts[0].need, decided.cuts[0].limit),
            (0, Limit::Others)
        );
    }
    // The higher one alone is more than there is.
    let tenants = each(vec![claims(1, 1.0), claims(2, 1.0)]);
    let decided = decide(problem(&[300.0, 900.0], 3), tenants, Policy::Sextant);
    let planned = rates(&decided.problem);
    assert!(planned[0] < 0.01 * planned[1], "{planned:?}");
}

#[test]
fn equals_share_by_weight_and_nobody_has_more_than_it_asks() {
    let tenants = each(vec![claims(5, 1.0), claims(5, 3.0), claims(5, 1.0)]);
    let granted = tenants.divided(&problem(&[1000.0, 1000.0, 10.0], 5));
    let planned = rates(&granted.expect("they differ").problem);
    assert_eq!(planned[2], 10.0, "less than its share");
    assert!(close(planned[1], 3.0 * planned[0]), "{planned:?}");
    let sum: f64 = planned.iter().sum();
    let room = shared::busy_of(5, 4) * RPS;
    assert!(close(sum, room), "{sum} of {room}");
}

#[test]
fn the_budget_of_the_fleet_is_divided_alike() {
    let mut short = problem(&[1000.0, 1000.0], 1000);
    short.budget_per_hour_usd = Some(6.0);
    let tenants = each(vec![claims(100, 1.0), claims(100, 2.0)]);
    let decided = decide(short, tenants, Policy::Sextant);
    let planned = rates(&decided.problem);
    assert!(close(planned[1], 2.0 * planned[0]), "{planned:?}");
    assert!(decided.free.cost_per_hour_usd <= 6.0 + 1e-9);
    assert!(unserved(&decided.free) < 1.0);
}

#[test]
fn who_uses_devices_that_are_not_short_is_not_held_back() {
    // The third is answered by a type of its own, of which there is enough.
    let mut problem = problem(&[1000.0, 1000.0, 1000.0], 4);
    problem.devices.push(device(1.0, 100));
    problem.choices[2].device = KindIx::new(1);
    let tenants = each(vec![claims(7, 1.0), claims(7, 1.0), claims(7, 0.01)]);
    let planned = rates(&tenants.divided(&problem).expect("they differ").problem);
    assert_eq!(planned[2], 1000.0);
    assert!(
        close(planned[0], planned[1]) && planned[0] > 100.0,
        "{planned:?}"
    );
}

#[test]
fn where_nothing_is_set_nothing_changes() {
    let short = problem(&[300.0, 200.0], 3);
    let plain = decide(short.clone(), Tenants::default(), Policy::Sextant);
    let usual = each(vec![Tenant::default(); 2]);
    let with = decide(short.clone(), usual.clone(), Policy::Sextant);
    assert_eq!(plain, with);
    assert_eq!(plain.free, shared::plan(&short, Effort::default()));
    assert_eq!(plain.problem, short);
    assert_eq!(usual.divided(&short), None);
    // With enough for all, nobody comes first.
    let enough = problem(&[300.0, 200.0], 100);
    let told_apart = each(vec![claims(1, 1.0), claims(2, 1.0)]);
    let decided = decide(enough.clone(), told_apart, Policy::Sextant);
    assert_eq!((decided.problem, decided.cuts), (enough, Vec::new()));
}

#[test]
fn queries_refused_for_a_budget_do_not_ask_for_devices() {
    let forecast = Forecast {
        rps: 300.0,
        bad_share: 0.5,
        recent: 100.0,
        ..Forecast::default()
    };
    let tenants = each(vec![
        Tenant {
            budget_per_hour_usd: Some(1.0),
            ..Tenant::default()
        },
        Tenant::default(),
    ]);
    let judged = tenants.judged(&problem(&[300.0, 300.0], 100), &[forecast, forecast]);
    assert_eq!((judged[0].bad_share, judged[0].recent), (0.0, 0.0));
    assert_eq!(judged[1], forecast);
}

/// Rates, priorities of three, weights; how many devices there may be.
fn fleets() -> impl Strategy<Value = (Vec<(f64, u8, f64)>, u32)> {
    let of = (0.0..500.0, 0u8..3, 0.1..10.0);
    (prop::collection::vec(of, 1..8), 0u32..12)
}

proptest! {
    #[test]
    fn no_more_is_planned_than_is_asked_and_priorities_are_strict((of, most) in fleets()) {
        let asked: Vec<f64> = of.iter().map(|(rps, ..)| *rps).collect();
        let all = of.iter().map(|(_, priority, weight)| claims(*priority, *weight));
        let tenants = each(all.collect());
        let problem = problem(&asked, most);
        let Some(granted) = tenants.divided(&problem) else {
            return Ok(());
        };
        let planned = rates(&granted.problem);
        let room = shared::busy_of(most, 4) * RPS;
        prop_assert!(planned.iter().sum::<f64>() <= room + 1e-3, "{planned:?} of {room}");
        for (at, (planned, asked)) in planned.iter().zip(&asked).enumerate() {
            prop_assert!(*planned <= asked + 1e-9);
            let cut: f64 = granted.cuts.iter().filter(|cut| cut.need as usize == at).map(|cut| cut.rps).sum();
            prop_assert!((planned + cut - asked).abs() < 1e-6, "nothing is lost");
        }
        // By hand: what each priority leaves is all that the lower ones have.
        let mut left = room;
        for level in (0u8..3).rev() {
            let is_of = |at: &usize| of[*at].1 == level;
            let desired: f64 = (0..of.len()).filter(is_of).map(|at| asked[at]).sum();
            let had: f64 = (0..of.len()).filter(is_of).map(|at| planned[at]).sum();
            let due = desired.min(left);
            prop_assert!((had - due).abs() <= 0.002 * room.max(1.0), "{level}: {had} is not {due}");
            left = (left - had).max(0.0);
        }
        // Of equals that did not get all, each has by its weight.
        for a in 0..of.len() {
            for b in 0..of.len() {
                let short = |at: usize| asked[at] - planned[at] > 1e-3 * asked[at];
                if of[a].1 == of[b].1 && short(a) && short(b) {
                    let (one, other) = (planned[a] / of[a].2, planned[b] / of[b].2);
                    prop_assert!((one - other).abs() <= 0.01 * one.max(other) + 0.01, "{one} {other}");
                }
            }
        }
    }

    #[test]
    fn budgets_and_bounds_hold(
        of in prop::collection::vec((0.0..500.0, 0.1..10.0, 10.0..500.0), 1..6),
        budget in 0.0..20.0, most in 0u32..10
    ) {
        let mut problem = problem(&of.iter().map(|(rps, ..)| *rps).collect::<Vec<_>>(), 1000);
        problem.devices = of.iter().map(|(_, price, _)| device(*price, 1000)).collect();
        for (at, (_, _, rps)) in of.iter().enumerate() {
            problem.choices[at] = choice(at as u32, at as u32, *rps);
        }
        let tenants = Tenants {
            all: [Tenant { budget_per_hour_usd: Some(budget), most: Some(most), ..Tenant::default() }].into_iter().collect(),
            of_need: vec![ApplicationIx::default(); of.len()],
        };
        let granted = tenants.bounded(&problem);
        let planned = rates(&granted.problem);
        let each = planned.iter().zip(&of);
        let usd: f64 = each.clone().map(|(planned, (_, price, rps))| planned / rps * price).sum();
        prop_assert!(usd <= budget + 1e-6, "{usd} of {budget}");
        let busy: f64 = each.map(|(planned, (_, _, rps))| planned / rps).sum();
        prop_assert!(busy <= shared::busy_of(most, 4) + 1e-6, "{busy} of {most}");
        for (at, need) in problem.needs.iter().enumerate() {
            let cut: f64 = granted.cuts.iter().filter(|cut| cut.need as usize == at).map(|cut| cut.rps).sum();
            prop_assert!((planned[at] + cut - need.rps).abs() < 1e-6);
        }
    }
}
