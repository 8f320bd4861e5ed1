//! Machines that are containers of a Docker engine, which is reached through its Unix socket.
//!
//! The engine holds all state. Labels identify a container: `sextant.fleet`, `sextant.pool` and `sextant.machine`, its
//! name. Labels cannot change, so a container that is to end is renamed to `{name}.ending-{ms since 1970}`, with the
//! time at which it is ended. After a crash a successor reads both. It ends the containers that are to end, and starts
//! those that were created and not started. Containers that have ended are removed.
//!
//! Files that a container reads before it starts are put into it through the engine's archive call. So it makes no
//! difference where the engine runs, and whether this process runs in a container.
//!
//! Entry point: [`Containers`].

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use async_trait::async_trait;
use sextant_provider::{Error, Machine, MachineId, Pool, Provider};
use sextant_types::DeviceTypeName;
use tokio::task::JoinHandle;

mod archive;
mod container;
mod engine;
mod machines;
mod template;

use machines::Machines;

/// In a command, a variable or a label: the name of the machine's worker, which is also its id.
pub const NAME: &str = "{name}";

/// In a command, a variable or a label: the name of the machine's pool.
pub const POOL: &str = "{pool}";

/// The default socket of an engine.
pub const SOCKET: &str = "/var/run/docker.sock";

/// The name of the provider in its errors.
const PROVIDER: &str = "docker";

/// The engine, and the containers to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The engine's socket, usually [`SOCKET`].
    pub socket: PathBuf,
    /// Distinguishes this fleet's containers from others on the same engine. A container keeps the fleet's name with
    /// which it was started: with another name it is not found.
    pub fleet: String,
    /// Largest number of machines at once, including those that end and those of all pools.
    pub most: u32,
    /// Longest time that the engine may take for an answer, ms.
    pub timeout_ms: u64,
    /// The template of a machine.
    pub template: Template,
    /// The template of a machine of these pools instead.
    pub pools: BTreeMap<DeviceTypeName, Template>,
}

/// A container. [`NAME`] and [`POOL`] are replaced in its command, its variables and its labels. It has no
/// capabilities, and no program in it can get any.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Template {
    /// Its image, which must be on the engine: nothing is pulled.
    pub image: String,
    /// Arguments of the image's entry point; empty for the image's own.
    pub command: Vec<String>,
    /// Variables that it gets in addition to those of the image.
    pub environment: BTreeMap<String, String>,
    /// The name of the network that it joins; `None` for the engine's default.
    pub network: Option<String>,
    /// Names that it has in that network in addition to its own. Other containers may share them.
    pub aliases: Vec<String>,
    /// Labels in addition to those by which it is found.
    pub labels: BTreeMap<String, String>,
    /// Files in its file system, by path. All programs in it may read them.
    pub files: BTreeMap<String, Content>,
    /// The limits of what it may use.
    pub limits: Limits,
}

/// The content of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// This text.
    Text(String),
    /// The content of a file of this process's machine at the start of the container, such as a certificate that is
    /// renewed from time to time.
    Of(PathBuf),
}

/// Limits of what a container may use of its machine; `None` means no limit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Limits {
    /// Processor time, in cores.
    pub cores: Option<u16>,
    /// Memory, bytes; a container that uses more is ended.
    pub memory_bytes: Option<u64>,
    /// Number of processes and threads.
    pub threads: Option<u32>,
}

/// Starts and ends containers. Needs a Tokio runtime with its clock and I/O.
pub struct Containers {
    machines: Arc<Machines>,
}

// === impl Containers ===

impl Containers {
    /// Starts nothing and calls nothing: if the engine is away, the first call fails.
    pub fn new(settings: Settings) -> Self {
        let machines = Arc::new(Machines::new(settings));
        Self { machines }
    }
}

/// Each call runs in a task of its own, so that it goes on if its caller drops it.
#[async_trait]
impl Provider for Containers {
    fn name(&self) -> &'static str {
        PROVIDER
    }

    async fn list(&self, pool: &Pool) -> Result<Vec<Machine>, Error> {
        let (machines, pool) = (Arc::clone(&self.machines), pool.clone());
        joined(tokio::spawn(async move { machines.list(&pool).await })).await
    }

    async fn grow(&self, pool: &Pool, count: u32) -> Result<(), Error> {
        let (machines, pool) = (Arc::clone(&self.machines), pool.clone());
        joined(tokio::spawn(
            async move { machines.grow(&pool, count).await },
        ))
        .await
    }

    async fn end(&self, pool: &Pool, ids: &[MachineId]) -> Result<(), Error> {
        let (machines, pool, ids) = (Arc::clone(&self.machines), pool.clone(), ids.to_vec());
        joined(tokio::spawn(async move { machines.end(&pool, &ids).await })).await
    }
}

async fn joined<T>(call: JoinHandle<Result<T, Error>>) -> Result<T, Error> {
    call.await.map_err(|error| Error::Away {
        provider: PROVIDER,
        reason: format!("the call did not end: {error}"),
    })?
}
