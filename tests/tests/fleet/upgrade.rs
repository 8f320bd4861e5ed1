//! A fleet whose processes speak as the release before is upgraded under load, process by process.

use super::*;
use sextant_tests::Load;

/// Has a process speak, and understand, the version of the messages before this release's alone.
const BEFORE: &[&str] = &["fleet.protocol=3"];

/// A fleet of the release before that has learnt one model.
async fn fleet_of_before() -> Fleet {
    let mut fleet = Fleet::over_stores(FleetSettings::default());
    let roles = ["dispatcher", "autoscaler", "variant-gen", "worker", "api"];
    for role in roles {
        fleet.spawn(role, role, BEFORE);
    }
    fleet.spawn("worker-2", "worker", BEFORE);
    learn(&fleet.api()).await;
    loaded_on(&fleet.api(), &["worker", "worker-2"]).await;
    fleet
}

/// Starts a process of this release beside one of the release before, which then ends.
async fn replace(fleet: &mut Fleet, (old, new, role): (&str, &str, &str), load: &Load) {
    fleet.spawn(new, role, &[]);
    load.answers(50).await;
    fleet.stop(old);
    load.answers(50).await;
    if role == "worker" {
        loaded_on(&fleet.api(), &[new]).await;
    }
}

#[tokio::test]
async fn a_fleet_of_the_release_before_is_upgraded_without_a_failed_query() {
    let mut fleet = fleet_of_before().await;
    let load = Load::start(fleet.api(), 8, None).await;
    load.answers(100).await;
    for (old, new, role) in [
        ("worker", "new-worker", "worker"),
        ("dispatcher", "new-dispatcher", "dispatcher"),
        ("worker-2", "new-worker-2", "worker"),
        ("autoscaler", "new-autoscaler", "autoscaler"),
        ("variant-gen", "new-variant-gen", "variant-gen"),
    ] {
        replace(&mut fleet, (old, new, role), &load).await;
    }
    // The front end is last: its clients go over to the new one.
    fleet.spawn("new-api", "api", &[]);
    let api = fleet.api_of("new-api");
    let moved = Load::start(api.clone(), 8, None).await;
    moved.answers(100).await;
    let tally = load.stop().await;
    assert_eq!(tally.answered, tally.sent, "{tally:?}");
    fleet.stop("api");
    moved.answers(100).await;
    let tally = moved.stop().await;
    assert_eq!(tally.answered, tally.sent, "{tally:?}");
    assert_eq!(workers(&api).await, ["new-worker", "new-worker-2"]);
    // What the new release registers is there.
    let job = api.register(digits::upload("digits", "mlp", "logistic"));
    assert_eq!(job.await["state"], "succeeded");
}

#[tokio::test]
async fn a_worker_of_the_release_before_joins_a_fleet_of_the_next() {
    let mut fleet = fleet().await;
    let load = Load::start(fleet.api(), 8, None).await;
    fleet.spawn("old-worker", "worker", BEFORE);
    load.answers(50).await;
    fleet.stop("worker-1");
    loaded_on(&fleet.api(), &["old-worker"]).await;
    fleet.stop("worker-2");
    load.answers(100).await;
    let tally = load.stop().await;
    assert_eq!(tally.answered, tally.sent, "{tally:?}");
    assert_eq!(workers(&fleet.api()).await, ["old-worker"]);
}
