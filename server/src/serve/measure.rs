//! The process in which engines run users' files to measure them.

use std::{ffi::OsString, io, path::PathBuf, time::Duration};

use anyhow::Context;
use sextant_engine::{Engine, emulated};
use sextant_isolation::Program;
use sextant_variant_gen::Isolation;

use super::engines::{self, Libraries};
use sextant_config::Config;

/// What the process is told on its command line. It reads no configuration, which has secrets.
#[derive(Debug, clap::Args)]
pub struct Measure {
    /// Engines that it has.
    #[arg(long, value_delimiter = ',')]
    engines: Vec<String>,
    #[command(flatten)]
    libraries: Libraries,
    /// Memory that it may take, bytes.
    #[arg(long)]
    memory_bytes: u64,
    /// Where the files of large models are.
    #[arg(long)]
    folder: Option<PathBuf>,
}

impl Measure {
    /// Carries out the orders on standard input.
    pub fn run(self) -> anyhow::Result<()> {
        let folder = self.folder.as_deref();
        sextant_isolation::confine(self.memory_bytes, &self.libraries.paths(), folder)?;
        let config = self.libraries.configure(self.engines);
        let engines = engines::build(&config)?;
        let orders = io::stdin().lock();
        sextant_variant_gen::serve_measurements(&engines, orders, io::stdout())
            .context("whoever gives the orders is gone")
    }
}

/// How the engines of this process are isolated, if they are.
pub(super) fn isolation(
    config: &Config,
    built: &[std::sync::Arc<dyn Engine>],
) -> anyhow::Result<Option<Isolation>> {
    if !config.variants.isolate {
        return Ok(None);
    }
    // The emulated engine runs no file of a user; remote runtimes run it elsewhere.
    let configured = config.variants.engines.0.iter();
    let names: Vec<String> = configured
        .filter(|name| *name != emulated::NAME && built.iter().any(|it| it.name() == name.as_str()))
        .cloned()
        .collect();
    if names.is_empty() {
        return Ok(None);
    }
    let memory_bytes = config.variants_memory_bytes();
    let mut arguments: Vec<OsString> = vec![
        "measure".into(),
        "--engines".into(),
        names.join(",").into(),
        "--memory-bytes".into(),
        memory_bytes.to_string().into(),
    ];
    let engines: Vec<&str> = names.iter().map(String::as_str).collect();
    arguments.extend(Libraries::of(config, &engines)?.flags());
    Ok(Some(Isolation {
        program: Program {
            program: std::env::current_exe().context("the path of this program is unknown")?,
            arguments,
            memory_bytes,
        },
        engines: names,
        longest_step: Duration::from_millis(config.variants.longest_step_ms),
        longest_configuration: Duration::from_millis(config.variants.longest_configuration_ms),
    }))
}
