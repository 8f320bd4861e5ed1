//! Registrations wait for each other no longer than necessary, and survive the end of the service.

use serde_json::Value;
use sextant_tests::{Api, Settings, TestCluster, Upload, onnx::HostileModel, until};

fn settings(more: &[&str]) -> Settings {
    let common = ["variants.max_batch=4", "variants.memory_bytes=3221225472"];
    let set = common.iter().chain(more);
    Settings {
        set: set.map(|pair| (*pair).to_owned()).collect(),
        ..Settings::default()
    }
}

/// Begins a registration under an application of its own name and returns the job.
async fn begin(api: &Api, name: &str, model: HostileModel, validation: Vec<u8>) -> String {
    api.create_application(name).await;
    let upload = Upload {
        application: name,
        name,
        model: model.bytes(),
        validation,
        validation_name: "validation.jsonl",
    };
    let accepted = api.upload(upload).await.json(202);
    accepted["job"].as_str().expect("a job").to_owned()
}

/// The job, once it is in `step`.
async fn in_step(api: &Api, job: &str, step: &str) -> Value {
    until(&format!("job `{job}` is in step `{step}`"), || async {
        let job = api.job(job).await;
        let is_there = job["step"].as_str().is_some_and(|it| it.starts_with(step));
        (is_there && job["state"] == "running").then_some(job)
    })
    .await
}

/// Whether the job is seen running in `step`, or already measuring, before it has ended. A step may pass while the
/// service starts.
async fn is_caught(api: &Api, job: &str, step: &str) -> bool {
    until(
        &format!("job `{job}` is in step `{step}` or over"),
        || async {
            let job = api.job(job).await;
            let at = job["step"].as_str().unwrap_or_default();
            let is_there = at.starts_with(step) || at.starts_with("measure:");
            match job["state"].as_str() {
                Some("running") => is_there.then_some(true),
                Some("succeeded" | "failed") => Some(false),
                _ => None,
            }
        },
    )
    .await
}

/// A registration that never ends is tried until its limit. Other registrations do not wait for it, whether there is a
/// place beside it or not.
#[tokio::test]
async fn a_good_model_is_ready_beside_endless_ones() {
    let cluster = TestCluster::start(settings(&[
        "variants.longest_step_ms=3600000",
        "variants.max_registrations=2",
        "variants.slow_registration_ms=500",
    ]));
    let api = cluster.api();
    let records = || HostileModel::RECORDS.into();
    let mut endless = Vec::new();
    for name in ["endless-1", "endless-2"] {
        let job = begin(&api, name, HostileModel::Endless, records()).await;
        in_step(&api, &job, "inspect").await;
        endless.push(job);
    }
    // No place is left, and these two registrations do not end.
    let good = begin(&api, "good", HostileModel::No, records()).await;
    let good = api.job_over(&good).await;
    assert_eq!(good["state"], "succeeded", "{good}");
    for job in &endless {
        let job = api.job(job).await;
        let state = job["state"].as_str().unwrap_or_default();
        assert!(matches!(state, "running" | "queued"), "{job}");
    }
}

/// A limit counts time on a processor: a registration does not fail because the machine gives it none.
#[tokio::test]
async fn a_registration_that_gets_no_processor_is_waited_for() {
    let cluster = TestCluster::start(settings(&[
        "variants.profile_ms_per_batch=200",
        "variants.longest_step_ms=2000",
        "variants.slow_registration_ms=3000",
    ]));
    let api = cluster.api();
    let records = || HostileModel::RECORDS.into();
    let halted = begin(&api, "halted", HostileModel::No, records()).await;
    in_step(&api, &halted, "measure:").await;
    let processes = cluster.children("measure");
    assert!(!processes.is_empty(), "no process measures");
    processes.iter().for_each(|it| cluster.halt_child(*it));
    // It begins when the other registration counts as slow, which is after the limit of a step.
    let good = begin(&api, "good", HostileModel::No, records()).await;
    let good = api.job_over(&good).await;
    assert_eq!(good["state"], "succeeded", "{good}");
    assert_eq!(api.job(&halted).await["state"], "running");
    processes.iter().for_each(|it| cluster.resume_child(*it));
    let halted = api.job_over(&halted).await;
    assert_eq!(halted["state"], "succeeded", "{halted}");
    let skipped = halted["result"]["skipped"].to_string();
    assert!(!skipped.contains("took longer"), "{halted}");
}

/// The steps of a configuration may each end in time, but their sum has a limit as well.
#[tokio::test]
async fn a_configuration_has_a_limit_beside_that_of_its_steps() {
    let cluster = TestCluster::start(settings(&["variants.longest_configuration_ms=3000"]));
    let api = cluster.api();
    let slow = "{\"inputs\":{\"x\":[300000,0]},\"label\":0}\n".repeat(20_000);
    let job = begin(&api, "slow", HostileModel::Turns, slow.into()).await;
    let job = api.job_over(&job).await;
    assert_eq!(job["error"]["code"], "time_exceeded", "{job}");
    let message = job["error"]["message"].as_str().unwrap_or_default();
    assert!(
        message.contains("`variants.longest_configuration_ms`"),
        "{job}"
    );
}

/// However often the service is killed, models are not blamed. Engines have a process of their own, so the service
/// knows which of the two has ended.
#[tokio::test]
async fn the_end_of_the_service_says_nothing_about_a_model() {
    const KILLS: usize = 5;
    let mut cluster = TestCluster::start(settings(&["variants.profile_ms_per_batch=1000"]));
    let job = begin(
        &cluster.api(),
        "good",
        HostileModel::No,
        HostileModel::RECORDS.repeat(100).into(),
    )
    .await;
    let mut kills = 0;
    for step in ["inspect", "measure:"] {
        for _ in 0..KILLS {
            if is_caught(&cluster.api(), &job, step).await {
                cluster.kill();
                cluster.launch();
                kills += 1;
            }
        }
    }
    assert!(kills > KILLS, "{kills} kills");
    let job = cluster.api().job_over(&job).await;
    assert_eq!(job["state"], "succeeded", "{job}");
    let skipped = &job["result"]["skipped"];
    let skipped = skipped.as_object().into_iter().flatten();
    let ended = skipped.filter(|(_, reason)| reason.to_string().contains("the process ended"));
    assert_eq!(ended.count(), 0, "{job}");
}
