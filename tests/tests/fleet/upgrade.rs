//! A fleet whose processes use the messages of the release before is upgraded under load, process by process.

use super::*;
use sextant_tests::{
    Load,
    upgrade::{OldVersion, upgrade},
};

/// A process that speaks and understands only the message version before this release's.
const BEFORE: OldVersion = OldVersion::Settings(&["fleet.protocol=3"]);

#[tokio::test]
async fn a_fleet_of_the_release_before_is_upgraded_without_a_failed_query() {
    let upgraded = upgrade(&BEFORE).await;
    assert!(upgraded.is_well(), "{upgraded:?}");
    let kept = |kind: &str| {
        upgraded
            .kept
            .iter()
            .filter(|it| it.starts_with(kind))
            .count()
    };
    assert_eq!(
        (kept("applications"), kept("models"), kept("feedback")),
        (1, 1, 1)
    );
}

#[tokio::test]
async fn a_worker_of_the_release_before_joins_a_fleet_of_the_next() {
    let mut fleet = fleet().await;
    let load = Load::start(fleet.api(), 8, None).await;
    BEFORE.spawn(&mut fleet, "old-worker", "worker");
    load.answers(50).await;
    fleet.stop("worker-1");
    loaded_on(&fleet.api(), &["old-worker"]).await;
    fleet.stop("worker-2");
    load.answers(100).await;
    let tally = load.stop().await;
    assert_eq!(tally.answered, tally.sent, "{tally:?}");
    assert_eq!(workers(&fleet.api()).await, ["old-worker"]);
}
