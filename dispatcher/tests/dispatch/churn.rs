//! A fleet under load whose workers come, go, drain and hand work back, by seeds.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use rand::{Rng, SeedableRng, seq::IndexedRandom};
use rand_chacha::ChaCha8Rng;
use sextant_dispatcher::Dispatcher;
use sextant_rpc::Dispatch;

use crate::{
    fleet::{Fleet, ask},
    severable::{HoldingFrontEnd, Post},
    world::{PATIENCE, SLOW, output, query, row, wait_until},
};

/// What is done to a fleet under load.
#[derive(Debug, Clone, Copy)]
enum Fault {
    Lose,
    Rejoin,
    Drain,
    GoOn,
    HandBack,
}

const FAULTS: [Fault; 5] = [
    Fault::Lose,
    Fault::Rejoin,
    Fault::Drain,
    Fault::GoOn,
    Fault::HandBack,
];

#[derive(Default)]
struct Count {
    sent: AtomicUsize,
    answered: AtomicUsize,
    refused: AtomicUsize,
    wrong: Mutex<Vec<String>>,
}

impl Count {
    fn ended(&self) -> usize {
        self.answered.load(Ordering::SeqCst) + self.refused.load(Ordering::SeqCst)
    }
}

/// Sends queries one after the other until told to stop. Every second one is held.
async fn client(
    dispatcher: Arc<Dispatcher>,
    post: Arc<Post>,
    (seed, number): (u64, u64),
    count: Arc<Count>,
    stop: Arc<AtomicBool>,
) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed ^ (number + 1));
    let mut at = 0;
    while !stop.load(Ordering::SeqCst) {
        at += 1;
        let value = [1.0, 2.0, 3.0, SLOW][rng.random_range(0..4)];
        count.sent.fetch_add(1, Ordering::SeqCst);
        let ended = async {
            if at % 2 == 0 {
                let answer = dispatcher.query(query(&[value, 0.0])).await?;
                return Ok(output(&answer));
            }
            let holding = HoldingFrontEnd::new(&post, row(&[value, 0.0]));
            let holder = Arc::clone(&holding) as _;
            dispatcher.place(ask(number << 32 | at), holder).await?;
            Ok(holding.outputs().unwrap_or_default())
        };
        let ended: Result<_, sextant_rpc::QueryError> = tokio::time::timeout(PATIENCE, ended)
            .await
            .expect("every query ends");
        match ended {
            Ok(output) if output == [2.0 * value, 0.0] => {
                count.answered.fetch_add(1, Ordering::SeqCst);
            }
            Ok(output) => count.wrong.lock().unwrap().push(format!("{output:?}")),
            Err(error) => {
                if !error.code.kind().is_retryable() {
                    let reason = format!("{}: {error}", error.code);
                    count.wrong.lock().unwrap().push(reason);
                }
                count.refused.fetch_add(1, Ordering::SeqCst);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_query_ends_once_whatever_becomes_of_the_workers() {
    for seed in [1, 2, 3] {
        let mut fleet = Fleet::new(4).await;
        let (count, stop) = (Arc::<Count>::default(), Arc::<AtomicBool>::default());
        let clients: Vec<_> = (0..8)
            .map(|number| {
                let dispatcher = Arc::clone(&fleet.world.dispatcher);
                let (post, count, stop) = (
                    Arc::clone(&fleet.post),
                    Arc::clone(&count),
                    Arc::clone(&stop),
                );
                tokio::spawn(client(dispatcher, post, (seed, number), count, stop))
            })
            .collect();
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut faults = Vec::new();
        for _ in 0..40 {
            let seen = count.ended();
            wait_until(|| count.ended() > seen + 4).await;
            // The last worker gets no fault, so that something is always answered.
            let (fault, at) = (*FAULTS.choose(&mut rng).unwrap(), rng.random_range(0..3));
            faults.push((fault, at));
            match fault {
                Fault::Lose => fleet.lose(at),
                Fault::Rejoin => fleet.rejoin(at),
                Fault::Drain => fleet.set_draining(at, true).await,
                Fault::GoOn => fleet.set_draining(at, false).await,
                Fault::HandBack => fleet.links[at].refuse(),
            }
        }
        stop.store(true, Ordering::SeqCst);
        for client in clients {
            client.await.unwrap();
        }
        let wrong = count.wrong.lock().unwrap().clone();
        assert!(wrong.is_empty(), "seed {seed}: {wrong:?} after {faults:?}");
        let (sent, ended) = (count.sent.load(Ordering::SeqCst), count.ended());
        assert_eq!(sent, ended, "seed {seed}");
        let refused = count.refused.load(Ordering::SeqCst);
        assert!(
            refused * 10 <= sent,
            "seed {seed}: {refused} of {sent} refused"
        );
    }
}
