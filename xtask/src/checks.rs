//! `cargo xtask test`: all checks that must pass before a change is merged.

use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::Result;

use crate::packages::Packages;
use crate::paths;
use crate::provision::{self, Everything, ForTests, Provisions, needs};
use crate::shell::{self, say};
use enclosure::Enclosure;
use since::Reach;

mod enclosure;
#[cfg(test)]
mod floors;
mod since;
#[cfg(test)]
mod unused;

/// Size of everything that a build from scratch makes, bytes, with some reserve for what the tests write.
const DISK_BYTES: u64 = 10_000_000_000;

/// Options of `cargo xtask test`.
#[derive(clap::Args, Default)]
pub struct Arguments {
    /// Stop at the first step that fails
    #[arg(long)]
    fail_fast: bool,
    /// Run the tests that this expression of nextest selects, and no other step
    #[arg(long, value_name = "EXPRESSION")]
    filter: Option<String>,
    /// Build and run the tests of this package, and no other step; may be given several times
    #[arg(long, value_name = "NAME")]
    package: Vec<String>,
    /// Run the tests that the changes since this revision can reach, and no other step
    #[arg(long, value_name = "REVISION", conflicts_with_all = ["filter", "package"])]
    since: Option<String>,
}

/// One step: its name in the summary, and the command.
struct Step {
    name: &'static str,
    command: Command,
}

/// Provisions, runs every step and reports all failures.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let started = Instant::now();
    warn_of_a_small_disk();
    let mut failed = Vec::new();
    if let Some(revision) = &arguments.since {
        run_since(revision, &mut failed)?;
        return Ok(summary(&failed, started));
    }
    if arguments.is_selective() {
        let step = tests(arguments, &provision::for_tests()?)?;
        carry_out(step, &mut failed);
        return Ok(summary(&failed, started));
    }
    let Everything { tests: found, deny } = provision::everything()?;
    let mut steps = steps(&found.provisioned);
    steps.insert(0, tests(arguments, &found)?);
    match &deny {
        Ok(path) => steps.push(deny_step(
            path,
            &["bans", "licenses", "sources"],
            "dependencies",
        )),
        Err(error) => {
            say(format!("the dependency check cannot run: {error:#}"));
            failed.push("dependencies");
        }
    }
    for step in steps {
        if arguments.fail_fast && !failed.is_empty() {
            break;
        }
        carry_out(step, &mut failed);
    }
    if let Ok(path) = &deny {
        failed.extend(advisories(path));
    }
    Ok(summary(&failed, started))
}

/// Runs the tests that the changes since a revision can reach.
fn run_since(revision: &str, failed: &mut Vec<&'static str>) -> Result<()> {
    let files = since::changed_files(revision)?;
    let reach = Reach::of(&Packages::of_workspace()?, files.iter().map(String::as_str));
    say(reach.to_string());
    if reach.is_none() {
        return Ok(());
    }
    let arguments = Arguments {
        filter: reach.filter(),
        ..Arguments::default()
    };
    carry_out(tests(&arguments, &provision::for_tests()?)?, failed);
    Ok(())
}

fn carry_out(mut step: Step, failed: &mut Vec<&'static str>) {
    say(format!("--- {}", step.name));
    if let Err(error) = shell::run(&mut step.command) {
        say(format!("{error:#}"));
        failed.push(step.name);
    }
}

/// Warns of a small disk, because compilers report a full disk late and in many ways.
fn warn_of_a_small_disk() {
    let target = paths::target("");
    let Ok(disk) = rustix::fs::statvfs(&target) else {
        return;
    };
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    if free < DISK_BYTES {
        say(format!(
            "{:.1} GB are free for `{}`; built from nothing, it takes up to {:.0} GB",
            free as f64 / 1e9,
            target.display(),
            DISK_BYTES as f64 / 1e9
        ));
    }
}

impl Arguments {
    /// Whether only some of the tests are run.
    fn is_selective(&self) -> bool {
        self.filter.is_some() || !self.package.is_empty()
    }
}

/// The test step. Of this machine, the tests find only what provisioning names.
fn tests(arguments: &Arguments, found: &ForTests) -> Result<Step> {
    let ForTests {
        provisioned,
        nextest,
    } = found;
    let mut command = shell::command(nextest);
    command.args(["nextest", "run", "--no-fail-fast"]);
    match Enclosure::make(&needs::all(), provisioned)? {
        Some(enclosure) => {
            command.args(enclosure.options()?);
        }
        None => say(
            "this system is not Debian's: tests may call what is on it, whether or not provisioning names it",
        ),
    }
    match &arguments.package[..] {
        [] => {
            command.arg("--workspace");
        }
        packages => {
            let options = packages.iter().flat_map(|name| ["--package", name]);
            command.args(options);
        }
    }
    if let Some(filter) = &arguments.filter {
        command.args(["--filterset", filter]);
    }
    surround(&mut command, provisioned);
    let name = "tests";
    Ok(Step { name, command })
}

/// Sets the environment of each step that compiles or runs something.
fn surround(command: &mut Command, provisioned: &Provisions) {
    command.env("ORT_DYLIB_PATH", &provisioned.onnxruntime);
    command.env("ORT_DISABLE_TELEMETRY", "1");
    if !keeps_intermediates() {
        command.env("CARGO_INCREMENTAL", "0");
    }
}

fn steps(provisioned: &Provisions) -> Vec<Step> {
    let cargo = |name, words: &str| {
        let mut command = shell::command("cargo");
        command.args(words.split(' '));
        surround(&mut command, provisioned);
        Step { name, command }
    };
    let mut documentation = cargo("documentation", "doc --no-deps --workspace --quiet");
    documentation.command.env("RUSTDOCFLAGS", "-D warnings");
    vec![
        cargo("documentation tests", "test --workspace --doc --quiet"),
        cargo("format", "fmt --all --check"),
        cargo(
            "lints",
            "clippy --workspace --all-targets --quiet -- -D warnings",
        ),
        // The build of `cargo xtask demo` has fewer features than those above.
        cargo(
            "lints of the demo",
            "clippy --package sextant --no-default-features --quiet -- -D warnings",
        ),
        documentation,
    ]
}

/// Whether builds keep the intermediate results that later builds of changed sources reuse. These take gigabytes. They
/// are kept if `CARGO_INCREMENTAL` says so or an earlier build kept them, as on a machine on which the sources are
/// changed, and not if everything is built once.
fn keeps_intermediates() -> bool {
    if std::env::var_os("CARGO_INCREMENTAL").is_some() {
        return true;
    }
    let kept = std::fs::read_dir(paths::target("debug").join("incremental"));
    kept.into_iter().flatten().flatten().any(|entry| {
        entry
            .file_name()
            .to_string_lossy()
            .starts_with("sextant_api-")
    })
}

fn deny_step(path: &std::path::Path, checks: &[&str], name: &'static str) -> Step {
    let mut command = shell::command(path);
    command
        .args(["--all-features", "--log-level", "error", "check"])
        .args(checks);
    Step { name, command }
}

/// The advisory database is in the network; without it there is nothing to compare with.
fn advisories(path: &std::path::Path) -> Option<&'static str> {
    let mut fetch = shell::command(path);
    fetch.args(["--log-level", "off", "fetch", "db"]);
    if !shell::succeeds(&mut fetch) {
        say("--- advisories: skipped, the database cannot be reached from here");
        return None;
    }
    say("--- advisories");
    let mut step = deny_step(path, &["--disable-fetch", "advisories"], "advisories");
    match shell::run(&mut step.command) {
        Ok(()) => None,
        Err(error) => {
            say(format!("{error:#}"));
            Some(step.name)
        }
    }
}

fn summary(failed: &[&str], started: Instant) -> ExitCode {
    let seconds = started.elapsed().as_secs();
    if failed.is_empty() {
        println!("xtask test: everything passed in {seconds} s");
        return ExitCode::SUCCESS;
    }
    println!(
        "xtask test: FAILED after {seconds} s: {}",
        failed.join(", ")
    );
    ExitCode::FAILURE
}
