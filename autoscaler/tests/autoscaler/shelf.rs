//! A provider whose machines are only names.

use std::sync::{
    Mutex,
    atomic::{AtomicBool, AtomicU64},
};

use async_trait::async_trait;
use sextant_provider::{Error, Machine, MachineId, Provider, State};
use sextant_types::time::unix_ms;

use super::{scaling::until_true, *};

/// Machines that exist as soon as they are ordered. A test announces their workers itself.
#[derive(Default)]
pub(super) struct Shelf {
    machines: Mutex<Vec<Machine>>,
    next: AtomicU64,
    ended: Mutex<Vec<String>>,
    fails: AtomicBool,
    /// How far the clock is ahead, ms.
    ahead_ms: AtomicU64,
    lists: AtomicU64,
    /// New machines do not start by themselves.
    stalls: AtomicBool,
    /// Machines that are told to end do not end.
    keeps: AtomicBool,
    /// Orders to end are refused.
    jams: AtomicBool,
    /// The provider does not say which workers its machines run.
    hides: AtomicBool,
}

impl Shelf {
    fn check(&self) -> Result<(), Error> {
        match self.fails.load(Ordering::Relaxed) {
            true => Err(Error::Away {
                provider: "shelf",
                reason: "the door is locked".to_owned(),
            }),
            false => Ok(()),
        }
    }

    pub(super) fn fail(&self, fails: bool) {
        self.fails.store(fails, Ordering::Relaxed);
    }

    pub(super) fn count(&self) -> usize {
        self.machines.lock().unwrap().len()
    }

    pub(super) fn now_ms(&self) -> u64 {
        unix_ms() + self.ahead_ms.load(Ordering::Relaxed)
    }

    /// Moves the clock forward.
    pub(super) fn pass(&self, ms: u64) {
        self.ahead_ms.fetch_add(ms, Ordering::Relaxed);
    }

    /// Waits until the machines were listed again, by a look that began after this call.
    pub(super) async fn looked_at(&self) {
        let from = self.lists.load(Ordering::Relaxed);
        let listed = || self.lists.load(Ordering::Relaxed) > from + 2;
        until_true("looked at", listed).await;
    }

    /// From now on new machines are made, and only the next call starts them.
    pub(super) fn stall(&self) {
        self.stalls.store(true, Ordering::Relaxed);
    }

    /// From now on machines do not end.
    pub(super) fn keep(&self) {
        self.keeps.store(true, Ordering::Relaxed);
    }

    /// From now on orders to end are refused.
    pub(super) fn jam(&self) {
        self.jams.store(true, Ordering::Relaxed);
    }

    /// The workers of machines that are made from now on are not known.
    pub(super) fn hide(&self) {
        self.hides.store(true, Ordering::Relaxed);
    }

    pub(super) fn running(&self) -> usize {
        let machines = self.machines.lock().unwrap();
        let running = machines.iter().filter(|it| it.state == State::Running);
        running.count()
    }

    pub(super) fn ended(&self) -> Vec<String> {
        self.ended.lock().unwrap().clone()
    }
}

#[async_trait]
impl Provider for Shelf {
    fn name(&self) -> &'static str {
        "shelf"
    }

    async fn list(&self, _: &sextant_provider::Pool) -> Result<Vec<Machine>, Error> {
        self.check()?;
        self.lists.fetch_add(1, Ordering::Relaxed);
        Ok(self.machines.lock().unwrap().clone())
    }

    async fn grow(&self, _: &sextant_provider::Pool, count: u32) -> Result<(), Error> {
        self.check()?;
        let mut machines = self.machines.lock().unwrap();
        for machine in machines.iter_mut() {
            machine.state = State::Running;
        }
        while machines.len() < count as usize {
            let id = format!("m{}", self.next.fetch_add(1, Ordering::Relaxed));
            machines.push(Machine {
                worker: match self.hides.load(Ordering::Relaxed) {
                    true => None,
                    false => WorkerId::new(&id).ok(),
                },
                id: MachineId(id),
                state: match self.stalls.load(Ordering::Relaxed) {
                    true => State::Starting,
                    false => State::Running,
                },
                since_ms: self.now_ms(),
            });
        }
        Ok(())
    }

    async fn end(&self, _: &sextant_provider::Pool, machines: &[MachineId]) -> Result<(), Error> {
        self.check()?;
        if self.jams.load(Ordering::Relaxed) {
            return Err(Error::Refused {
                provider: "shelf",
                reason: "it is stuck".to_owned(),
            });
        }
        let keeps = self.keeps.load(Ordering::Relaxed);
        self.machines
            .lock()
            .unwrap()
            .retain(|machine| keeps || !machines.contains(&machine.id));
        let ids = machines.iter().map(|id| id.0.clone());
        self.ended.lock().unwrap().extend(ids);
        Ok(())
    }
}
