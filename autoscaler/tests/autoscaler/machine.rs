//! Plans and their reasons describe a worker as its whole machine: the engine and its surroundings.

use sextant_types::{BatchLatency, Surroundings};

use super::{
    scaling::{Shelf, ask, pool, run, serve, wants},
    world::*,
    *,
};

/// A model of which an engine answers 64 rows in 2.3 us: 27.8 million rows a second. It is one of the digits
/// application's.
fn mlp(name: &str) -> sextant_types::Variant {
    let mut mlp = variant(name);
    mlp.spec.max_batch = 64;
    mlp.profile.batches = [(1, 0.0009), (64, 0.0023)]
        .map(|(batch, ms)| BatchLatency {
            batch,
            p50_ms: ms,
            p99_ms: ms,
            mean_ms: ms,
            samples: 100,
        })
        .to_vec();
    mlp
}

/// The rate R in "of R that a worker could" of the newest reason that has it.
fn rate_of_a_worker(desired: &DesiredState) -> Option<f64> {
    let reasons = desired.decisions.iter().rev().map(|it| &it.reason);
    let said = reasons.filter_map(|reason| {
        let (before, _) = reason.split_once(" that a worker could")?;
        Some(before.rsplit_once(" of ")?.1.to_owned())
    });
    let said = said.take(1).next()?;
    let millions = said.strip_suffix(" million").map(|it| (it.to_owned(), 1e6));
    let (digits, times) = millions.unwrap_or((said, 1.0));
    Some(digits.parse::<f64>().unwrap() * times)
}

#[tokio::test]
async fn the_rate_of_a_small_model_is_that_of_the_machine() {
    let store = Arc::new(UnsteadyStore::new(256));
    let of = device_type("small", 0.5);
    publish(&store, mlp("m-a")).await;
    beat_of(&store, "w0", &of, false).await;
    serve(&store, "m-a", "w0").await;
    ask(&store, 2000, Default::default()).await;
    start(&store, None);
    let said = until(&store, "a reason", |it| rate_of_a_worker(it).is_some()).await;
    let rps = rate_of_a_worker(&said).unwrap();
    // Before anything was seen, a query and a row are assumed to need 105 us of the only core.
    assert!((9000.0..=9600.0).contains(&rps), "{rps} in {said:?}");
    let others = said.decisions.iter().flat_map(|it| &it.alternatives);
    for other in others {
        assert!(!other.why_not.contains("0.000000 USD"), "{other:?}");
    }
}

#[tokio::test]
async fn workers_are_planned_for_by_what_they_have_seen_of_their_surroundings() {
    let mut planned = Vec::new();
    for factor in [None, Some(0.25), Some(3.0)] {
        let store = Arc::new(UnsteadyStore::new(256));
        let (shelf, of) = (Arc::new(Shelf::default()), device_type("small", 0.5));
        publish(&store, mlp("m-a")).await;
        let surroundings = factor.map(|factor| Surroundings {
            factor,
            ..Surroundings::unseen(1)
        });
        beat_with(&store, "m0", &of, surroundings).await;
        serve(&store, "m-a", "m0").await;
        ask(&store, 20_000, Default::default()).await;
        run(&store, pool(&shelf, &of, 1, 40));
        let desired = until(&store, "a plan", |it| {
            wants(it, "small").is_some_and(|it| it > 0)
                && it.variants.iter().any(|it| it.needed > 0)
        });
        planned.push(wants(&*desired.await, "small").unwrap());
    }
    // By hand: 20,000 queries of 105 us need 2.1 cores, and the margin is 0.3 times the square root of that.
    assert_eq!(planned, [3, 1, 8], "{planned:?}");
}

#[tokio::test]
async fn a_reason_follows_the_load_as_long_as_it_stands() {
    let store = Arc::new(UnsteadyStore::new(256));
    let of = device_type("small", 0.5);
    publish(&store, mlp("m-a")).await;
    beat_of(&store, "w0", &of, false).await;
    serve(&store, "m-a", "w0").await;
    ask(&store, 8, Default::default()).await;
    start(&store, None);
    let says =
        |it: &DesiredState, text: &str| it.decisions.iter().any(|it| it.reason.contains(text));
    let first = until(&store, "a reason", |it| says(it, "rows a second")).await;
    let count = first.decisions.len();
    assert!(says(&first, ": 8.0 rows a second"), "{first:?}");
    ask(&store, 5000, Default::default()).await;
    let later = until(&store, "the load", |it| !says(it, ": 8.0 rows a second")).await;
    assert_eq!(later.decisions.len(), count, "{later:?}");
    let decision = later.decisions.last().unwrap();
    assert!(decision.inputs[0].planned_rps > 1000.0, "{decision:?}");
}
