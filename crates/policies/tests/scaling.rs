//! Plans: which devices, and what runs on them.

use proptest::prelude::*;
use sextant_policies::scaling::{
    Choice, Device, Footprint, Infaas, Kind, Need, Options, Plan, Problem, Room, Scaler, Scene,
    Steady,
    demand::{Arrivals, Ended, Load},
    fleet::{Leaver, Measured, Removable, Trigger, bad_shares, leaving},
    instances::{self, Weights},
    shared::{self, Effort},
    spread,
};

/// Weights under which nothing but running instances is paid for, and no slack is kept.
const BARE: Weights = Weights {
    slack: 1.0,
    load_per_s: 0.0,
    steps: 1_000_000,
};

fn device(price_per_hour_usd: f64) -> Device {
    Device {
        price_per_hour_usd,
        now: 0,
        least: 0,
        most: 1000,
        slots: 1,
        start_s: 0.0,
    }
}

fn choice(need: u32, device: u32, rps: f64) -> Choice {
    Choice {
        need,
        variant: device,
        device,
        rps,
        memory_share: 1.0,
        load_s: 0.0,
        running: 0,
    }
}

fn need(rps: f64) -> Need {
    Need { rps, weight: 1.0 }
}

/// Table 3 of INFaaS: A answers 5 a second in 200 ms for 1 USD, B 100 in 20 ms for 3, C 800 in 15 ms
/// for 16. Each on a device of its own.
fn table3(rps: f64, target_ms: f64) -> Problem {
    let variants = [(200.0, 5.0, 1.0), (20.0, 100.0, 3.0), (15.0, 800.0, 16.0)];
    let in_time = (0..).zip(variants).filter(|(_, (ms, ..))| *ms <= target_ms);
    Problem {
        needs: vec![need(rps)],
        choices: in_time
            .map(|(at, (_, rps, _))| choice(0, at, rps))
            .collect(),
        devices: variants.iter().map(|(.., price)| device(*price)).collect(),
        budget_per_hour_usd: None,
    }
}

/// By type of device, in the order of the table.
fn counts(problem: &Problem, plan: &Plan) -> [u32; 3] {
    let mut counts = [0; 3];
    for (choice, count) in problem.choices.iter().zip(&plan.instances) {
        counts[choice.device as usize] += count;
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
    for ((rps, target_ms), wanted, cost) in rows {
        let problem = table3(rps, target_ms);
        let plan = instances::plan(&problem, BARE).expect("there is room");
        assert!(plan.optimal);
        assert_eq!(counts(&problem, &plan), wanted, "{rps} in {target_ms} ms");
        assert_eq!(plan.cost_per_hour_usd, cost);
    }
}

/// Ours pays for devices; with one variant on each the answer is the same, with what the margin asks
/// for beside it.
#[test]
fn devices_that_are_shared_cost_what_table_3_says_where_nothing_shares_them() {
    for ((rps, target_ms), wanted) in [((8.0, 300.0), [2, 0, 0]), ((10.0, 50.0), [0, 1, 0])] {
        let plan = shared::plan(&table3(rps, target_ms), Effort::default());
        assert!(plan.optimal, "{plan:?}");
        assert_eq!(plan.devices, wanted, "{rps} in {target_ms} ms");
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
            let on = choices.filter(|(it, _)| it.device as usize == device);
            let used: f64 = on
                .map(|(it, count)| it.memory_share * f64::from(*count))
                .sum();
            used <= f64::from(of.most) + 1e-9
        });
        if covers && fits {
            let costs = problem.choices.iter().zip(&counts).map(|(it, count)| {
                let price =
                    problem.devices[it.device as usize].price_per_hour_usd * it.memory_share;
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
        let price = problem.devices[it.device as usize].price_per_hour_usd * it.memory_share;
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
                variant: at as u32,
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

    /// Whatever is planned: within the hold a number changes its direction once at most.
    #[test]
    fn what_is_wanted_turns_round_once_within_the_hold(
        planned in prop::collection::vec((1u64..40_000, 0u32..6), 1..200),
    ) {
        let mut steady = Steady::new(600_000);
        let (mut now, mut last, mut turns, mut direction) = (0, 0, Vec::new(), 0);
        for (gap, count) in planned {
            now += gap;
            let wanted = steady.want((), now, count);
            prop_assert!(wanted >= count, "less than is needed");
            let step = (wanted as i64 - last as i64).signum();
            if step != 0 {
                if direction != 0 && step != direction {
                    turns.push((now, step));
                }
                direction = step;
            }
            last = wanted;
        }
        // Two turns in ten minutes would be down and up again and down again.
        let downs: Vec<u64> = turns.iter().filter(|(_, step)| *step < 0).map(|(at, _)| *at).collect();
        for pair in turns.windows(2).filter(|pair| pair[1].1 < 0) {
            prop_assert!(pair[1].0 - pair[0].0 >= 600_000, "{turns:?} {downs:?}");
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
fn variants_are_on_all_devices_where_they_fit_and_else_on_as_many_as_they_need() {
    let footprint = |variant, own_bytes, least| Footprint {
        variant,
        own_bytes,
        group: variant / 2,
        shared_bytes: 50,
        least,
        load: 0,
    };
    // Two variants that share weights: 50 + 10 + 10.
    let pair = [footprint(0, 10, 1), footprint(1, 10, 2)];
    let room = |memory_bytes| Room {
        devices: 3,
        memory_bytes,
    };
    assert_eq!(spread(&pair, room(70)), [3, 3]);
    assert_eq!(spread(&pair, room(69)), [1, 2]);
    assert_eq!(spread(&pair, room(59)), [0, 0]);
    let two = [footprint(0, 10, 2), footprint(2, 20, 1)];
    assert_eq!(spread(&two, room(100)), [2, 1]);
}

#[test]
fn measured_load_says_how_many_devices_there_must_be() {
    let well = Measured {
        devices: 10,
        busy_share: 0.75,
        interfered: 9,
        overloaded: 8,
        bad_share: 0.005,
        loading: false,
    };
    assert_eq!((well.infaas(), well.sextant()), ((0, None), (0, None)));
    let busy = Measured {
        busy_share: 0.81,
        ..well
    };
    assert_eq!(busy.infaas(), (11, Some(Trigger::Busy)));
    let slowed = Measured {
        interfered: 10,
        ..well
    };
    assert_eq!(slowed.infaas(), (11, Some(Trigger::Interfered)));
    assert_eq!(slowed.sextant(), (11, Some(Trigger::Interfered)));
    let full = Measured {
        overloaded: 9,
        ..well
    };
    assert_eq!(full.infaas(), (11, Some(Trigger::Overloaded)));
    // Symphony: N r / (1 - r) = 10 * 0.2 / 0.8 = 2.5.
    let bad = Measured {
        bad_share: 0.2,
        ..well
    };
    assert_eq!(bad.sextant(), (13, Some(Trigger::BadRate)));
    assert_eq!(Measured::default().infaas(), (0, None));
}

fn removable(busy_share: f64, holds: &[u32], since_ms: u64) -> Removable {
    Removable {
        busy_share,
        holds: holds.to_vec(),
        since_ms,
        emptying: false,
    }
}

fn positions(leavers: &[Leaver]) -> Vec<usize> {
    leavers.iter().map(|of| of.at).collect()
}

#[test]
fn those_leave_first_on_whom_nothing_depends() {
    let mut devices = [
        removable(0.0, &[7], 3),
        removable(0.5, &[8], 1),
        removable(0.1, &[8], 1),
        removable(0.1, &[], 2),
    ];
    // One that is loaded elsewhere, too.
    let copies = [(7, 1), (8, 3)].into();
    assert_eq!(positions(&leaving(&devices, &copies, 3)), [3, 2, 1]);
    let all = leaving(&devices, &copies, 9);
    assert_eq!(positions(&all), [3, 2, 1, 0]);
    assert_eq!(all[3].alone, [7], "it is loaded nowhere else");
    devices[1].emptying = true;
    assert_eq!(positions(&leaving(&devices, &copies, 3)), [1, 3, 2]);
}

#[test]
fn of_those_that_leave_together_one_keeps_what_they_have_in_common() {
    let devices = [removable(0.1, &[7], 1), removable(0.2, &[7], 1)];
    let leavers = leaving(&devices, &[(7, 2)].into(), 2);
    let first = Leaver {
        at: 0,
        alone: vec![],
    };
    let last = Leaver {
        at: 1,
        alone: vec![7],
    };
    assert_eq!(leavers, [first, last]);
    // Who is emptied stays the choice while others are as empty.
    let mut devices = [removable(0.1, &[7], 1), removable(0.2, &[8], 1)];
    devices[1].emptying = true;
    let leavers = leaving(&devices, &[(7, 1), (8, 1)].into(), 1);
    assert_eq!(positions(&leavers), [1]);
}

fn footprint_of(variant: u32, own_bytes: u64, least: u32) -> Footprint {
    Footprint {
        variant,
        own_bytes,
        group: variant,
        shared_bytes: 0,
        least,
        load: 0,
    }
}

/// A look at one type of device on which one variant answers 20 queries a second.
fn scene(rps: f64, up: u32, measured: Measured) -> Scene {
    Scene {
        tenants: Default::default(),
        problem: Problem {
            needs: vec![need(rps)],
            choices: vec![choice(0, 0, 20.0)],
            devices: vec![device(1.0)],
            budget_per_hour_usd: None,
        },
        kinds: vec![Kind {
            key: 0,
            up,
            memory_bytes: 100,
            managed: true,
            measured: Measured {
                devices: up,
                ..measured
            },
        }],
        footprints: vec![footprint_of(0, 95, 0)],
    }
}

/// Counts around a mean, spread as those of a Poisson process.
fn noisy(mean: f64, at: u64) -> f64 {
    let mut state = (at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut sum = 0.0;
    for _ in 0..12 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        sum += (state % 10_007) as f64 / 10_007.0;
    }
    (mean + mean.sqrt() * (sum - 6.0)).max(0.0)
}

#[test]
fn chance_is_no_burst_and_a_burst_counts_within_seconds() {
    let mut arrivals = Arrivals::default();
    let mut most: f64 = 0.0;
    for second in 1..=1200u64 {
        arrivals.observe(second * 1000, 1000, noisy(50.0, second));
        if second > 60 {
            most = most.max(arrivals.expect(30.0).rps());
        }
    }
    assert!(most < 60.0, "largest of 1140 looks at 50 a second: {most}");
    for second in 1201..=1206u64 {
        arrivals.observe(second * 1000, 1000, noisy(100.0, second));
    }
    let expected = arrivals.expect(30.0).rps();
    assert!((80.0..115.0).contains(&expected), "{expected}");
}

#[test]
fn a_few_bad_queries_are_no_bad_share() {
    let mut load = Load::default();
    let ended = |offered, bad| Ended { offered, bad };
    for second in 1..=60u64 {
        load.observe(second * 1000, 1000, ended(50.0, 0.0));
    }
    load.observe(61_000, 1000, ended(50.0, 12.0));
    assert!(load.outlook(61_000, 0.0, 600_000).bad_share < 0.01);
    for second in 62..=90u64 {
        load.observe(second * 1000, 1000, ended(50.0, 10.0));
    }
    let outlook = load.outlook(90_000, 0.0, 600_000);
    assert!((0.08..0.2).contains(&outlook.bad_share), "{outlook:?}");
    let of = scene(50.0, 3, Measured::default());
    let shares = bad_shares(&of.problem, &[outlook], &[3]);
    assert!((shares[0] - outlook.bad_share).abs() < 1e-9);
}

#[test]
fn what_was_bad_while_devices_started_asks_for_no_more_of_them() {
    let mut scaler = Scaler::new(Options::default());
    let bad = Measured {
        bad_share: 0.5,
        ..Measured::default()
    };
    let first = scaler.decide(&scene(50.0, 1, bad), 1000).devices[0];
    assert_eq!((first.devices, first.trigger), (3, None));
    for second in 2..100u64 {
        let wanted = scaler.decide(&scene(50.0, 1, bad), second * 1000).devices[0];
        assert_eq!(wanted.devices, 3, "two are still starting");
    }
    let loading = Measured {
        loading: true,
        ..bad
    };
    scaler.decide(&scene(50.0, 3, loading), 100_000);
    let wanted = scaler.decide(&scene(50.0, 3, bad), 150_000).devices[0];
    assert_eq!(wanted.devices, 3, "variants were loaded a moment ago");
    let wanted = scaler.decide(&scene(50.0, 3, bad), 170_000).devices[0];
    assert_eq!(
        (wanted.devices, wanted.trigger),
        (6, Some(Trigger::BadRate))
    );
}

#[test]
fn what_was_bad_before_devices_came_asks_for_no_more_of_them_however_soon_they_came() {
    let mut scaler = Scaler::new(Options::default());
    let bad = Measured {
        bad_share: 0.2,
        ..Measured::default()
    };
    scaler.decide(&scene(50.0, 3, Measured::default()), 0);
    let raised = scaler.decide(&scene(50.0, 3, bad), 100_000).devices[0];
    assert_eq!(raised.devices, 4);
    for second in 101..160u64 {
        let wanted = scaler.decide(&scene(50.0, 4, bad), second * 1000).devices[0];
        assert_eq!(wanted.devices, 4, "the fourth was up at the next look");
    }
    let still = scaler.decide(&scene(50.0, 4, bad), 170_000).devices[0];
    assert_eq!((still.devices, still.trigger), (5, Some(Trigger::BadRate)));
}

#[test]
fn a_plan_that_was_too_small_stays_corrected_when_the_hold_is_over() {
    let mut scaler = Scaler::new(Options::default());
    let bad = Measured {
        bad_share: 0.2,
        ..Measured::default()
    };
    scaler.decide(&scene(50.0, 3, Measured::default()), 0);
    let raised = scaler.decide(&scene(50.0, 3, bad), 100_000).devices[0];
    assert_eq!(raised.devices, 4);
    let good = scene(50.0, 4, Measured::default());
    let later = scaler.decide(&good, 900_000).devices[0];
    assert_eq!(later.devices, 4, "three were too few at the same load");
    let small = scene(5.0, 4, Measured::default());
    scaler.decide(&small, 901_000);
    let least = scaler.decide(&small, 1_600_000).devices[0];
    assert!(least.devices <= 2, "many times a small plan: {least:?}");
    scaler.decide(&good, 6_000_000);
    let forgotten = scaler.decide(&good, 6_700_000).devices[0];
    assert_eq!(forgotten.devices, 3);
}

/// Three devices that a load of 0.6 needed say nothing of one that is nearly gone, though a plan has one
/// device for both.
#[test]
fn a_correction_goes_with_the_load_that_it_was_for() {
    let mut scaler = Scaler::new(Options::default());
    let bad = Measured {
        bad_share: 0.6,
        ..Measured::default()
    };
    let mut wanted = 0;
    for second in 0..200 {
        let decided = scaler.decide(&scene(12.0, 1, bad), second * 1000);
        wanted = decided.devices[0].devices;
        if wanted > 1 {
            break;
        }
    }
    assert!(wanted > 1, "nothing was corrected");
    let quiet = scene(0.05, wanted, Measured::default());
    let later = (0..900).map(|second| {
        let now_ms = 200_000 + second * 1000;
        scaler.decide(&quiet, now_ms).devices[0].devices
    });
    assert_eq!(later.last(), Some(1));
}

#[test]
fn a_variant_that_fills_a_device_is_loaded() {
    let mut scaler = Scaler::new(Options::default());
    let decided = scaler.decide(&scene(50.0, 3, Measured::default()), 0);
    assert_eq!(decided.variants.get(&0), Some(&3));
}

#[test]
fn room_that_is_left_goes_to_copies_of_what_has_most_load() {
    let of = |variant, load| Footprint {
        load,
        ..footprint_of(variant, 40, 1)
    };
    let all = [of(0, 900), of(1, 90), of(2, 10)];
    let room = Room {
        devices: 3,
        memory_bytes: 80,
    };
    assert_eq!(spread(&all, room), [3, 2, 1], "two on each of three");
}

#[test]
fn devices_have_time_for_what_instances_answer_and_not_memory_alone() {
    let mut of = scene(50.0, 3, Measured::default()).problem;
    of.choices[0].memory_share = 0.01;
    let plan = instances::plan(&of, Weights::default()).expect("there is room");
    assert_eq!(plan.devices, [3]);
}
