//! Log lines on standard error; standard output belongs to what a command answers.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::config::{Log, LogFormat};

/// Starts logging as configured. Once per process, before anything is logged.
pub fn start(log: &Log) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(&log.level)
        .map_err(|error| anyhow::anyhow!("`log.level` is `{}`: {error}", log.level))?;
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    match log.format {
        LogFormat::Text => subscriber.try_init(),
        LogFormat::Json => subscriber.json().try_init(),
    }
    .map_err(|error| anyhow::anyhow!("logging cannot start: {error}"))
}
