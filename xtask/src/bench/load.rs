//! Closed-loop load by `wrk`, from this machine.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::{paths, server::Server, shell};

/// The request to send, and the load.
pub struct Load<'a> {
    /// Where the server listens.
    pub address: SocketAddr,
    /// Path of the request.
    pub path: &'a str,
    /// File with the body.
    pub body: &'a Path,
    /// Connections, each with one request under way.
    pub connections: usize,
    /// Length of the load.
    pub seconds: u64,
}

/// Measurements at the client.
#[derive(Clone, Copy)]
pub struct Sample {
    /// Requests answered with success, per second.
    pub per_s: f64,
    /// Median latency, milliseconds.
    pub p50_ms: f64,
    /// 99th percentile of the latency, milliseconds.
    pub p99_ms: f64,
    /// Share of the requests that were refused.
    pub refused: f64,
}

impl Load<'_> {
    /// Runs the load; an answer that does not arrive is an error.
    pub fn run(&self) -> Result<Sample> {
        self.run_wrk(None)
    }

    /// Processor time of a server and its processes for each query that it answers, microseconds.
    pub fn cpu_us(&self, server: &Server) -> Result<f64> {
        let before = server.cpu_s()?;
        let sample = self.run()?;
        let used = server.cpu_s()? - before;
        Ok(used * 1e6 / (sample.per_s * self.seconds as f64))
    }

    /// Runs the load with a body whose first `json_bytes` bytes are JSON, with tensors behind them.
    pub fn run_binary(&self, json_bytes: usize) -> Result<Sample> {
        self.run_wrk(Some(json_bytes))
    }

    fn run_wrk(&self, json_bytes: Option<usize>) -> Result<Sample> {
        let script = paths::root().join("xtask/bench/wrk.lua");
        let mut command = shell::command("wrk");
        command
            .args([
                "-t1",
                &format!("-c{}", self.connections),
                &format!("-d{}s", self.seconds),
            ])
            .args(["--timeout", "10s", "--latency", "-s"])
            .arg(script)
            .arg(format!("http://{}{}", self.address, self.path))
            .env("BODY", self.body);
        if let Some(bytes) = json_bytes {
            command.env("JSON_BYTES", bytes.to_string());
        }
        Sample::read(&shell::output(&mut command)?)
    }
}

impl Sample {
    /// Reads what a load generator printed, in the format of `xtask/bench/wrk.lua`.
    pub fn read(output: &str) -> Result<Self> {
        let line = output.lines().rev().find(|line| line.starts_with('{'));
        let result: Value = serde_json::from_str(line.context("the load reports nothing")?)?;
        let field = |name: &str| {
            result[name]
                .as_f64()
                .with_context(|| format!("the load does not report `{name}`"))
        };
        let (requests, refused, broken) = (field("requests")?, field("refused")?, field("broken")?);
        ensure!(broken == 0.0, "{broken} of {requests} requests broke");
        ensure!(requests > 0.0, "no request was answered");
        Ok(Self {
            per_s: (requests - refused) / field("duration_us")? * 1e6,
            p50_ms: field("p50_us")? / 1e3,
            p99_ms: field("p99_us")? / 1e3,
            refused: refused / requests,
        })
    }
}
