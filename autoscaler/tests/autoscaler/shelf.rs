//! A provider of machines that are but names.

use std::sync::{
    Mutex,
    atomic::{AtomicBool, AtomicU64},
};

use async_trait::async_trait;
use sextant_provider::{Error, Machine, MachineId, Provider, State};
use sextant_types::time::unix_ms;

use super::{scaling::until_true, *};

/// Machines that are there as soon as they are ordered; their workers announce themselves where a test
/// says so.
#[derive(Default)]
pub(super) struct Shelf {
    machines: Mutex<Vec<Machine>>,
    next: AtomicU64,
    ended: Mutex<Vec<String>>,
    fails: AtomicBool,
    /// The clock is ahead by so much, ms.
    ahead_ms: AtomicU64,
    lists: AtomicU64,
    /// Machines that are made do not start by themselves.
    stalls: AtomicBool,
    /// Machines that are told to end do not.
    keeps: AtomicBool,
    /// Nothing can be told to end.
    jams: AtomicBool,
    /// Nobody says which workers machines run.
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

    /// Lets time pass.
    pub(super) fn pass(&self, ms: u64) {
        self.ahead_ms.fetch_add(ms, Ordering::Relaxed);
    }

    /// Waits until it has been listed again, by a look that began after this.
    pub(super) async fn looked_at(&self) {
        let from = self.lists.load(Ordering::Relaxed);
        let listed = || self.lists.load(Ordering::Relaxed) > from + 2;
        until_true("looked at", listed).await;
    }

    /// Machines are made from now on, and started by the next call alone.
    pub(super) fn stall(&self) {
        self.stalls.store(true, Ordering::Relaxed);
    }

    /// Machines do not end from now on.
    pub(super) fn keep(&self) {
        self.keeps.store(true, Ordering::Relaxed);
    }

    /// Orders to end are refused from now on.
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
