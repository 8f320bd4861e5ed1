//! From an empty Python environment to the first answer. The wheel is installed from packages that are on this machine,
//! the service starts with its default settings, a model is registered, and a query is answered.

use std::{path::Path, time::Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::figure;
use crate::{
    bench::report::Report,
    demo, paths, provision,
    server::{self, Server},
    shell, wheel,
};

/// Measures this once. The wheel is made before the clock starts.
pub fn run(report: &mut Report) -> Result<()> {
    let cache = paths::cache()?;
    let python = provision::python::ensure(&cache)?;
    let list = provision::wheelhouse::ensure(&cache, &python)?;
    let wheels = list.parent().context("the list lies in a folder")?;
    let folder = paths::empty_target("bench-install")?;
    let wheel = wheel::write(&server::build()?, &folder)?;

    let begin = Instant::now();
    let mut stage = |name: &str| {
        let seconds = begin.elapsed().as_secs_f64();
        let goal = (name == "first_answer").then_some("<= 60");
        report.add(figure(&format!("wheel_{name}_s"), seconds, "s", goal));
    };
    let environment = folder.join("environment");
    shell::run(
        shell::command(&python)
            .args(["-m", "venv"])
            .arg(&environment),
    )?;
    install(&environment, wheels, &wheel)?;
    stage("installed");
    let service = serve(&environment, &folder)?;
    stage("ready");
    let installed = environment.join("bin/sextant");
    demo::register_model(&installed, service.address, ("digits", "mlp"))?;
    stage("registered");
    let query = demo::query(&json!({"latency_ms": 100, "min_accuracy": 0.9}));
    let answer = service.ask("/v1/queries", &query)?;
    stage("first_answer");
    let outputs = answer["outputs"].as_array();
    ensure!(
        outputs.is_some_and(|all| !all.is_empty()),
        "an answer without outputs: {answer}"
    );
    Ok(())
}

fn install(environment: &Path, wheels: &Path, wheel: &Path) -> Result<()> {
    let mut pip = shell::command(environment.join("bin/python3"));
    pip.args([
        "-m",
        "pip",
        "--disable-pip-version-check",
        "--quiet",
        "install",
    ]);
    pip.args(["--no-index", "--find-links"])
        .arg(wheels)
        .arg(wheel);
    shell::run(&mut pip)
}

/// The service of an environment, which finds no file of ours elsewhere.
fn serve(environment: &Path, folder: &Path) -> Result<Server> {
    let address = server::free_address()?;
    let mut command = shell::command(environment.join("bin/sextant"));
    command
        .args([
            "serve",
            "--log-level",
            "warn",
            "--listen",
            &address.to_string(),
        ])
        .arg("--data-dir")
        .arg(folder.join("data"))
        .env("SEXTANT_CACHE", folder.join("cache"))
        .env_remove("ORT_DYLIB_PATH");
    Server::start("sextant", command, address, "/health/ready")
}
