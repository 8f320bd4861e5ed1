//! The three calls.

use std::time::Duration;

use sextant_types::{DeviceTypeName, WorkerId};
use uuid::Uuid;

use super::{
    Settings,
    answer::{self, DownRequest, List, UpRequest},
    call::call,
    memory::Memory,
    refused,
};
use crate::{Error, Machine, MachineId, Pool, State};

/// The program, and what its list does not show yet.
pub(super) struct Machines {
    settings: Settings,
    memory: Memory,
}

// === impl Machines ===

impl Machines {
    pub(super) fn new(settings: Settings) -> Self {
        let memory = Memory::default();
        Self { settings, memory }
    }

    pub(super) async fn list(&mut self, pool: &Pool) -> Result<Vec<Machine>, Error> {
        let pool = &pool.device_type;
        let answer = call(&self.settings, "list", pool, &List { pool }).await?;
        let listed = answer::machines("list", &answer, pool, State::Running)?;
        Ok(self.memory.complete(pool, listed))
    }

    pub(super) async fn grow(&mut self, pool: &Pool, count: u32) -> Result<(), Error> {
        let listed = self.list(pool).await?;
        let stay = listed.iter().filter(|it| it.state != State::Ending).count();
        let missing = (count as usize).saturating_sub(stay);
        if missing == 0 {
            return Ok(());
        }
        let pool = &pool.device_type;
        let workers = (0..missing)
            .map(|_| name(pool))
            .collect::<Result<Vec<_>, _>>()?;
        let workers = workers.as_slice();
        let answer = call(&self.settings, "up", pool, &UpRequest { pool, workers }).await?;
        let started = answer::machines("up", &answer, pool, State::Starting)?;
        check_started(&started, &listed, missing)?;
        if started.len() < missing {
            let started = started.len();
            tracing::warn!(%pool, missing, started, "`up` started fewer machines than it was asked for");
        }
        for machine in started {
            self.memory.started(pool, machine, self.settle_time());
        }
        Ok(())
    }

    pub(super) async fn end(&mut self, pool: &Pool, ids: &[MachineId]) -> Result<(), Error> {
        if ids.is_empty() {
            return Ok(());
        }
        let mut named = self.list(pool).await?;
        named.retain(|it| it.state != State::Ending && ids.contains(&it.id));
        if named.is_empty() {
            return Ok(());
        }
        let named: Vec<_> = named.into_iter().map(|machine| machine.id).collect();
        let down = DownRequest {
            pool: &pool.device_type,
            machines: &named,
            end_ms: pool.end_ms,
        };
        let answer = call(&self.settings, "down", &pool.device_type, &down).await?;
        answer::nothing("down", &answer)?;
        let time = Duration::from_millis(pool.end_ms).saturating_add(self.settle_time());
        for id in &named {
            self.memory.told(&pool.device_type, id, time);
        }
        Ok(())
    }

    fn settle_time(&self) -> Duration {
        Duration::from_millis(self.settings.settle_ms)
    }
}

/// Checks that the machines that `up` has started were not there before, and are not more than
/// requested.
fn check_started(started: &[Machine], before: &[Machine], asked: usize) -> Result<(), Error> {
    if started.len() > asked {
        let started = started.len();
        return Err(refused(format!(
            "`up` was asked for {asked} machines and answered {started}: start one for each of `workers`"
        )));
    }
    let known = |machine: &&Machine| before.iter().any(|old| old.id == machine.id);
    match started.iter().find(known) {
        Some(Machine { id, .. }) => Err(refused(format!(
            "`up` answered machine `{}`, which was there before: answer those that it has started",
            id.0
        ))),
        None => Ok(()),
    }
}

/// A unique name for a worker.
fn name(pool: &DeviceTypeName) -> Result<WorkerId, Error> {
    let (random, ..) = Uuid::new_v4().as_fields();
    WorkerId::new(format!("{pool}-{random:08x}")).map_err(|_| Error::Settings {
        pool: pool.clone(),
        reason: "its name is too long to begin the names of workers: shorten it".to_owned(),
    })
}
