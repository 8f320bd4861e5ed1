//! The settings of the process's log, which clients of Triton read and change while it runs.

use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use sextant_types::Code;
use tracing::level_filters::LevelFilter;
use utoipa::ToSchema;

use crate::{codec::short, problem::Problem};

/// Changes the level of the process's log; the error is a sentence.
pub type SetLevel = Arc<dyn Fn(LevelFilter) -> Result<(), String> + Send + Sync>;

/// The settings of the log, and how to change them.
pub struct Logging {
    level: Mutex<LevelFilter>,
    set: SetLevel,
}

/// What is logged. A level includes the ones above it: with information, warnings and errors are logged too.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = LogSettings)]
pub struct LogBody {
    /// Always empty: lines go to standard error.
    pub log_file: &'static str,
    /// Whether information is logged.
    pub log_info: bool,
    /// Whether warnings are logged.
    pub log_warning: bool,
    /// Whether errors are logged.
    pub log_error: bool,
    /// 0, 1 for what helps to find faults, 2 for everything.
    pub log_verbose_level: u32,
    /// Always `default`: the form of the lines is configured.
    pub log_format: &'static str,
}

/// What to log; members that are left out stay as they are.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = LogChange)]
pub struct LogChange {
    /// Empty, or it is refused.
    #[serde(default)]
    pub log_file: Option<String>,
    /// Whether information is logged.
    #[serde(default)]
    pub log_info: Option<bool>,
    /// Whether warnings are logged.
    #[serde(default)]
    pub log_warning: Option<bool>,
    /// Whether errors are logged.
    #[serde(default)]
    pub log_error: Option<bool>,
    /// 0, 1 for what helps to find faults, 2 for everything.
    #[serde(default)]
    pub log_verbose_level: Option<u32>,
    /// `default`, or it is refused.
    #[serde(default)]
    pub log_format: Option<String>,
}

// === impl Logging ===

impl Logging {
    /// The first settings, and the function that changes the level.
    pub fn new(level: LevelFilter, set: SetLevel) -> Self {
        Self {
            level: Mutex::new(level),
            set,
        }
    }

    /// The present settings.
    pub fn told(&self) -> LogBody {
        LogBody::of(*self.level.lock())
    }

    /// Changes settings, and returns the settings after the change.
    ///
    /// # Errors
    ///
    /// A setting cannot change while the service runs.
    pub fn change(&self, change: &LogChange) -> Result<LogBody, Problem> {
        let mut level = self.level.lock();
        let before = LogBody::of(*level);
        let refuse = |name: &str, given: &str| {
            let detail = format!(
                "`{name}` cannot become `{}` while the service runs",
                short(given)
            );
            Problem::new(Code::InvalidRequest, detail).field(name)
        };
        for (name, given, only) in [
            ("log_file", &change.log_file, before.log_file),
            ("log_format", &change.log_format, before.log_format),
        ] {
            if let Some(given) = given.as_deref().filter(|given| *given != only) {
                return Err(refuse(name, given));
            }
        }
        let wanted = LogBody {
            log_info: change.log_info.unwrap_or(before.log_info),
            log_warning: change.log_warning.unwrap_or(before.log_warning),
            log_error: change.log_error.unwrap_or(before.log_error),
            log_verbose_level: change.log_verbose_level.unwrap_or(before.log_verbose_level),
            ..before
        }
        .level();
        (self.set)(wanted).map_err(|error| Problem::internal("changing what is logged", &error))?;
        *level = wanted;
        Ok(LogBody::of(wanted))
    }
}

// === impl LogBody ===

impl LogBody {
    fn of(level: LevelFilter) -> Self {
        Self {
            log_file: "",
            log_info: level >= LevelFilter::INFO,
            log_warning: level >= LevelFilter::WARN,
            log_error: level >= LevelFilter::ERROR,
            log_verbose_level: match level {
                LevelFilter::TRACE => 2,
                LevelFilter::DEBUG => 1,
                _ => 0,
            },
            log_format: "default",
        }
    }

    fn level(&self) -> LevelFilter {
        match (
            self.log_verbose_level,
            self.log_info,
            self.log_warning,
            self.log_error,
        ) {
            (2.., ..) => LevelFilter::TRACE,
            (1, ..) => LevelFilter::DEBUG,
            (_, true, ..) => LevelFilter::INFO,
            (_, _, true, _) => LevelFilter::WARN,
            (_, _, _, true) => LevelFilter::ERROR,
            _ => LevelFilter::OFF,
        }
    }
}
