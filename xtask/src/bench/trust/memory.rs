//! The memory of large queries: the memory of the largest bodies outside of the engine, as a multiple of their size,
//! and whether a service of 2 GiB with its default settings survives many of them at once.
//!
//! A control group limits the memory if this process may make one. Otherwise nothing ends the service, and its peak is
//! compared with the limit.

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::figure;
use crate::{
    bench::{bed::Bench, report::Report},
    http::Connection,
    models,
    server::{Server, memory_bytes},
    shell,
};

mod group;

use group::Group;

/// The largest body that the service takes by default.
const BODY_BYTES: usize = 16 << 20;

/// The memory that the service may use.
const SERVICE_BYTES: u64 = 2 << 30;

/// Number of bodies of one kind at the same time.
const AT_ONCE: usize = 11;

/// Clients that do not read their answers of 4 MB and more.
const SILENT: usize = 150;

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(120);

/// A request of the largest size.
struct LargeRequest {
    path: &'static str,
    json: String,
    /// What follows the JSON.
    tensors: Vec<u8>,
}

/// The outcomes of requests.
#[derive(Default)]
struct Tally {
    answered: AtomicU64,
    refused: AtomicU64,
    broken: AtomicU64,
}

/// Measures the ratio and the survival.
pub fn run(bench: &Bench<'_>, report: &mut Report) -> Result<()> {
    models::write(&bench.provisioned.python, &["words", "broad"])?;
    let ratio = ratio(bench)?;
    report.add(figure("memory_peak_ratio_text", ratio, "x", Some("<= 4")));
    survive(bench, report)
}

/// The most memory that a body of empty strings takes beside an engine that holds nothing, as a multiple of the body.
fn ratio(bench: &Bench<'_>) -> Result<f64> {
    let settings = ["worker.devices=emulated:1", "variants.engines=emulated"];
    let server = bench.sextant("memory-ratio", &settings)?;
    bench.register(&server, "words")?;
    server.ask("/v1/queries", &small())?;
    let mut most = 0.0_f64;
    for large in [LargeRequest::in_json(), LargeRequest::in_binary()] {
        let before = server.resident_bytes()?;
        std::fs::write(format!("/proc/{}/clear_refs", server.id()), "5")?;
        let status = large.send(server.address)?;
        ensure!(status == 200, "{} was answered with {status}", large.path);
        let peak = memory_bytes(server.id(), "VmHWM:").context("the service has ended")?;
        most = most.max(peak.saturating_sub(before) as f64 / BODY_BYTES as f64);
    }
    Ok(most)
}

/// Sends all bodies at once to a service of 2 GiB.
fn survive(bench: &Bench<'_>, report: &mut Report) -> Result<()> {
    let group = Group::new(SERVICE_BYTES);
    let settings = ["variants.engines=ort"];
    let (command, address) = bench.command("memory", &settings)?;
    let command = match &group {
        Some(group) => group.around(&command),
        None => command,
    };
    let server = Server::start("sextant", command, address, "/health/ready")?;
    for name in ["words", "mlp", "broad"] {
        bench.register(&server, name)?;
    }
    let tally = Tally::default();
    for large in LargeRequest::all() {
        thread::scope(|scope| {
            for _ in 0..AT_ONCE {
                scope.spawn(|| tally.count(&large.send(address)));
            }
        });
    }
    let silent = silent(address);
    let lives = server.ask("/v1/queries", &small()).is_ok();
    drop(silent);
    let peak = match &group {
        Some(group) => group.peak_bytes(),
        None => memory_bytes(server.id(), "VmHWM:"),
    };
    let peak = peak.unwrap_or(SERVICE_BYTES);
    // Without a group nothing would have ended the service.
    let over = u64::from(!lives || (group.is_none() && peak > SERVICE_BYTES));
    let kills = group.as_ref().map_or(0, Group::kills).max(over);
    report.add(figure(
        "service_oom_kills",
        kills as f64,
        "count",
        Some("0"),
    ));
    report.add(figure("memory_peak_bytes", peak as f64, "B", None));
    for (metric, count) in [
        ("memory_answered", &tally.answered),
        ("memory_refused", &tally.refused),
        ("memory_broken", &tally.broken),
    ] {
        let count = count.load(Ordering::Relaxed);
        report.add(figure(metric, count as f64, "count", None));
    }
    Ok(())
}

/// Clients that have sent a query and do not read the answer.
fn silent(address: SocketAddr) -> Vec<Connection> {
    let query = json!({"inputs": [
        {"name": "value", "shape": [1, 1], "datatype": "FP32", "data": [1.0]},
    ]});
    let body = query.to_string();
    let ask = |_| {
        let mut connection = Connection::open(address, PATIENCE).ok()?;
        let asked = connection.ask(
            "POST",
            "/v2/models/broad/infer",
            "application/json",
            body.as_bytes(),
        );
        asked.ok().map(|()| connection)
    };
    let asked: Vec<Connection> = (0..SILENT).filter_map(ask).collect();
    // All queries that get an answer have it by then; the figures do not depend on it.
    shell::pause(Duration::from_secs(10));
    asked
}

/// A query of two texts.
fn small() -> Value {
    json!({"application": "words", "inputs": [
        {"name": "words", "shape": [1, 2], "datatype": "BYTES", "data": ["yes", ""]},
    ]})
}

// === impl LargeRequest ===

impl LargeRequest {
    /// One request of each kind.
    fn all() -> [Self; 5] {
        let texts = Self::in_json();
        let texts_for_numbers = Self {
            json: texts.json.replace("words", "mlp"),
            ..Self::in_json()
        };
        [
            texts,
            Self::in_binary(),
            texts_for_numbers,
            Self::numbers(),
            Self::inputs(),
        ]
    }

    fn of(json: String) -> Self {
        Self {
            path: "/v1/queries",
            json,
            tensors: Vec::new(),
        }
    }

    /// A body of empty strings.
    fn in_json() -> Self {
        let count = BODY_BYTES / 3 - 100;
        let data = "\"\",".repeat(count - 1);
        Self::of(format!(
            r#"{{"application":"words","inputs":[{{"name":"words","shape":[1,{count}],"datatype":"BYTES","data":[{data}""]}}]}}"#
        ))
    }

    /// The same strings in the binary extension.
    fn in_binary() -> Self {
        let count = BODY_BYTES / 4 - 100;
        let bytes = 4 * count;
        Self {
            path: "/v2/models/words/infer",
            json: format!(
                r#"{{"inputs":[{{"name":"words","shape":[1,{count}],"datatype":"BYTES","parameters":{{"binary_data_size":{bytes}}}}}]}}"#
            ),
            tensors: vec![0; bytes],
        }
    }

    /// A body with as many numbers as possible.
    fn numbers() -> Self {
        let rows = BODY_BYTES / 2 / 64 - 10;
        let data = "0,".repeat(64 * rows - 1);
        Self::of(format!(
            r#"{{"application":"mlp","inputs":[{{"name":"pixels","shape":[{rows},64],"datatype":"FP32","data":[{data}0]}}]}}"#
        ))
    }

    /// A body with as many inputs as possible.
    fn inputs() -> Self {
        let input = r#"{"name":"pixels","shape":[1],"datatype":"FP32","data":[0]},"#;
        let inputs = input.repeat(BODY_BYTES / input.len() - 10);
        let inputs = inputs.trim_end_matches(',');
        Self::of(format!(r#"{{"application":"mlp","inputs":[{inputs}]}}"#))
    }

    /// The status of the answer.
    fn send(&self, address: SocketAddr) -> Result<u16> {
        let mut connection = Connection::open(address, PATIENCE)?;
        let kind = "application/json";
        let answer = match self.tensors.is_empty() {
            true => connection.send("POST", self.path, kind, self.json.as_bytes())?,
            false => connection.post_binary(self.path, &self.json, &self.tensors)?,
        };
        Ok(answer.status)
    }
}

// === impl Tally ===

impl Tally {
    fn count(&self, status: &Result<u16>) {
        let counter = match status {
            Ok(200) => &self.answered,
            Ok(_) => &self.refused,
            Err(_) => &self.broken,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}
