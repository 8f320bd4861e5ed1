//! Offline jobs over PostgreSQL and S3, run by whichever dispatcher leads.

use super::*;

/// Records of a job's input: images as lines.
fn records(count: usize) -> String {
    let images = digits::Images::load("test");
    let line = |index: usize| {
        let pixels = images.pixels(index % images.len());
        format!("{}\n", json!({"inputs": {"pixels": pixels}}))
    };
    (0..count).map(line).collect()
}

async fn output(api: &Api, path: &str) -> Vec<u8> {
    let answer = api.get(&format!("/v1/artefacts/{path}")).await;
    assert!(answer.status.is_success(), "{path}: {}", answer.text());
    answer.body
}

async fn submit(api: &Api, to: &str) -> String {
    let job = json!({"application": "digits", "input": "in.jsonl", "output": to, "chunk": 50});
    let accepted = api.post("/v1/jobs", &job).await;
    let accepted: Value = serde_json::from_slice(&accepted.body).expect("a job");
    let id = accepted["id"].as_str().or(accepted["job"].as_str());
    id.unwrap_or_else(|| panic!("{accepted}")).to_owned()
}

#[tokio::test]
async fn a_job_goes_on_at_the_next_leader_with_every_record_once() {
    const RECORDS: usize = 6000;
    let mut fleet = fleet().await;
    let api = fleet.api();
    let put = api.put("/v1/artefacts/in.jsonl", records(RECORDS)).await;
    assert!(put.status.is_success(), "{}", put.text());
    let id = submit(&api, "undisturbed.jsonl").await;
    let job = api.job_over(&id).await;
    assert_eq!(job["state"], "succeeded", "{job}");
    let undisturbed = output(&api, "undisturbed.jsonl").await;
    assert_eq!(
        undisturbed.split(|byte| *byte == b'\n').count(),
        RECORDS + 1
    );
    let id = submit(&api, "disturbed.jsonl").await;
    let mut leader = "dispatcher".to_owned();
    for number in 0..3 {
        let next = format!("standby-{number}");
        fleet.spawn(&next, "dispatcher", &[]);
        let before = api.job(&id).await["progress"]["done"].as_u64();
        until("the job has come further", || async {
            let job = api.job(&id).await;
            let over = job["state"] == "succeeded";
            (over || job["progress"]["done"].as_u64() > before).then_some(())
        })
        .await;
        fleet.kill(&leader);
        leader = next;
    }
    let job = api.job_over(&id).await;
    assert_eq!(job["state"], "succeeded", "{job}");
    assert!(
        output(&api, "disturbed.jsonl").await == undisturbed,
        "other bytes"
    );
}
