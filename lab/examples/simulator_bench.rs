//! Requests simulated per second on one core: the a100 zoo on 64 devices at 85 % of its bound.
//!
//! `cargo run --release -p sextant-lab --example simulator_bench [-- POLICY]`
#![expect(clippy::print_stdout, reason = "prints its figures")]

use std::time::Instant;

use sextant_baselines::{Options, Policy};
use sextant_lab::Setting;
use sextant_lab::bound::fluid_bound_rps;
use sextant_schedule::NEVER;
use sextant_simulator::{
    Device, Error, Jitter, Model, Network, Shape, Span, World, profiles,
    workload::{Gaps, Rate, Stream, open_loop},
};

const DEVICES: usize = 64;
const LOAD: f64 = 0.85;
const SECONDS: u64 = 40;
const RUNS: u64 = 5;

fn main() -> Result<(), Error> {
    let policy = std::env::args().nth(1).map(|name| name.parse::<Policy>());
    let policy = policy.map_or(Ok(Policy::default()), |known| {
        known.map_err(|unknown| Error::Setting(unknown.to_string()))
    })?;
    let setting = setting(policy)?;
    let shares = vec![1.0 / setting.models.len() as f64; setting.models.len()];
    let rate = fluid_bound_rps(&setting, &shares) * LOAD;
    let mut per_s: Vec<f64> = (1..=RUNS)
        .map(|seed| run(&setting, rate, seed))
        .collect::<Result<_, Error>>()?;
    per_s.sort_by(f64::total_cmp);
    println!(
        "{{\"experiment\":\"scheduler\",\"policy\":\"{policy}\",\
         \"metric\":\"simulator_requests_per_s\",\"value\":{:.0},\"unit\":\"rps\"}}",
        per_s[per_s.len() / 2]
    );
    Ok(())
}

fn setting(policy: Policy) -> Result<Setting, Error> {
    let mut models = Vec::new();
    for profile in profiles::load("symphony-zoo-a100")? {
        models.push(Model {
            name: profile.model.clone(),
            target: profile.target().unwrap_or(NEVER),
            latency: vec![Some(profile.latency(256)?)],
            priority: 0,
            weight: 1.0,
        });
    }
    Ok(Setting {
        models,
        devices: vec![Device { kind: 0 }; DEVICES],
        options: Options::of(policy),
        network: Network::default(),
        jitter: Jitter::None,
        shape: Shape::default(),
        failures: Vec::new(),
        seed: 0,
        prices: Vec::new(),
        histograms: false,
    })
}

/// Requests simulated per second of this machine's time, arrivals included.
fn run(setting: &Setting, rate: f64, seed: u64) -> Result<f64, Error> {
    let count = setting.models.len() as u32;
    let streams: Vec<Stream> = (0..count)
        .map(|model| Stream {
            model,
            gaps: Gaps::Exponential,
            rate: Rate::Constant(rate / f64::from(count)),
        })
        .collect();
    let mut source = open_loop(&streams, seed)?;
    let span = Span {
        from: 1_000_000_000,
        until: SECONDS * 1_000_000_000,
        most_missed: Vec::new(),
    };
    let started = Instant::now();
    let report = World::new(setting).run(source.as_mut(), span);
    Ok(report.simulated as f64 / started.elapsed().as_secs_f64())
}
