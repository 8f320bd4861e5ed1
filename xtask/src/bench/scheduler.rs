//! The scheduler's figures: the cost of a request in the core alone, the speed of the simulator, the agreement of
//! simulated and real time, and the choice between devices of two prices in both.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use super::report::{Figure, Report};
use super::{Arguments, example};
use crate::provision::tools;
use crate::{paths, shell};

/// The parts that `--parts` may name.
pub const PARTS: [&str; 5] = ["core", "instructions", "simulator", "agreement", "prices"];

/// The subject that `crates/decide/controller/benches/scheduler` drives, and its name in the report.
#[derive(Clone, Copy)]
pub struct Subject {
    /// The experiment, and the first word of its metrics.
    pub name: &'static str,
    /// The subject's shape in the benchmark.
    pub shape: &'static str,
    /// Queues and devices, with the goal for the cost of a request, ns.
    pub sizes: [(u32, u32, Option<&'static str>); 3],
}

/// The scheduler alone, with all devices in one pool.
const ALONE: Subject = Subject {
    name: "scheduler",
    shape: "pool",
    sizes: [
        (20, 32, Some("<= 150")),
        (1_000, 1_000, Some("<= 300")),
        (10_000, 10_000, Some("<= 450")),
    ],
};

/// Tenants of a device; [`ASKED`] of them get requests.
const IDLE: [u32; 3] = [20, 1_000, 10_000];
const ASKED: u32 = 10;

/// Measures the requested parts.
pub fn run(arguments: &Arguments, report: &mut Report) -> Result<()> {
    let policy = arguments.policy.as_str();
    if arguments.wants("core") {
        core(policy, ALONE, report)?;
    }
    if arguments.wants("instructions") {
        instructions(policy, ALONE, report)?;
    }
    if arguments.wants("simulator") {
        pass("sextant-lab", "simulator_bench", &[policy], report)?;
    }
    if arguments.wants("agreement") {
        pass("sextant-lab", "agreement", &[policy], report)?;
        pass("sextant-lab", "agreement", &[policy, "fleet"], report)?;
    }
    if arguments.wants("prices") {
        pass("sextant-lab", "prices", &[policy], report)?;
    }
    Ok(())
}

/// Reports what criterion measures: the mean of whole replays, divided by their requests.
pub fn core(policy: &str, subject: Subject, report: &mut Report) -> Result<()> {
    let shape = subject.shape;
    let mut command = shell::command("cargo");
    command
        .args(["bench", "--quiet", "--package", "sextant-controller"])
        .args(["--bench", "scheduler"])
        .env("SCHEDULER_POLICY", policy)
        .env("SCHEDULER_SHAPE", shape);
    shell::run(&mut command)?;
    report.version("criterion", "0.8, mean of 10 replays");
    for (queues, devices, goal) in subject.sizes {
        let name = format!("{queues}x{devices}");
        let folder = paths::target("criterion")
            .join(format!("scheduler/{policy}-{shape}-{name}"))
            .join("new");
        let nanos = number(&folder.join("estimates.json"), "/mean/point_estimate")?;
        let requests = number(&folder.join("benchmark.json"), "/throughput/Elements")?;
        report.add(Figure {
            goal,
            ..figure(
                policy,
                subject,
                &format!("{name}_ns"),
                nanos / requests,
                "ns",
            )
        });
    }
    Ok(())
}

/// Reports what callgrind counts in one replay, which does not depend on the machine's load.
pub fn instructions(policy: &str, subject: Subject, report: &mut Report) -> Result<()> {
    if let Err(error) = tools::valgrind() {
        shell::say(format!("instructions per request: skipped, {error:#}"));
        return Ok(());
    }
    let program = example("sextant-controller", "scheduler_replay")?;
    let folder = paths::target("bench");
    std::fs::create_dir_all(&folder)?;
    for (queues, devices, _) in subject.sizes {
        let replay = Replay {
            policy,
            shape: subject.shape,
            size: (queues, devices),
            asked: None,
        };
        let each = replay.count(&program, &folder)?;
        let metric = format!("{queues}x{devices}_instructions_count");
        report.add(figure(policy, subject, &metric, each, "count"));
    }
    Ok(())
}

/// One replay whose instructions are counted.
struct Replay<'a> {
    policy: &'a str,
    shape: &'a str,
    /// Queues and devices.
    size: (u32, u32),
    /// How many of the queues get requests, if each queue belongs to a tenant of its own.
    asked: Option<u32>,
}

impl Replay<'_> {
    /// The instructions of a request.
    fn count(&self, program: &Path, folder: &Path) -> Result<f64> {
        let (policy, shape, (queues, devices)) = (self.policy, self.shape, self.size);
        // These are enough requests for every queue to form batches, and few enough for an emulated processor.
        let requests = 20_000.max(4 * queues);
        let asked = self.asked.map(|asked| asked.to_string());
        let of = asked.as_deref().unwrap_or("all");
        let name = format!("callgrind-{policy}-{shape}-{queues}x{devices}-{of}.out");
        let counted = folder.join(name);
        let mut command = Command::new("valgrind");
        command
            .args([
                "--tool=callgrind",
                "--quiet",
                "--toggle-collect=*measured_replay*",
            ])
            .arg(format!("--callgrind-out-file={}", counted.display()))
            .arg(program)
            .args([policy, &queues.to_string(), &devices.to_string()])
            .args([&requests.to_string(), shape])
            .args(asked.as_deref());
        shell::run(&mut command)?;
        Ok(collected(&counted)? / f64::from(requests))
    }
}

/// Reports the cost of a request beside tenants without requests, and beside as many as there are models.
pub fn growth(policy: &str, report: &mut Report) -> Result<()> {
    if let Err(error) = tools::valgrind() {
        shell::say(format!("growth of a request: skipped, {error:#}"));
        return Ok(());
    }
    let program = example("sextant-controller", "scheduler_replay")?;
    let folder = paths::target("bench");
    std::fs::create_dir_all(&folder)?;
    let count = |queues, devices, asked| {
        let replay = Replay {
            policy,
            shape: "fleet",
            size: (queues, devices),
            asked: Some(asked),
        };
        replay.count(&program, &folder)
    };
    let mut add = |metric: String, value, unit, goal| {
        report.add(Figure {
            experiment: "controller",
            cell: None,
            policy: Some(policy.to_owned()),
            metric: format!("controller_growth_{metric}"),
            value,
            unit,
            goal,
        });
    };
    let few = count(IDLE[0], 1, ASKED)?;
    for tenants in IDLE {
        let each = count(tenants, 1, ASKED)?;
        let goal = (tenants == IDLE[1]).then_some("<= 1.10");
        add(
            format!("{tenants}_tenants_instructions_count"),
            each,
            "count",
            None,
        );
        add(
            format!("{tenants}_tenants_ratio"),
            each / few,
            "ratio",
            goal,
        );
    }
    for (size, goal) in [(20, "<= 4000"), (1_000, "<= 5000")] {
        let devices = size.max(32);
        let each = count(size, devices, size)?;
        let metric = format!("{size}x{devices}_all_ask_instructions_count");
        add(metric, each, "count", Some(goal));
    }
    Ok(())
}

/// Passes on what an example prints as JSON lines.
pub fn pass(package: &str, name: &str, arguments: &[&str], report: &mut Report) -> Result<()> {
    let program = example(package, name)?;
    let mut command = Command::new(program);
    command.args(arguments);
    eprintln!("$ {}", shell::show(&command));
    shell::output(&mut command)?
        .lines()
        .filter(|line| line.starts_with('{'))
        .try_for_each(|line| report.pass(line))
}

fn figure(policy: &str, subject: Subject, metric: &str, value: f64, unit: &'static str) -> Figure {
    Figure {
        experiment: subject.name,
        cell: None,
        policy: Some(policy.to_owned()),
        metric: format!("{}_{metric}", subject.name),
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

/// The sum at the end of callgrind's output file.
pub fn collected(path: &Path) -> Result<f64> {
    let text = std::fs::read_to_string(path)?;
    let total = text.lines().find_map(|line| {
        let sum = line
            .strip_prefix("totals: ")
            .or_else(|| line.strip_prefix("summary: "))?;
        sum.split_whitespace().next()?.parse().ok()
    });
    total.with_context(|| format!("`{}` holds no sum", path.display()))
}
