//! Log lines on standard error; standard output is for the answers of commands.

use std::{
    io::{self, IsTerminal, Stderr, Write},
    sync::{Arc, OnceLock},
};

use sextant_api::{Logging, SetLevel};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::{EnvFilter, reload};

use sextant_config::{Log, LogFormat};

/// Standard error that nobody has to read: what cannot be written is dropped.
struct LenientStderr(Stderr);

impl Write for LenientStderr {
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

/// What changes the filter of a process that logs.
static CONTROL: OnceLock<(LevelFilter, SetLevel)> = OnceLock::new();

/// Starts logging as configured. Once per process, before anything is logged.
pub fn start(log: &Log) -> anyhow::Result<()> {
    let filter = filter(&log.level)?;
    let level = filter.max_level_hint().unwrap_or(LevelFilter::TRACE);
    let subscriber = tracing_subscriber::fmt()
        .with_writer(|| LenientStderr(io::stderr()))
        // Such an error would be written to standard error, too.
        .log_internal_errors(false)
        .with_ansi(io::stderr().is_terminal());
    // The handle's type depends on the subscriber, whose format is known here.
    let (started, set) = match log.format {
        LogFormat::Text => {
            let subscriber = subscriber.with_env_filter(filter).with_filter_reloading();
            let set = setter(subscriber.reload_handle());
            (subscriber.try_init(), set)
        }
        LogFormat::Json => {
            let subscriber = subscriber.json().with_env_filter(filter);
            let subscriber = subscriber.with_filter_reloading();
            let set = setter(subscriber.reload_handle());
            (subscriber.try_init(), set)
        }
    };
    started.map_err(|error| anyhow::anyhow!("logging cannot start: {error}"))?;
    // The log is started once.
    CONTROL.set((level, set)).ok();
    Ok(())
}

/// How the front end tells and changes from what level on is logged; `None` where nothing is.
pub fn control() -> Option<Logging> {
    let (level, set) = CONTROL.get()?;
    Some(Logging::new(*level, Arc::clone(set)))
}

/// Replaces the filter by a level.
fn setter<S: 'static>(handle: reload::Handle<EnvFilter, S>) -> SetLevel {
    Arc::new(move |level| {
        let filter = EnvFilter::default().add_directive(level.into());
        handle.reload(filter).map_err(|error| error.to_string())
    })
}

/// What is logged. A level that is misspelt would be taken for the name of a module, and nothing else be logged.
fn filter(level: &str) -> anyhow::Result<EnvFilter> {
    let refuse = |reason: String| anyhow::anyhow!("`log.level` is `{level}`: {reason}");
    for directive in level.split(',').map(str::trim) {
        let is_level = !directive.is_empty() && directive.parse::<LevelFilter>().is_ok();
        let is_module = directive.contains(['=', ':', '[']) || directive.starts_with("sextant");
        if !is_level && !is_module {
            return Err(refuse(format!(
                "`{directive}` is no level: use `error`, `warn`, `info`, `debug`, `trace` or `off`, or \
                 `MODULE=LEVEL` for a part, such as `info,sextant_dispatcher=debug`"
            )));
        }
    }
    let mut levels = level
        .split(',')
        .filter_map(|one| one.trim().parse::<LevelFilter>().ok());
    let is_loud = levels.any(|level| level > LevelFilter::INFO);
    // Each statement of the registry is logged only if the level names `sqlx`: they drown everything else.
    let quiet = match is_loud && !level.contains("sqlx") {
        true => format!("{level},sqlx=warn"),
        false => level.to_owned(),
    };
    EnvFilter::try_new(quiet).map_err(|error| refuse(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_modules_are_told_from_typos() {
        for level in [
            "info",
            "OFF",
            "info,sextant_dispatcher=debug",
            "warn,sqlx=debug",
            "sextant_api",
        ] {
            assert!(filter(level).is_ok(), "{level}");
        }
        for level in ["chatty", "inof", "info,debgu", ""] {
            let refused = filter(level).expect_err("a typo").to_string();
            assert!(
                refused.contains("`log.level`") && refused.contains("`debug`"),
                "{refused}"
            );
        }
    }

    #[test]
    fn statements_of_the_registry_are_logged_only_on_demand() {
        let quiet = filter("debug").expect("a level").to_string();
        assert!(quiet.contains("sqlx=warn"), "{quiet}");
        let loud = filter("debug,sqlx=debug").expect("a level").to_string();
        assert!(!loud.contains("sqlx=warn"), "{loud}");
    }
}
