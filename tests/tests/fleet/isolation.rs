//! The isolation of models is changed while workers have them loaded.

use super::*;
use sextant_tests::Load;

const WORKERS: [&str; 2] = ["worker-1", "worker-2"];

/// Sets the isolation of the application's models.
async fn say(fleet: &Fleet, isolation: &str) {
    let change = json!({"resources": {"isolation": isolation}});
    let changed = fleet.api().patch("/v1/applications/digits", &change).await;
    assert_eq!(changed.json(200)["resources"]["isolation"], isolation);
}

/// Waits until every worker runs models in processes of their own, or none does.
async fn become_isolated(fleet: &Fleet, are: bool) {
    until("every model runs where it should", || async {
        let has = |worker: &&&str| !fleet.children(worker, "host").is_empty();
        (WORKERS.iter().filter(has).count() == usize::from(are) * WORKERS.len()).then_some(())
    })
    .await;
}

#[tokio::test]
async fn every_worker_changes_the_processes_of_its_models_and_no_query_is_lost() {
    let mut fleet = fleet().await;
    become_isolated(&fleet, false).await;
    let load = Load::start(fleet.api(), 4, None).await;
    load.answers(100).await;
    say(&fleet, "process").await;
    become_isolated(&fleet, true).await;
    load.answers(100).await;
    say(&fleet, "worker").await;
    become_isolated(&fleet, false).await;
    load.answers(100).await;
    let tally = load.stop().await;
    assert_eq!(tally.answered, tally.sent, "{tally:?}");
    // The dispatcher, which decides about loads, is stopped, and later finds what others have loaded.
    fleet.kill("dispatcher");
    say(&fleet, "process").await;
    fleet.launch("dispatcher");
    become_isolated(&fleet, true).await;
    answers(&fleet.api()).await;
}
