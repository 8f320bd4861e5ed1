//! The processes in which pipelines call functions of Python files.

use std::{ffi::OsString, path::PathBuf, sync::Arc, time::Duration};

use anyhow::Context;
use sextant_api::{Interpreter, NoPython};
use sextant_config::Config;
use sextant_isolation::Program;
use sextant_python::{Confinement, Python, PythonInterpreter, Settings};

/// What the process is told on its command line. It reads no configuration, which has secrets.
#[derive(Debug, clap::Args)]
pub struct Step {
    /// Address space that it may take, bytes.
    #[arg(long)]
    memory_bytes: u64,
    /// The interpreter that it becomes.
    #[arg(long)]
    executable: PathBuf,
    /// Folders that it may read.
    #[arg(long)]
    readable: Vec<PathBuf>,
    /// Folders of packages.
    #[arg(long)]
    package: Vec<PathBuf>,
}

impl Step {
    /// Becomes the interpreter, which reads its orders from standard input, a socket.
    pub fn run(self) -> anyhow::Result<()> {
        let confined = Confinement {
            memory_bytes: self.memory_bytes,
            executable: self.executable,
            readable: self.readable,
            packages: self.package,
        };
        let never = confined
            .run()
            .context("the interpreter cannot be started")?;
        match never {}
    }
}

/// The interpreter of the configuration, as it is on this machine; `None` where steps in Python are off.
pub(super) fn look(config: &Config) -> anyhow::Result<Option<PythonInterpreter>> {
    let python = &config.pipelines.python;
    if !python.enabled {
        return Ok(None);
    }
    let packages: Vec<PathBuf> = python.packages.iter().cloned().collect();
    Ok(Some(sextant_python::find(&python.interpreter, &packages)?))
}

/// Calls functions of Python files as the configuration says. A service whose interpreter is of no use starts, and says
/// so wherever one is needed.
pub(super) fn build(config: &Config) -> anyhow::Result<Arc<dyn Interpreter>> {
    let found = match look(config) {
        Ok(None) => return Ok(Arc::new(NoPython::Off)),
        Ok(Some(found)) => found,
        Err(error) => {
            tracing::error!(error = format!("{error:#}"), "steps in Python cannot run");
            return Ok(Arc::new(NoPython::Unusable(format!("{error:#}"))));
        }
    };
    let python = &config.pipelines.python;
    let confined = Confinement::of(&found, python.packages.as_deref(), python.memory_bytes);
    let mut arguments: Vec<OsString> = vec!["step".into()];
    arguments.extend(confined.flags());
    tracing::info!(version = found.version, interpreter = %found.executable.display(), "steps in Python can run");
    Ok(Arc::new(Python::new(Settings {
        program: Program {
            program: std::env::current_exe().context("the path of this program is unknown")?,
            arguments,
            memory_bytes: python.memory_bytes,
        },
        processes: python.processes,
        time_limit: Duration::from_millis(python.time_limit_ms),
    })))
}
