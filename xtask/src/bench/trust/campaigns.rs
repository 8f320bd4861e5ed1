//! Figures of campaigns that are commands of their own: each is run, and its figures are passed on.

use std::process::Command;

use anyhow::{Result, bail};
use serde_json::Value;

use super::figure;
use crate::{bench::report::Report, paths, provision, shell};

/// A campaign: the part that names it, the command, and the figures that it reports with their goals.
pub struct Campaign {
    /// Name of the part.
    pub part: &'static str,
    how: Procedure,
    figures: &'static [(&'static str, &'static str, Option<&'static str>)],
}

/// The command of a campaign.
enum Procedure {
    /// A command of `cargo xtask`, with these arguments.
    Xtask(&'static [&'static str]),
    /// The test harness's example `hostile`.
    Hostile,
    /// A test that prints its figures: the target that has it, and its name.
    Test(&'static str, &'static str),
}

/// All campaigns, the quickest first.
pub const CAMPAIGNS: [Campaign; 8] = [
    Campaign {
        part: "box",
        how: Procedure::Test(
            "isolated",
            "tries::an_engine_that_was_taken_over_reaches_nobody",
        ),
        figures: &[
            ("box_tries", "tries", Some(">= 40")),
            ("box_escapes", "tries", Some("0")),
        ],
    },
    Campaign {
        part: "restore",
        how: Procedure::Test(
            "v1",
            "storage::a_backup_is_restored_into_an_empty_machine_that_answers_alike",
        ),
        figures: &[("restore_differences", "answers", Some("0"))],
    },
    Campaign {
        part: "hostile",
        how: Procedure::Hostile,
        figures: &[
            ("hostile_registrations", "registrations", Some(">= 60")),
            (
                "hostile_registrations_survived",
                "registrations",
                Some("all"),
            ),
            ("hostile_restarts", "restarts", Some("0")),
            ("registration_growth_mib", "MiB", Some("<= 64")),
            ("registration_wait_s", "s", Some("<= 10")),
        ],
    },
    Campaign {
        part: "chaos",
        how: Procedure::Xtask(&["chaos", "--seed", "1000", "--runs", "20", "--json"]),
        figures: &[
            ("chaos_runs", "runs", None),
            ("chaos_violations", "violations", Some("0")),
        ],
    },
    Campaign {
        part: "fuzz",
        how: Procedure::Xtask(&["fuzz", "--seconds", "60", "--json"]),
        figures: &[("fuzz_findings", "inputs", Some("0"))],
    },
    Campaign {
        part: "planted",
        how: Procedure::Xtask(&["planted", "--json"]),
        figures: &[("planted_bugs_found_ratio", "ratio", Some(">= 0.95"))],
    },
    Campaign {
        part: "mutants",
        how: Procedure::Xtask(&["mutants", "--json"]),
        figures: &[("mutants_caught_ratio", "ratio", Some(">= 0.85"))],
    },
    Campaign {
        part: "compose",
        how: Procedure::Xtask(&["compose-test", "--json"]),
        figures: &[("compose_first_answer_s", "s", None)],
    },
];

/// Runs the campaign and adds its figures. A fault that it finds is a figure, not an error.
pub fn run(campaign: &Campaign, report: &mut Report) -> Result<()> {
    let mut command = match campaign.how {
        Procedure::Hostile => hostile()?,
        Procedure::Test(target, name) => test(target, name)?,
        Procedure::Xtask(words) => {
            let mut command = shell::command(std::env::current_exe()?);
            command.args(words);
            command
        }
    };
    let output = shell::results(&mut command)?;
    let reported = shell::objects(&output.stdout);
    let mut found = 0;
    for (metric, unit, goal) in campaign.figures {
        if let Some(value) = reported.iter().find_map(|line| value(line, metric)) {
            report.add(figure(metric, value, unit, *goal));
            found += 1;
        }
    }
    if found == 0 && !output.status.success() {
        bail!("`{}` failed: {}", shell::show(&command), output.status);
    }
    Ok(())
}

/// The value of a metric that a line reports, as a line of figures or as a member of one object.
fn value(line: &Value, metric: &str) -> Option<f64> {
    match line["metric"].as_str() {
        Some(name) if name == metric => line["value"].as_f64(),
        _ => line[metric].as_f64(),
    }
}

/// A test of a development build, which prints its figures on standard output.
fn test(target: &str, name: &str) -> Result<Command> {
    let provisioned = provision::stores()?;
    let mut command = shell::command("cargo");
    command
        .args(["test", "--workspace", "--quiet", "--test", target])
        .args(["--", "--exact", name, "--nocapture"])
        .env("ORT_DYLIB_PATH", &provisioned.onnxruntime);
    Ok(command)
}

/// The test harness's example with harmful registrations, over a development build.
fn hostile() -> Result<Command> {
    let provisioned = provision::stores()?;
    let build = "build --workspace --bin sextant --example hostile";
    shell::run(shell::command("cargo").args(build.split(' ')))?;
    let mut command = shell::command(paths::target("debug/examples/hostile"));
    command
        .arg("--json")
        .env("ORT_DYLIB_PATH", &provisioned.onnxruntime);
    if std::env::var_os("SEXTANT_BIN").is_none() {
        command.env("SEXTANT_BIN", paths::target("debug/sextant"));
    }
    Ok(command)
}
