//! Figures of campaigns that are commands of their own: each is run, and what it reports is passed on.

use std::process::Command;

use anyhow::{Result, bail};
use serde_json::Value;

use super::figure;
use crate::{bench::report::Report, paths, provision, shell};

/// A campaign: the part that asks for it, what is run, and the figures that it reports with their goals.
pub struct Campaign {
    /// Name of the part.
    pub part: &'static str,
    /// Words behind `cargo xtask`; the harness's own example where there are none.
    command: &'static [&'static str],
    figures: &'static [(&'static str, &'static str, Option<&'static str>)],
}

/// All of them, the quickest first.
pub const CAMPAIGNS: [Campaign; 6] = [
    Campaign {
        part: "hostile",
        command: &[],
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
        command: &["chaos", "--seed", "1000", "--runs", "20", "--json"],
        figures: &[
            ("chaos_runs", "runs", None),
            ("chaos_violations", "violations", Some("0")),
        ],
    },
    Campaign {
        part: "fuzz",
        command: &["fuzz", "--seconds", "60", "--json"],
        figures: &[("fuzz_findings", "inputs", Some("0"))],
    },
    Campaign {
        part: "planted",
        command: &["planted", "--json"],
        figures: &[("planted_bugs_found_ratio", "ratio", Some(">= 0.95"))],
    },
    Campaign {
        part: "mutants",
        command: &["mutants", "--json"],
        figures: &[("mutants_caught_ratio", "ratio", Some(">= 0.85"))],
    },
    Campaign {
        part: "compose",
        command: &["compose-test", "--json"],
        figures: &[("compose_first_answer_s", "s", None)],
    },
];

/// Carries a campaign out and adds what it reports. What it finds is a figure, not a failure.
pub fn run(campaign: &Campaign, report: &mut Report) -> Result<()> {
    let mut command = match campaign.command {
        [] => hostile()?,
        words => {
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

/// A metric that a line reports: as a line of figures, or as a member of one object.
fn value(line: &Value, metric: &str) -> Option<f64> {
    match line["metric"].as_str() {
        Some(name) if name == metric => line["value"].as_f64(),
        _ => line[metric].as_f64(),
    }
}

/// The harness's registrations that are made to do harm, with a development build.
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
