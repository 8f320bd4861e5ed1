//! Answers that a front end caches, of queries whose inputs stay with it.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures::future::{join_all, poll_immediate};
use sextant_links::front::FrontOptions;
use sextant_metadata::MetadataStore;
use sextant_rpc::Answer;
use sextant_types::{Digest, Resources, Variant};
use tokio::time::sleep;

use super::{
    fleet::{Fleet, worker},
    placer::Placer,
};
use crate::double::variant;

/// A fleet whose application caches answers, and whose inputs stay with the front end.
async fn keeping() -> Fleet {
    let options = FrontOptions {
        inline_bytes: 0,
        ..FrontOptions::default()
    };
    let fleet = Fleet::start(&["w-1"], 1, options).await;
    publish(&fleet, "m-a", 7).await;
    fleet
}

/// Publishes a variant with another file, and waits until the front end has seen it.
async fn publish(fleet: &Fleet, name: &str, file: u8) -> Arc<Variant> {
    let published = Arc::new(Variant {
        artefact: Digest::from_bytes([file; 32]),
        resources: Resources {
            cache_bytes: 1 << 20,
            ..Resources::default()
        },
        ..Variant::clone(&variant(name))
    });
    let stored = fleet.store.publish_variant(Arc::clone(&published)).await;
    stored.expect("stored");
    sleep(Duration::from_millis(50)).await;
    published
}

async fn ask(fleet: &Fleet, value: f32) -> Answer {
    fleet.ask(value, Some(500.0)).await.expect("an answer")
}

fn is_kept(answer: &Answer) -> bool {
    answer.timings.batch_rows == 0 && answer.timings.compute_us == 0.0 && answer.cost_usd == 0.0
}

#[tokio::test(start_paused = true)]
async fn the_same_inputs_are_answered_without_a_worker() {
    let fleet = keeping().await;
    let placer = fleet.lead("d-1", 1).await;
    fleet.led().await;
    let ran = || {
        let double = &fleet.doubles[&worker("w-1")];
        double.windows.lock().expect("sound").len()
    };
    // The first answer is cached; two more queries run all the same, to be compared.
    let first = ask(&fleet, 3.0).await;
    for _ in 0..2 {
        assert!(!is_kept(&ask(&fleet, 3.0).await));
    }
    let before = ran();
    let kept = ask(&fleet, 3.0).await;
    assert!(is_kept(&kept), "{kept:?}");
    assert!(kept.targets_met);
    assert_eq!(
        (&kept.outputs, &kept.variant, kept.rows),
        (&first.outputs, &first.variant, 1)
    );
    assert_eq!(ran(), before, "no device ran");
    let offered: Vec<usize> = {
        let asked = placer.asked.lock().expect("sound");
        asked.iter().map(|ask| ask.kept.len()).collect()
    };
    assert_eq!(offered, [0, 0, 0, 1]);
    // Other inputs have other answers.
    assert!(!is_kept(&ask(&fleet, 4.0).await));
}

/// A fleet with a leader, whose variant is known to repeat its answers.
async fn tried() -> (Fleet, Arc<Placer>) {
    let fleet = keeping().await;
    let placer = fleet.lead("d-1", 1).await;
    fleet.led().await;
    for _ in 0..3 {
        ask(&fleet, 3.0).await;
    }
    (fleet, placer)
}

fn asked(placer: &Placer) -> usize {
    placer.asked.lock().expect("sound").len()
}

#[tokio::test(start_paused = true)]
async fn of_equal_queries_at_once_one_runs() {
    let (fleet, placer) = tried().await;
    let before = asked(&placer);
    let answers = join_all((0..100).map(|_| ask(&fleet, 4.0))).await;
    let ran: Vec<&Answer> = answers.iter().filter(|it| !is_kept(it)).collect();
    assert_eq!(ran.len(), 1, "one has run");
    assert!(answers.iter().all(|it| it.outputs == ran[0].outputs));
    // Each of them has asked the dispatcher, which chooses.
    assert_eq!(asked(&placer), before + 100);
    let offered: Vec<usize> = {
        let asked = placer.asked.lock().expect("sound");
        asked[before..].iter().map(|ask| ask.kept.len()).collect()
    };
    assert_eq!(offered.iter().sum::<usize>(), 99, "{offered:?}");
}

#[tokio::test(start_paused = true)]
async fn the_next_one_runs_where_the_first_goes_away() {
    let (fleet, _placer) = tried().await;
    let mut first = Box::pin(ask(&fleet, 4.0));
    assert!(poll_immediate(&mut first).await.is_none());
    let mut others: Vec<_> = (0..10).map(|_| Box::pin(ask(&fleet, 4.0))).collect();
    for other in &mut others {
        assert!(poll_immediate(other).await.is_none());
    }
    drop(first);
    let answers = join_all(others).await;
    let ran = answers.iter().filter(|it| !is_kept(it)).count();
    assert_eq!(ran, 1, "one has run in its place");
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_a_query_with_other_targets() {
    let (fleet, placer) = tried().await;
    placer.stuck.store(true, Ordering::Relaxed);
    let before = asked(&placer);
    let mut first = Box::pin(ask(&fleet, 4.0));
    assert!(poll_immediate(&mut first).await.is_none());
    let mut hurried = Box::pin(fleet.ask(4.0, Some(50.0)));
    assert!(poll_immediate(&mut hurried).await.is_none());
    sleep(Duration::from_millis(10)).await;
    assert_eq!(asked(&placer), before + 2);
}

#[tokio::test(start_paused = true)]
async fn a_variant_that_was_replaced_is_not_answered_for() {
    let fleet = keeping().await;
    let placer = fleet.lead("d-1", 1).await;
    fleet.led().await;
    for _ in 0..3 {
        ask(&fleet, 3.0).await;
    }
    assert!(is_kept(&ask(&fleet, 3.0).await));
    publish(&fleet, "m-a", 8).await;
    // The dispatcher has not seen the new file yet: its answer for the old file is not cached for the new one.
    for _ in 0..4 {
        assert!(!is_kept(&ask(&fleet, 3.0).await));
    }
    let asked = placer.asked.lock().expect("sound");
    assert!(asked[4..].iter().all(|ask| ask.kept.is_empty()));
}

#[tokio::test(start_paused = true)]
async fn a_variant_is_compared_when_it_is_chosen() {
    let (fleet, placer) = tried().await;
    let other = publish(&fleet, "m-b", 9).await;
    let choose = |variant: &Arc<Variant>| {
        let mut chosen = placer.chosen.lock().expect("sound");
        std::mem::replace(&mut *chosen, Arc::clone(variant))
    };
    let first = choose(&other);
    assert_eq!(ask(&fleet, 3.0).await.variant, other.id);
    // Its answer is cached, and another variant is chosen.
    choose(&first);
    for _ in 0..4 {
        assert!(is_kept(&ask(&fleet, 3.0).await));
    }
    choose(&other);
    for _ in 0..2 {
        assert!(!is_kept(&ask(&fleet, 3.0).await));
    }
    let kept = ask(&fleet, 3.0).await;
    assert!(is_kept(&kept) && kept.variant == other.id, "{kept:?}");
}
