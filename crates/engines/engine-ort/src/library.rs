//! Finding the library and the one environment of the process.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use ort::{environment::Environment, logging::LogLevel};
use parking_lot::Mutex;
use sextant_engine::{Error, find_library};

use crate::NAME;

/// The version of ONNX Runtime that is provisioned and tested.
pub const LIBRARY_VERSION: &str = "1.31.1";

/// The library's file name inside the cache folder's `onnxruntime-{LIBRARY_VERSION}`.
pub const LIBRARY_FILE: &str = "libonnxruntime.so.1.31.1";

static ENVIRONMENT: Mutex<Option<Environment>> = Mutex::new(None);

pub(crate) fn find(configured: Option<&Path>) -> Option<PathBuf> {
    let place = Path::new(&format!("onnxruntime-{LIBRARY_VERSION}")).join(LIBRARY_FILE);
    let packaged = Path::new("onnxruntime/capi").join(LIBRARY_FILE);
    find_library(configured, Some("ORT_DYLIB_PATH"), &packaged, &place)
}

/// The process's environment, created on the first call. It is never released: ONNX Runtime
/// keeps global state, and releasing it while the process exits is a known cause of crashes.
pub(crate) fn environment(library: &Path) -> Result<Environment, Error> {
    let mut environment = ENVIRONMENT.lock();
    if let Some(environment) = environment.as_ref() {
        return Ok(environment.clone());
    }
    let created = create(library)?;
    *environment = Some(created.clone());
    Ok(created)
}

fn create(library: &Path) -> Result<Environment, Error> {
    let path = library
        .canonicalize()
        .map_err(|error| unavailable(library, &error.to_string()))?;
    let builder =
        ort::init_from(&path).map_err(|error| unavailable(library, &error.to_string()))?;
    let environment = builder
        .with_name("sextant")
        .with_telemetry(false)
        .with_logger(Arc::new(log))
        .build()
        .map_err(|error| unavailable(library, &error.to_string()))?;
    environment.set_log_level(LogLevel::Error);
    Ok(environment)
}

fn unavailable(library: &Path, reason: &str) -> Error {
    Error::Unavailable {
        engine: NAME,
        reason: format!(
            "`{}` is not a usable ONNX Runtime {LIBRARY_VERSION} library: {reason}; \
             download that version, or run `cargo xtask provision` in a checkout",
            library.display()
        ),
    }
}

/// Every failure is also returned as an error and is logged where it is handled, so ONNX Runtime's
/// own lines are only of use for debugging it.
fn log(level: LogLevel, category: &str, _id: &str, location: &str, message: &str) {
    tracing::debug!(target: "onnxruntime", ?level, category, location, "{message}");
}
