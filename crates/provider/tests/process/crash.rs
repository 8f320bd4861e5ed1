//! The process that has started machines dies.

use std::{path::PathBuf, process::Command};

use sextant_provider::Provider;

use super::support::{Children, LONG_MS, exists, pool, settings, until};

/// Says to this test program that it is to start machines in a folder and then to die.
const FOLDER: &str = "TEST_MACHINES_FOLDER";

/// The process that dies, when the other test starts this program again; by itself there is nothing to
/// do for it.
#[tokio::test]
async fn process_that_dies() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    let settings = settings(&PathBuf::from(folder));
    let provider = sextant_provider::process::Processes::open(settings).expect("it opens");
    provider
        .grow(&pool("orphans", LONG_MS), 2)
        .await
        .expect("grow");
    std::process::abort();
}

#[tokio::test]
async fn machines_outlive_the_process_that_started_them() {
    let children = Children::new();
    let mut parent = Command::new(std::env::current_exe().expect("this program"));
    parent.args(["--exact", "process::crash::process_that_dies"]);
    let died = parent
        .env(FOLDER, children.folder())
        .output()
        .expect("it runs");
    assert!(!died.status.success(), "{died:?}");
    let (provider, pool) = (children.open(), pool("orphans", LONG_MS));
    let orphans = children.up(&provider, &pool, 2).await;
    let pids: Vec<_> = orphans.iter().map(|it| children.pid(&it.id)).collect();
    assert!(pids.iter().all(|pid| exists(*pid)));
    let ids: Vec<_> = orphans.into_iter().map(|machine| machine.id).collect();
    provider.end(&pool, &ids).await.expect("end");
    until("they are gone", async || {
        provider.list(&pool).await.expect("list").is_empty()
    })
    .await;
}
