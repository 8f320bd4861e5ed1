//! The cost of clients that send no query, and the cost of numbers that come as text.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::figure;
use crate::bench::bed::{Bench, numbers};
use crate::bench::median;
use crate::bench::report::Report;
use crate::http::Connection;
use crate::server::Server;

const CONNECTIONS: usize = 500;
/// Numbers of the large tensor: 3 x 224 x 224.
const ELEMENTS: usize = 150_528;
/// Rounds of the large tensor that are counted, after some that warm up.
const ROUNDS: usize = 60;

/// Measures both.
pub fn run(bench: &Bench<'_>, report: &mut Report) -> Result<()> {
    let server = bench.sextant("idle", &[])?;
    // The first connections create what all later ones share.
    drop(open(&server, CONNECTIONS / 10)?);
    let before = server.resident_bytes()?;
    let connections = open(&server, CONNECTIONS)?;
    let after = server.resident_bytes()?;
    drop(connections);
    let grown = after.saturating_sub(before) as f64 / 1e6;
    report.add(figure("idle_connections_500_mb", grown, "MB", Some("< 20")));
    json(&server, report)
}

/// Opens connections that have sent one request and stay open.
fn open(server: &Server, count: usize) -> Result<Vec<Connection>> {
    let open = |_| {
        let mut connection = Connection::open(server.address, Duration::from_secs(10))?;
        let answer = connection.get("/health/live")?;
        ensure!(answer.status == 200, "the answer is {}", answer.status);
        Ok(connection)
    };
    (0..count).map(open).collect()
}

/// Sends a large tensor in JSON for a variant that does not exist. The service reads it whole and then refuses it, so
/// that no engine takes part.
fn json(server: &Server, report: &mut Report) -> Result<()> {
    let text = numbers(ELEMENTS);
    let body = format!(
        r#"{{"variant":"nobody","inputs":[{{"name":"image","shape":[1,{ELEMENTS}],"datatype":"FP32","data":[{text}]}}]}}"#
    );
    let mut connection = server.connect()?;
    let mut rates = Vec::with_capacity(ROUNDS);
    for round in 0..ROUNDS + 10 {
        let started = Instant::now();
        let answer = connection.send("POST", "/v1/queries", "application/json", body.as_bytes())?;
        let seconds = started.elapsed().as_secs_f64();
        let problem: Value = serde_json::from_slice(&answer.body).context("a problem document")?;
        ensure!(
            problem["code"] == "variant_not_found",
            "the answer is {problem}"
        );
        if round >= 10 {
            rates.push(body.len() as f64 / 1e6 / seconds);
        }
    }
    report.add(figure(
        "json_tensor_mb_per_s",
        median(rates),
        "MB/s",
        Some(">= 200"),
    ));
    Ok(())
}
