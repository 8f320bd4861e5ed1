//! Providers: they start and end the machines on which workers run.
//!
//! A *pool* is a number of machines that are alike; each runs one worker. A [`Provider`] manages the machines. It keeps
//! no plan: [`Provider::list`] returns the machines that exist, also after a restart of the caller, so that nothing is
//! started twice.
//!
//! Entry points: the trait [`Provider`]; [`process`], whose machines are child processes; [`command`], which calls a
//! program of the user's. [`conformance`] has the properties of every provider.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use sextant_types::{DeviceTypeName, WorkerId};

pub mod command;
pub mod conformance;
pub mod process;

/// Starts and ends machines. Every call may take long, and its caller may drop it; the next list shows what the call
/// has begun. Concurrent calls are permitted and take effect one after the other. After any error a call may be
/// repeated.
#[async_trait]
pub trait Provider: Send + Sync {
    /// The kind of provider, for people: `process`, `docker`, ..
    fn name(&self) -> &'static str;

    /// The machines of a pool, including those that start and those that end, sorted by id. Machines that have ended,
    /// machines of other pools and machines that the provider did not start are not in the list.
    async fn list(&self, pool: &Pool) -> Result<Vec<Machine>, Error>;

    /// Raises the number of machines that do not end to `count`; does nothing if there are already as many. Returns
    /// when the machines have been ordered, not when they are up. Fewer may start if no more are available; the next
    /// list shows that. If it fails, the machines that it has already ordered stay. An id is never given to a second
    /// machine.
    async fn grow(&self, pool: &Pool, count: u32) -> Result<(), Error>;

    /// Ends these machines: each is asked to finish its work (SIGTERM), and is ended after the pool's `end_ms`.
    /// Machines that do not exist, or belong to another pool, are ignored. Machines that already end get no more time.
    /// Returns when it is certain that they end, even if the caller crashes; not when they have ended.
    async fn end(&self, pool: &Pool, machines: &[MachineId]) -> Result<(), Error>;
}

/// A group of like machines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    /// The type of each machine's device. It names the pool.
    pub device_type: DeviceTypeName,
    /// Longest time from asking a machine to end until it is ended, ms.
    pub end_ms: u64,
}

/// The provider's id of a machine.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MachineId(pub String);

/// A machine of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The provider's id.
    pub id: MachineId,
    /// The name of its worker, or the prefix of that name if the device adds to it; `None` if it is not known.
    #[serde(default)]
    pub worker: Option<WorkerId>,
    /// Its state.
    pub state: State,
    /// When it was started, ms since the Unix epoch; 0 if that is not known.
    #[serde(default)]
    pub since_ms: u64,
}

/// The state of a machine. Whether its worker is up, the worker reports itself.
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

/// Why a provider failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its settings cannot work.
    #[error("pool `{pool}`: {reason}")]
    Settings {
        /// The pool.
        pool: DeviceTypeName,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// It could not be reached, or not in time.
    #[error("{provider} could not be reached: {reason}")]
    Away {
        /// The kind of provider.
        provider: &'static str,
        /// What happened.
        reason: String,
    },
    /// It refused, or its answer is invalid.
    #[error("{provider} refused: {reason}")]
    Refused {
        /// The kind of provider.
        provider: &'static str,
        /// Its answer.
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
    /// Whether a worker of this name runs on the machine.
    pub fn runs(&self, worker: &WorkerId) -> bool {
        let Some(own) = &self.worker else {
            return false;
        };
        let rest = worker.as_str().strip_prefix(own.as_str());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    }
}
