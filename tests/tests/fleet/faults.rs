//! Processes that die or hang under load: every query is answered once or refused with a reason.

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
    // The other dispatcher has long answered what this one finishes now; each answer is compared.
    load.answers(200).await;
    loaded_on(&fleet.api(), &["worker-1"]).await;
    let tally = load.stop().await;
    explained(&tally);
    assert!(tally.longest < LONGEST, "{tally:?}");
}

/// The serving dispatcher has just recovered from a loss of its own.
#[tokio::test]
async fn a_worker_halts_beside_one_that_has_come_back_and_costs_no_answer() {
    let mut fleet = fleet().await;
    let load = Load::start(fleet.api(), 8, None).await;
    load.answers(100).await;
    fleet.kill("worker-1");
    load.answers(100).await;
    fleet.launch("worker-1");
    loaded_on(&fleet.api(), &["worker-1"]).await;
    let killed = load.stop().await;
    explained(&killed);
    let load = Load::start(fleet.api(), 8, None).await;
    load.answers(100).await;
    fleet.freeze("worker-2");
    load.answers(200).await;
    fleet.thaw("worker-2");
    load.answers(100).await;
    let tally = load.stop().await;
    assert_eq!(tally.answered, tally.sent, "{tally:?}");
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
    // The first dispatcher, which now stands by, takes over again.
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
    // The query's connection broke, or the query was answered in time.
    drop(asking.await);
    load.answers(200).await;
    let tally = load.stop().await;
    assert_eq!(tally.answered, tally.sent, "{tally:?}");
}

/// The application exists all the time: a client that cannot be answered meanwhile is told to try again.
#[tokio::test]
async fn the_only_dispatcher_restarts_under_load_and_forgets_nothing_that_exists() {
    let mut fleet = fleet().await;
    let load = Load::start(fleet.api(), 8, None).await;
    for asked_to_end in [false, true, false, true] {
        load.answers(50).await;
        match asked_to_end {
            true => fleet.stop("dispatcher"),
            false => fleet.kill("dispatcher"),
        }
        fleet.launch("dispatcher");
        load.answers(50).await;
    }
    let tally = load.stop().await;
    explained(&tally);
    assert!(tally.longest < LONGEST, "{tally:?}");
}

/// Leases lapse meanwhile, and no process has heard from another for longer than the longest silence.
#[tokio::test]
async fn a_machine_that_stands_still_loses_no_query() {
    const STANDS_STILL: Duration = Duration::from_millis(2500);
    let fleet = fleet().await;
    let everybody = [
        "dispatcher",
        "autoscaler",
        "variant-gen",
        "worker-1",
        "worker-2",
        "api",
    ];
    let load = Load::start(fleet.api(), 8, None).await;
    for _ in 0..3 {
        load.answers(50).await;
        everybody.iter().for_each(|name| fleet.freeze(name));
        tokio::time::sleep(STANDS_STILL).await;
        everybody.iter().for_each(|name| fleet.thaw(name));
        load.answers(50).await;
    }
    let tally = load.stop().await;
    assert_eq!(tally.answered, tally.sent, "{tally:?}");
    let log = fleet.log("dispatcher");
    let leads = log
        .lines()
        .filter(|line| line.contains(r#""message":"leads","role":"dispatcher""#));
    assert_eq!(leads.count(), 1, "{log}");
}

#[tokio::test]
async fn while_no_worker_is_reached_refusals_say_so_and_when_to_come_back() {
    let fleet = fleet().await;
    let api = fleet.api();
    let query = json!({"application": "digits", "inputs": digits::Images::load("test").input(0)});
    ["worker-1", "worker-2"]
        .iter()
        .for_each(|name| fleet.freeze(name));
    // Queries that were in progress when the processes stopped are reported as lost.
    until("a refusal says that no worker is reached", || async {
        let answer = api.post("/v1/queries", &query).await;
        if answer.status.is_success() {
            return None;
        }
        let problem = answer.problem(503, "unavailable");
        let detail = problem["detail"].as_str().unwrap_or_default();
        for untrue in ["shutting down", "no worker has the engine"] {
            assert!(!detail.contains(untrue), "{problem}");
        }
        let retry_ms = problem["retry_after_ms"].as_u64().expect("advice");
        assert!((1..=60_000).contains(&retry_ms), "{problem}");
        detail.contains("reached").then_some(())
    })
    .await;
    ["worker-1", "worker-2"]
        .iter()
        .for_each(|name| fleet.thaw(name));
    answers(&api).await;
}
