//! Machines that are child processes on this machine.
//!
//! What there is lies in a folder, one JSON file for each machine, so that whoever comes after a restart
//! finds it: children outlive the process that started them. A file is written before its child is
//! started and again when its process id is known. In between the child could be lost by a crash; it
//! carries its machine's id in its environment, by which it is found among the processes of the system.
//! A file that cannot be read is mended in the same way. A process is told from a later one with the
//! same id by the time at which it was started.
//!
//! One call at a time works in the folder, over all processes that use it: each holds the lock of the
//! file `lock` there. Children write their output to `{folder}/{id}.log`.
//!
//! A child is in a process group of its own, so that a Ctrl-C meant for its parent does not reach it.
//! Whoever ends all processes of a service at once, as systemd and containers do, ends the children too.

use std::{collections::BTreeMap, io, path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use sextant_types::DeviceTypeName;

use crate::{Error, Machine, MachineId, Pool, Provider};

mod folder;
mod life;
mod machines;
mod record;
mod start;

use machines::Machines;

/// In an argument or variable: the name of the machine's worker, which is its id, too.
pub const NAME: &str = "{name}";

/// In an argument or variable: the name of the machine's pool.
pub const POOL: &str = "{pool}";

/// How its errors name it.
const PROVIDER: &str = "process";

/// What is started, and where its state lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// For the files of the machines and their logs; made where it is not there. It belongs to this
    /// machine alone.
    pub folder: PathBuf,
    /// Most machines at once, those that end and those of all pools included.
    pub most: u32,
    /// What a machine runs.
    pub template: Template,
    /// What a machine of these pools runs instead.
    pub pools: BTreeMap<DeviceTypeName, Template>,
}

/// A program. [`NAME`] and [`POOL`] are replaced in each text of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Template {
    /// Its path, or its name in `PATH`.
    pub program: String,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Variables that it has beside those of this process.
    pub environment: BTreeMap<String, String>,
    /// Variables of this process that it does not have, such as those with this process's own address.
    pub without: Vec<String>,
    /// What the machines of a pool do not share with each other: that with the number `n`, which is the least
    /// from 1 that no other living one of its pool has, has `places[(n - 1) % places.len()]`. None has a place
    /// where there are none.
    pub places: Vec<Place>,
}

/// What one machine of a pool has and the next has not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    /// Arguments behind those of the template.
    pub arguments: Vec<String>,
    /// The cores that it is held to, with all that it starts; all of this process's where there are none.
    pub cores: Vec<usize>,
}

/// Starts and ends child processes. Needs a Tokio runtime with its clock and I/O.
pub struct Processes {
    machines: Arc<Machines>,
}

// === impl Processes ===

impl Processes {
    /// Over the machines of the settings' folder. Fails as [`Error::Away`] where the folder cannot be
    /// made or the system does not say which processes run.
    pub fn open(settings: Settings) -> Result<Self, Error> {
        let machines = Arc::new(Machines::open(settings)?);
        Ok(Self { machines })
    }

    /// Runs a call beside the runtime's own threads, to its end even where the caller gives it up.
    async fn run<T: Send + 'static>(
        &self,
        call: impl FnOnce(&Machines) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let machines = Arc::clone(&self.machines);
        let call = tokio::task::spawn_blocking(move || call(&machines));
        let broken = |error| away("the call did not end", io::Error::other(error));
        call.await.map_err(broken)?
    }
}

#[async_trait]
impl Provider for Processes {
    fn name(&self) -> &'static str {
        PROVIDER
    }

    async fn list(&self, pool: &Pool) -> Result<Vec<Machine>, Error> {
        let pool = pool.clone();
        self.run(move |machines| machines.list(&pool)).await
    }

    async fn grow(&self, pool: &Pool, count: u32) -> Result<(), Error> {
        let pool = pool.clone();
        self.run(move |machines| machines.grow(&pool, count)).await
    }

    async fn end(&self, pool: &Pool, machines: &[MachineId]) -> Result<(), Error> {
        let (pool, ids) = (pool.clone(), machines.to_vec());
        let end_ms = pool.end_ms;
        let told = self.run(move |machines| machines.end(&pool, &ids)).await?;
        if told {
            tokio::spawn(sweep_after(Arc::clone(&self.machines), end_ms));
        }
        Ok(())
    }
}

/// Ends what has not ended by then. A successor does so with its first call past that time.
async fn sweep_after(machines: Arc<Machines>, end_ms: u64) {
    // A little later than the files say, in whole milliseconds.
    tokio::time::sleep(Duration::from_millis(end_ms.saturating_add(2))).await;
    let swept = tokio::task::spawn_blocking(move || machines.sweep()).await;
    if let Ok(Err(error)) = swept {
        tracing::warn!("machines that were to end are not ended until the next list: {error}");
    }
}

// === impl Error ===

fn away(what: &str, error: impl std::fmt::Display) -> Error {
    Error::Away {
        provider: PROVIDER,
        reason: format!("{what}: {error}"),
    }
}

fn refused(what: &str, error: impl std::fmt::Display) -> Error {
    Error::Refused {
        provider: PROVIDER,
        reason: format!("{what}: {error}"),
    }
}
