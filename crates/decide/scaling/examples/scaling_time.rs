//! How long planners take, and how far the greedy ones are from the optimum.
//!
//! Prints one JSON object per line; `cargo xtask bench autoscaling` runs it.

#![expect(
    clippy::print_stdout,
    reason = "figures are the output of this program"
)]
#![expect(
    clippy::disallowed_methods,
    reason = "this program measures time; policies do not"
)]

use std::time::Instant;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sextant_scaling::{
    Choice, Device, Infaas, Need, Plan, Problem, instances, instances::Weights, shared,
    shared::Effort,
};
use sextant_types::index::{KindIx, VariantIx};

/// Seeds of the random problems.
const SEEDS: std::ops::Range<u64> = 0..20;

/// Memory that there is, as a share of what the cheapest plan would take if there were no end of it.
const SCARCE: f64 = 0.93;

fn main() {
    let (mut exact, mut optimal, mut gaps) = (Vec::new(), 0, Vec::new());
    let (mut costs, mut served) = (Vec::new(), 0);
    for seed in SEEDS {
        let problem = instances_problem(seed);
        let (took, plan) = timed(|| instances::plan(&problem, Weights::default()));
        exact.push(took);
        let Some(plan) = plan else { continue };
        optimal += u32::from(plan.optimal);
        costs.push(plan.cost_per_hour_usd);
        served += u32::from(serves(&settled(&problem)));
        let mut roomy = problem.clone();
        for device in &mut roomy.devices {
            device.most = u32::MAX >> 8;
        }
        let (greedy, best) = (settled(&roomy), instances::plan(&roomy, Weights::default()));
        if let (true, Some(best)) = (serves(&greedy), best) {
            gaps.push((greedy.cost_per_hour_usd / best.cost_per_hour_usd - 1.0) * 100.0);
        }
    }
    let count = exact.len() as f64;
    print(
        "ilp_100x8_answered_share",
        costs.len() as f64 / count,
        "share",
    );
    print("ilp_100x8_s", largest(&exact), "s");
    print("ilp_100x8_median_s", median(&mut exact), "s");
    print(
        "ilp_100x8_optimal_share",
        f64::from(optimal) / count,
        "share",
    );
    print("infaas_greedy_gap_percent", median(&mut gaps), "percent");
    print(
        "infaas_greedy_served_share",
        f64::from(served) / count,
        "share",
    );
    let (mut times, mut greedy_times, mut gaps) = (Vec::new(), Vec::new(), Vec::new());
    for seed in SEEDS {
        let problem = fleet_problem(seed);
        let (took, plan) = timed(|| shared::plan(&problem, Effort::default()));
        times.push(took);
        let (took, greedy) = timed(|| shared::greedy(&problem));
        greedy_times.push(took);
        gaps.push((greedy.cost_per_hour_usd / plan.cost_per_hour_usd - 1.0) * 100.0);
    }
    print("decision_100x1000_ms", largest(&times) * 1e3, "ms");
    print(
        "decision_100x1000_median_ms",
        median(&mut times) * 1e3,
        "ms",
    );
    print(
        "decision_100x1000_greedy_ms",
        largest(&greedy_times) * 1e3,
        "ms",
    );
    print("sextant_greedy_gap_percent", median(&mut gaps), "percent");
}

/// Whether a plan answers everything.
fn serves(plan: &Plan) -> bool {
    plan.unserved_rps.iter().sum::<f64>() < 1e-6
}

/// The heuristic changes one thing of a need a second: what it has in the end.
fn settled(problem: &Problem) -> Plan {
    let mut problem = problem.clone();
    let mut infaas = Infaas::new(Weights::default());
    let mut plan = Plan::default();
    for _ in 0..120 {
        plan = infaas.plan(&problem);
        for (choice, count) in problem.choices.iter_mut().zip(&plan.instances) {
            choice.running = *count;
        }
    }
    plan
}

/// 100 architectures of 8 variants: half on processors, half on accelerators, whose memory is short.
fn instances_problem(seed: u64) -> Problem {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut problem = Problem::default();
    for need in 0..100 {
        let rps = 10f64.powf(random.random_range(0.5..3.0));
        problem.needs.push(Need { rps, weight: 1.0 });
        for variant in 0..8 {
            let device = u32::from(variant >= 4);
            let faster = if device == 1 { 8.0 } else { 1.0 };
            let speed = faster * 10f64.powf(random.random_range(0.3..2.8));
            let memory_share = random.random_range(0.02..0.3);
            problem.choices.push(Choice {
                need,
                variant: VariantIx::new(need * 8 + variant),
                device: KindIx::new(device),
                rps: speed,
                memory_share,
                load_s: random.random_range(0.5..11.0),
                running: match random.random_range(0..4) {
                    0 => random.random_range(1..3),
                    _ => 0,
                },
            });
        }
    }
    for price_per_hour_usd in [0.384, 3.06] {
        problem.devices.push(Device {
            price_per_hour_usd,
            now: 0,
            least: 0,
            most: 100_000,
            slots: 1,
            start_s: 60.0,
        });
    }
    let Some(free) = instances::plan(&problem, Weights::default()) else {
        return problem;
    };
    let mut used = [0.0; 2];
    for (choice, count) in problem.choices.iter().zip(&free.instances) {
        used[choice.kind()] += choice.memory_share * f64::from(*count);
    }
    for (device, used) in problem.devices.iter_mut().zip(used) {
        device.most = (SCARCE * used).ceil() as u32;
    }
    problem
}

/// 100 applications with 8 choices each on four types of devices, about 1,000 devices in all.
fn fleet_problem(seed: u64) -> Problem {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let speeds = [100.0, 300.0, 1000.0, 2000.0];
    let prices = [0.384, 1.1, 3.06, 5.0];
    let device = |price_per_hour_usd: &f64| Device {
        price_per_hour_usd: *price_per_hour_usd,
        now: 250,
        least: 0,
        most: 1000,
        slots: 1,
        start_s: 60.0,
    };
    let mut problem = Problem {
        devices: prices.iter().map(device).collect(),
        ..Problem::default()
    };
    for need in 0..100 {
        let rps = 10f64.powf(random.random_range(2.5..4.3));
        problem.needs.push(Need { rps, weight: 1.0 });
        for variant in 0..8 {
            let device = variant as usize % 4;
            problem.choices.push(Choice {
                need,
                variant: VariantIx::new(need * 8 + variant),
                device: KindIx::new(device as u32),
                rps: speeds[device] * 10f64.powf(random.random_range(-0.5..0.5)),
                memory_share: 0.05,
                load_s: 1.0,
                running: 0,
            });
        }
    }
    problem
}

fn timed<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let begun = Instant::now();
    let done = work();
    (begun.elapsed().as_secs_f64(), done)
}

fn largest(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn print(metric: &str, value: f64, unit: &str) {
    println!(
        "{{\"experiment\":\"autoscaling\",\"metric\":\"{metric}\",\"value\":{value},\"unit\":\"{unit}\"}}"
    );
}
