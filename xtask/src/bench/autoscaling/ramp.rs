//! The load of a small model grows from a fiftieth to four fifths of what the same fleet sustains. The figures show
//! whether workers come before queries are late.
//!
//! The pool's workers are child processes. In one cell they have real engines on cores of their own; in the other each
//! has an emulated device, which is so slow that the workers limit the rate of answers. In the first part, clients send
//! the whole pool a new query as soon as they have an answer; the rate of answers in time is what the pool sustains. In
//! the second part, the pool begins with its least number of workers, and queries come open loop at a rate that grows
//! linearly. In both parts everything runs on one machine, including the clients.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::json;
use sextant_test_servers::redis::Redis;

use super::{
    super::{
        Arguments,
        report::{Figure, Report},
    },
    arrivals::{self, Arrival, Shape},
    clients::{self, Question, quantile},
};
use crate::{
    demo, paths, provision,
    server::{self, Server},
    shell,
};

/// Longest time that an answer may take, ms.
const TARGET_MS: f64 = 200.0;

/// Load at the beginning and at the end, as shares of what the fleet sustains.
const SHARES: [f64; 2] = [0.02, 0.8];

/// The workers of a pool.
struct Cell {
    name: &'static str,
    engine: &'static str,
    most: u32,
    /// Settings of the pool's type.
    settings: &'static str,
}

/// A cell with real engines, and one with emulated devices.
const CELLS: [Cell; 2] = [
    Cell {
        name: "ramp-cpu",
        engine: "ort",
        most: 2,
        settings: "",
    },
    Cell {
        name: "ramp-emulated",
        engine: "emulated",
        most: 4,
        settings: "[worker.emulated]\ndelays = false\n\n[worker.emulated.types.alike]\nspeed = 0.003\n",
    },
];

/// Connections of the clients that send a query as soon as they have an answer.
const CLIENTS: usize = 32;

/// Queries that measure what the fleet sustains, after the same number that are not counted.
const QUERIES: usize = 4000;

/// Steps of the growing rate.
const STEPS: u32 = 60;

/// How long the load grows, s.
const GROWS_S: f64 = 60.0;

/// Longest wait for the state that the service should reach.
const PATIENCE: Duration = Duration::from_secs(180);

/// Runs both parts of each cell and reports the outcomes of the second part's queries.
pub fn run(arguments: &Arguments, report: &mut Report) -> Result<()> {
    CELLS
        .iter()
        .try_for_each(|cell| run_cell(cell, arguments, report))
}

fn run_cell(cell: &Cell, arguments: &Arguments, report: &mut Report) -> Result<()> {
    let provisioned = provision::runtime()?;
    provision::needs::install(provision::needs::SERVERS)?;
    let binary = server::build()?;
    let redis = Redis::start();
    let data = paths::empty_target("bench-ramp")?;
    let launch = |least: u32| {
        let settings = settings(cell, least);
        server::over_redis(&binary, &provisioned, (&data, &settings), &redis)
    };
    let server = launch(cell.most)?;
    demo::register_model(&binary, server.address, ("digits", "mlp"))?;
    settle(&server, cell.most)?;
    let sustained_rps = sustained(&server)?;
    drop(server);
    let server = launch(1)?;
    settle(&server, 1)?;
    let shape = Shape {
        warm_up_s: 10.0,
        measured_s: GROWS_S,
        range_rps: SHARES.map(|share| share * sustained_rps),
        seed: arguments.seed,
    };
    let line: Vec<f64> = (0..STEPS).map(f64::from).collect();
    let arrivals = arrivals::arrivals(&line, &shape, &[1.0]);
    shell::say(format!(
        "{} queries in {GROWS_S} s, up to {:.0} a second, seed {}",
        arrivals.len(),
        shape.range_rps[1],
        shape.seed
    ));
    let begin = Instant::now() + Duration::from_millis(500);
    let times = (begin, shape.warm_up_s);
    let tally = clients::run(server.address, &[question()], &arrivals, times);
    let mut add = |metric: &str, value: f64, unit, goal| {
        report.add(Figure::new("autoscaling", metric, value, unit, goal).of(cell.name));
    };
    add("sustained_rps", sustained_rps, "1/s", None);
    add("sent_count", tally.sent as f64, "count", None);
    let violations = tally.violation_percent();
    add("violation_percent", violations, "percent", Some("<= 1"));
    add("lag_p99_ms", quantile(&tally.lag_ms, 0.99), "ms", None);
    add("answer_p99_ms", quantile(&tally.took_ms, 0.99), "ms", None);
    add("workers", f64::from(up(&server)?), "count", None);
    for (code, count) in &tally.refused {
        add(&format!("{code}_count"), *count as f64, "count", None);
    }
    for reason in reasons(&server)? {
        shell::say(reason);
    }
    Ok(())
}

fn question() -> Question {
    let body = demo::query(&json!({"latency_ms": TARGET_MS}));
    Question {
        body: body.to_string().into_bytes(),
        target_ms: TARGET_MS,
    }
}

/// Answers in time a second where clients send a query as soon as they have an answer.
fn sustained(server: &Server) -> Result<f64> {
    let at_once = [Arrival {
        at_s: 0.0,
        application: 0,
    }; QUERIES];
    let mut rps = 0.0;
    for _ in 0..2 {
        let begin = Instant::now();
        let to = server.address;
        let tally = clients::run_with(CLIENTS, to, &[question()], &at_once, (begin, 0.0));
        rps = tally.in_time as f64 / begin.elapsed().as_secs_f64();
    }
    ensure!(rps > 0.0, "no query was answered in time");
    Ok(rps)
}

fn settings(cell: &Cell, least: u32) -> String {
    let (engine, most, of_type) = (cell.engine, cell.most, cell.settings);
    format!(
        r#"roles = ["api", "dispatcher", "autoscaler", "variant-gen"]

[fleet]
listen = "127.0.0.1:0"

[variants]
engines = ["{engine}"]
max_threads = 1

[autoscaler]
hold_s = 30

[prices.devices.alike]
hour_usd = 0.1
start_s = 2

[autoscaler.pools.alike]
least = {least}
most = {most}
cores = 1

{of_type}"#
    )
}

/// Waits until `count` workers are up, no others are desired, and a query is answered.
fn settle(server: &Server, count: u32) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let is_up = up(server)? == count;
        let body = question().body;
        let answer = server
            .connect()?
            .send("POST", "/v1/queries", "application/json", &body);
        if is_up && answer.is_ok_and(|answer| answer.status == 200) {
            return Ok(());
        }
        ensure!(
            Instant::now() < deadline,
            "{count} workers are not up after {} s",
            PATIENCE.as_secs()
        );
        shell::pause(Duration::from_millis(200));
    }
}

/// Workers of the pool that are up.
fn up(server: &Server) -> Result<u32> {
    let scaling = server.connect()?.get("/v1/scaling")?.json()?;
    let pools = scaling["pools"].as_array().cloned().unwrap_or_default();
    let pool = pools.iter().find(|it| it["device_type"] == "alike");
    let count = pool.and_then(|pool| pool["up"].as_u64()).unwrap_or(0);
    Ok(u32::try_from(count)?)
}

/// The reasons for the number of workers, the newest first.
fn reasons(server: &Server) -> Result<Vec<String>> {
    let body = server
        .connect()?
        .get("/v1/scaling/decisions?limit=4")?
        .json()?;
    let decisions = body["decisions"].as_array().cloned().unwrap_or_default();
    let reasons = decisions.iter().filter_map(|it| it["reason"].as_str());
    Ok(reasons.map(str::to_owned).collect())
}
