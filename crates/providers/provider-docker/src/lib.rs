//! Machines that are containers of a Docker engine, which is reached through its Unix socket.
//!
//! The engine holds all state. Labels say whose a container is: `sextant.fleet`, `sextant.pool` and
//! `sextant.machine`, its name. They cannot change, so what is to end is renamed to
//! `{name}.ending-{ms since 1970}`, the time at which it is ended. Whoever comes after a crash finds both,
//! ends what was to end, and starts what was made and not started yet. Containers that have ended are
//! removed.
//!
//! What a container is to read before it starts is put into it as files through the engine's own archive
//! call, so that it makes no difference where the engine is, nor whether this process is in a container.
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

/// In a command, a variable or a label: the name of the machine's worker, which is its id, too.
pub const NAME: &str = "{name}";

/// In a command, a variable or a label: the name of the machine's pool.
pub const POOL: &str = "{pool}";

/// Where an engine listens unless it is told otherwise.
pub const SOCKET: &str = "/var/run/docker.sock";

/// How its errors name it.
const PROVIDER: &str = "docker";

/// The engine, and what is started there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The engine's socket, mostly [`SOCKET`].
    pub socket: PathBuf,
    /// Tells this fleet's containers from those of others on the same engine. A container keeps the name
    /// with which it was started: under another name it is not found.
    pub fleet: String,
    /// Most machines at once, those that end and those of all pools included.
    pub most: u32,
    /// Longest time that the engine may take for an answer, ms.
    pub timeout_ms: u64,
    /// What a machine is made from.
    pub template: Template,
    /// What a machine of these pools is made from instead.
    pub pools: BTreeMap<DeviceTypeName, Template>,
}

/// A container. [`NAME`] and [`POOL`] are replaced in its command, its variables and its labels. It has no
/// capabilities, and no program in it can get any.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Template {
    /// Its image; it must be on the engine, nothing is pulled.
    pub image: String,
    /// Arguments of the image's entry point; the image's own where there are none.
    pub command: Vec<String>,
    /// Variables that it has beside those of the image.
    pub environment: BTreeMap<String, String>,
    /// The network that it joins, by name; the engine's default where there is none.
    pub network: Option<String>,
    /// Names by which that network finds it beside its own, which it shares with others.
    pub aliases: Vec<String>,
    /// Labels beside those by which it is found.
    pub labels: BTreeMap<String, String>,
    /// What it finds in its file system, by the path. All programs in it may read them.
    pub files: BTreeMap<String, Content>,
    /// What it may use of its machine.
    pub limits: Limits,
}

/// What is in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// This text.
    Text(String),
    /// What a file of this process's machine holds when the container starts, such as a certificate that is
    /// renewed from time to time.
    Of(PathBuf),
}

/// What a container may use of its machine; all of it where nothing is said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Limits {
    /// Time of so many cores.
    pub cores: Option<u16>,
    /// Memory, bytes; a container that takes more is ended.
    pub memory_bytes: Option<u64>,
    /// Processes and threads.
    pub threads: Option<u32>,
}

/// Starts and ends containers. Needs a Tokio runtime with its clock and I/O.
pub struct Containers {
    machines: Arc<Machines>,
}

// === impl Containers ===

impl Containers {
    /// Starts nothing and asks for nothing: an engine that is away is an error of the first call.
    pub fn new(settings: Settings) -> Self {
        let machines = Arc::new(Machines::new(settings));
        Self { machines }
    }
}

/// Each call runs in a task of its own, so that it goes on where its caller gives it up.
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
