//! Links break, leaders change, workers fall silent: every query has one answer or refusal.

use std::{sync::Arc, time::Duration};

use sextant_links::front::FrontOptions;
use sextant_types::Code;
use tokio::{task::JoinSet, time::sleep};

use super::fleet::{Fleet, worker};
use crate::{double::part, transport::next};

const QUERIES: usize = 400;

#[tokio::test(start_paused = true)]
async fn every_query_is_answered_once_or_refused() {
    // The inputs go to the worker; then they go with the query.
    let ways = [0, FrontOptions::default().inline_bytes];
    for (seed, inline_bytes) in (1..=8).zip(ways.into_iter().cycle()) {
        let (answered, refused) = storm(seed, inline_bytes).await;
        assert_eq!(answered + refused, QUERIES, "seed {seed}");
        assert!(
            answered > QUERIES / 2,
            "seed {seed}: {answered} answered, {refused} refused"
        );
    }
}

async fn storm(seed: u64, inline_bytes: u64) -> (usize, usize) {
    let mut random = seed;
    let options = FrontOptions {
        inline_bytes,
        ..FrontOptions::default()
    };
    let fleet = Fleet::start(&["w-1", "w-2", "w-3"], seed, options).await;
    let mut placers = vec![fleet.lead("d-1", seed).await];
    fleet.led().await;
    let mut queries = JoinSet::new();
    for number in 0..QUERIES {
        let latency_ms = (!next(&mut random).is_multiple_of(4)).then_some(3_000.0);
        let front = Arc::clone(&fleet.front);
        queries.spawn(async move {
            let value = number as f32 + 0.5;
            let query = super::fleet::query(part(value), latency_ms);
            (value, sextant_rpc::Dispatch::query(&*front, query).await)
        });
        sleep(Duration::from_micros(next(&mut random) % 8_000)).await;
        if number % 10 == 9 {
            mishap(&fleet, &mut placers, &mut random).await;
        }
    }
    for name in ["w-1", "w-2", "w-3"] {
        release(&fleet, name);
    }
    let (mut answered, mut refused) = (0, 0);
    while let Some(query) = queries.join_next().await {
        match query.expect("no panic") {
            (value, Ok(answer)) => {
                // No query has the answer of another one.
                let expected = &part(value)[0].tensor;
                assert_eq!(&answer.outputs[0].tensor, expected, "seed {seed}");
                answered += 1;
            }
            (_, Err(error)) => {
                let is_due = matches!(error.code, Code::Unavailable | Code::DeadlineExceeded);
                assert!(is_due, "seed {seed}: {error:?}");
                refused += 1;
            }
        }
    }
    assert_eq!(fleet.front.waiting(), 0, "seed {seed}");
    sleep(Duration::from_secs(5)).await;
    for name in ["w-1", "w-2", "w-3"] {
        let held = fleet.net.mailbox(&worker(name)).held_bytes();
        assert_eq!(held, 0, "seed {seed}: inputs stay in `{name}`");
    }
    (answered, refused)
}

async fn mishap(fleet: &Fleet, placers: &mut Vec<Arc<super::placer::Placer>>, random: &mut u64) {
    let name = format!("w-{}", 1 + next(random) % 3);
    let leading = format!("d-{}", placers.len());
    match next(random) % 5 {
        0 => fleet.net.cut(&name),
        1 => fleet.net.cut(&leading),
        2 => {
            let endpoint = format!("d-{}", placers.len() + 1);
            placers.push(fleet.lead(&endpoint, *random).await);
        }
        3 => *fleet.doubles[&worker(&name)].keep.lock().expect("sound") = true,
        _ => release(fleet, &name),
    }
}

/// A stopped worker continues where it was: its batches are late.
fn release(fleet: &Fleet, name: &str) {
    let double = &fleet.doubles[&worker(name)];
    *double.keep.lock().expect("sound") = false;
    let kept: Vec<_> = double.kept.lock().expect("sound").drain(..).collect();
    for batch in kept {
        sextant_rpc::Work::infer(&**double, batch);
    }
}
