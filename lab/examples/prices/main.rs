//! The experiment `prices` in real time: the dispatcher serves over workers of two types of emulated devices. The
//! `dear` type is ten times as expensive and four times as fast as the cheap one. The same requests run in virtual time
//! for comparison.
//!
//! `cargo run --release -p sextant-lab --example prices [-- POLICY [fleet]]`. Without a policy, or with an empty one,
//! `sextant` runs. With `fleet` the parts reach each other over gRPC. Devices, prices, run times, target and loads are
//! those of the experiment's file. The loads are multiples of what the simulated cheap devices carry alone. Both sides
//! get the same Poisson arrivals, 30 s at each load after 2 s that don't count. The price of a batch's time shows which
//! device made an answer.
#![expect(clippy::print_stdout, reason = "prints its figures")]
#![expect(
    clippy::disallowed_methods,
    reason = "arrivals and emulated work are the passing of time itself"
)]

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result};
use sextant_baselines::{Options, Policy};
use sextant_lab::Setting;
use sextant_lab::experiment::{self, Cell, Experiment, Plan};
use sextant_rpc::Answer;
use sextant_schedule::Nanos;
use sextant_simulator::{Span, World, trace::Trace};
use tokio::runtime::Runtime;

#[path = "../agreement/fleet.rs"]
mod fleet;
#[path = "../agreement/load.rs"]
mod load;
#[path = "../agreement/service.rs"]
mod service;

use load::QueryRecord;
use service::{Kind, Service};

const EXPERIMENT: &str = "prices";
const SEED: u64 = 7;
/// Arrivals before this don't count.
const WARM_UP: Nanos = 2_000_000_000;
/// No request arrives after this.
const END: Nanos = 32_000_000_000;

/// Figures of a run, by name, the unit last.
type Figures = [(&'static str, f64); 5];

struct Comparison {
    policy: Policy,
    cell: Cell,
    setting: Setting,
    target: Duration,
    runtime: Runtime,
    service: Service,
}

fn main() -> Result<()> {
    let named = std::env::args().nth(1).filter(|name| !name.is_empty());
    let policy = named.map_or(Ok(Policy::Sextant), |name| name.parse::<Policy>())?;
    let shape = service::Shape::from_arguments()?;
    let comparison = Comparison::new(policy, shape)?;
    let cheap_rps = comparison.cheap_goodput()?;
    let name = &comparison.cell.name;
    comparison.report(name, "cheap_goodput_rps", cheap_rps);
    for load in &comparison.cell.loads {
        let trace = load::poisson(name, load * cheap_rps, SEED, END)?;
        let (simulated, live) = (comparison.simulated(&trace), comparison.live(&trace)?);
        let cell = format!("{name}{}/{load}x", shape.suffix());
        for ((metric, simulated), (_, live)) in simulated.into_iter().zip(live) {
            comparison.report(&cell, &format!("simulated_{metric}"), simulated);
            comparison.report(&cell, &format!("live_{metric}"), live);
        }
    }
    Ok(())
}

// === impl Comparison ===

impl Comparison {
    fn new(policy: Policy, shape: service::Shape) -> Result<Self> {
        let mut cells = Experiment::named(EXPERIMENT)?.cells.into_iter();
        let cell = cells.next().context("the experiment has a cell")?;
        let options = Options::of(policy);
        let setting = Setting {
            options: options.clone(),
            seed: SEED,
            ..cell.setting()?
        };
        let model = setting.models.first().context("the cell has a model")?;
        let mut kinds = Vec::new();
        for (of, latency) in cell.fleet.iter().zip(&model.latency) {
            kinds.push(Kind {
                name: of.name.clone(),
                devices: u16::try_from(of.devices)?,
                hour_usd: of.hour_usd,
                latency: Arc::clone(latency.as_ref().context("it runs everywhere")?),
            });
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()?;
        let service = runtime.block_on(Service::start(options, &kinds, shape))?;
        Ok(Self {
            policy,
            target: Duration::from_nanos(model.target),
            cell,
            setting,
            runtime,
            service,
        })
    }

    /// The requests per second that the cheap devices carry alone, as the experiment finds.
    fn cheap_goodput(&self) -> Result<f64> {
        let plan = Plan {
            policies: vec![self.policy],
            seeds: 1,
            ..Plan::default()
        };
        let records = experiment::run(&Experiment::named(EXPERIMENT)?, &plan, &mut |_| {})?;
        let found = records.iter().find(|of| of.metric == "cheap_goodput_rps");
        Ok(found.context("the experiment tells it")?.value)
    }

    fn simulated(&self, trace: &Trace) -> Figures {
        let span = Span {
            from: WARM_UP,
            until: END,
            most_missed: Vec::new(),
        };
        let report = World::new(&self.setting).run(&mut trace.replay(1.0), span);
        let ms = |share| report.latencies.quantile(share) as f64 / 1e6;
        figures(
            1.0 - report.worst_missed_share(),
            (report.dear_share(), report.cost_per_1k_usd()),
            ms,
        )
    }

    fn live(&self, trace: &Trace) -> Result<Figures> {
        let sent = load::replay(&self.runtime, &self.service.dispatcher, trace, self.target)?;
        let sent: Vec<QueryRecord> = sent.into_iter().filter(|of| of.at >= WARM_UP).collect();
        let answered = || sent.iter().filter_map(|of| Some((of, of.answer.as_ref()?)));
        let count = answered().count().max(1) as f64;
        let good = answered().filter(|(of, _)| of.latency <= self.target);
        let good = good.count() as f64 / sent.len().max(1) as f64;
        let dear = answered().filter(|(_, answer)| self.is_dear(answer));
        let cost_usd: f64 = answered().map(|(_, answer)| answer.cost_usd).sum();
        let mut latencies: Vec<Duration> = answered().map(|(of, _)| of.latency).collect();
        latencies.sort_unstable();
        let ms = |share: f64| {
            let at = (share * count).ceil() as usize;
            let found = latencies.get(at.saturating_sub(1));
            found.map_or(0.0, |latency| latency.as_secs_f64() * 1e3)
        };
        let dear = dear.count() as f64 / count;
        Ok(figures(good, (dear, 1e3 * cost_usd / count), ms))
    }

    /// Whether an hour of the device that ran the query costs more than the mean of both prices.
    fn is_dear(&self, answer: &Answer) -> bool {
        let batch_s = answer.timings.compute_us / 1e6;
        let share = 1.0 / f64::from(answer.timings.batch_rows.max(1));
        let hour_usd = answer.cost_usd / (batch_s * share) * 3600.0;
        hour_usd > f64::midpoint(self.setting.price(0), self.setting.price(1))
    }

    fn report(&self, cell: &str, metric: &str, value: f64) {
        let unit = metric.rsplit('_').next().unwrap_or_default();
        println!(
            "{{\"experiment\":\"{EXPERIMENT}\",\"cell\":\"{cell}\",\"policy\":\"{}\",\
             \"metric\":\"{metric}\",\"value\":{value},\"unit\":\"{unit}\",\"seed\":{SEED}}}",
            self.policy
        );
    }
}

/// `dear` is the share of the rows that the dear devices ran, and `cost` is the price of a thousand rows, US dollars.
/// `ms` gives quantiles of the latency.
fn figures(good: f64, (dear, cost): (f64, f64), ms: impl Fn(f64) -> f64) -> Figures {
    [
        ("satisfaction_share", good),
        ("dear_share_percent", 100.0 * dear),
        ("cost_per_1k_usd", cost),
        ("p50_ms", ms(0.5)),
        ("p99_ms", ms(0.99)),
    ]
}
