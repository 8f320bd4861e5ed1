//! The scheduler's figures: what a request costs in the core alone, how fast the simulator is, and
//! how well simulated and real time agree.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use super::report::{Figure, Report};
use super::{Arguments, example};
use crate::provision::tools;
use crate::{paths, shell};

/// Parts that can be asked for one by one.
pub const PARTS: [&str; 4] = ["core", "instructions", "simulator", "agreement"];

/// (queues, devices) with what a request is to cost, ns.
const SIZES: [(u32, u32, &str); 3] = [
    (20, 32, "<= 150"),
    (1_000, 1_000, "<= 300"),
    (10_000, 10_000, "<= 450"),
];

/// Measures everything that is asked for.
pub fn run(arguments: &Arguments, report: &mut Report) -> Result<()> {
    let policy = arguments.policy.as_str();
    if arguments.wants("core") {
        core(policy, report)?;
    }
    if arguments.wants("instructions") {
        instructions(policy, report)?;
    }
    if arguments.wants("simulator") {
        pass("sextant-simulator", "simulator_bench", policy, report)?;
    }
    if arguments.wants("agreement") {
        pass("sextant-dispatcher", "agreement", policy, report)?;
    }
    Ok(())
}

/// What criterion measures: the mean of whole replays, divided by their requests.
fn core(policy: &str, report: &mut Report) -> Result<()> {
    let mut command = shell::command("cargo");
    command
        .args(["bench", "--quiet", "--package", "sextant-policies"])
        .args(["--bench", "scheduler"])
        .env("SCHEDULER_POLICY", policy);
    shell::run(&mut command)?;
    report.version("criterion", "0.8, mean of 10 replays");
    for (queues, devices, goal) in SIZES {
        let name = format!("{queues}x{devices}");
        let folder = paths::target("criterion")
            .join(format!("scheduler/{policy}-{name}"))
            .join("new");
        let nanos = number(&folder.join("estimates.json"), "/mean/point_estimate")?;
        let requests = number(&folder.join("benchmark.json"), "/throughput/Elements")?;
        report.add(Figure {
            goal: Some(goal),
            ..figure(
                policy,
                &format!("scheduler_{name}_ns"),
                nanos / requests,
                "ns",
            )
        });
    }
    Ok(())
}

/// What callgrind counts in one replay; does not depend on the machine's load.
fn instructions(policy: &str, report: &mut Report) -> Result<()> {
    if let Err(error) = tools::valgrind() {
        shell::say(format!("instructions per request: skipped, {error:#}"));
        return Ok(());
    }
    let program = example("sextant-policies", "scheduler_replay")?;
    let folder = paths::target("bench");
    std::fs::create_dir_all(&folder)?;
    for (queues, devices, _) in SIZES {
        // Enough for every queue to form batches, few enough for an emulated processor.
        let requests = 20_000.max(4 * queues);
        let name = format!("{queues}x{devices}");
        let counted = folder.join(format!("callgrind-{policy}-{name}.out"));
        let mut command = Command::new("valgrind");
        command
            .args([
                "--tool=callgrind",
                "--quiet",
                "--toggle-collect=*measured_replay*",
            ])
            .arg(format!("--callgrind-out-file={}", counted.display()))
            .arg(&program)
            .args([policy, &queues.to_string(), &devices.to_string()])
            .arg(requests.to_string());
        shell::run(&mut command)?;
        let total = collected(&counted)?;
        let metric = format!("scheduler_{name}_instructions_count");
        report.add(figure(
            policy,
            &metric,
            total / f64::from(requests),
            "count",
        ));
    }
    Ok(())
}

/// Passes on what an example prints as JSON lines.
fn pass(package: &str, name: &str, policy: &str, report: &mut Report) -> Result<()> {
    let program = example(package, name)?;
    let mut command = Command::new(program);
    command.arg(policy);
    eprintln!("$ {}", shell::show(&command));
    shell::output(&mut command)?
        .lines()
        .filter(|line| line.starts_with('{'))
        .try_for_each(|line| report.pass(line))
}

fn figure(policy: &str, metric: &str, value: f64, unit: &'static str) -> Figure {
    Figure {
        experiment: "scheduler",
        cell: None,
        policy: Some(policy.to_owned()),
        metric: metric.to_owned(),
        value,
        unit,
        goal: None,
    }
}

/// The number at `pointer` in a JSON file.
fn number(path: &Path, pointer: &str) -> Result<f64> {
    let shown = || format!("`{}` has no number at `{pointer}`", path.display());
    let text = std::fs::read_to_string(path).with_context(shown)?;
    let value: Value = serde_json::from_str(&text).with_context(shown)?;
    let found = value.pointer(pointer).and_then(Value::as_f64);
    found.with_context(shown)
}

/// The sum at the end of callgrind's file.
fn collected(path: &Path) -> Result<f64> {
    let text = std::fs::read_to_string(path)?;
    let total = text.lines().find_map(|line| {
        let sum = line
            .strip_prefix("totals: ")
            .or_else(|| line.strip_prefix("summary: "))?;
        sum.split_whitespace().next()?.parse().ok()
    });
    total.with_context(|| format!("`{}` holds no sum", path.display()))
}
