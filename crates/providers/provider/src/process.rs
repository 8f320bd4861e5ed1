//! Machines that are child processes on this machine.
//!
//! The state is in a folder, with one JSON file for each machine, so that a successor finds it after a restart:
//! children outlive the process that started them. A file is written before its child is started, and again when its
//! process id is known. A crash in between could lose the child. So the child has its machine's id in its environment,
//! and is found by that among the processes of the system. An unreadable file is repaired in the same way. The start
//! time of a process distinguishes it from a later one with the same id.
//!
//! One call at a time works in the folder, over all processes that use it: each holds the lock of the file `lock`
//! there. Children write their output to `{folder}/{id}.log`.
//!
//! A child is in a process group of its own, so that a Ctrl-C for its parent does not reach it. Tools that end all
//! processes of a service at once, such as systemd and containers, end the children too.

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

/// In an argument or variable: the name of the machine's worker, which is also its id.
pub const NAME: &str = "{name}";

/// In an argument or variable: the name of the machine's pool.
pub const POOL: &str = "{pool}";

/// The name of the provider in its errors.
const PROVIDER: &str = "process";

/// What is started, and where the state is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The folder for the files of the machines and their logs. It is created if it does not exist. Only this machine
    /// may use it.
    pub folder: PathBuf,
    /// Largest number of machines at once, including those that end and those of all pools.
    pub most: u32,
    /// What a machine runs.
    pub template: Template,
    /// What a machine of these pools runs instead.
    pub pools: BTreeMap<DeviceTypeName, Template>,
}

/// A program. [`NAME`] and [`POOL`] are replaced in each of its texts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Template {
    /// Its path, or its name in `PATH`.
    pub program: String,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Variables that it gets in addition to those of this process.
    pub environment: BTreeMap<String, String>,
    /// Variables of this process that it does not get, such as those with this process's own address.
    pub without: Vec<String>,
    /// What distinguishes the machines of a pool. A machine's number `n` is the least number from 1 that no other
    /// living machine of its pool has, and its place is `places[(n - 1) % places.len()]`. If the list is empty, no
    /// machine has a place.
    pub places: Vec<Place>,
}

/// What one machine of a pool has and the next one does not have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    /// Arguments after those of the template.
    pub arguments: Vec<String>,
    /// The cores to which it and its children are restricted; empty for all cores of this process.
    pub cores: Vec<usize>,
}

/// Starts and ends child processes. Needs a Tokio runtime with its clock and I/O.
pub struct Processes {
    machines: Arc<Machines>,
}

// === impl Processes ===

impl Processes {
    /// Opens the machines of the settings' folder. Fails with [`Error::Away`] if the folder cannot be created, or if
    /// the system does not show which processes run.
    pub fn open(settings: Settings) -> Result<Self, Error> {
        let machines = Arc::new(Machines::open(settings)?);
        Ok(Self { machines })
    }

    /// Runs a call on a thread outside the runtime's own. It runs to its end even if the caller drops it.
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

/// Ends machines that have not ended by then. A successor does so with its first call after that time.
async fn sweep_after(machines: Arc<Machines>, end_ms: u64) {
    // Slightly later than the time in the files, which is in whole milliseconds.
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
