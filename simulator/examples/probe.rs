use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sextant_policies::schedule::*;
use sextant_simulator::*;
use std::sync::Arc;

struct Poisson {
    rng: ChaCha8Rng,
    rate: f64,
    models: u32,
    next: Nanos,
}
impl Poisson {
    fn new(seed: u64, rate: f64, models: u32) -> Self {
        let mut s = Self {
            rng: ChaCha8Rng::seed_from_u64(seed),
            rate,
            models,
            next: 0,
        };
        s.step();
        s
    }
    fn step(&mut self) {
        let u: f64 = 1.0 - self.rng.random::<f64>();
        self.next += (-u.ln() / self.rate * 1e9) as Nanos;
    }
}
impl Source for Poisson {
    fn peek(&mut self) -> Option<Nanos> {
        Some(self.next)
    }
    fn next(&mut self) -> Arrival {
        let at = self.next;
        let model = self.rng.random_range(0..self.models);
        self.step();
        Arrival {
            at,
            model,
            client: 0,
        }
    }
}
fn zoo(dev: &str, sel: &str) -> Vec<Model> {
    let text = std::fs::read_to_string(format!("simulator/data/symphony_zoo_{dev}.csv")).unwrap();
    text.lines()
        .skip(1)
        .filter_map(|l| {
            let f: Vec<&str> = l.split(',').collect();
            let (a, b, t): (f64, f64, f64) = (
                f[1].parse().unwrap(),
                f[2].parse().unwrap(),
                f[3].parse().unwrap(),
            );
            let keep = match sel {
                "gt2" => b / a >= 2.0,
                "lt2" => b / a < 2.0,
                _ => true,
            };
            keep.then(|| model(f[0], a, b, t))
        })
        .collect()
}
fn model(name: &str, a: f64, b: f64, t: f64) -> Model {
    let most = ((t - b) / a) as u32 + 1;
    Model {
        name: name.into(),
        target: (t * 1e6) as Nanos,
        latency: vec![Some(Arc::new(LatencyTable::linear(a, b, most).unwrap()))],
        priority: 0,
        weight: 1.0,
    }
}
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let policy: Policy = args[1].parse().unwrap();
    let seconds: f64 = args[3].parse().unwrap();
    let seeds: u64 = args[4].parse().unwrap();
    let cells: Vec<(String, Vec<Model>, usize, f64)> = match args[2].as_str() {
        "zoo" => [
            ("gtx1080ti", "all", 8970.),
            ("gtx1080ti", "gt2", 23591.),
            ("gtx1080ti", "lt2", 4100.),
            ("a100", "all", 23165.),
            ("a100", "gt2", 74805.),
            ("a100", "lt2", 6614.),
        ]
        .iter()
        .map(|(d, s, f)| (format!("{d}-{s}"), zoo(d, s), 64, *f))
        .collect(),
        "t4" => vec![
            (
                "resnet50".into(),
                vec![model("r", 1.053, 5.072, 25.)],
                8,
                6600.,
            ),
            ("irv2".into(), vec![model("i", 5.09, 18.368, 70.)], 8, 1200.),
        ],
        _ => vec![(
            "fig10".into(),
            (0..10).map(|_| model("r", 2.05, 5.378, 100.)).collect(),
            24,
            10000.,
        )],
    };
    let fixed: Option<f64> = args.get(5).map(|r| r.parse().unwrap());
    for (name, models, n, bound) in cells {
        let count = models.len() as u32;
        let setting = Setting {
            models,
            devices: vec![Device { kind: 0 }; n],
            options: Options::of(policy),
            network: Network::default(),
            jitter: Jitter::None,
            failures: vec![],
            seed: 1,
            histograms: false,
        };
        let mut total = 0.0;
        let began = std::time::Instant::now();
        let mut sim = 0;
        for seed in 1..=seeds {
            let mut run = |rate: f64, stop: bool| {
                let most = if stop {
                    vec![(rate / count as f64 * seconds * 0.0102) as u64 + 1; count as usize]
                } else {
                    vec![]
                };
                let span = Span {
                    from: 2_000_000_000,
                    until: ((2.0 + seconds) * 1e9) as Nanos,
                    most_missed: most,
                };
                let r = World::new(&setting).run(&mut Poisson::new(seed, rate, count), span);
                sim += r.simulated;
                r
            };
            if let Some(f) = fixed {
                let r = run(f * bound, false);
                println!(
                    "{name} x{f}: good {:.0}/s busy {:.3} rows {:.2} worst {:.4} p99 {} wait50 {}",
                    r.good_per_s(),
                    r.busy_share,
                    r.mean_rows(),
                    r.worst_missed_share(),
                    r.latencies.quantile(0.99),
                    r.waits.quantile(0.5)
                );
                continue;
            }
            let (mut lo, mut hi) = (0.4 * bound, bound);
            while hi / lo > 1.003 {
                let mid = (lo * hi).sqrt();
                let r = run(mid, true);
                if !r.stopped && r.worst_missed_share() <= 0.01 {
                    lo = mid
                } else {
                    hi = mid
                }
            }
            total += lo;
        }
        if fixed.is_none() {
            println!(
                "{policy} {name} {:.0} = {:.3} of {bound}; {:.2} M/s {:.1}s",
                total / seeds as f64,
                total / seeds as f64 / bound,
                sim as f64 / began.elapsed().as_secs_f64() / 1e6,
                began.elapsed().as_secs_f64()
            );
        }
    }
}
