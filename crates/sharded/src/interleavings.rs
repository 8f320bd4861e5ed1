//! Many interleavings of the threads, tried by a checker that runs one step at a time.
//!
//! The checker knows sequentially consistent executions only. Which orderings the atomics need
//! beyond that is argued where they are used.

use sextant_policies::schedule::{Delay, Eager, LatencyTable, NEVER, QueueSpec, Request};
use shuttle::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

use crate::{
    Candidate, DirtySet, LatestSlot, Message, Outcome, Parts, ShardThread, ShardedSettings, Waker,
    assemble, board::board, ring::ring,
};

/// Random interleavings, and ones with few preemptions, which find other faults.
fn explore(times: usize, test: impl Fn() + Send + Sync + Clone + 'static) {
    shuttle::check_random(test.clone(), times);
    shuttle::check_pct(test, times, 4);
}

#[test]
fn a_slot_never_shows_a_mixture_and_never_goes_back() {
    explore(400, || {
        let slot = Arc::new(LatestSlot::new([0, 0, 0]));
        let written = Arc::clone(&slot);
        let writer = thread::spawn(move || (1..6).for_each(|value| written.write([value; 3])));
        let mut last = 0;
        for _ in 0..6 {
            if let Some([first, second, third]) = slot.read() {
                assert!(first == second && second == third, "a mixture");
                assert!(first >= last, "an older value after a newer one");
                last = first;
            }
        }
        writer.join().expect("the writer");
        assert_eq!(slot.read(), Some([5; 3]), "the last value stays");
    });
}

#[test]
fn no_mark_is_lost() {
    explore(400, || {
        let dirty = Arc::new(DirtySet::new(5_000));
        let numbers = [[3, 70], [4, 4_999]];
        let markers = numbers.map(|numbers| {
            let dirty = Arc::clone(&dirty);
            thread::spawn(move || {
                for number in numbers.iter().cycle().take(4) {
                    dirty.mark(*number);
                }
            })
        });
        let mut seen = Vec::new();
        dirty.drain(|number| seen.push(number));
        dirty.drain(|number| seen.push(number));
        for marker in markers {
            marker.join().expect("a marker");
        }
        dirty.drain(|number| seen.push(number));
        assert!(numbers.iter().flatten().all(|number| seen.contains(number)));
        assert!(
            seen.iter()
                .all(|number| numbers.iter().flatten().any(|n| n == number))
        );
    });
}

#[test]
fn a_ring_keeps_every_message_in_order() {
    explore(400, || {
        let (mut sender, mut receiver) = ring::<2>(2);
        let writer = thread::spawn(move || {
            for value in 0..6 {
                while !sender.send([value, value]) {
                    thread::yield_now();
                }
            }
        });
        for value in 0..6 {
            let message = loop {
                match receiver.receive() {
                    Some(message) => break message,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(message, [value, value]);
        }
        assert!(receiver.is_empty());
        writer.join().expect("the writer");
    });
}

/// A reader that sleeps without a limit whenever it finds nothing: a wake-up that is lost is a
/// deadlock, and a value that is lost as well.
#[test]
fn the_latest_value_is_seen_in_the_end_even_by_a_reader_that_sleeps() {
    explore(400, || {
        let (mut writer, mut reader) = board(2);
        let waker = Arc::new(Waker::default());
        let wakes = Arc::clone(&waker);
        let publisher = thread::spawn(move || {
            for key in 1..5 {
                for model in 0..2 {
                    writer.publish(model, Candidate { ready_at: key, key });
                }
                wakes.wake();
            }
        });
        let mut last = [0, 0];
        while last != [4, 4] {
            reader.drain(|model, candidate| {
                assert_eq!(candidate.key, candidate.ready_at, "a mixture");
                assert!(candidate.key >= last[model as usize], "goes back");
                last[model as usize] = candidate.key;
            });
            if last != [4, 4] {
                waker.sleep(None, || !reader.is_empty());
            }
        }
        publisher.join().expect("the publisher");
    });
}

/// What all threads of one execution check together.
struct Watch {
    /// By slot: whether a batch runs on it.
    busy: Vec<AtomicBool>,
    /// By request: how often it was answered.
    answers: Vec<AtomicU64>,
    ran: AtomicU64,
    open: AtomicU64,
}

fn spec(max_rows: u32) -> QueueSpec {
    QueueSpec {
        max_rows,
        batched: true,
        slots: 1,
        latency: LatencyTable::new(vec![10, 12, 14]).expect("rises"),
        max_waiting_rows: 100,
        tenant: 0,
        priority: 0,
        weight: 1.0,
        price: 1.0,
    }
}

/// Hands its requests in one by one, runs its batches at once, and stops when all are answered.
fn drive(shard: u32, mut state: ShardThread<u64, Eager>, requests: Vec<(u32, u64)>, watch: &Watch) {
    let mut left = requests.len();
    let mut requests = requests.into_iter();
    while left > 0 {
        if let Some((model, payload)) = requests.next() {
            let request = Request {
                payload,
                rows: 1,
                deadline: NEVER,
            };
            state.on_message(0, Message::Request { model, request });
        }
        let mut outcomes = Vec::new();
        state.step(0, &mut |outcome| outcomes.push(outcome));
        for outcome in outcomes {
            let Outcome::Run(batch) = outcome else {
                panic!("shard {shard} gave up a request without a deadline");
            };
            let slot = &watch.busy[batch.ticket.slot as usize];
            assert!(!slot.swap(true, Ordering::SeqCst), "granted twice");
            thread::yield_now();
            for request in &batch.requests {
                let before = watch.answers[request.payload as usize].fetch_add(1, Ordering::SeqCst);
                assert_eq!(before, 0, "answered twice");
                left -= 1;
            }
            watch.ran.fetch_add(1, Ordering::SeqCst);
            slot.store(false, Ordering::SeqCst);
            let (model, ticket) = (batch.model, batch.ticket);
            state.on_message(0, Message::Done { model, ticket });
        }
        thread::yield_now();
    }
    // What the last batch left is told before the thread goes.
    while state.step(0, &mut |_| panic!("nothing is left")) {
        thread::yield_now();
    }
    watch.open.fetch_sub(1, Ordering::SeqCst);
}

fn no_slot_twice_no_request_lost(slots: u32) {
    let settings = ShardedSettings {
        delay: Delay::default(),
        slots,
        models: vec![vec![spec(2), spec(1)], vec![spec(2)]],
    };
    let Parts {
        shards, mut rank, ..
    } = assemble::<u64, _>(&Eager::strong(), &settings);
    let requests = [
        vec![(0, 0), (1, 1), (0, 2), (0, 3)],
        vec![(0, 4), (0, 5), (0, 6)],
    ];
    let watch = Arc::new(Watch {
        busy: (0..slots).map(|_| AtomicBool::new(false)).collect(),
        answers: (0..7).map(|_| AtomicU64::new(0)).collect(),
        ran: AtomicU64::new(0),
        open: AtomicU64::new(2),
    });
    let mut threads = Vec::new();
    for ((shard, state), requests) in (0..).zip(shards).zip(requests) {
        let watch = Arc::clone(&watch);
        threads.push(thread::spawn(move || drive(shard, state, requests, &watch)));
    }
    while watch.open.load(Ordering::SeqCst) > 0 {
        rank.step(0);
        thread::yield_now();
    }
    for thread in threads {
        thread.join().expect("a shard");
    }
    rank.step(0);
    let answered = |count: &AtomicU64| count.load(Ordering::SeqCst) == 1;
    assert!(watch.answers.iter().all(answered), "a request is lost");
    let idle = (0..slots).all(|slot| rank.placed(slot) == crate::Placed::Idle);
    assert!(idle, "every slot is free again");
}

#[test]
fn one_slot_is_never_granted_twice_and_no_request_is_lost() {
    explore(400, || no_slot_twice_no_request_lost(1));
}

#[test]
fn nor_are_two_slots() {
    explore(400, || no_slot_twice_no_request_lost(2));
}
