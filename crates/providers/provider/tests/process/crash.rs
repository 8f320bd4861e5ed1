//! The process that has started machines crashes.

use std::{os::unix::process::ExitStatusExt, path::PathBuf, process::Command};

use sextant_provider::{Machine, MachineId, Pool, Provider, State, process::Processes};

use super::support::{Children, LONG_MS, exists, pool, settings, until};

/// The variable that tells this test program to work on the machines of a folder and then to die.
const FOLDER: &str = "TEST_MACHINES_FOLDER";

/// Long enough that the ending can be seen, short enough to wait for, ms.
const SHORT_MS: u64 = 4000;

/// The process that dies, when the other test starts this program again. Run alone, this test does nothing.
#[tokio::test]
async fn process_that_dies() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    let provider = Processes::open(settings(&PathBuf::from(folder))).expect("it opens");
    let pool = pool("stubborn-orphans", SHORT_MS);
    let before = provider.list(&pool).await.expect("list");
    match before.is_empty() {
        true => provider.grow(&pool, 2).await.expect("grow"),
        false => provider.end(&pool, &ids(before)).await.expect("end"),
    }
    std::process::abort();
}

fn work_and_die(children: &Children) {
    let mut parent = Command::new(std::env::current_exe().expect("this program"));
    parent.args(["--exact", "process::crash::process_that_dies"]);
    let died = parent.env(FOLDER, children.folder()).output();
    let died = died.expect("it runs");
    assert!(died.status.signal().is_some(), "{died:?}");
}

fn ids(machines: Vec<Machine>) -> Vec<MachineId> {
    machines.into_iter().map(|machine| machine.id).collect()
}

async fn until_none(provider: &Processes, pool: &Pool) {
    until("they are gone", async || {
        provider.list(pool).await.expect("list").is_empty()
    })
    .await;
}

#[tokio::test]
async fn machines_outlive_the_process_that_started_them() {
    let children = Children::new();
    work_and_die(&children);
    let (provider, pool) = (children.open(), pool("stubborn-orphans", 0));
    let orphans = children.up(&provider, &pool, 2).await;
    let pids: Vec<_> = orphans.iter().map(|it| children.pid(&it.id)).collect();
    assert!(pids.iter().all(|pid| exists(*pid)));
    provider.end(&pool, &ids(orphans)).await.expect("end");
    until_none(&provider, &pool).await;
}

#[tokio::test]
async fn machines_that_were_told_to_end_end_without_who_told_them() {
    let children = Children::new();
    let (provider, pool) = (children.open(), pool("stubborn-orphans", LONG_MS));
    children.up(&provider, &pool, 2).await;
    work_and_die(&children);
    let ending = provider.list(&pool).await.expect("list");
    assert!(
        ending.iter().all(|it| it.state == State::Ending),
        "{ending:?}"
    );
    assert_eq!(ending.len(), 2);
    until_none(&provider, &pool).await;
}
