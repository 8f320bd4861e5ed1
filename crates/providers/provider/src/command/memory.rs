//! Machines that the program has reported and its list does not show yet.

use std::{collections::BTreeMap, time::Duration};

use sextant_types::DeviceTypeName;
use tokio::time::Instant;

use crate::{Machine, MachineId, State};

type Key = (DeviceTypeName, MachineId);

/// Machines that were started and machines that were told to end; each until the list shows it, or
/// until a time.
#[derive(Default)]
pub(super) struct Memory {
    started: BTreeMap<Key, (Machine, Instant)>,
    told: BTreeMap<Key, Instant>,
}

// === impl Memory ===

impl Memory {
    pub(super) fn started(&mut self, pool: &DeviceTypeName, machine: Machine, settle: Duration) {
        let key = (pool.clone(), machine.id.clone());
        self.started.insert(key, (machine, Instant::now() + settle));
    }

    /// `time` is the longest time to end, plus the longest lag of the list.
    pub(super) fn told(&mut self, pool: &DeviceTypeName, machine: &MachineId, time: Duration) {
        // The time may be too far away to be expressed; then it does not matter.
        let until = Instant::now().checked_add(time);
        let until = until.unwrap_or_else(|| Instant::now() + Duration::from_secs(u32::MAX.into()));
        self.told.insert((pool.clone(), machine.clone()), until);
    }

    /// The program's list completed by what it does not show yet, sorted.
    pub(super) fn complete(
        &mut self,
        pool: &DeviceTypeName,
        mut listed: Vec<Machine>,
    ) -> Vec<Machine> {
        let now = Instant::now();
        self.started.retain(|key, (_, until)| {
            let shown = key.0 == *pool && listed.iter().any(|machine| machine.id == key.1);
            if !shown && *until <= now {
                let machine = &key.1.0;
                tracing::warn!(machine, pool = %key.0, "`up` named it, and no list has shown it");
            }
            !shown && *until > now
        });
        let unseen = self.started.iter().filter(|(key, _)| key.0 == *pool);
        listed.extend(unseen.map(|(_, (machine, _))| machine.clone()));
        self.told.retain(|key, until| {
            let there = key.0 != *pool || listed.iter().any(|machine| machine.id == key.1);
            there && *until > now
        });
        for machine in &mut listed {
            if self.told.contains_key(&(pool.clone(), machine.id.clone())) {
                machine.state = State::Ending;
            }
        }
        listed.sort_by(|one, other| one.id.cmp(&other.id));
        listed
    }
}
