//! Relieves workers that something else slows down: their threads move to other cores, or variants move to other
//! workers ([`sextant_health::interference`]).

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use parking_lot::Mutex;
use sextant_health::interference::{Mitigation, Order, Place};

use crate::driver::Driver;
use sextant_types::index::DeviceIx;

/// The workers' answers: the position, the life in which the worker was asked, and whether it now keeps to other cores.
type Answers = Arc<Mutex<Vec<(DeviceIx, u64, bool)>>>;

/// Remembers what was done for each worker.
pub(crate) struct Reliever {
    relief: Mitigation,
    began: Instant,
    /// By position: the life in which the worker was last seen.
    incarnations: BTreeMap<DeviceIx, u64>,
    answers: Answers,
}

impl Reliever {
    pub(crate) fn new() -> Self {
        Self {
            relief: Mitigation::default(),
            began: Instant::now(),
            incarnations: BTreeMap::new(),
            answers: Answers::default(),
        }
    }

    /// Carries out what is due now. `places` are the workers that may be used, by position. `incarnations` are their
    /// current incarnations. Must be called within a runtime.
    pub(crate) fn look(
        &mut self,
        driver: &Arc<Driver>,
        places: &[Place],
        incarnations: BTreeMap<DeviceIx, u64>,
    ) {
        for (at, before) in &self.incarnations {
            if incarnations.get(at) != Some(before) {
                self.relief.forget(*at);
            }
        }
        self.incarnations = incarnations;
        let answers = std::mem::take(&mut *self.answers.lock());
        for (at, life, found) in answers {
            if self.incarnations.get(&at) == Some(&life) {
                self.relief.on_repinned(at, found);
            }
        }
        let now_ms = self.began.elapsed().as_millis() as u64;
        for order in self.relief.look(now_ms, places) {
            match order {
                Order::Repin { worker } => self.repin(driver, worker),
                Order::Move { variant, from, to } => driver.relocate(variant, from, &to),
                Order::Leave {
                    variant,
                    from,
                    stay,
                } => driver.withdraw(variant, from, &stay),
            }
        }
    }

    fn repin(&self, driver: &Arc<Driver>, at: DeviceIx) {
        let Some(life) = self.incarnations.get(&at).copied() else {
            return;
        };
        let Some(client) = driver.workers().client_in(at, life) else {
            return;
        };
        driver.sent().repins.inc();
        let answers = Arc::clone(&self.answers);
        tokio::spawn(async move {
            let found = client.repin().await;
            match &found {
                Ok(cores) => {
                    tracing::info!(%at, ?cores, "an interfered worker keeps to other cores");
                }
                Err(error) => tracing::info!(%at, %error, "an interfered worker keeps its cores"),
            }
            answers.lock().push((at, life, found.is_ok()));
        });
    }
}
