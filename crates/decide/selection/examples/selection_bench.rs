//! Time of one selection, with the brute force beside it.
//!
//! `cargo run --release -p sextant-selection --example selection_bench [-- --json]`
#![expect(clippy::print_stdout, reason = "prints its figures")]
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::{hint::black_box, time::Instant};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sextant_selection::{Decision, Demand, Entry, Index, Load, Readiness, select};
use sextant_types::{
    LeastQuality,
    index::{KindIx, VariantIx},
};

const SEED: u64 = 20_190_530;
const QUERIES: usize = 20_000;

struct WaitTimes(Vec<f64>);

impl Load for WaitTimes {
    fn wait_ms(&self, ordinal: VariantIx, _kind: KindIx) -> f64 {
        self.0[ordinal.get() as usize]
    }

    fn extra_ms(&self, _ordinal: VariantIx, _kind: KindIx, _rows: u32) -> f64 {
        0.0
    }
}

/// Variants spread as in the INFaaS paper, section 6: accuracy 56.6 to 82.5 %, load 0.59 to
/// 11 s, inference 1.5 ms to 5.7 s; a third of them active.
fn entries(count: u32, rng: &mut ChaCha8Rng) -> Vec<Entry> {
    let spread = |rng: &mut ChaCha8Rng, low: f64, high: f64| {
        (low.ln() + rng.random::<f64>() * (high / low).ln()).exp()
    };
    (0..count)
        .map(|ordinal| {
            let latency_ms = spread(rng, 1.5, 5700.0);
            Entry {
                ordinal: VariantIx::new(ordinal),
                kind: KindIx::new(0),
                quality_bound: rng.random_range(0.566..0.825),
                agreement: false,
                latency_ms,
                load_ms: spread(rng, 590.0, 11_000.0),
                cost_per_1k_usd: spread(rng, 0.0001, 0.01) * latency_ms.sqrt(),
                max_rows: 64,
                dominated: false,
                readiness: if ordinal % 3 == 0 {
                    Readiness::Active
                } else {
                    Readiness::Inactive
                },
            }
        })
        .collect()
}

fn demands(rng: &mut ChaCha8Rng) -> Vec<Demand> {
    (0..QUERIES)
        .map(|_| Demand {
            latency_ms: rng.random_range(5.0..1000.0),
            least_quality: LeastQuality::new(Some(rng.random_range(0.55..0.8)), None),
            max_cost_per_1k_usd: f64::INFINITY,
            rows: 1,
            prefer: Default::default(),
        })
        .collect()
}

fn brute_force(entries: &[Entry], demand: &Demand, load: &WaitTimes) -> Option<VariantIx> {
    let time = |entry: &Entry| match entry.readiness {
        Readiness::Active => entry.latency_ms + load.wait_ms(entry.ordinal, entry.kind),
        _ => entry.latency_ms + entry.load_ms,
    };
    entries
        .iter()
        .filter(|entry| demand.least_quality.is_met_by(entry.quality()))
        .filter(|entry| time(entry) <= demand.latency_ms)
        .min_by(|a, b| {
            a.readiness
                .cmp(&b.readiness)
                .then(a.cost_per_1k_usd.total_cmp(&b.cost_per_1k_usd))
        })
        .map(|entry| entry.ordinal)
}

fn median_us<T>(demands: &[Demand], mut one: impl FnMut(&Demand) -> T) -> f64 {
    let mut nanos: Vec<u128> = demands
        .iter()
        .map(|demand| {
            let start = Instant::now();
            black_box(one(black_box(demand)));
            start.elapsed().as_nanos()
        })
        .collect();
    nanos.sort_unstable();
    nanos[nanos.len() / 2] as f64 / 1e3
}

fn chosen(decision: &Decision) -> Option<VariantIx> {
    match decision {
        Decision::Use { ordinal } | Decision::LoadThenUse { ordinal } => Some(*ordinal),
        _ => None,
    }
}

fn main() {
    let json = std::env::args().any(|argument| argument == "--json");
    for count in [175, 10_000] {
        let mut rng = ChaCha8Rng::seed_from_u64(SEED);
        let entries = entries(count, &mut rng);
        let waits = WaitTimes((0..count).map(|_| rng.random_range(0.0..5.0)).collect());
        let demands = demands(&mut rng);
        let index = Index::new(entries.clone());
        for demand in demands.iter().take(500) {
            let fast = chosen(&select(&index, demand, &waits));
            assert_eq!(
                fast,
                brute_force(&entries, demand, &waits),
                "both must agree"
            );
        }
        let fast = median_us(&demands, |demand| select(&index, demand, &waits));
        let brute = median_us(&demands, |demand| brute_force(&entries, demand, &waits));
        let named = |prefix: &str| format!("{prefix}selection_{count}_variants_p50_us");
        print(json, "sextant", &named(""), fast);
        print(json, "brute-force", &named("brute_force_"), brute);
        table7(json, (count, &entries), &demands, &waits);
    }
}

/// Queries that a loaded variant answers, and those for which one has to be loaded (INFaaS, Table 7).
fn table7(json: bool, (count, entries): (u32, &[Entry]), demands: &[Demand], waits: &WaitTimes) {
    let warm = Index::new(entries.to_vec());
    let cold = entries.iter().map(|entry| Entry {
        readiness: Readiness::Inactive,
        ..*entry
    });
    let cold = Index::new(cold.collect());
    let patient = demands.iter().map(|demand| Demand {
        latency_ms: demand.latency_ms + 12_000.0,
        ..*demand
    });
    let patient: Vec<Demand> = patient.collect();
    let loaded = |demand: &&Demand| matches!(select(&warm, demand, waits), Decision::Use { .. });
    let loaded: Vec<Demand> = patient.iter().filter(loaded).copied().collect();
    let missing =
        |demand: &&Demand| matches!(select(&cold, demand, waits), Decision::LoadThenUse { .. });
    let missing: Vec<Demand> = patient.iter().filter(missing).copied().collect();
    for (name, index, demands) in [("loaded", &warm, &loaded), ("not_loaded", &cold, &missing)] {
        assert!(
            demands.len() > QUERIES / 2,
            "too few queries: {}",
            demands.len()
        );
        let took = median_us(demands, |demand| select(index, demand, waits));
        let metric = format!("table7_{name}_{count}_variants_p50_us");
        print(json, "sextant", &metric, took);
    }
}

fn print(json: bool, policy: &str, metric: &str, value: f64) {
    if json {
        println!(
            "{{\"experiment\":\"main-job\",\"policy\":\"{policy}\",\"metric\":\"{metric}\",\"value\":{value:.3},\"unit\":\"us\",\"seed\":{SEED}}}"
        );
    } else {
        println!("{metric:<45} {value:>10.3} us");
    }
}
