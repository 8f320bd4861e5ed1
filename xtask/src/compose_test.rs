//! `cargo xtask compose-test`: tests the local stack of `docker-compose.yml` with real containers.
//!
//! The test builds the image, starts everything as users do, and registers the digits example. Then it scales, kills,
//! cuts off and upgrades processes while queries come at a steady rate. Each query must have exactly one outcome;
//! `phases.rs` states for each phase what clients may see. If there is no engine, the command says so and succeeds.

mod autoscale;
mod load;
mod observe;
mod outcomes;
mod phases;
mod report;
mod stack;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::containers::{
    self, engine,
    images::{self, Images},
};
use crate::provision::compose;
use crate::shell::{self, say};
use crate::{demo, paths};
use load::{Arrivals, Load, Manners};
use outcomes::Tally;
use phases::{PHASES, Phase};
use report::{FirstAnswer, Report};
use stack::{Kind, Stack};

/// The name of the image that is built here.
const IMAGE: &str = "sextant:compose-test";
/// Time of load before a phase does something, and after it is over.
const AROUND: Duration = Duration::from_secs(3);
/// Longest time until the first answer.
const FIRST_WITHIN: Duration = Duration::from_secs(120);
const PROMETHEUS: &str = "prom/prometheus:";
const GRAFANA: &str = "grafana/grafana:";

/// Options of `cargo xtask compose-test`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Use this image of Sextant instead of building one
    #[arg(long)]
    image: Option<String>,
    /// Queries a second
    #[arg(long, default_value_t = 30.0)]
    rate: f64,
    /// Seed of the times at which queries come
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only phases whose name contains this text
    #[arg(long)]
    only: Option<String>,
    /// Leave everything up at the end
    #[arg(long)]
    keep: bool,
    /// Print one JSON object per line instead of a table
    #[arg(long)]
    json: bool,
}

/// Runs the test and prints the results.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let mut report = Report::new(arguments.json);
    let version = match engine::version() {
        Ok(version) => version,
        Err(reason) => {
            report.skipped(&format!("no Docker engine answers: {reason}"));
            return Ok(ExitCode::SUCCESS);
        }
    };
    say(format!("Docker engine {version}: found"));
    let _alone = containers::alone("compose-test")?;
    let compose = compose::ensure(&paths::cache()?)?;
    let image = arguments.image.clone().unwrap_or_else(|| IMAGE.to_owned());
    let mut stack = Stack::new(compose, image, arguments.keep)?;
    let images = images(&stack, arguments)?;
    report.stand_ins(&images);
    if let Err(error) = exercise(&mut stack, &images, arguments, &mut report) {
        report.fail(format!("{error:#}"));
    }
    if report.has_failed() {
        say(format!("logs: {}", stack.save_logs()?.display()));
    }
    if !arguments.keep {
        stack.down()?;
        stack.ensure_gone()?;
    }
    Ok(report.finish())
}

/// Gets the images of others, and builds ours unless one is named.
fn images(stack: &Stack, arguments: &Arguments) -> Result<Images> {
    let mut desired = stack.images()?;
    if arguments.image.is_none() {
        let dockerfile = std::fs::read_to_string(paths::root().join("Dockerfile"));
        desired.extend(images::bases(
            &dockerfile.context("cannot read `Dockerfile`")?,
        ));
    }
    let images = images::ensure(desired.into_iter().collect())?;
    if arguments.image.is_none() {
        shell::run(&mut stack.compose(&["build", "--quiet"]))?;
    }
    Ok(images)
}

fn exercise(
    stack: &mut Stack,
    images: &Images,
    arguments: &Arguments,
    report: &mut Report,
) -> Result<()> {
    let only = arguments.only.as_deref().unwrap_or_default();
    if PHASES.iter().any(|phase| phase.name.contains(only)) {
        fixed(stack, arguments, report)?;
    }
    if arguments.only.is_none() {
        let has = |name: &str| !images.missing.iter().any(|it| it.starts_with(name));
        report.observed(
            "prometheus",
            has(PROMETHEUS).then(|| observe::prometheus(stack)),
        );
        let both = has(PROMETHEUS) && has(GRAFANA);
        report.observed("grafana", both.then(|| observe::grafana(stack)));
    }
    let mut phases = autoscale::PHASES.iter();
    if phases.any(|(phase, _)| phase.name.contains(only)) && !report.has_failed() {
        stack.turn_into(Kind::Autoscaled)?;
        autoscale::exercise(stack, arguments.seed, report, only)?;
    }
    Ok(())
}

/// The phases with the number of workers that the file sets.
fn fixed(stack: &Stack, arguments: &Arguments, report: &mut Report) -> Result<()> {
    report.first_answer(&first_answer(stack)?);
    for model in &demo::MODELS[1..] {
        register(stack, model)?;
    }
    let arrivals = Arrivals {
        rate: arguments.rate,
        seed: arguments.seed,
    };
    let manners = Manners {
        asks_again: false,
        digit: Some(demo::DIGIT),
    };
    let only = arguments.only.as_deref().unwrap_or_default();
    for phase in PHASES.iter().filter(|phase| phase.name.contains(only)) {
        say(format!("--- {} (seed {})", phase.name, arguments.seed));
        report.phase(phase, &under_load(stack, phase, arrivals, manners)?);
    }
    Ok(())
}

/// Measures the time from images only to the first answer.
fn first_answer(stack: &Stack) -> Result<FirstAnswer> {
    let begun = Instant::now();
    stack.up(&["--no-build"])?;
    let healthy = begun.elapsed();
    register(stack, demo::MODELS[0])?;
    let registered = begun.elapsed();
    await_answer(stack)?;
    Ok(FirstAnswer {
        healthy,
        registered,
        answered: begun.elapsed(),
    })
}

fn await_answer(stack: &Stack) -> Result<()> {
    let deadline = Instant::now() + FIRST_WITHIN;
    let body = demo::query(&json!({ "latency_ms": 10_000 }));
    loop {
        let mut connection = crate::http::Connection::open(stack.api, FIRST_WITHIN)?;
        let response = connection.post("/v1/queries", &body)?;
        if response.status == 200 {
            return Ok(());
        }
        ensure!(
            response.status == 503 && Instant::now() < deadline,
            "no first answer: {} {}",
            response.status,
            String::from_utf8_lossy(&response.body)
        );
        shell::pause(Duration::from_millis(50));
    }
}

/// Registers one of the example's models with the client of the image.
fn register(stack: &Stack, model: &str) -> Result<()> {
    let file = format!("/digits/{model}.onnx");
    let options = [
        "--application",
        "digits",
        "--metric",
        "top1",
        "--name",
        model,
    ];
    shell::run(stack.client().arg("register").args(options).args([
        "--model",
        &file,
        "--validation",
        "/digits/validation.npz",
    ]))
}

/// Runs a phase while queries come.
fn under_load(
    stack: &Stack,
    phase: &Phase,
    arrivals: Arrivals,
    manners: Manners,
) -> Result<PhaseReport> {
    let before = counted(stack);
    let load = Load::start(stack.api, phase.name, (arrivals, manners));
    shell::pause(AROUND);
    let begun = Instant::now();
    let acted = (phase.act)(stack);
    let took = begun.elapsed();
    shell::pause(AROUND);
    let tally = load.finish()?;
    acted.with_context(|| format!("`{}`", phase.name))?;
    let counted = counted(stack)?.checked_sub(before?);
    Ok(PhaseReport {
        tally,
        took,
        counted,
    })
}

/// The results of a phase.
struct PhaseReport {
    tally: Tally,
    /// Time until everything was healthy again.
    took: Duration,
    /// Outcomes that the front end counted; `None` if it was restarted.
    counted: Option<u64>,
}

/// Number of queries that the front end has answered or refused since it started.
fn counted(stack: &Stack) -> Result<u64> {
    let mut connection = crate::http::Connection::open(stack.api, Duration::from_secs(30))?;
    let metrics = connection.get("/metrics")?;
    let text = String::from_utf8_lossy(&metrics.body).into_owned();
    let names = ["sextant_queries_total{", "sextant_query_failures_total{"];
    let lines = text
        .lines()
        .filter(|line| names.iter().any(|name| line.starts_with(name)));
    let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    Ok(values.sum::<f64>() as u64)
}
