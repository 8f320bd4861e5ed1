//! Networks that are cut, and clocks that differ.

use super::*;
use sextant_tests::{Load, Machine};

#[tokio::test]
async fn the_network_to_a_worker_is_cut_and_mended() {
    let machine = Machine::new();
    let mut fleet = Fleet::start(FleetSettings::default());
    learn(&fleet.api()).await;
    fleet.spawn_on(&machine, "worker-far", "worker");
    loaded_on(&fleet.api(), &["worker-1", "worker-2", "worker-far"]).await;
    let load = Load::start(fleet.api(), 8, None).await;
    load.answers(100).await;
    machine.cut();
    load.answers(300).await;
    machine.mend();
    load.answers(100).await;
    loaded_on(&fleet.api(), &["worker-far"]).await;
    load.answers(100).await;
    let tally = load.stop().await;
    explained(&tally);
    assert!(tally.longest < LONGEST, "{tally:?}");
}

#[tokio::test]
async fn the_leading_dispatcher_is_cut_off_from_everything() {
    let machine = Machine::new();
    let mut fleet = Fleet::over_stores(FleetSettings::default());
    fleet.spawn_on(&machine, "dispatcher", "dispatcher");
    for role in ["autoscaler", "variant-gen", "api"] {
        fleet.spawn(role, role, &[]);
    }
    fleet.spawn_beside(&machine, "worker-1", "worker");
    fleet.spawn_beside(&machine, "worker-2", "worker");
    learn(&fleet.api()).await;
    fleet.spawn("standby", "dispatcher", &[]);
    let load = Load::start(fleet.api(), 8, Some(5000.0)).await;
    load.answers(100).await;
    machine.cut();
    load.answers(200).await;
    // The old leader believes for a moment that it leads; no process listens to it any more.
    machine.mend();
    load.answers(200).await;
    let tally = load.stop().await;
    explained(&tally);
    assert!(tally.longest < LONGEST, "{tally:?}");
}

// The clock is off by no more than this, because S3 refuses requests signed a quarter of an hour ago.
#[tokio::test]
async fn a_worker_and_a_dispatcher_whose_clocks_are_wrong_by_minutes_are_as_good_as_others() {
    let mut fleet = Fleet::over_stores(FleetSettings::default());
    fleet.spawn_at("+10m", "dispatcher", "dispatcher");
    fleet.spawn("autoscaler", "autoscaler", &[]);
    fleet.spawn("variant-gen", "variant-gen", &[]);
    fleet.spawn_at("-10m", "worker-1", "worker");
    fleet.spawn("worker-2", "worker", &[]);
    fleet.spawn("api", "api", &["fleet.inline_bytes=0"]);
    learn(&fleet.api()).await;
    loaded_on(&fleet.api(), &["worker-1", "worker-2"]).await;
    fleet.spawn_at("-5m", "standby", "dispatcher");
    let load = Load::start(fleet.api(), 8, Some(2000.0)).await;
    load.answers(200).await;
    assert_eq!(workers(&fleet.api()).await, ["worker-1", "worker-2"]);
    fleet.kill("dispatcher");
    load.answers(200).await;
    fleet.kill("worker-2");
    load.answers(200).await;
    let tally = load.stop().await;
    explained(&tally);
}
