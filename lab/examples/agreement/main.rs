//! Sends the same requests in real time, through the dispatcher and eight workers with an emulated engine, and in
//! virtual time, through the simulator in the fleet's shape. Compares the answers in time of both.
//!
//! `cargo run --release -p sextant-lab --example agreement [-- POLICY [fleet]]`. Without a policy, or with an empty
//! one, `sextant`, `eager` and `symphony` run in turn. With `fleet` the workers, the dispatcher and a front end reach
//! each other over gRPC, each on a port of its own. The model is InceptionResNetV2 of Symphony, table 4, on 8 workers
//! with one slot each. They serve some 900 requests per second, so that two cores have time to wake up punctually.
//! Queries name the application, as users' queries do. Arrivals are Poisson and the same on both sides, at 0.9, 1.0 and
//! 1.2 of the simulated goodput. The goodput is the highest rate, in steps of 1 % of the fluid bound, at which at most
//! 1 % of the requests are late or dropped.
//!
//! `-- pipelines` serves a pipeline in real time instead of the one model ([`pipelines`]).
#![expect(clippy::print_stdout, reason = "prints its figures")]
#![expect(
    clippy::disallowed_methods,
    reason = "arrivals and emulated work are the passing of time itself"
)]

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result};
use sextant_baselines::{Options, Policy};
use sextant_lab::Setting;
use sextant_lab::bound::fluid_bound_rps;
use sextant_schedule::Nanos;
use sextant_simulator::{
    Device, Jitter, Model, Network, Shape, Span, World, profiles, trace::Trace,
};
use tokio::runtime::Runtime;

mod fleet;
mod load;
mod pipelines;
mod service;

use service::{Kind, Service};

const MODEL: &str = "InceptionResNetV2";
const CELL: &str = "inceptionresnetv2";
const DEVICES: u16 = 8;
/// Rates as multiples of the simulated goodput.
const LOADS: [f64; 3] = [0.9, 1.0, 1.2];
const SEED: u64 = 7;
/// Arrivals before this don't count.
const WARM_UP: Nanos = 1_000_000_000;
/// No request arrives after this.
const END: Nanos = 11_000_000_000;
const MOST_MISSED: f64 = 0.01;

/// Requests after the warm-up.
#[derive(Debug, Clone, Copy)]
struct Outcome {
    sent: u64,
    good: u64,
}

struct Comparison {
    policy: Policy,
    setting: Setting,
    target: Duration,
    bound_rps: f64,
    runtime: Runtime,
    service: Service,
}

fn main() -> Result<()> {
    let named = std::env::args().nth(1).filter(|name| !name.is_empty());
    if named.as_deref() == Some("pipelines") {
        return pipelines::run();
    }
    let shape = service::Shape::from_arguments()?;
    let policies = match named {
        Some(name) => vec![name.parse::<Policy>()?],
        None => vec![Policy::Sextant, Policy::Eager, Policy::Symphony],
    };
    policies
        .into_iter()
        .try_for_each(|policy| compare(policy, shape))
}

fn compare(policy: Policy, shape: service::Shape) -> Result<()> {
    let cell = format!("{CELL}{}", shape.suffix());
    let comparison = Comparison::new(policy, shape)?;
    let peak_rps = comparison.goodput(|trace| Ok(comparison.simulated(trace)))?;
    let report = |cell: &str, metric: &str, value: f64, unit: &str| {
        println!(
            "{{\"experiment\":\"scheduler\",\"cell\":\"{cell}\",\"policy\":\"{policy}\",\
             \"metric\":\"{metric}\",\"value\":{value},\"unit\":\"{unit}\",\"seed\":{SEED}}}"
        );
    };
    report(&cell, "agreement_simulated_goodput_rps", peak_rps, "rps");
    for load in LOADS {
        let trace = comparison.arrivals(load * peak_rps)?;
        let (live, simulated) = (comparison.live(&trace)?, comparison.simulated(&trace));
        let cell = format!("{cell}/{load}x");
        let ratio = live.good as f64 / simulated.good as f64;
        report(&cell, "agreement_goodput_ratio", ratio, "ratio");
        let missed = [live, simulated].map(|of| 1.0 - of.good as f64 / of.sent as f64);
        let [live, simulated] = missed.map(|share| 100.0 * share);
        report(&cell, "agreement_live_violation_percent", live, "percent");
        report(
            &cell,
            "agreement_simulated_violation_percent",
            simulated,
            "percent",
        );
        let points = (live - simulated).abs();
        report(&cell, "agreement_violation_points", points, "points");
    }
    Ok(())
}

// === impl Comparison ===

impl Comparison {
    fn new(policy: Policy, shape: service::Shape) -> Result<Self> {
        let all = profiles::load("symphony-table4")?;
        let profile = all.into_iter().find(|profile| profile.model == MODEL);
        let profile = profile.context("the profile is shipped")?;
        let target = profile.target().context("the profile has a target")?;
        let (alpha_ms, beta_ms) = profile.line();
        // One row more than a batch can have within the target.
        let most_rows = ((target as f64 / 1e6 - beta_ms) / alpha_ms) as u32 + 1;
        let latency = profile.latency(most_rows)?;
        let options = Options::of(policy);
        // The dispatcher leaves room for messages by itself; the simulator has to be told.
        let simulated = Options {
            delay: match shape {
                service::Shape::Process => options.delay,
                service::Shape::Fleet => fleet::network(),
            },
            ..options.clone()
        };
        let setting = Setting {
            models: vec![Model {
                name: MODEL.to_owned(),
                target,
                latency: vec![Some(Arc::clone(&latency))],
                priority: 0,
                weight: 1.0,
            }],
            devices: vec![Device { kind: 0 }; usize::from(DEVICES)],
            options: simulated,
            network: Network::default(),
            jitter: Jitter::None,
            shape: Shape::default(),
            failures: Vec::new(),
            seed: SEED,
            prices: Vec::new(),
            histograms: false,
        };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()?;
        let devices = Kind {
            name: "emulated".to_owned(),
            devices: DEVICES,
            hour_usd: 1.0,
            latency,
        };
        let service = runtime.block_on(Service::start(options, &[devices], shape))?;
        Ok(Self {
            policy,
            bound_rps: fluid_bound_rps(&setting, &[1.0]),
            setting,
            target: Duration::from_nanos(target),
            runtime,
            service,
        })
    }

    fn arrivals(&self, rps: f64) -> Result<Trace> {
        load::poisson(MODEL, rps, SEED, END)
    }

    /// Finds the goodput by bisection between half of the bound, which every policy carries, and the bound.
    fn goodput(&self, run: impl Fn(&Trace) -> Result<Outcome>) -> Result<f64> {
        let rps = |percent: u32| self.bound_rps * f64::from(percent) / 100.0;
        let (mut low, mut high) = (50, 101);
        while high - low > 1 {
            let middle = (low + high) / 2;
            let Outcome { sent, good } = run(&self.arrivals(rps(middle))?)?;
            let missed = 1.0 - good as f64 / sent as f64;
            eprintln!(
                "{}: {:.0} requests per second, {missed:.4} missed",
                self.policy,
                rps(middle)
            );
            if missed <= MOST_MISSED {
                low = middle;
            } else {
                high = middle;
            }
        }
        Ok(rps(low))
    }

    fn simulated(&self, trace: &Trace) -> Outcome {
        let span = Span {
            from: WARM_UP,
            until: END,
            most_missed: Vec::new(),
        };
        let report = World::new(&self.setting).run(&mut trace.replay(1.0), span);
        Outcome {
            sent: report.models[0].sent,
            good: report.models[0].good,
        }
    }

    /// Counts the requests that are answered in time.
    fn live(&self, trace: &Trace) -> Result<Outcome> {
        let mut outcome = Outcome { sent: 0, good: 0 };
        for sent in load::replay(&self.runtime, &self.service.dispatcher, trace, self.target)? {
            if sent.at >= WARM_UP {
                let good = sent.answer.is_some() && sent.latency <= self.target;
                outcome.sent += 1;
                outcome.good += u64::from(good);
            }
        }
        Ok(outcome)
    }
}
