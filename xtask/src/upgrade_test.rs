//! `cargo xtask upgrade-test`: upgrades a fleet from an earlier commit's binary to this one under load.
//!
//! The commit is checked out in a worktree below `target/upgrade-test` and built there, in a target folder of its own,
//! which is kept for the next time. `tests/src/upgrade.rs` has the steps of the upgrade and the conditions that must
//! hold. A test uses it too; that test has only the messages of the earlier release.

use std::{
    path::{Path, PathBuf},
    process::{ExitCode, Stdio},
};

use anyhow::{Context, Result, ensure};

use crate::{paths, provision, shell, tree::Tree};

/// The folder of the worktree and its build outputs, below `target`.
const FOLDER: &str = "upgrade-test";

/// Options of `cargo xtask upgrade-test`.
#[derive(clap::Args)]
pub struct Arguments {
    /// The commit to upgrade from, as git names it; it is built first
    #[arg(long, value_name = "REV", required_unless_present = "binary")]
    from: Option<String>,
    /// A binary to upgrade from, in place of building one
    #[arg(long, value_name = "PATH", conflicts_with = "from")]
    binary: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Builds both binaries and upgrades from one to the other.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let before = match (&arguments.binary, &arguments.from) {
        (Some(binary), _) => std::path::absolute(binary)?,
        (None, from) => build(from.as_deref().unwrap_or("HEAD"))?,
    };
    ensure!(before.is_file(), "there is no file `{}`", before.display());
    let version = shell::output(shell::command(&before).arg("--version"))?;
    shell::say(format!("upgrading from {}", version.trim()));
    let provisioned = provision::stores()?;
    // The build covers the whole workspace, so that what the tests have built is not built again.
    let build = "build --workspace --bin sextant --example upgrade";
    shell::run(shell::command("cargo").args(build.split(' ')))?;
    let mut upgrade = shell::command(paths::target("debug/examples/upgrade"));
    upgrade
        .arg("--before")
        .arg(&before)
        .env("ORT_DYLIB_PATH", &provisioned.onnxruntime)
        .stdin(Stdio::null());
    if std::env::var_os("SEXTANT_BIN").is_none() {
        upgrade.env("SEXTANT_BIN", paths::target("debug/sextant"));
    }
    if arguments.json {
        upgrade.arg("--json");
    }
    eprintln!("$ {}", shell::show(&upgrade));
    let status = upgrade.status().context("cannot start the upgrade")?;
    Ok(match status.success() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// The binary of a commit.
fn build(revision: &str) -> Result<PathBuf> {
    let tree = Tree::at(FOLDER, revision)?;
    let target = paths::target(FOLDER).join("target");
    build_in(&tree.path, &target)?;
    Ok(target.join("debug/sextant"))
}

fn build_in(tree: &Path, target: &Path) -> Result<()> {
    let mut build = shell::command("cargo");
    build
        .args([
            "build",
            "--quiet",
            "--package",
            "sextant",
            "--bin",
            "sextant",
        ])
        .current_dir(tree)
        .env("CARGO_TARGET_DIR", target);
    shell::run(&mut build)
}
