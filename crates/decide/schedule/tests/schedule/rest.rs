//! What waits when the load ends.

use std::collections::BTreeMap;

use sextant_baselines::{Options, Policy};
use sextant_schedule::{Action, Actions, BatchId, LatencyTable, Nanos, QueueSpec};

use crate::small::{Small, spec};
use sextant_types::index::QueueIx;

const MS: Nanos = 1_000_000;
const TARGET: Nanos = 5_000 * MS;

/// Clients of queues on one device, each of which asks again when it is answered.
struct Clients {
    small: Small,
    now: Nanos,
    sent: Vec<Nanos>,
    longest: Nanos,
    waiting: usize,
    /// When a batch ends: what it is, its queue and its requests.
    running: BTreeMap<(Nanos, BatchId), Vec<u64>>,
}

/// Nearly all of a batch's time is fixed.
fn slow_start(run: Nanos) -> QueueSpec {
    let nanos = (1..=8).map(|rows| run + rows * run / 100);
    QueueSpec {
        latency: LatencyTable::new(nanos.collect()).unwrap(),
        ..spec(8)
    }
}

// === impl Clients ===

impl Clients {
    fn new(slots: u16, queues: &[QueueSpec]) -> Self {
        let options = Options {
            hold: 0.0,
            ..Options::of(Policy::Sextant)
        };
        Self {
            small: Small::new(&options, slots, queues),
            now: 0,
            sent: vec![],
            longest: 0,
            waiting: 0,
            running: BTreeMap::new(),
        }
    }

    fn ask(&mut self, queue: QueueIx) {
        let payload = self.sent.len() as u64;
        self.sent.push(self.now);
        self.waiting += 1;
        let actions = self
            .small
            .request(self.now, queue.get(), payload, self.now + TARGET);
        self.take(actions);
    }

    fn take(&mut self, actions: Actions<u64>) {
        for action in actions {
            let Action::Infer {
                requests,
                id,
                expected,
                ..
            } = action
            else {
                panic!("dropped: {action:?}");
            };
            let payloads = requests.iter().map(|request| request.payload);
            self.running
                .insert((self.now + expected, id), payloads.collect());
        }
    }

    /// Goes on to the next event and tells how many were answered.
    fn step(&mut self) -> usize {
        let timer = self.small.scheduler.next_timer();
        let ends = self.running.keys().next().copied();
        match (timer, ends) {
            (Some(at), ends) if ends.is_none_or(|(end, _)| at < end) => {
                self.now = self.now.max(at);
                let actions = self.small.late_timer(self.now);
                self.take(actions);
                0
            }
            (_, Some((end, id))) => {
                self.now = end;
                let answered = self.running.remove(&(end, id)).unwrap_or_default();
                for payload in &answered {
                    self.longest = self.longest.max(end - self.sent[*payload as usize]);
                }
                self.waiting -= answered.len();
                let actions = self.small.result(end, id);
                self.take(actions);
                answered.len()
            }
            _ => panic!("what waits is never looked at"),
        }
    }

    /// Keeps `clients` asking until `end`.
    fn keep_asking(&mut self, clients: usize, queue: QueueIx, end: Nanos) {
        (0..clients).for_each(|_| self.ask(queue));
        while self.now < end {
            let answered = self.step();
            (0..answered).for_each(|_| self.ask(queue));
        }
    }

    fn drain(&mut self) {
        while self.waiting > 0 {
            self.step();
        }
    }
}

#[test]
fn clients_that_wait_for_answers_are_not_waited_for() {
    for (slots, clients) in [(1, 1), (1, 2), (2, 3), (2, 8), (4, 40)] {
        let mut of = Clients::new(slots, &[slow_start(MS)]);
        of.keep_asking(clients, QueueIx::new(0), 3_000 * MS);
        of.drain();
        assert!(of.longest < 10 * MS, "{slots} {clients}: {}", of.longest);
    }
}

#[test]
fn whether_to_wait_is_decided_again_while_devices_are_idle() {
    let mut of = Clients::new(1, &[slow_start(MS), slow_start(10 * MS)]);
    // The other queue has crowded the device, and its load has ended.
    of.keep_asking(2, QueueIx::new(0), 2_000 * MS);
    of.drain();
    of.longest = 0;
    of.ask(QueueIx::new(1));
    of.drain();
    assert!(of.longest < 2_000 * MS, "{}", of.longest);
}
