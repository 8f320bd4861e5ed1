//! Processes that die or hang under load: every query sent is answered once or refused with a
//! reason.

use super::*;
use sextant_tests::Load;

#[tokio::test]
async fn a_worker_is_killed_under_load() {
    let mut fleet = fleet().await;
    let load = Load::start(fleet.api(), 8, None).await;
    load.answers(100).await;
    fleet.kill("worker-1");
    load.answers(200).await;
    fleet.launch("worker-1");
    loaded_on(&fleet.api(), &["worker-1"]).await;
    load.answers(100).await;
    let tally = load.stop().await;
    explained(&tally);
    assert!(tally.longest < LONGEST, "{tally:?}");
}

#[tokio::test]
async fn a_worker_hangs_and_its_late_answers_are_ignored() {
    let fleet = fleet().await;
    let load = Load::start(fleet.api(), 8, None).await;
    load.answers(100).await;
    fleet.freeze("worker-1");
    load.answers(200).await;
    fleet.thaw("worker-1");
    // What it finishes now was answered by the other long ago; each answer is compared.
    load.answers(200).await;
    loaded_on(&fleet.api(), &["worker-1"]).await;
    let tally = load.stop().await;
    explained(&tally);
    assert!(tally.longest < LONGEST, "{tally:?}");
}

#[tokio::test]
async fn the_leading_dispatcher_is_killed_and_another_takes_over() {
    let mut fleet = fleet().await;
    fleet.spawn("standby", "dispatcher", &[]);
    let load = Load::start(fleet.api(), 8, Some(2000.0)).await;
    load.answers(100).await;
    fleet.kill("dispatcher");
    load.answers(200).await;
    fleet.launch("dispatcher");
    load.answers(50).await;
    // And back again: the first one now stands by.
    fleet.kill("standby");
    load.answers(200).await;
    let tally = load.stop().await;
    explained(&tally);
    assert!(tally.longest < LONGEST, "{tally:?}");
}

#[tokio::test]
async fn the_leading_dispatcher_hangs_and_comes_back_as_one_among_others() {
    let mut fleet = fleet().await;
    fleet.spawn("standby", "dispatcher", &[]);
    let load = Load::start(fleet.api(), 8, None).await;
    load.answers(100).await;
    fleet.freeze("dispatcher");
    load.answers(200).await;
    fleet.thaw("dispatcher");
    load.answers(200).await;
    let tally = load.stop().await;
    explained(&tally);
    assert!(tally.longest < LONGEST, "{tally:?}");
}

#[tokio::test]
async fn a_front_end_is_killed_and_the_others_go_on() {
    let mut fleet = fleet().await;
    fleet.spawn("api-2", "api", &["fleet.inline_bytes=0"]);
    answers(&fleet.api_of("api-2")).await;
    let load = Load::start(fleet.api_of("api-2"), 8, None).await;
    load.answers(50).await;
    let other = fleet.api();
    let asking = tokio::spawn(async move {
        let query = json!({"application": "digits",
            "inputs": digits::Images::load("test").input(0)});
        other.post("/v1/queries", &query).await
    });
    fleet.kill("api");
    // Its connection broke, or it was answered in time.
    drop(asking.await);
    load.answers(200).await;
    let tally = load.stop().await;
    assert_eq!(tally.answered, tally.sent, "{tally:?}");
}
