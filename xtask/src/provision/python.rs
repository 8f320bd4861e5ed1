//! Python environments with pinned packages.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::system;
use crate::shell::{self, say};

/// What the tests use: `xtask/requirements.txt`.
const REQUIREMENTS: &str = include_str!("../../requirements.txt");

/// Where Debian and Ubuntu install Python.
const SYSTEM: &str = "/usr/bin/python3";

/// Whether every `name==version` of the arguments is what the interpreter has.
const MATCHES: &str = "import sys, importlib.metadata as m\n\
    sys.exit(any(m.version(n) != v for n, v in (a.split('==') for a in sys.argv[1:])))";

/// The interpreter of the environment `python` in the cache, made if it is missing or differs.
pub fn ensure(cache: &Path) -> Result<PathBuf> {
    environment(&cache.join("python"), REQUIREMENTS)
}

/// The interpreter of an environment in `folder` that has exactly the pinned requirements.
pub fn environment(folder: &Path, requirements: &str) -> Result<PathBuf> {
    environment_from(["python3", SYSTEM], folder, requirements)
}

/// The same with the system's own Python, for packages that carry parts of one.
pub fn system_environment(folder: &Path, requirements: &str) -> Result<PathBuf> {
    environment_from([SYSTEM, "python3"], folder, requirements)
}

fn environment_from(bases: [&str; 2], folder: &Path, requirements: &str) -> Result<PathBuf> {
    let interpreter = folder.join("bin/python3");
    let pins = pins(requirements);
    if shell::succeeds(
        shell::command(&interpreter)
            .args(["-c", MATCHES])
            .args(&pins),
    ) {
        say(format!("Python packages: {}", folder.display()));
        return Ok(interpreter);
    }
    say(format!(
        "Python packages: installing {} into {}",
        pins.join(" "),
        folder.display()
    ));
    create(bases, folder, &interpreter)?;
    shell::run(
        shell::command(&interpreter)
            .args([
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
            ])
            .args(&pins),
    )?;
    Ok(interpreter)
}

/// What the tests' environment has of some packages, as pins.
pub fn pins_of(packages: &[&str]) -> Vec<&'static str> {
    let is_one = |pin: &&str| {
        pin.split("==")
            .next()
            .is_some_and(|name| packages.contains(&name))
    };
    pins(REQUIREMENTS).into_iter().filter(is_one).collect()
}

fn pins(requirements: &str) -> Vec<&str> {
    let lines = requirements.lines().map(str::trim);
    lines
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect()
}

fn create(bases: [&str; 2], folder: &Path, interpreter: &Path) -> Result<()> {
    if shell::succeeds(shell::command(interpreter).args(["-m", "pip", "--version"])) {
        return Ok(());
    }
    let python = base(bases)?;
    if !shell::succeeds(shell::command(&python).args(["-c", "import ensurepip, venv"])) {
        system::install(&["python3-venv"], "Python environments")?;
    }
    shell::run(
        shell::command(&python)
            .args(["-m", "venv", "--clear"])
            .arg(folder),
    )
}

/// A Python that the pinned packages have wheels for.
fn base(bases: [&str; 2]) -> Result<PathBuf> {
    const RECENT: &str = "import sys; sys.exit(sys.version_info < (3, 11))";
    let recent = |python: &str| shell::succeeds(shell::command(python).args(["-c", RECENT]));
    let find = || {
        let mut bases = bases.into_iter();
        bases.find(|python| recent(python))
    };
    if let Some(python) = find() {
        return Ok(python.into());
    }
    system::install(&["python3", "python3-venv"], "Python 3.11 or newer")?;
    match find() {
        Some(python) => Ok(python.into()),
        None => bail!("Python 3.11 or newer is needed, and the system's packages have none"),
    }
}

/// Runs a script of `xtask/` in an environment.
pub fn script(python: &Path, name: &str) -> std::process::Command {
    let mut command = shell::command(python);
    command.arg(crate::paths::root().join("xtask").join(name));
    command
}

/// Version of a package of an environment.
pub fn version(python: &Path, package: &str) -> Result<String> {
    let script = "import sys, importlib.metadata as m; print(m.version(sys.argv[1]))";
    let text = shell::output(shell::command(python).args(["-c", script, package]))
        .with_context(|| format!("`{package}` is not installed"))?;
    Ok(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requirements_are_exact_versions() {
        let pins = pins(REQUIREMENTS);
        assert!(pins.iter().any(|pin| pin.starts_with("onnxruntime==")));
        assert!(pins.iter().all(|pin| pin.contains("==")), "{pins:?}");
    }
}
