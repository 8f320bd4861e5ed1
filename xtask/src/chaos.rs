//! `cargo xtask chaos`: the campaign of faults, whose code lies in `tests/src/chaos`.

use std::{
    path::PathBuf,
    process::{ExitCode, Stdio},
};

use anyhow::{Context, Result};

use crate::{paths, provision, shell};

/// Options of `cargo xtask chaos`.
#[derive(clap::Args)]
pub struct Arguments {
    /// The first run's seed; the others count on from it
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// How many runs
    #[arg(long, default_value_t = 1)]
    runs: u64,
    /// How long the load of a run meets faults, seconds [default: 10 to 20, by the seed]
    #[arg(long)]
    seconds: Option<u64>,
    /// Carry out the plan of this history once more, whatever its seed gives today
    #[arg(long, value_name = "FILE", conflicts_with_all = ["seed", "runs", "seconds"])]
    again: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Builds the service and the campaign, and runs the campaign.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let provisioned = provision::stores()?;
    // The build covers the whole workspace, so that what the tests have built is not built again.
    let build = "build --workspace --bin sextant --example chaos";
    shell::run(shell::command("cargo").args(build.split(' ')))?;
    let mut campaign = shell::command(paths::target("debug/examples/chaos"));
    campaign
        .args(["--seed", &arguments.seed.to_string()])
        .args(["--runs", &arguments.runs.to_string()])
        .env("ORT_DYLIB_PATH", &provisioned.onnxruntime)
        .stdin(Stdio::null());
    if std::env::var_os("SEXTANT_BIN").is_none() {
        campaign.env("SEXTANT_BIN", paths::target("debug/sextant"));
    }
    if let Some(seconds) = arguments.seconds {
        campaign.args(["--seconds", &seconds.to_string()]);
    }
    if let Some(file) = &arguments.again {
        campaign.arg("--again").arg(file);
    }
    if arguments.json {
        campaign.arg("--json");
    }
    eprintln!("$ {}", shell::show(&campaign));
    let status = campaign.status().context("cannot start the campaign")?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.unwrap_or(1)))
}
