//! The file below the registry: full, broken, foreign, and with a process that is killed.

use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
};

use serde_json::json;
use sextant_types::{Code, ErrorKind};

use super::{
    place::{open, pools},
    *,
};
use crate::database::sqlite::Pools;

#[tokio::test]
async fn a_full_file_is_told_and_nothing_is_lost() {
    let place = Place::file();
    let registry = place.open().await;
    registry.create_application(&application()).await.unwrap();
    create_model(&registry, &new_model("m"), 1).await.unwrap();
    let pages: i64 = sqlx::query_scalar("pragma page_count")
        .fetch_one(&pools(&registry).writer)
        .await
        .unwrap();
    let limit = sqlx::AssertSqlSafe(format!("pragma max_page_count = {}", pages + 8));
    sqlx::query(limit)
        .execute(&pools(&registry).writer)
        .await
        .unwrap();
    let large = json!("x".repeat(10_000));
    let mut stored = 0;
    let full = loop {
        match registry
            .put_step(&model_id("m"), &format!("{stored:03}"), &large)
            .await
        {
            Ok(()) => stored += 1,
            Err(error) => break error,
        }
        assert!(stored < 100, "the limit has no effect");
    };
    assert_eq!(
        (full.code(), full.kind()),
        (Code::StorageFull, ErrorKind::StorageFull)
    );
    let steps = registry.steps(&model_id("m")).await.unwrap();
    assert_eq!(steps.len(), stored);
    assert!(steps.iter().all(|step| step.result == large));
    // There is room again: the service goes on.
    finish_registrations(&registry).await;
    registry.delete_model(&model_id("m"), 50).await.unwrap();
    create_model(&registry, &new_model("m"), 2).await.unwrap();
    registry
        .put_step(&model_id("m"), "again", &large)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_broken_row_is_named() {
    let place = Place::file();
    let registry = place.open().await;
    registry.create_application(&application()).await.unwrap();
    sqlx::query("update applications set default_targets = '{\"latency_ms\": tru'")
        .execute(&pools(&registry).writer)
        .await
        .unwrap();
    let error = registry.application(&app()).await.unwrap_err();
    assert_eq!(error.code(), Code::Internal);
    let text = error.to_string();
    assert!(
        text.contains("`digits`") && text.contains("`default_targets`"),
        "{text}"
    );
}

#[tokio::test]
async fn what_is_no_registry_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("registry.sqlite");
    std::fs::write(
        &file,
        "this is no database, however long it may go on".repeat(100),
    )
    .unwrap();
    assert_eq!(told(Registry::open(&file).await), "Database");
    let below = file.join("below").join("registry.sqlite");
    assert_eq!(told(Registry::open(below).await), "Folder");
}

#[tokio::test]
async fn a_schema_of_another_version_is_refused() {
    let place = Place::file();
    let registry = place.open().await;
    sqlx::query("update _sqlx_migrations set checksum = x'00'")
        .execute(&pools(&registry).writer)
        .await
        .unwrap();
    registry.close().await;
    assert_eq!(told(Registry::open(place.address()).await), "Schema");
}

#[tokio::test]
async fn commits_are_synced() {
    let place = Place::file();
    let registry = place.open().await;
    for (pragma, wanted) in [("pragma synchronous", 2), ("pragma foreign_keys", 1)] {
        let Pools { writer, readers } = pools(&registry);
        for pool in [writer, readers] {
            let value: i64 = sqlx::query_scalar(pragma).fetch_one(pool).await.unwrap();
            assert_eq!(value, wanted, "{pragma}");
        }
    }
    let journal: String = sqlx::query_scalar("pragma journal_mode")
        .fetch_one(&pools(&registry).writer)
        .await
        .unwrap();
    assert_eq!(journal, "wal");
}

const CHILD: &str = "SEXTANT_REGISTRY_TEST_CHILD";

/// Not a test: this runs in the process that the next test kills.
#[tokio::test]
async fn child_advances_until_killed() {
    let Ok(address) = std::env::var(CHILD) else {
        return;
    };
    let registry = open(&address).await;
    registry.void_leases(0).await.unwrap();
    let job = registry
        .claim(JobKind::Offline, "child", 1_000, 0)
        .await
        .unwrap()
        .unwrap();
    for done in job.progress_done + 1.. {
        registry
            .advance(&job.id, "child", "chunk", (done, u64::MAX), 0)
            .await
            .unwrap();
        println!("\ncommitted {done}");
    }
}

on_both! {
    a_killed_process_loses_nothing_it_was_told_is_stored,
}

async fn a_killed_process_loses_nothing_it_was_told_is_stored(place: Place) {
    let registry = place.open().await;
    registry.create_application(&application()).await.unwrap();
    let id = queued(&registry, 0).await;
    registry.close().await;
    let mut least = 0;
    for round in 1..=4 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "tests::storage::child_advances_until_killed",
                "--nocapture",
            ])
            .env(CHILD, place.address())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let told = output
            .lines()
            .filter_map(|line| {
                line.unwrap()
                    .strip_prefix("committed ")?
                    .parse::<u64>()
                    .ok()
            })
            .nth(5 * round)
            .expect("the child reports until it is killed");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(
            told > least,
            "the child went on behind `{least}`, not from `{told}`"
        );
        let registry = place.open().await;
        let job = registry.job(&id).await.unwrap();
        assert!(
            job.progress_done >= told,
            "{} after {told}",
            job.progress_done
        );
        assert_eq!(
            (job.attempts as usize, job.owner.as_deref()),
            (round, Some("child"))
        );
        least = job.progress_done;
        registry.close().await;
    }
}

#[tokio::test]
async fn a_file_is_closed_to_others() {
    use std::{fs, os::unix::fs::PermissionsExt};
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("registry.sqlite");
    let mode = |name: &str| {
        let found = fs::metadata(folder.path().join(name)).unwrap();
        found.permissions().mode() & 0o777
    };
    let registry = Registry::open(&file).await.unwrap();
    registry.create_application(&application()).await.unwrap();
    for name in ["registry.sqlite", "registry.sqlite-wal"] {
        assert_eq!(mode(name), 0o600, "{name}");
    }
    registry.close().await;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    Registry::open(&file).await.unwrap().close().await;
    assert_eq!(mode("registry.sqlite"), 0o640);
}
