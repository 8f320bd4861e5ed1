//! Measures the load generator `sextant bench` itself: its cost compared with `wrk`, and how true its latencies are.
//!
//! Both send the same body over 64 connections to the same bare HTTP server, in turns. The processor time of a request
//! is compared, because it depends little on what else the machine does. Latencies are compared with those that a
//! server with random delays records itself.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use super::bed::numbers;
use super::load::{Load, Sample};
use super::report::{Figure, Report};
use super::{Arguments, example, median};
use crate::provision::tools;
use crate::server::{self, Server};
use crate::{paths, shell};

/// Connections of the closed loops.
const CONNECTIONS: usize = 64;

/// Queries a second on which latencies are compared: few enough that a server on the same cores is seldom late.
const RATE: &str = "200";

/// Measures the cost and the accuracy of the latencies.
pub fn run(arguments: &Arguments, report: &mut Report) -> Result<()> {
    tools::wrk()?;
    let binary = server::build()?;
    let folder = paths::empty_target("bench-generator")?;
    let body = folder.join("body.json");
    let pixels = numbers(64);
    let query = format!(
        r#"{{"application":"mlp","targets":{{"latency_ms":50}},"inputs":[{{"name":"pixels","shape":[1,64],"datatype":"FP32","data":[{pixels}]}}]}}"#
    );
    std::fs::write(&body, query)?;
    let address = server::free_address()?;
    let mut command = shell::command(example("xtask", "floor")?);
    command.arg(address.to_string());
    let floor = Server::start("the axum floor", command, address, "/health/ready")?;
    let generator = Generator { binary, body };
    cost(arguments, &generator, address, report)?;
    truth(arguments, &generator, &floor, report)
}

/// `sextant bench` and the body that it sends.
struct Generator {
    binary: PathBuf,
    body: PathBuf,
}

fn cost(
    arguments: &Arguments,
    generator: &Generator,
    address: SocketAddr,
    report: &mut Report,
) -> Result<()> {
    let (mut wrks, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..arguments.repetitions {
        let load = Load {
            address,
            path: "/v1/queries",
            body: &generator.body,
            connections: CONNECTIONS,
            seconds: arguments.seconds,
        };
        let before = children_cpu_s()?;
        let sample: Sample = load.run()?;
        let requests = sample.per_s * arguments.seconds as f64;
        wrks.push((children_cpu_s()? - before) / requests);
        let connections = CONNECTIONS.to_string();
        let seconds = format!("{}s", arguments.seconds);
        let before = children_cpu_s()?;
        let told = generator.run(
            address,
            "/v1/queries",
            &[
                "--concurrency",
                &connections,
                "--threads",
                "1",
                "--duration",
                &seconds,
            ],
        )?;
        let answered = told["answered"].as_f64().context("`answered` is told")?;
        ours.push((children_cpu_s()? - before) / answered);
    }
    let ratios = ours.iter().zip(&wrks).map(|(ours, wrk)| ours / wrk);
    report.add(figure(
        "bench_cpu_over_wrk_ratio",
        median(ratios.collect()),
        "ratio",
        Some("<= 1.3"),
    ));
    for (name, costs) in [("wrk", wrks), ("sextant bench", ours)] {
        let cost_us = median(costs) * 1e6;
        report.add(figure("cpu_us_per_request", cost_us, "us", None).of(name));
    }
    Ok(())
}

fn truth(
    arguments: &Arguments,
    generator: &Generator,
    floor: &Server,
    report: &mut Report,
) -> Result<()> {
    let seconds = format!("{}s", 3 * arguments.seconds);
    let open = [
        "--rate",
        RATE,
        "--arrivals",
        "poisson",
        "--duration",
        &seconds,
    ];
    let told = generator.run(floor.address, "/delayed", &open)?;
    let noted = floor.connect()?.get("/delays")?.json()?;
    let mut worst: f64 = 0.0;
    for (percentile, noted_as) in [("p50", "p50_ms"), ("p99", "p99_ms")] {
        let ours = told["latency_ms"][percentile].as_f64();
        let theirs = noted[noted_as].as_f64();
        let (ours, theirs) = ours.zip(theirs).context("latencies are told")?;
        report
            .add(figure(&format!("latency_{percentile}_ms"), ours, "ms", None).of("sextant bench"));
        report.add(figure(&format!("latency_{percentile}_ms"), theirs, "ms", None).of("server"));
        worst = worst.max((ours / theirs - 1.0).abs());
    }
    report.add(figure(
        "bench_latency_error_percent",
        100.0 * worst,
        "percent",
        Some("<= 2"),
    ));
    Ok(())
}

impl Generator {
    /// Runs the generator and returns its figures of all queries.
    fn run(&self, address: SocketAddr, path: &str, pace: &[&str]) -> Result<Value> {
        let mut command: Command = shell::command(&self.binary as &Path);
        command
            .args(["--server", &format!("http://{address}"), "--json", "bench"])
            .args(["--path", path, "--warm-up", "0s", "--body"])
            .arg(&self.body)
            .args(pace);
        let output = shell::output(&mut command)?;
        let all = output.lines().last().context("it tells nothing")?;
        Ok(serde_json::from_str(all)?)
    }
}

/// Processor time of all programs that were started and have ended, s.
fn children_cpu_s() -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let (_, fields) = stat.rsplit_once(')').context("a name in brackets")?;
    // After the name, the state is the first field; the times of children are the 14th and 15th.
    let times = fields.split_whitespace().skip(13).take(2);
    let ticks = times.map(str::parse::<f64>).sum::<Result<f64, _>>()?;
    // The kernel reports times in hundredths of a second.
    Ok(ticks / 100.0)
}

fn figure(metric: &str, value: f64, unit: &'static str, goal: Option<&'static str>) -> Figure {
    Figure::new("generator", metric, value, unit, goal)
}
