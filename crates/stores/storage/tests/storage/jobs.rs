//! What is kept for jobs, and the rows of ended jobs.

use std::time::Duration;

use sextant_registry::{Audit, AuditFilter, Failure, JobKind};
use sextant_storage::{Config, SweepReport};
use sextant_types::{Code, time::unix_ms};

use crate::support::{Bench, CONFIG};

const PARTS: [&str; 3] = ["plan-1.json", "claim-1.json", "00000000-1.part"];

async fn put_parts(bench: &Bench, output: &str, job: &str) {
    for name in PARTS {
        bench
            .put_file(&format!("{output}.parts/{job}/{name}"), "kept")
            .await;
    }
}

async fn has_parts(bench: &Bench, output: &str, job: &str) -> usize {
    let mut found = 0;
    for name in PARTS {
        let name = format!("{output}.parts/{job}/{name}");
        found += usize::from(bench.has_file(&name).await);
    }
    found
}

async fn parts_of_ended_jobs_go(bench: Bench) {
    let ended = bench.ended_job("a/out.jsonl", unix_ms()).await;
    let held = bench.held_job("b/", unix_ms()).await;
    let forgotten = "0190b6f0-7c00-7000-8000-000000000001";
    put_parts(&bench, "a/out.jsonl", ended.id.as_str()).await;
    put_parts(&bench, "b", held.id.as_str()).await;
    put_parts(&bench, "c", forgotten).await;
    // These are not files of the service, whatever their names are.
    put_parts(&bench, "elsewhere", ended.id.as_str()).await;
    put_parts(&bench, "mine", "name-of-mine").await;
    let own = format!("a/out.jsonl.parts/{}/mine.txt", ended.id);
    bench.put_file(&own, "mine").await;
    bench.put_file("a/out.jsonl", "answers").await;
    let storage = bench.storage(CONFIG);
    let freed = storage.sweep(None).await.expect("swept");
    assert_eq!((freed.parts.objects, freed.parts.bytes), (6, 24));
    assert_eq!(has_parts(&bench, "a/out.jsonl", ended.id.as_str()).await, 0);
    assert_eq!(has_parts(&bench, "c", forgotten).await, 0);
    assert_eq!(has_parts(&bench, "b", held.id.as_str()).await, 3);
    assert_eq!(has_parts(&bench, "elsewhere", ended.id.as_str()).await, 3);
    assert_eq!(has_parts(&bench, "mine", "name-of-mine").await, 3);
    assert!(bench.has_file(&own).await && bench.has_file("a/out.jsonl").await);
    let again = storage.sweep(None).await.expect("swept");
    assert_eq!(again, SweepReport::default());
}

#[tokio::test]
async fn parts_of_ended_jobs_go_from_a_folder() {
    parts_of_ended_jobs_go(Bench::folder().await).await;
}

#[tokio::test]
async fn parts_of_ended_jobs_go_from_a_bucket() {
    parts_of_ended_jobs_go(Bench::fleet("storage_parts").await).await;
}

async fn jobs_are_forgotten_after_a_while(bench: Bench) {
    let now_ms = unix_ms();
    let old = bench.ended_job("old", now_ms - 100_000).await;
    let young = bench.ended_job("young", now_ms).await;
    let held = bench.held_job("held", now_ms - 100_000).await;
    put_parts(&bench, "old", old.id.as_str()).await;
    for job in [&old, &young] {
        bench
            .put_file(&format!(".jobs/{}/webhook.json", job.id), "{}")
            .await;
    }
    let kept = bench.storage(CONFIG).sweep(None).await.expect("swept");
    assert_eq!((kept.jobs, kept.notes.objects), (0, 0), "for ever");
    let storage = bench.storage(Config {
        keep_ended_jobs: Some(Duration::from_secs(50)),
        ..CONFIG
    });
    let freed = storage.sweep(None).await.expect("swept");
    assert_eq!((freed.jobs, freed.notes.objects), (1, 1));
    let gone = bench.registry.job(&old.id).await.expect_err("forgotten");
    assert_eq!(gone.code(), Code::JobNotFound);
    for job in [&young, &held] {
        bench.registry.job(&job.id).await.expect("it is kept");
    }
    let noted = bench
        .has_file(&format!(".jobs/{}/webhook.json", young.id))
        .await;
    assert!(noted, "else it is told again");
}

#[tokio::test]
async fn jobs_are_forgotten_after_a_while_in_a_file() {
    jobs_are_forgotten_after_a_while(Bench::folder().await).await;
}

#[tokio::test]
async fn jobs_are_forgotten_after_a_while_in_a_database() {
    jobs_are_forgotten_after_a_while(Bench::fleet("storage_jobs").await).await;
}

async fn failed_models_are_forgotten_and_others_keep_their_jobs(bench: Bench) {
    let files = (bench.put("model").await, bench.put("validation").await);
    let registry = &bench.registry;
    for (name, fails) in [("bad", true), ("worse", true), ("good", false)] {
        bench.register(name, files).await;
        let claimed = registry.claim(JobKind::Register, "me", 60_000, 2).await;
        let job = claimed.expect("an answer").expect("a job");
        let ended_ms = if name == "worse" { unix_ms() } else { 3 };
        let failure = Failure::new(Code::InvalidModel, "it is not a model");
        let ended = match fails {
            true => registry.fail(&job.id, "me", &failure, ended_ms).await,
            false => {
                let nothing = serde_json::Value::Null;
                registry.finish(&job.id, "me", &nothing, ended_ms).await
            }
        };
        ended.expect("ended");
    }
    let keep = Some(Duration::from_secs(3600));
    let storage = bench.storage(Config {
        keep_ended_jobs: keep,
        keep_failed_models: keep,
        ..CONFIG
    });
    let freed = storage.sweep(None).await.expect("swept");
    assert_eq!((freed.models, freed.jobs, freed.blobs.objects), (1, 1, 0));
    let models = registry.models(None).await.expect("an answer").into_iter();
    let models: Vec<_> = models.map(|model| model.id.to_string()).collect();
    assert_eq!(models, ["good", "worse"]);
    // The ready model is not registered again.
    let again = bench.register("good", files).await;
    assert!(!again.created);
    assert!(again.job.state.is_final());
}

#[tokio::test]
async fn failed_models_are_forgotten_in_a_file() {
    failed_models_are_forgotten_and_others_keep_their_jobs(Bench::folder().await).await;
}

#[tokio::test]
async fn failed_models_are_forgotten_in_a_database() {
    let bench = Bench::fleet("storage_models").await;
    failed_models_are_forgotten_and_others_keep_their_jobs(bench).await;
}

async fn the_audit_record_is_kept_as_long_as_is_said(bench: Bench) {
    let now_ms = unix_ms();
    let entry = |at_ms| Audit::new(at_ms, "me", "key.create", "k", serde_json::json!({}));
    for at_ms in [1, 2, now_ms] {
        let recorded = bench.registry.record(&entry(at_ms)).await;
        recorded.expect("recorded");
    }
    let for_ever = bench.storage(CONFIG).sweep(None).await.expect("swept");
    assert_eq!(for_ever.audit, 0);
    let config = Config {
        keep_audit: Some(Duration::from_secs(3600)),
        ..CONFIG
    };
    let freed = bench.storage(config).sweep(None).await.expect("swept");
    assert_eq!(freed.audit, 2);
    let left = bench.registry.audit(&AuditFilter::default()).await;
    assert_eq!(left.expect("entries").len(), 1);
}

#[tokio::test]
async fn the_audit_record_is_kept_as_long_as_is_said_in_a_file() {
    the_audit_record_is_kept_as_long_as_is_said(Bench::folder().await).await;
}

#[tokio::test]
async fn the_audit_record_is_kept_as_long_as_is_said_in_a_database() {
    the_audit_record_is_kept_as_long_as_is_said(Bench::fleet("storage_audit").await).await;
}
