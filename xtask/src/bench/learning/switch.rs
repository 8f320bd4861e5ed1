//! Switching versions under load. Queries go on at 70 % of the capacity while one version is promoted and rolled back
//! again and again.
//!
//! Queries are sent when they are due and timed from then, each with a target. The failed and late queries are counted
//! while versions are switched. The same load without switches is measured for comparison, because machines are seldom
//! quiet.

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{CONNECTIONS, MODELS, PATIENCE, figure, query, settings};
use crate::{
    bench::{
        bed::Bench,
        report::{Figure, Report},
    },
    http::Connection,
    server::Server,
    shell,
};

/// Rate of the queries, as a share of the capacity.
const SHARE: f64 = 0.7;

/// The target of each query, milliseconds.
const TARGET_MS: f64 = 500.0;

/// Time between two switches.
const BETWEEN: Duration = Duration::from_millis(500);

/// The outcomes of the queries of one load.
#[derive(Default)]
pub(super) struct Outcomes {
    pub(super) sent: u64,
    pub(super) failed: u64,
    late: u64,
    /// Number of answers of each version.
    versions: [u64; 2],
}

/// Counts the failed and late queries of switches.
pub fn run(bench: &Bench<'_>, report: &mut Report) -> Result<()> {
    let (model, input, elements) = MODELS[0];
    let server = bench.sextant("learning-switch", settings(bench))?;
    bench.register(&server, model)?;
    register_second(bench, &server, (model, model))?;
    let seconds = Duration::from_secs(bench.arguments.seconds);
    let mut asked = query(model, (input, elements), 1, 0);
    let capacity = capacity_per_s(server.address, &asked, seconds)?;
    asked["targets"] = json!({"latency_ms": TARGET_MS});
    let rate = capacity * SHARE;
    let length = seconds * 3;
    let alone = load(server.address, &asked, (rate, length))?;
    let stop = AtomicBool::new(false);
    let (switched, switches) = thread::scope(|scope| {
        let switching = scope.spawn(|| switch(&server, model, &stop));
        let switched = load(server.address, &asked, (rate, length));
        stop.store(true, Ordering::Relaxed);
        let switches = switching.join().ok().context("the switching panicked")?;
        anyhow::Ok((switched?, switches?))
    })?;
    ensure!(
        switched.versions.iter().all(|answers| *answers > 0),
        "one version has answered alone"
    );
    let goal = |name: &str, value: u64| Figure {
        goal: Some("0"),
        ..figure(name, value as f64, "queries")
    };
    report.add(figure("switch_rate_per_s", rate, "1/s"));
    report.add(figure("switches", switches as f64, "count"));
    report.add(figure("switch_queries", switched.sent as f64, "queries"));
    report.add(goal("switch_failed", switched.failed));
    report.add(goal("switch_late", switched.late));
    report.add(figure(
        "without_switch_failed",
        alone.failed as f64,
        "queries",
    ));
    report.add(figure("without_switch_late", alone.late as f64, "queries"));
    Ok(())
}

/// Registers the model of an application again as a different file: it gives the same answers and is the next version.
pub(super) fn register_second(
    bench: &Bench<'_>,
    server: &Server,
    (application, name): (&str, &str),
) -> Result<()> {
    let mut model = std::fs::read(bench.models.join(format!("{name}.onnx")))?;
    // This adds the documentation of the model, field 6 of ModelProto.
    model.extend_from_slice(b"\x32\x01x");
    let file = bench.folder.join("second.onnx");
    std::fs::write(&file, model)?;
    let mut command = shell::command(&bench.binary);
    command
        .args([
            "--server",
            &format!("http://{}", server.address),
            "register",
        ])
        .args(["--application", application, "--metric", "top1"])
        .args(["--name", application])
        .arg("--model")
        .arg(file)
        .arg("--validation")
        .arg(bench.models.join(format!("{name}-validation.npz")));
    shell::run(&mut command)
}

/// Promotes and rolls back until told to stop; returns the number of switches.
fn switch(server: &Server, model: &str, stop: &AtomicBool) -> Result<u64> {
    let mut connection = Connection::open(server.address, PATIENCE)?;
    let mut switches = 0;
    while !stop.load(Ordering::Relaxed) {
        let (act, seen) = match switches % 2 {
            0 => ("promotion", 1),
            _ => ("rollback", 2),
        };
        let path = format!("/v1/models/{model}/versions/2/{act}");
        let switched = connection.post(&path, &json!({"current": seen}))?;
        switched.json().context("a switch was refused")?;
        switches += 1;
        shell::pause(BETWEEN);
    }
    Ok(switches)
}

/// The queries a second that are answered if each connection sends a query as soon as it has an answer.
pub(super) fn capacity_per_s(address: SocketAddr, asked: &Value, length: Duration) -> Result<f64> {
    let begun = Instant::now();
    let ask = || -> Result<u64> {
        let mut connection = Connection::open(address, PATIENCE)?;
        let mut answered = 0;
        while begun.elapsed() < length {
            connection.post("/v1/queries", asked)?.json()?;
            answered += 1;
        }
        Ok(answered)
    };
    let answered = thread::scope(|scope| {
        let clients: Vec<_> = (0..CONNECTIONS).map(|_| scope.spawn(ask)).collect();
        let answered = clients
            .into_iter()
            .map(|client| client.join().ok().context("a connection panicked")?);
        answered.sum::<Result<u64>>()
    })?;
    Ok(answered as f64 / begun.elapsed().as_secs_f64())
}

/// Sends queries at a rate, each when it is due.
pub(super) fn load(
    address: SocketAddr,
    asked: &Value,
    (rate, length): (f64, Duration),
) -> Result<Outcomes> {
    let begun = Instant::now();
    let step = Duration::from_secs_f64(CONNECTIONS as f64 / rate);
    let ask = |of: usize| -> Result<Outcomes> {
        let mut connection = Connection::open(address, PATIENCE)?;
        let mut outcomes = Outcomes::default();
        let mut due = begun + step.mul_f64(of as f64 / CONNECTIONS as f64);
        while due < begun + length {
            shell::pause(due.saturating_duration_since(Instant::now()));
            let answer = connection.post("/v1/queries", asked)?;
            outcomes.sent += 1;
            match answer.json() {
                Err(_) => outcomes.failed += 1,
                Ok(answer) => {
                    let took_ms = due.elapsed().as_secs_f64() * 1e3;
                    outcomes.late += u64::from(took_ms > TARGET_MS);
                    let at = usize::from(answer["version"] == 2);
                    outcomes.versions[at] += 1;
                }
            }
            due += step;
        }
        Ok(outcomes)
    };
    thread::scope(|scope| {
        let clients = (0..CONNECTIONS).map(|of| scope.spawn(move || ask(of)));
        let clients: Vec<_> = clients.collect();
        let mut all = Outcomes::default();
        for client in clients {
            let one = client.join().ok().context("a connection panicked")??;
            all.sent += one.sent;
            all.failed += one.failed;
            all.late += one.late;
            all.versions[0] += one.versions[0];
            all.versions[1] += one.versions[1];
        }
        Ok(all)
    })
}
