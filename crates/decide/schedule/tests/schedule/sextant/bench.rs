//! One queue with the rule, beside devices that are as busy as a test says.

use sextant_schedule::{
    BatchId, Delay, DeviceSpec, DropReason, Fleet, LatencyTable, Nanos, NextBatch, Options, PoolIx,
    QueueSpec, Request, Sextant, Surroundings,
};

use super::lone::LoneQueue;
use crate::small;
use sextant_types::index::{DeviceIx, QueueIx};

pub const MS: Nanos = 1_000_000;

/// Time to answer of requests, where nothing else is said.
pub const SLACK: Nanos = 24 * MS;

/// A batch of n rows takes `alpha` n + `beta` ms, at most 16.
pub fn spec(alpha: f64, beta: f64) -> QueueSpec {
    QueueSpec {
        latency: LatencyTable::linear(alpha, beta, 16).unwrap(),
        max_waiting_rows: 10_000,
        ..small::spec(16)
    }
}

pub struct Bench {
    rule: Sextant,
    pub queue: LoneQueue<u64, Sextant>,
    pub fleet: Fleet,
    pub delay: Delay,
    running: Vec<BatchId>,
    pub dropped: Vec<(u64, DropReason)>,
}

// === impl Bench ===

impl Bench {
    /// Of `slots` slots `busy` run batches of 12 ms.
    pub fn new(spec: QueueSpec, hold: f64, (slots, busy): (u16, u16)) -> Self {
        let options = Options {
            hold,
            ..Options::default()
        };
        let mut bench = Self {
            rule: Sextant::new(&options),
            queue: LoneQueue::new(spec),
            fleet: Fleet::default(),
            delay: Delay::default(),
            running: vec![],
            dropped: vec![],
        };
        bench.fleet.up(
            DeviceIx::new(0),
            DeviceSpec {
                pool: PoolIx::new(0),
                slots,
            },
        );
        bench.occupy(busy, 12 * MS);
        bench
    }

    /// With a queue of which a request has come each `gap` until `until`, each of which left at once.
    pub fn fed(mut self, gap: Nanos, until: Nanos) -> Self {
        for at in (0..=until / gap).map(|it| it * gap) {
            self.ask(at, SLACK);
            let formed = self.form(at).expect("it can be met");
            self.queue.take(&formed, self.delay);
        }
        self
    }

    /// With no idle slot during half of the time.
    pub fn crowded(mut self) -> Self {
        let idle = self.fleet.pool_mut(PoolIx::new(0)).idle() as u16;
        self.occupy(idle, 12 * MS);
        // Forgetting over a second, a second counts half.
        self.fleet.pool_mut(PoolIx::new(0)).observe(1000 * MS);
        for id in self
            .running
            .split_off(self.running.len() - usize::from(idle))
        {
            self.fleet.release(1000 * MS, id);
        }
        self
    }

    pub fn occupy(&mut self, slots: u16, run: Nanos) {
        for _ in 0..slots {
            let place = self
                .fleet
                .pool_mut(PoolIx::new(0))
                .find(1)
                .expect("a slot is free");
            let id = self
                .fleet
                .occupy(PoolIx::new(0), place, QueueIx::new(0), 1, (0, run));
            self.running.push(id);
        }
    }

    /// A request of one row to be answered within `slack`.
    pub fn ask(&mut self, now: Nanos, slack: Nanos) {
        self.rows(now, 1, slack);
    }

    pub fn rows(&mut self, now: Nanos, rows: u32, slack: Nanos) {
        let request = Request {
            payload: self.queue.len() as u64,
            rows,
            deadline: now.saturating_add(slack),
        };
        self.queue.push(now, self.delay, request).unwrap();
    }

    pub fn form(&mut self, now: Nanos) -> Option<NextBatch> {
        let around = Surroundings {
            now,
            cause: sextant_schedule::Cause::Queue,
            free_at: 0,
            pool: self.fleet.pool(PoolIx::new(0)).unwrap(),
            delay: self.delay,
        };
        let dropped = &mut self.dropped;
        let form = |(request, reason): (Request<u64>, DropReason)| {
            dropped.push((request.payload, reason));
        };
        self.queue.form(&mut self.rule, &around, form)
    }

    pub fn eagerness(&self) -> sextant_schedule::Eagerness {
        sextant_schedule::Rule::eagerness(&self.rule, self.fleet.pool(PoolIx::new(0)).unwrap())
    }
}
