//! The main job's figures: what Sextant adds to a query, and how it stands beside mosec, a bare
//! HTTP server and the engine alone. All ratios are of measurements taken in turns in one run.

mod memory;
mod mlp;
mod resnet;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::report::{Figure, Report};
use super::{Arguments, selection};
use crate::provision::{self, Provisioned, tools};
use crate::server::{self, Server};
use crate::{models, paths, shell};

/// Parts that can be asked for one by one.
pub const PARTS: [&str; 4] = ["selection", "mlp", "resnet", "memory"];

/// What every part uses.
struct Bench<'a> {
    arguments: &'a Arguments,
    provisioned: Provisioned,
    /// `sextant`, in release.
    binary: PathBuf,
    /// Models with random weights.
    models: PathBuf,
    /// Working folder, empty at the start.
    folder: PathBuf,
}

/// Measures everything that is asked for.
pub fn run(arguments: &Arguments, report: &mut Report) -> Result<()> {
    if arguments.wants("selection") {
        selection::run(report)?;
    }
    if !["mlp", "resnet", "memory"]
        .iter()
        .any(|part| arguments.wants(part))
    {
        return Ok(());
    }
    let bench = Bench::prepare(arguments)?;
    let version = shell::output(Command::new(&bench.binary).arg("--version"))?;
    report.version("sextant", version.trim().trim_start_matches("sextant "));
    report.version("ONNX Runtime", "1.31.1");
    if arguments.wants("mlp") {
        mlp::run(&bench, report)?;
    }
    if arguments.wants("resnet") {
        resnet::run(&bench, report)?;
    }
    if arguments.wants("memory") {
        memory::run(&bench, report)?;
    }
    Ok(())
}

impl<'a> Bench<'a> {
    fn prepare(arguments: &'a Arguments) -> Result<Self> {
        let provisioned = provision::runtime()?;
        tools::wrk()?;
        let binary = server::build()?;
        let models = models::write(&provisioned.python, &["mlp", "resnet18"])?;
        let folder = paths::target("bench");
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }
        std::fs::create_dir_all(&folder)?;
        Ok(Self {
            arguments,
            provisioned,
            binary,
            models,
            folder,
        })
    }

    /// Sextant with an empty data folder. `worker.cores=1` among the settings makes it run one
    /// batch at a time on one thread, as what it is compared with does.
    fn sextant(&self, name: &str, settings: &[&str]) -> Result<Server> {
        let address = server::free_address()?;
        let data = self.folder.join(name);
        let mut command = server::sextant(&self.binary, &self.provisioned, address, &data);
        command.args(["--log-level", "warn"]);
        for setting in settings {
            command.args(["--set", setting]);
        }
        Server::start("sextant", command, address, "/health/ready")
    }

    /// Registers a model of `target/models` for an application of its own of the same name.
    fn register(&self, server: &Server, name: &str) -> Result<()> {
        shell::run(
            shell::command(&self.binary)
                .args([
                    "--server",
                    &format!("http://{}", server.address),
                    "register",
                ])
                .args([
                    "--application",
                    name,
                    "--metric",
                    "top1",
                    "--name",
                    name,
                    "--model",
                ])
                .arg(self.models.join(format!("{name}.onnx")))
                .arg("--validation")
                .arg(self.models.join(format!("{name}-validation.npz"))),
        )
    }
}

/// A figure of this experiment.
fn figure(metric: &str, value: f64, unit: &'static str, goal: Option<&'static str>) -> Figure {
    Figure {
        experiment: "main-job",
        cell: None,
        policy: None,
        metric: metric.to_owned(),
        value,
        unit,
        goal,
    }
}

/// A figure that several servers have.
fn cell(cell: &str, metric: &str, value: f64, unit: &'static str) -> Figure {
    Figure {
        cell: Some(cell.to_owned()),
        ..figure(metric, value, unit, None)
    }
}

/// Deterministic numbers between 0 and 1, with four digits.
pub fn numbers(count: usize) -> String {
    let mut state = 0x2545_f491_u32;
    let values: Vec<String> = (0..count)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            format!("0.{:04}", state % 10_000)
        })
        .collect();
    values.join(",")
}

/// Writes a file of the working folder.
fn write(folder: &Path, name: &str, text: &str) -> Result<PathBuf> {
    let path = folder.join(name);
    std::fs::write(&path, text)?;
    Ok(path)
}
