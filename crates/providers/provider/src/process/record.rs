//! The record of a machine in the folder.

use serde::{Deserialize, Serialize};
use sextant_types::{DeviceTypeName, WorkerId};

use super::life::Process;
use crate::{Machine, MachineId, State};

/// A machine, from before its start until it has ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) id: String,
    pub(super) pool: DeviceTypeName,
    pub(super) worker: Option<WorkerId>,
    /// When it was started, ms since the Unix epoch; 0 if that is not known.
    pub(super) since_ms: u64,
    /// Its process; `None` while it is being started.
    pub(super) process: Option<Process>,
    /// Present once the machine is to end.
    pub(super) end: Option<End>,
}

/// The end of a machine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct End {
    /// When it is ended if it has not ended by then, ms since the Unix epoch.
    pub(super) by_ms: u64,
    /// Whether it has been asked to end.
    pub(super) told: bool,
}

// === impl Record ===

impl Record {
    pub(super) fn machine(&self) -> Machine {
        Machine {
            id: MachineId(self.id.clone()),
            worker: self.worker.clone(),
            state: match (&self.end, &self.process) {
                (Some(_), _) => State::Ending,
                (None, Some(_)) => State::Running,
                (None, None) => State::Starting,
            },
            since_ms: self.since_ms,
        }
    }

    /// The number in its name, `{pool}-{number}-{random}`.
    pub(super) fn number(&self) -> Option<u32> {
        let rest = self.id.strip_prefix(self.pool.as_str())?;
        let (number, _) = rest.strip_prefix('-')?.split_once('-')?;
        number.parse().ok()
    }
}
