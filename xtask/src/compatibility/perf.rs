//! NVIDIA's perf_analyzer in the modes that people use it in.

use anyhow::Result;

use super::{Bed, Check};
use crate::provision::perf_analyzer;
use crate::server::Server;
use crate::shell;

/// Each mode by its name, and what it is told.
const MODES: [(&str, &[&str]); 5] = [
    ("concurrency", &["-i", "http", "--concurrency-range", "1:2"]),
    (
        "Poisson request rate",
        &[
            "-i",
            "http",
            "--request-rate-range",
            "20",
            "--request-distribution",
            "poisson",
        ],
    ),
    (
        "shared memory",
        &[
            "-i",
            "grpc",
            "--shared-memory",
            "system",
            "--output-shared-memory-size",
            "4096",
        ],
    ),
    (
        "gRPC streaming",
        &[
            "-i",
            "grpc",
            "--streaming",
            "-a",
            "--concurrency-range",
            "2",
        ],
    ),
    (
        "binary search by latency",
        &[
            "-i",
            "grpc",
            "--latency-threshold",
            "500",
            "--concurrency-range",
            "1:4",
            "--binary-search",
        ],
    ),
];

/// Short measurements that count as stable: whether the modes work is the question, not how fast.
const SHORT: [&str; 9] = [
    "-m",
    "digits",
    "--measurement-mode",
    "count_windows",
    "--measurement-request-count",
    "20",
    "-s",
    "1000",
    "--max-threads=4",
];

// === impl Bed ===

impl Bed {
    /// Every mode; each must end well and tell a throughput.
    pub(super) fn perf_analyzer(&self, server: &Server) -> Result<Vec<Check>> {
        let folder = perf_analyzer::ensure(&self.provisioned.cache, &self.provisioned.python)?;
        let check = |(name, arguments): (&str, &[&str])| {
            let mut command = perf_analyzer::command(&folder);
            command
                .args(SHORT)
                .args(["-u", &server.address.to_string()])
                .args(arguments);
            let output = shell::results(&mut command)?;
            let said = [&*output.stdout, &*output.stderr].map(String::from_utf8_lossy);
            let has_measured = said[0].contains("infer/sec");
            Ok(Check {
                suite: "perf_analyzer",
                name: name.to_owned(),
                failure: match output.status.success() && has_measured {
                    true => None,
                    false => Some(said.join("\n")),
                },
            })
        };
        MODES.into_iter().map(check).collect()
    }
}
