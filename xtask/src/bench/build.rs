//! Measures how long a newcomer waits for the first command, how long a check after a change takes, and how much code
//! there is.

use std::{
    fs::{self, File},
    path::Path,
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context, Result};

use super::{
    Arguments,
    report::{Figure, Report},
};
use crate::{floors, floors::FLOORS, paths, server, shell};

/// The parts that `--parts` may name.
pub const PARTS: [&str; 3] = ["demo", "check", "lines"];

/// The crates that are changed most, and the file that is touched in each.
const CHANGED: [(&str, &str); 6] = [
    ("sextant-schedule", "crates/decide/schedule/src/lib.rs"),
    ("sextant-dispatcher", "dispatcher/src/lib.rs"),
    ("sextant-worker", "worker/src/lib.rs"),
    ("sextant-api", "api/src/lib.rs"),
    ("sextant-api-core", "api/core/src/lib.rs"),
    ("sextant", "server/src/main.rs"),
];

/// Measures the requested parts.
pub fn run(arguments: &Arguments, report: &mut Report) -> Result<()> {
    if arguments.wants("demo") {
        let took = demo()?.as_secs_f64();
        let figure = Figure::new("build", "demo_cold_build_s", took, "s", Some("<= 420"));
        report.add(figure);
    }
    if arguments.wants("check") {
        for (package, file) in CHANGED {
            let took = check(package, file)?.as_secs_f64();
            let figure = Figure::new("build", "warm_check_s", took, "s", Some("<= 15"));
            report.add(figure.of(package));
        }
    }
    if arguments.wants("lines") {
        for (name, lines) in lines()? {
            let count = |metric, lines: usize| {
                Figure::new("build", metric, lines as f64, "count", None).of(name)
            };
            report.add(count("source_lines_count", lines.sources));
            report.add(count("test_lines_count", lines.tests));
        }
    }
    Ok(())
}

/// Lines of Rust without blank lines.
#[derive(Clone, Copy, Default)]
struct Lines {
    /// Lines below `src`, including unit tests.
    sources: usize,
    /// Integration tests, examples and benchmarks.
    tests: usize,
}

/// The lines of each floor, from the lowest, of all files that git knows.
fn lines() -> Result<Vec<(&'static str, Lines)>> {
    let files = shell::output(shell::command("git").args(["ls-files", "*.rs"]))?;
    let mut lines = vec![Lines::default(); FLOORS.len()];
    for file in files.lines().map(Path::new) {
        let Some(at) = floors::of(file) else { continue };
        // Git lists a moved file under its old name until the move is committed.
        let text = fs::read_to_string(paths::root().join(file)).unwrap_or_default();
        let count = text.lines().filter(|line| !line.trim().is_empty()).count();
        match file.components().any(|part| part.as_os_str() == "src") {
            true => lines[at].sources += count,
            false => lines[at].tests += count,
        }
    }
    let names = FLOORS.iter().map(|floor| floor.name);
    Ok(names.zip(lines).collect())
}

/// Compiles what `cargo xtask demo` compiles, in an empty folder. The downloads happen before the measurement.
fn demo() -> Result<Duration> {
    shell::run(shell::command("cargo").args(["fetch", "--locked"]))?;
    let folder = paths::empty_target("bench-build")?;
    let begun = Instant::now();
    for words in [&["build", "--package", "xtask"][..], &server::QUICK_BUILD] {
        let mut build = shell::command("cargo");
        shell::run(build.args(words).env("CARGO_TARGET_DIR", &folder))?;
    }
    let took = begun.elapsed();
    fs::remove_dir_all(&folder).with_context(|| format!("cannot remove `{}`", folder.display()))?;
    Ok(took)
}

/// Checks a crate after a change of its first file; everything else was checked before.
fn check(package: &str, file: &str) -> Result<Duration> {
    let check = || shell::run(shell::command("cargo").args(["check", "--package", package]));
    check()?;
    let path = paths::root().join(file);
    let touched = File::options()
        .append(true)
        .open(&path)
        .and_then(|file| file.set_modified(SystemTime::now()));
    touched.with_context(|| format!("cannot touch `{}`", path.display()))?;
    let begun = Instant::now();
    check()?;
    Ok(begun.elapsed())
}
