//! Starting and ending the machines that workers run on.
//!
//! A *pool* is a number of machines that are alike; each runs one worker. Whoever runs the machines is a
//! [`Provider`]. It keeps no plan: [`Provider::list`] says what there is, also after a restart of
//! whoever asks, so that nothing is started twice.
//!
//! Entry points: the trait [`Provider`]; [`process`], for which machines are child processes;
//! [`command`], which asks a program of the user's. [`conformance`] has the properties of every provider.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use sextant_types::{DeviceTypeName, WorkerId};

pub mod command;
pub mod conformance;
pub mod process;

/// Starts and ends machines. Every call may take long and may be given up by its caller; what has been
/// begun then is in the next list. Calls may be made at the same time; they take effect one after the
/// other. Whatever a call has failed with, it may be made again.
#[async_trait]
pub trait Provider: Send + Sync {
    /// What kind of provider it is, for people: `process`, `docker`, ..
    fn name(&self) -> &'static str;

    /// The machines of a pool, those that start and those that end included, sorted by id. A machine
    /// that has ended is not among them. Other pools' machines and those that somebody else started are
    /// not, either.
    async fn list(&self, pool: &Pool) -> Result<Vec<Machine>, Error>;

    /// Brings the number of machines that do not end to `count`, where it is less; nothing where it is
    /// not. Returns when they have been ordered, not when they are up. Fewer may start where there is
    /// no more to be had: the next list says so. Where it fails, those that it has ordered until then
    /// stay. An id is never given to a second machine.
    async fn grow(&self, pool: &Pool, count: u32) -> Result<(), Error>;

    /// Has these machines end: each is asked to finish what it has (SIGTERM), and ended after the pool's
    /// `end_ms`. Machines that are not there, such as another pool's, are none to end; those that end
    /// already get no more time. Returns when it is settled that they end, which a crash of the caller
    /// does not undo; not when they have ended.
    async fn end(&self, pool: &Pool, machines: &[MachineId]) -> Result<(), Error>;
}

/// Machines that are alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    /// The type of the device that each has; names the pool.
    pub device_type: DeviceTypeName,
    /// Longest time from being asked to end until being ended, ms.
    pub end_ms: u64,
}

/// What a provider calls a machine.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MachineId(pub String);

/// A machine of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Its name with the provider.
    pub id: MachineId,
    /// The name of its worker, or what that name begins with where its device adds to it; where it is
    /// known.
    #[serde(default)]
    pub worker: Option<WorkerId>,
    /// What it is about.
    pub state: State,
    /// When it was started, ms since the Unix epoch; 0 where that is not known.
    #[serde(default)]
    pub since_ms: u64,
}

/// What a machine is about. Whether its worker is up, the worker says itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It has been ordered and does not run yet.
    Starting,
    /// It runs.
    Running,
    /// It has been asked to end.
    Ending,
}

/// Why a provider did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is set up in a way that cannot work.
    #[error("pool `{pool}`: {reason}")]
    Settings {
        /// Which pool.
        pool: DeviceTypeName,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// It could not be reached, or not in time.
    #[error("{provider} could not be reached: {reason}")]
    Away {
        /// Which kind.
        provider: &'static str,
        /// What happened.
        reason: String,
    },
    /// It refused, or answered what cannot be understood.
    #[error("{provider} refused: {reason}")]
    Refused {
        /// Which kind.
        provider: &'static str,
        /// What it said.
        reason: String,
    },
}

// === impl Error ===

impl Error {
    /// `provider_settings`, `provider_away`, `provider_refused`.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Settings { .. } => "provider_settings",
            Self::Away { .. } => "provider_away",
            Self::Refused { .. } => "provider_refused",
        }
    }
}

// === impl Machine ===

impl Machine {
    /// Whether a worker of this name is the machine's.
    pub fn runs(&self, worker: &WorkerId) -> bool {
        let Some(own) = &self.worker else {
            return false;
        };
        let rest = worker.as_str().strip_prefix(own.as_str());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    }
}
