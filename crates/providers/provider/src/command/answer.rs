//! The requests to the program and its valid answers.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use sextant_types::{DeviceTypeName, WorkerId};

use super::refused;
use crate::{Error, Machine, MachineId, State};

/// Longest id of a machine, bytes.
const MAX_ID_BYTES: usize = 256;

#[derive(Serialize)]
pub(super) struct List<'a> {
    pub(super) pool: &'a DeviceTypeName,
}

#[derive(Serialize)]
pub(super) struct UpRequest<'a> {
    pub(super) pool: &'a DeviceTypeName,
    pub(super) workers: &'a [WorkerId],
}

#[derive(Serialize)]
pub(super) struct DownRequest<'a> {
    pub(super) pool: &'a DeviceTypeName,
    pub(super) machines: &'a [MachineId],
    pub(super) end_ms: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Answer {
    machines: Vec<MachineEntry>,
}

/// A machine as the program reports it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MachineEntry {
    id: String,
    pool: Option<DeviceTypeName>,
    worker: Option<WorkerId>,
    state: Option<State>,
    #[serde(default)]
    since_ms: u64,
}

/// The machines of an answer of `list` or `up`, sorted; all are of the pool, and each occurs once.
pub(super) fn machines(
    verb: &str,
    answer: &[u8],
    pool: &DeviceTypeName,
    state: State,
) -> Result<Vec<Machine>, Error> {
    let answer: Answer = serde_json::from_slice(answer).map_err(|error| malformed(verb, &error))?;
    let mut seen = BTreeSet::new();
    for told in &answer.machines {
        let id = &told.id;
        if id.is_empty() || id.len() > MAX_ID_BYTES {
            return Err(refused(format!(
                "`{verb}` answered an id that has not 1 to {MAX_ID_BYTES} bytes"
            )));
        }
        if let Some(other) = told.pool.as_ref().filter(|other| *other != pool) {
            return Err(refused(format!(
                "`{verb}` for pool `{pool}` answered machine `{id}` of pool `{other}`: name only the \
                 pool's"
            )));
        }
        if !seen.insert(id) {
            return Err(refused(format!("`{verb}` answered machine `{id}` twice")));
        }
    }
    let machines = answer.machines.into_iter().map(|told| Machine {
        id: MachineId(told.id),
        worker: told.worker,
        state: told.state.unwrap_or(state),
        since_ms: told.since_ms,
    });
    let mut machines: Vec<_> = machines.collect();
    machines.sort_by(|one, other| one.id.cmp(&other.id));
    Ok(machines)
}

/// Checks an answer of `down`, which only has to be JSON.
pub(super) fn nothing(verb: &str, answer: &[u8]) -> Result<(), Error> {
    if answer.trim_ascii().is_empty() {
        return Ok(());
    }
    let answer = serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(answer);
    answer.map(drop).map_err(|error| malformed(verb, &error))
}

fn malformed(verb: &str, error: &serde_json::Error) -> Error {
    refused(format!(
        "`{verb}` did not answer the JSON that is asked of it: {error}"
    ))
}
