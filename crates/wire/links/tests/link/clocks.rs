//! Windows and times are converted from clock to clock.

use std::time::{Duration, Instant};

use sextant_rpc::{Infer, Load, Part, Work};
use tokio::sync::oneshot;

use crate::{
    double::{id, part, variant},
    transport::{connect, next},
};

const MS: i64 = 1_000_000;

/// The allowed error of a time.
const ALLOWED: Duration = Duration::from_millis(1);

#[tokio::test(start_paused = true)]
async fn windows_are_kept_whatever_the_clocks_show() {
    for skew_ms in [0, 500, -500, 3_600_000, -3_600_000] {
        for seed in 1..=8 {
            check(skew_ms * MS, seed).await;
        }
    }
}

async fn check(skew_ns: i64, seed: u64) {
    let context = format!("skew {skew_ns} ns, seed {seed}");
    let world = connect(skew_ns, seed).await;
    let mut random = seed;
    for _ in 0..20 {
        let now = tokio::time::Instant::now().into_std();
        let after = Duration::from_micros(next(&mut random) % 100_000);
        let (earliest, latest) = (now + after, now + after + Duration::from_millis(5));
        let (done, outcome) = oneshot::channel();
        world.worker.infer(Infer {
            variant: id("m-a"),
            parts: vec![Part::Inputs(part(1.0))],
            earliest,
            latest: Some(latest),
            expected: Duration::from_micros(2_500),
            offline_rows: 0,
            done: Box::new(move |outcome| drop(done.send(outcome))),
        });
        let outcome = outcome.await.expect("an answer").expect("a result");
        let window = world.double.windows.lock().expect("sound").pop();
        let window = window.expect("the batch arrived");
        near(window.earliest, earliest, &context);
        near(window.latest.expect("a latest start"), latest, &context);
        assert_eq!(window.expected, Duration::from_micros(2_500));
        // The double states that it started at `earliest`, on its clock.
        near(outcome.timings.started, earliest, &context);
        tokio::time::sleep(Duration::from_millis(next(&mut random) % 200)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn loads_have_windows_too() {
    let world = connect(500 * MS, 3).await;
    let earliest = tokio::time::Instant::now().into_std() + Duration::from_millis(20);
    let load = Load {
        earliest,
        latest: None,
        ..Load::at_once(variant("m-a"))
    };
    world.worker.load(load).await.expect("loaded");
    let window = world.double.windows.lock().expect("sound").pop();
    let window = window.expect("the load arrived");
    near(window.earliest, earliest, "seed 3");
    assert_eq!(window.latest, None);
    assert_eq!(window.expected, Duration::from_millis(4));
}

fn near(given: Instant, wanted: Instant, context: &str) {
    let off = given
        .saturating_duration_since(wanted)
        .max(wanted.saturating_duration_since(given));
    assert!(off < ALLOWED, "{context}: {off:?} off");
}
