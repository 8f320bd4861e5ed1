//! The Docker engine, through its command line.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::shell;

/// The version of the engine, or why none can be used.
pub fn version() -> Result<String, String> {
    let version =
        shell::output(docker(&["version", "--format", "{{.Server.Version}}"]).env("LC_ALL", "C"));
    match version {
        Ok(version) if !version.trim().is_empty() => Ok(version.trim().to_owned()),
        Ok(_) => Err("it does not say its version".to_owned()),
        Err(error) => Err(format!("{error:#}")),
    }
}

/// `docker` with arguments.
pub fn docker(arguments: &[&str]) -> Command {
    let mut command = shell::command("docker");
    command.args(arguments);
    command
}

/// A label of an image, empty if the image lacks it; `None` if there is no such image.
pub fn label(image: &str, label: &str) -> Option<String> {
    let format = format!("{{{{index .Config.Labels \"{label}\"}}}}");
    let value = shell::output(&mut docker(&[
        "image", "inspect", "--format", &format, image,
    ]));
    Some(value.ok()?.trim().to_owned())
}

/// Pulls an image; returns whether a registry has it.
pub fn pull(image: &str) -> bool {
    shell::succeeds(&mut docker(&["pull", "--quiet", image]))
}

/// Runs `producer | consumer`; fails unless both succeed.
pub fn pipe(producer: &mut Command, consumer: &mut Command) -> Result<()> {
    let shown = format!("{} | {}", shell::show(producer), shell::show(consumer));
    eprintln!("$ {shown}");
    let context = || format!("cannot start `{shown}`");
    let mut first = producer
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(context)?;
    let stream = first.stdout.take().with_context(context)?;
    let second = consumer
        .stdin(stream)
        .stdout(std::io::stderr())
        .status()
        .with_context(context);
    let first = first.wait().with_context(context)?;
    if !second?.success() || !first.success() {
        bail!("`{shown}` failed");
    }
    Ok(())
}
