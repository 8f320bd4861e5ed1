//! Log lines on standard error; standard output belongs to what a command answers.

use std::io::{self, IsTerminal, Stderr, Write};

use tracing_subscriber::EnvFilter;

use sextant_config::{Log, LogFormat};

/// Standard error that nobody has to read: what cannot be written is dropped.
struct Lenient(Stderr);

impl Write for Lenient {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match self.0.write(line) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Err(error),
            Err(_) => Ok(line.len()),
            written => written,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().ok();
        Ok(())
    }
}

/// Starts logging as configured. Once per process, before anything is logged.
pub fn start(log: &Log) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(&log.level)
        .map_err(|error| anyhow::anyhow!("`log.level` is `{}`: {error}", log.level))?;
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| Lenient(io::stderr()))
        // It would be told of on standard error.
        .log_internal_errors(false)
        .with_ansi(io::stderr().is_terminal());
    match log.format {
        LogFormat::Text => subscriber.try_init(),
        LogFormat::Json => subscriber.json().try_init(),
    }
    .map_err(|error| anyhow::anyhow!("logging cannot start: {error}"))
}
