//! The properties of an interpreter, found before it runs any file of a user.

use std::{
    io::Read,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use serde::Deserialize;

/// Longest time in which an interpreter must answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// The script that asks it.
const QUESTION: &str = "\
import json, sys
sys.path[:0] = sys.argv[1:]
try:
    import numpy
    version = numpy.__version__
except ImportError:
    version = None
print(json.dumps({'executable': sys.executable, 'version': '.'.join(map(str, sys.version_info[:3])), 'numpy': version,
    'folders': [sys.prefix, sys.base_prefix, sys.exec_prefix]}))";

/// An interpreter that can run steps.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct PythonInterpreter {
    /// Its program.
    pub executable: PathBuf,
    /// Its version, such as `3.11.7`.
    pub version: String,
    /// The version of its NumPy.
    pub numpy: Option<String>,
    /// The folders that it reads.
    pub folders: Vec<PathBuf>,
}

/// Why an interpreter cannot run steps.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be started.
    #[error("the interpreter `{path}` cannot be started")]
    Start {
        /// Its path as configured.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It gave no usable answer.
    #[error("the interpreter `{path}` does not say what it is: {said}")]
    Silent {
        /// Its path as configured.
        path: PathBuf,
        /// Its answer.
        said: String,
    },
    /// It has no NumPy.
    #[error(
        "the interpreter `{path}` (Python {version}) has no NumPy: install `numpy` for it, or name a folder that has it under \
         `pipelines.python.packages`"
    )]
    NoNumpy {
        /// Its path as configured.
        path: PathBuf,
        /// Its version.
        version: String,
    },
}

/// Asks an interpreter for its properties; `packages` are folders that it searches for packages
/// first.
///
/// It is not confined, because it runs no file of a user.
///
/// # Errors
/// If it does not start, gives no usable answer, or has no NumPy.
pub fn find(interpreter: &Path, packages: &[PathBuf]) -> Result<PythonInterpreter, Error> {
    let path = || interpreter.to_owned();
    let mut child = Command::new(interpreter)
        .args(["-I", "-B", "-c", QUESTION])
        .args(packages)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|source| Error::Start {
            path: path(),
            source,
        })?;
    let (sender, receiver) = mpsc::channel();
    if let Some(mut stdout) = child.stdout.take() {
        thread::spawn(move || {
            let mut said = String::new();
            stdout.read_to_string(&mut said).ok();
            sender.send(said).ok();
        });
    }
    let mut said = receiver.recv_timeout(PATIENCE).unwrap_or_default();
    // It may have ended.
    child.kill().ok();
    let found: Option<PythonInterpreter> = serde_json::from_str(said.trim()).ok();
    let Some(found) = found else {
        if let Some(stderr) = &mut child.stderr {
            stderr.read_to_string(&mut said).ok();
        }
        child.wait().ok();
        let said = said
            .trim()
            .lines()
            .last()
            .unwrap_or("it said nothing")
            .to_owned();
        return Err(Error::Silent { path: path(), said });
    };
    child.wait().ok();
    match found.numpy {
        Some(_) => Ok(found),
        None => Err(Error::NoNumpy {
            path: path(),
            version: found.version,
        }),
    }
}
