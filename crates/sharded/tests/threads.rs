//! The scheduler on real threads, with workers that answer from a thread of their own.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    time::Duration,
};

use sextant_policies::schedule::{
    Delay, DropReason, Eager, LatencyTable, NEVER, QueueSpec, Request,
};
use sextant_sharded::{
    Clock, Control, Outcome, Place, Sharded, ShardedSettings, SystemClock, Ticket,
};

const REQUESTS: u64 = 6_000;
const SHARDS: u32 = 2;
const MODELS: u32 = 40;

fn settings(slots: u32) -> ShardedSettings {
    let spec = QueueSpec {
        max_rows: 8,
        batched: true,
        slots: 1,
        latency: LatencyTable::linear(0.001, 0.01, 8).expect("a valid line"),
        max_waiting_rows: u32::MAX,
        tenant: 0,
        priority: 0,
        weight: 1.0,
        price: 1.0,
    };
    ShardedSettings {
        delay: Delay::default(),
        slots,
        models: vec![vec![spec; MODELS as usize]; SHARDS as usize],
    }
}

fn place(number: u64) -> Place {
    Place {
        shard: (number % u64::from(SHARDS)) as u32,
        model: (number / 7 % u64::from(MODELS)) as u32,
    }
}

fn request(payload: u64, deadline: u64) -> Request<u64> {
    Request {
        payload,
        rows: 1,
        deadline,
    }
}

/// Takes the next message, within a time that only a scheduler that has stopped needs.
fn next<T>(messages: &mpsc::Receiver<T>) -> T {
    let most = Duration::from_secs(60);
    messages
        .recv_timeout(most)
        .expect("something within a minute")
}

#[test]
fn every_request_is_answered_once_and_no_slot_is_used_twice() {
    let settings = settings(3);
    let clock = Arc::new(SystemClock::default());
    let (send, batches) = mpsc::channel::<(Place, Ticket, Vec<u64>)>();
    let busy: Arc<Vec<AtomicBool>> = Arc::new((0..3).map(|_| AtomicBool::new(false)).collect());
    let sharded = Sharded::start(&Eager::strong(), &settings, &clock, |shard| {
        let (send, busy) = (send.clone(), Arc::clone(&busy));
        move |outcome: Outcome<u64>| {
            let Outcome::Run(batch) = outcome else {
                panic!("nothing is dropped without a deadline");
            };
            let slot = &busy[batch.ticket.slot as usize];
            assert!(
                !slot.swap(true, Ordering::SeqCst),
                "a slot runs two batches"
            );
            let place = Place {
                shard,
                model: batch.model,
            };
            let payloads = batch
                .requests
                .iter()
                .map(|request| request.payload)
                .collect();
            send.send((place, batch.ticket, payloads))
                .expect("the test listens");
        }
    });
    for number in 0..REQUESTS {
        let handed = sharded.request(place(number), request(number, NEVER));
        handed.expect("the shards run");
    }
    let mut answered = vec![false; REQUESTS as usize];
    let mut left = REQUESTS;
    while left > 0 {
        let (at, ticket, payloads) = next(&batches);
        for payload in payloads {
            assert_eq!(at, place(payload), "of another model");
            assert!(
                !std::mem::replace(&mut answered[payload as usize], true),
                "twice"
            );
            left -= 1;
        }
        busy[ticket.slot as usize].store(false, Ordering::SeqCst);
        sharded.done(at, ticket);
    }
    sharded.stop();
    assert!(batches.try_recv().is_err(), "a batch of nothing");
}

#[test]
fn what_waits_when_it_stops_is_handed_back() {
    let clock = Arc::new(SystemClock::default());
    let (send, dropped) = mpsc::channel();
    let sharded = Sharded::start(&Eager::strong(), &settings(0), &clock, |_| {
        let send = send.clone();
        move |outcome: Outcome<u64>| {
            let Outcome::Drop {
                request, reason, ..
            } = outcome
            else {
                panic!("there is no device");
            };
            send.send((request.payload, reason))
                .expect("the test listens");
        }
    });
    for number in 0..100 {
        let handed = sharded.request(place(number), request(number, NEVER));
        handed.expect("the shards run");
    }
    let nowhere = Place { shard: 9, model: 0 };
    assert_eq!(
        sharded.request(nowhere, request(7, NEVER)),
        Err(request(7, NEVER))
    );
    sharded.stop();
    let mut back: Vec<_> = dropped.try_iter().collect();
    back.sort_unstable();
    let expected = (0..100).map(|number| (number, DropReason::Gone));
    assert!(back.into_iter().eq(expected));
}

/// A clock that the test sets.
#[derive(Debug, Default)]
struct SetClock(AtomicU64);

impl Clock for SetClock {
    fn now(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

#[test]
fn timers_follow_the_clock_that_is_given() {
    let clock = Arc::new(SetClock::default());
    let (send, outcomes) = mpsc::channel();
    let sharded = Sharded::start(&Eager::strong(), &settings(1), &clock, |_| {
        let send = send.clone();
        move |outcome: Outcome<u64>| send.send(outcome).expect("the test listens")
    });
    let at = Place { shard: 0, model: 0 };
    let hand = |payload, deadline| {
        let handed = sharded.request(at, request(payload, deadline));
        handed.expect("the shards run");
    };
    let drops = |payload, why| match next(&outcomes) {
        Outcome::Drop {
            request, reason, ..
        } => assert_eq!((request.payload, reason), (payload, why)),
        Outcome::Run(batch) => panic!("{batch:?} instead of a drop"),
    };
    let runs = |payload| match next(&outcomes) {
        Outcome::Run(batch) => {
            assert_eq!(batch.requests[0].payload, payload);
            batch
        }
        Outcome::Drop {
            request, reason, ..
        } => panic!("{request:?} dropped: {reason:?}"),
    };
    hand(1, NEVER);
    let first = runs(1);
    // The only slot is busy. One row takes 11 us, so the third is refused at once, which tells that
    // the second has been taken in.
    hand(2, 1_000_000);
    hand(3, 1_000);
    drops(3, DropReason::Infeasible);
    clock.0.store(2_000_000, Ordering::SeqCst);
    drops(2, DropReason::Expired);
    hand(4, 3_000_000);
    sharded.done(at, first.ticket);
    let second = runs(4);
    assert_eq!(second.earliest, 2_000_000);
    assert_eq!(second.latest, 3_000_000 - second.expected);
    // A slot that comes back is idle, whatever ran on it.
    hand(5, NEVER);
    sharded.control(Control::Down(0));
    sharded.control(Control::Up(0));
    let third = runs(5);
    assert!(third.ticket > second.ticket, "a grant of its own");
    sharded.stop();
}

#[test]
fn an_idle_scheduler_stops_when_it_is_dropped() {
    let clock = Arc::new(SystemClock::default());
    let sharded = Sharded::start(&Eager::strong(), &settings(1), &clock, |_| {
        |_: Outcome<u64>| panic!("nothing was handed in")
    });
    drop(sharded);
}
