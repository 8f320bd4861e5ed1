//! Development tools that are not part of the Rust toolchain.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::system;
use crate::shell::{self, say};

/// The version whose results count.
const CARGO_DENY: &str = "0.20.2";

/// What builds the fuzzers.
const CARGO_FUZZ: &str = "0.13.2";

/// Version of cargo-mutants, which changes code in small ways.
const CARGO_MUTANTS: &str = "27.1.0";

/// The S3 server of the tests; `sextant_test_servers::s3` looks for the same one.
const S3_SERVER: &str = "0.14.1";

/// `cargo-deny`, from the path if it is the pinned version, else built once into the cache.
pub fn cargo_deny(cache: &Path) -> Result<PathBuf> {
    let root = cache.join(format!("cargo-deny-{CARGO_DENY}"));
    let built = root.join("bin/cargo-deny");
    for candidate in [Path::new("cargo-deny"), &built] {
        let version = shell::output(shell::command(candidate).arg("--version"));
        if version.is_ok_and(|text| text.trim().ends_with(CARGO_DENY)) {
            say(format!("cargo-deny {CARGO_DENY}: {}", candidate.display()));
            return Ok(candidate.to_path_buf());
        }
    }
    install(&root, "cargo-deny", CARGO_DENY, &[])?;
    Ok(built)
}

/// `s3s-fs`, an S3 server that keeps objects in a folder, built once into the cache. The tests find
/// it there.
pub fn s3_server(cache: &Path) -> Result<PathBuf> {
    let root = cache.join(format!("s3s-fs-{S3_SERVER}"));
    let built = root.join("bin/s3s-fs");
    if shell::succeeds(shell::command(&built).arg("--version")) {
        say(format!("s3s-fs {S3_SERVER}: {}", built.display()));
        return Ok(built);
    }
    let options = [
        "--features=binary",
        // It does little but hash megabytes.
        "--config=profile.dev.package.md-5.opt-level=3",
        "--config=profile.dev.package.sha2.opt-level=3",
    ];
    install(&root, "s3s-fs", S3_SERVER, &options)?;
    Ok(built)
}

/// `cargo-fuzz`, which builds fuzzers, built once into the cache; and the C++ compiler that libFuzzer needs.
pub fn cargo_fuzz(cache: &Path) -> Result<PathBuf> {
    if !shell::succeeds(shell::command("c++").arg("--version")) {
        system::install(&["g++"], "C++ compiler")?;
    }
    let root = cache.join(format!("cargo-fuzz-{CARGO_FUZZ}"));
    let built = root.join("bin/cargo-fuzz");
    if shell::succeeds(shell::command(&built).arg("--version")) {
        return Ok(built);
    }
    install(&root, "cargo-fuzz", CARGO_FUZZ, &[])?;
    Ok(built)
}

/// `cargo-mutants`, built once into the cache.
pub fn cargo_mutants(cache: &Path) -> Result<PathBuf> {
    let root = cache.join(format!("cargo-mutants-{CARGO_MUTANTS}"));
    let built = root.join("bin/cargo-mutants");
    if !shell::succeeds(shell::command(&built).args(["mutants", "--version"])) {
        install(&root, "cargo-mutants", CARGO_MUTANTS, &[])?;
    }
    Ok(built)
}

/// Builds a program of crates.io into a folder of the cache.
///
/// It is built without optimisation: that takes a third of the time, and each of these programs
/// has work of seconds.
fn install(root: &Path, name: &str, version: &str, options: &[&str]) -> Result<()> {
    say(format!(
        "{name} {version}: building it from crates.io, once"
    ));
    shell::run(
        shell::command("cargo")
            .args(["install", "--locked", "--quiet", "--debug", "--root"])
            .arg(root)
            .args(options)
            .arg(format!("{name}@{version}"))
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .env_remove("CARGO_TARGET_DIR"),
    )
}

/// `wrk`, the load generator of the benchmarks.
pub fn wrk() -> Result<()> {
    // It prints its version with exit status 1.
    if shell::command("wrk").arg("--version").output().is_err() {
        system::install(&["wrk"], "load generator")?;
    }
    Ok(())
}

/// `valgrind`, whose callgrind counts instructions.
pub fn valgrind() -> Result<()> {
    if !shell::succeeds(shell::command("valgrind").arg("--version")) {
        system::install(&["valgrind"], "instruction counts")?;
    }
    Ok(())
}
