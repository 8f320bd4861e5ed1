//! `/v1/workers/{worker}/drain`: a worker is taken out.

use std::sync::Arc;

use serde_json::{Value, json};
use sextant_api::Workers;
use sextant_metadata::WorkerRecord;
use sextant_types::WorkerId;

use crate::{
    double::{ADMIN, Api, Recorder, Settings},
    worker::Idle,
};

const DRAIN: &str = "/v1/workers/w-1/drain";

async fn heartbeat(api: &Api, name: &str, draining: bool) {
    let record = WorkerRecord {
        draining,
        ..WorkerRecord::default()
    };
    let name: WorkerId = name.parse().expect("a name");
    let told = api.metadata.heartbeat(&name, record, u64::MAX, 1).await;
    told.expect("told");
}

/// By worker, whether it is to leave and whether it drains.
async fn states(api: &Api) -> Vec<(Value, Value, Value)> {
    let body = api.keyed(ADMIN, "GET", "/v1/workers", "").await.json();
    let workers = body["workers"].as_array().expect("a list").iter();
    let states = workers.map(|it| {
        let [name, leaving, draining] = ["name", "leaving", "draining"].map(|key| it[key].clone());
        (name, leaving, draining)
    });
    states.collect()
}

#[tokio::test]
async fn a_worker_that_is_taken_out_is_marked_once_and_it_is_kept_who_did_it() {
    let api = Api::with(Recorder::answering(), Settings::keys()).await;
    for name in ["w-1", "w-2"] {
        heartbeat(&api, name, false).await;
    }
    for _ in 0..2 {
        let reading = api.keyed(ADMIN, "POST", DRAIN, "").await;
        assert_eq!(reading.status, 200);
        let body = reading.json();
        assert_eq!(
            (&body["name"], &body["leaving"]),
            (&json!("w-1"), &json!(true))
        );
    }
    let expected = [("w-1", true, false), ("w-2", false, false)];
    let expected =
        expected.map(|(name, leaving, draining)| (json!(name), json!(leaving), json!(draining)));
    assert_eq!(states(&api).await, expected);
    let cluster = api.keyed(ADMIN, "GET", "/v1/cluster", "").await.json();
    let expected = json!({"total": 2, "leaving": 1, "draining": 0});
    assert_eq!(cluster["workers"], expected);
    heartbeat(&api, "w-1", true).await;
    let cluster = api.keyed(ADMIN, "GET", "/v1/cluster", "").await.json();
    let expected = json!({"total": 2, "leaving": 0, "draining": 1});
    assert_eq!(cluster["workers"], expected);
    let audit = "/v1/audit?action=worker.drain";
    let audit = api.keyed(ADMIN, "GET", audit, "").await.json();
    let entries = audit["entries"].as_array().expect("a list").iter();
    let done: Vec<_> = entries.map(|it| (&it["actor"], &it["subject"])).collect();
    let expected = (&json!("administrator"), &json!("w-1"));
    assert_eq!(done, [expected, expected]);
}

#[tokio::test]
async fn the_last_worker_is_taken_out_by_force_alone() {
    let api = Api::with(Recorder::answering(), Settings::keys()).await;
    heartbeat(&api, "w-1", false).await;
    let reading = api.keyed(ADMIN, "POST", DRAIN, "").await;
    assert_eq!(reading.status, 409);
    let detail = reading.json()["detail"].to_string();
    assert!(
        detail.contains("`w-1` is the last one") && detail.contains("--force"),
        "{detail}"
    );
    reading.problem("in_use");
    let expected = [("w-1", false, false)]
        .map(|(name, leaving, draining)| (json!(name), json!(leaving), json!(draining)));
    assert_eq!(states(&api).await, expected);
    let forced = format!("{DRAIN}?force=true");
    assert_eq!(api.keyed(ADMIN, "POST", &forced, "").await.status, 200);
    // It is to leave already: to say so again changes nothing.
    assert_eq!(api.keyed(ADMIN, "POST", DRAIN, "").await.status, 200);
}

#[tokio::test]
async fn a_worker_that_is_not_there_cannot_be_taken_out() {
    let api = Api::with(Recorder::answering(), Settings::keys()).await;
    let reading = api.keyed(ADMIN, "POST", DRAIN, "").await;
    assert_eq!(reading.status, 404);
    reading.problem("worker_not_found");
}

#[test]
fn a_worker_that_went_before_it_was_known_what_it_runs_on_is_not_added() {
    let workers = Workers::default();
    let name = WorkerId::new("idle").expect("a name");
    let device = || workers.get(&name).map(|it| it.device);
    let gone = workers.arriving(Arc::new(Idle));
    assert_eq!(device(), None);
    workers.remove(&name);
    let earlier = workers.arriving(Arc::new(Idle));
    assert!(!gone.enter("emulated:0".to_owned()));
    let later = workers.arriving(Arc::new(Idle));
    assert!(later.enter("emulated:1".to_owned()));
    assert!(!earlier.enter("emulated:2".to_owned()));
    assert_eq!(device().as_deref(), Some("emulated:1"), "it has come again");
    assert!(workers.remove(&name));
    assert_eq!(device(), None);
}
