//! The processes in which engines run users' files to answer queries.

use std::{ffi::OsString, sync::Arc};

use anyhow::Context;
use rustix::thread::{CpuSet, sched_setaffinity};
use sextant_engine::{Engine, STACK_BYTES, emulated};
use sextant_isolation::{IsolatableEngine, IsolatedEngine, Program};

use super::engines::{self, Libraries};
use sextant_config::Config;

/// Address space that such a process has before it loads anything: the program, the engine's library,
/// the allocator's arenas.
const OWN_BYTES: u64 = 512 << 20;

/// What the process is told on its command line. It reads no configuration, which has secrets.
#[derive(Debug, clap::Args)]
pub struct Host {
    /// The engine that it has.
    #[arg(long)]
    engine: String,
    #[command(flatten)]
    libraries: Libraries,
    /// Address space that it may take, bytes.
    #[arg(long)]
    memory_bytes: u64,
    /// Cores that its threads keep to; none leaves them to the operating system.
    #[arg(long, value_delimiter = ',')]
    cores: Vec<usize>,
}

impl Host {
    /// Serves the models that come over standard input, a socket.
    pub fn run(self) -> anyhow::Result<()> {
        sextant_isolation::confine(self.memory_bytes, &self.libraries.paths(), None)?;
        keep_to(&self.cores);
        let config = self.libraries.configure(vec![self.engine]);
        let engine = engines::build(&config)?.pop();
        let engine = engine.context("the process has no engine")?;
        sextant_isolation::serve(engine).context("standard input is not what is expected")
    }
}

/// Keeps the calling thread to these cores, and thereby all that it starts.
fn keep_to(cores: &[usize]) {
    let mut set = CpuSet::new();
    let there = cores.iter().filter(|core| **core < CpuSet::MAX_CPU);
    there.for_each(|core| set.set(*core));
    if set.count() == 0 {
        return;
    }
    if let Err(error) = sched_setaffinity(None, &set) {
        tracing::warn!(%error, "the process of an engine cannot be kept to its cores");
    }
}

/// The engines of the CPU's worker, each with one in its place for models that are to be apart. An emulated engine runs
/// nothing of what users bring.
pub(super) fn isolatable(
    config: &Config,
    engines: Vec<Arc<dyn Engine>>,
) -> anyhow::Result<Vec<Arc<dyn Engine>>> {
    let beside = |engine: Arc<dyn Engine>| -> anyhow::Result<Arc<dyn Engine>> {
        if engine.name() == emulated::NAME {
            return Ok(engine);
        }
        let program = program(config, engine.name())?;
        Ok(Arc::new(IsolatableEngine::new(engine, program)))
    };
    engines.into_iter().map(beside).collect()
}

/// An engine whose models are in processes of their own, as they are without a configuration.
pub fn isolated(engine: Arc<dyn Engine>) -> anyhow::Result<Arc<dyn Engine>> {
    let program = program(&Config::default(), engine.name())?;
    Ok(Arc::new(IsolatedEngine::new(engine, program)))
}

fn program(config: &Config, engine: &str) -> anyhow::Result<Program> {
    let memory_bytes = config.process_memory_bytes();
    // Each batch that may run at once has a thread with a stack.
    let stacks = (u64::from(config.worker_cores()) + 1).saturating_mul(STACK_BYTES as u64);
    let address_space = memory_bytes
        .saturating_add(stacks)
        .saturating_add(OWN_BYTES);
    let mut arguments: Vec<OsString> = vec![
        "host".into(),
        "--engine".into(),
        engine.into(),
        "--memory-bytes".into(),
        address_space.to_string().into(),
    ];
    if !config.worker.pin.is_empty() {
        let cores: Vec<String> = config.worker.pin.iter().map(u32::to_string).collect();
        arguments.push("--cores".into());
        arguments.push(cores.join(",").into());
    }
    arguments.extend(Libraries::of(config, &[engine])?.flags());
    Ok(Program {
        program: std::env::current_exe().context("the path of this program is unknown")?,
        arguments,
        memory_bytes,
    })
}
