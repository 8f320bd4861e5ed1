//! Serves a pipeline in real time. Prints its latencies beside the planner's estimates, and its goodput under overload
//! for each rule that gives queries up.
//!
//! The pipeline is a chain of three steps, each a dispatcher with workers of its own, whose engines take as long as a
//! profile says. The front end's [`Pipelines`] run the queries, as in the service. Latencies are compared at 0.7 of
//! what the steps can serve, with gaps of CV 1 and 4, and no query is given up. Overloads are 1.5 and 2 times what the
//! steps can serve, with a target of 800 ms for the whole pipeline.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, anyhow};
use async_trait::async_trait;
use serde_json::json;
use sextant_baselines::Options;
use sextant_pipeline::{
    CheckContext, Definition, Graph, LoadedPipeline, Pipelines, Target, UnboundedMemory,
};
use sextant_planning::{
    Choice, Routes, Scale, Step,
    dropping::Policy,
    estimate::{Load, estimate},
    plan::{Plan, StepPlan},
};
use sextant_rpc::{Answer, Dispatch, DispatcherClient, Query, QueryError};
use sextant_schedule::{LatencyTable, Nanos};
use sextant_simulator::{
    pipelines::arrivals,
    trace::Trace,
    workload::{Gaps, Rate},
};
use sextant_types::{ApplicationId, Route, Signature, Targets};
use tokio::runtime::Runtime;

use crate::{
    SEED, load,
    service::{self, Kind, Service},
};

/// The steps: name; run time of a batch, ms, as a constant and a part for each row; number of devices.
const STEPS: [(&str, (f64, f64), u16); 3] = [
    ("decode", (32.0, 16.0), 2),
    ("detect", (64.0, 32.0), 4),
    ("read", (32.0, 16.0), 2),
];

/// Most rows of a batch.
const BATCH: u32 = 4;

/// Target of the whole pipeline under overload.
const TARGET: Duration = Duration::from_millis(800);

/// A target that no query misses.
const AMPLE: Duration = Duration::from_secs(120);

/// The load at which latencies are compared, and the overloads.
const STEADY: f64 = 0.7;
const OVERLOADS: [f64; 2] = [1.5, 2.0];

/// Seconds of traffic.
const STEADY_S: f64 = 40.0;
const OVERLOAD_S: f64 = 15.0;

/// The dispatchers of the steps, by the name of each step's application.
struct Steps(HashMap<ApplicationId, DispatcherClient>);

/// Runs all loads and prints the figures.
pub fn run() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let services = runtime.block_on(start())?;
    let report = |cell: &str, metric: &str, value: f64, unit: &str| {
        println!(
            "{{\"experiment\":\"pipelines\",\"cell\":\"{cell}\",\"metric\":\"{metric}\",\"value\":{value:.4},\
             \"unit\":\"{unit}\",\"seed\":{SEED}}}"
        );
    };
    for cv in [1.0, 4.0] {
        let (live, told) = compared(&runtime, &services, cv)?;
        let cell = format!("chain/cv{cv}");
        report(&cell, "live_p99_ms", live, "ms");
        report(&cell, "estimated_p99_ms", told, "ms");
        let error = 100.0 * (told - live).abs() / live;
        report(&cell, "estimator_error_percent", error, "percent");
    }
    for load in OVERLOADS {
        for policy in Policy::ALL {
            let share = goodput(&runtime, &services, (policy, load))?;
            let cell = format!("chain/{load}x/{}", policy.name());
            report(&cell, "live_goodput_share", share, "ratio");
        }
    }
    Ok(())
}

fn table((base, per_row): (f64, f64)) -> Result<LatencyTable> {
    let runs = (1..=BATCH).map(|rows| ((base + per_row * f64::from(rows)) * 1e6) as Nanos);
    LatencyTable::new(runs.collect()).map_err(|error| anyhow!("{error}"))
}

/// Queries a second that the fullest step can serve.
fn capacity() -> Result<f64> {
    let mut least = f64::INFINITY;
    for (_, line, devices) in STEPS {
        let run_s = table(line)?.of(BATCH) as f64 / 1e9;
        least = least.min(f64::from(devices) * f64::from(BATCH) / run_s);
    }
    Ok(least)
}

async fn start() -> Result<Vec<Service>> {
    let mut services = Vec::with_capacity(STEPS.len());
    for (name, line, devices) in STEPS {
        let kind = Kind {
            name: name.to_owned(),
            devices,
            hour_usd: 1.0,
            latency: Arc::new(table(line)?),
        };
        services.push(Service::start(Options::default(), &[kind], service::Shape::Process).await?);
    }
    Ok(services)
}

/// A front end that serves the chain under the name of the one application, with this rule for giving queries up.
fn front_end(services: &[Service], policy: Policy) -> Result<DispatcherClient> {
    let steps = STEPS.iter().zip(services).map(|((name, ..), service)| {
        Ok((ApplicationId::new(*name)?, Arc::clone(&service.dispatcher)))
    });
    let steps = Steps(steps.collect::<Result<_>>()?);
    let definition = STEPS.iter().enumerate().map(|(at, (name, ..))| {
        let before = at.checked_sub(1).map(|at| STEPS[at].0);
        let input = before.map_or("x".to_owned(), |before| format!("{before}.y"));
        json!({"name": name, "application": name, "inputs": {"x": input}})
    });
    let definition: Definition = serde_json::from_value(json!({
        "name": service::APPLICATION,
        "dropping": policy.name(),
        "steps": definition.collect::<Vec<_>>(),
    }))?;
    let targets = |route: &Route| {
        Ok(Target {
            signature: steps.signature(route)?,
            metric: None,
            defaults: Targets::default(),
        })
    };
    let known = CheckContext {
        targets: &targets,
        files: &BTreeMap::new(),
    };
    let graph = Graph::new(definition, &known)?;
    let name = ApplicationId::new(service::APPLICATION)?;
    let pipelines = Pipelines::over(Arc::new(steps), Arc::new(UnboundedMemory));
    pipelines.set(HashMap::from([(
        name,
        Arc::new(LoadedPipeline::new(graph, 1)?),
    )]));
    Ok(pipelines)
}

/// The 99th percentile of the latency in real time and as the estimator predicts it, ms.
fn compared(runtime: &Runtime, services: &[Service], cv: f64) -> Result<(f64, f64)> {
    let gaps = Gaps::Gamma {
        shape: 1.0 / (cv * cv),
    };
    let rate = Rate::Constant(STEADY * capacity()?);
    let arrivals = arrivals(rate, gaps, STEADY_S, SEED)?;
    let front_end = front_end(services, Policy::None)?;
    let sent = load::replay(runtime, &front_end, &trace(&arrivals), AMPLE)?;
    let mut latencies: Vec<Duration> = Vec::with_capacity(sent.len());
    for of in sent {
        of.answer.context("a query was refused")?;
        latencies.push(of.latency);
    }
    latencies.sort_unstable();
    let at = (latencies.len() * 99).div_ceil(100).saturating_sub(1);
    let live_ms = latencies.get(at).context("nobody asked")?.as_secs_f64() * 1e3;
    let (graph, plan) = planned()?;
    let mut routes = Routes::new(STEPS.len());
    routes.push(&[1; STEPS.len()]);
    let load = Load {
        arrivals: &arrivals,
        routes: &routes,
    };
    let told = estimate(&graph, &plan.stations(&graph), load);
    Ok((live_ms, told.quantile(0.99) as f64 / 1e6))
}

/// The chain as planners see it, with its devices.
fn planned() -> Result<(sextant_planning::Graph, Plan)> {
    let (mut steps, mut plans) = (Vec::new(), Vec::new());
    for (at, (name, line, devices)) in STEPS.into_iter().enumerate() {
        steps.push(Step {
            name: name.to_owned(),
            after: at.checked_sub(1).into_iter().collect(),
            scale: Scale {
                probability: 1.0,
                rows: 1.0,
            },
            choices: vec![Choice {
                variant: name.to_owned(),
                accuracy: 1.0,
                device: name.to_owned(),
                price: 1.0,
                latency: table(line)?,
            }],
        });
        plans.push(StepPlan::of(0, BATCH, devices.into()));
    }
    let graph = sextant_planning::Graph::new(steps)?;
    Ok((graph, Plan { steps: plans }))
}

/// Queries that are answered in time, as a share of the rate that the fullest step can serve.
fn goodput(runtime: &Runtime, services: &[Service], (policy, load): (Policy, f64)) -> Result<f64> {
    let capacity = capacity()?;
    let gaps = Gaps::Gamma { shape: 1.0 };
    let arrivals = arrivals(Rate::Constant(load * capacity), gaps, OVERLOAD_S, SEED)?;
    let front_end = front_end(services, policy)?;
    let sent = load::replay(runtime, &front_end, &trace(&arrivals), TARGET)?;
    let good = sent
        .iter()
        .filter(|of| of.answer.is_some() && of.latency <= TARGET);
    Ok(good.count() as f64 / (OVERLOAD_S * capacity))
}

fn trace(arrivals: &[Nanos]) -> Trace {
    Trace {
        models: vec![service::APPLICATION.to_owned()],
        requests: arrivals.iter().map(|at| (*at, 0)).collect(),
    }
}

// === impl Steps ===

impl Steps {
    fn of(&self, route: &Route) -> Result<(&DispatcherClient, Route), QueryError> {
        let found = match route {
            Route::Application(name) => self.0.get(name),
            Route::Model(_) | Route::Variant(_) => None,
        };
        let found = found.ok_or_else(|| QueryError::not_found(route))?;
        let own = ApplicationId::new(service::APPLICATION);
        let own = own.map_err(|_| QueryError::not_found(route))?;
        Ok((found, Route::Application(own)))
    }
}

#[async_trait]
impl Dispatch for Steps {
    async fn query(&self, mut query: Query) -> Result<Answer, QueryError> {
        let (dispatcher, route) = self.of(&query.route)?;
        query.route = route;
        dispatcher.query(query).await
    }

    fn signature(&self, route: &Route) -> Result<Signature, QueryError> {
        let (dispatcher, route) = self.of(route)?;
        dispatcher.signature(&route)
    }

    fn utilization(&self) -> f64 {
        let shares = self.0.values().map(|dispatcher| dispatcher.utilization());
        shares.fold(0.0, f64::max)
    }

    fn is_ready(&self, route: &Route) -> bool {
        self.of(route)
            .is_ok_and(|(dispatcher, route)| dispatcher.is_ready(&route))
    }
}
