//! Runs other programs. Each command is printed to standard error before it starts; standard output is for results.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// Prints a line about the current work.
pub fn say(text: impl AsRef<str>) {
    eprintln!("xtask: {}", text.as_ref());
}

/// A command in the repository's root. It does not inherit what `cargo run` tells this program about its own package.
/// Build scripts that read these variables would otherwise run again under each `cargo`, with a rebuild of everything
/// that depends on them.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(crate::paths::root());
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command
}

/// Runs a command with its standard output redirected to standard error; fails unless it succeeds.
pub fn run(command: &mut Command) -> Result<()> {
    let shown = show(command);
    eprintln!("$ {shown}");
    let status = command
        .stdin(Stdio::null())
        .stdout(std::io::stderr())
        .status()
        .with_context(|| format!("cannot start `{shown}`"))?;
    if !status.success() {
        bail!("`{shown}` failed: {status}");
    }
    Ok(())
}

/// Runs a command and returns its standard output and its exit status; its standard error is shown.
pub fn results(command: &mut Command) -> Result<Output> {
    let shown = show(command);
    eprintln!("$ {shown}");
    command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start `{shown}`"))
}

/// The JSON objects among the lines of a program's standard output.
pub fn objects(output: &[u8]) -> Vec<Value> {
    String::from_utf8_lossy(output)
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

/// Runs a command quietly and returns its standard output; fails unless it succeeds.
pub fn output(command: &mut Command) -> Result<String> {
    let shown = show(command);
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start `{shown}`"))?;
    if !output.status.success() {
        let problem = String::from_utf8_lossy(&output.stderr);
        bail!("`{shown}` failed: {}: {}", output.status, problem.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether a command can be started and succeeds; its output is dropped.
pub fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// The command as one would type it, with paths relative to the root where that is shorter.
pub fn show(command: &Command) -> String {
    let root = crate::paths::root();
    std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| {
            let short = Path::new(word).strip_prefix(&root).ok();
            let word = short.map_or_else(|| word.to_string_lossy(), |path| path.to_string_lossy());
            if word.contains(char::is_whitespace) {
                format!("'{word}'")
            } else {
                word.into_owned()
            }
        })
        .collect::<Vec<_>>()
        .join(" ")
}

/// Waits a moment between two checks of something outside this process that cannot notify it.
pub fn pause(duration: std::time::Duration) {
    let until = std::time::Instant::now() + duration;
    while let Some(left) = until.checked_duration_since(std::time::Instant::now()) {
        std::thread::park_timeout(left);
    }
}
