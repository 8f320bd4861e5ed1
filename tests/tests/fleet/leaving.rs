//! Workers that an administrator removes.

use std::thread;

use super::*;
use sextant_tests::Load;

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_is_taken_out_under_load_and_loses_no_query() {
    let mut fleet = Fleet::over_stores(FleetSettings::default());
    for role in ["dispatcher", "autoscaler", "variant-gen", "api"] {
        fleet.spawn(role, role, &[]);
    }
    fleet.spawn("worker-1", "worker", &[]);
    let api = fleet.api();
    learn(&api).await;
    loaded_on(&api, &["worker-1"]).await;
    let load = Load::start(api.clone(), 4, None).await;
    load.answers(50).await;
    let mut client = fleet.client(&["worker", "drain", "worker-1", "--wait", "--force"]);
    let draining = thread::spawn(move || client.output().expect("the binary can be started"));
    until("the worker is told to leave", async || {
        let workers = api.get("/v1/workers").await.json(200);
        (workers["workers"][0]["leaving"] == true).then_some(())
    })
    .await;
    // It is the only worker with the models, so it serves until there is another.
    load.answers(100).await;
    fleet.spawn("worker-2", "worker", &[]);
    fleet.has_ended("worker-1");
    assert_eq!(workers(&api).await, ["worker-2"]);
    let said = draining.join().expect("it does not panic");
    let text = String::from_utf8_lossy(&said.stdout);
    assert!(said.status.success(), "{said:?}");
    assert_eq!(text.trim(), "worker `worker-1` has left");
    load.answers(100).await;
    let tally = load.stop().await;
    assert_eq!(tally.answered, tally.sent, "{tally:?}");
}
