//! Files that a crash or a disk has damaged.

use std::{fs, slice};

use rustix::process::{Signal, kill_process};
use serde_json::Value;
use sextant_provider::{Machine, Pool, Provider, State, process::Processes};

use super::support::{Children, LONG_MS, exists, pool, template, until};

async fn started(children: &Children, pool: &Pool) -> (Processes, Machine) {
    let provider = children.open();
    let machine = children.up(&provider, pool, 1).await.remove(0);
    (provider, machine)
}

/// Asserts that the machine is found again, counts, and ends when it is told to.
async fn assert_whole(children: &Children, provider: &Processes, pool: &Pool, before: &Machine) {
    let pid = children.pid(&before.id);
    provider.grow(pool, 1).await.expect("grow");
    let listed = provider.list(pool).await.expect("list");
    let [machine] = listed.as_slice() else {
        panic!("one machine, not {listed:?}");
    };
    assert_eq!((&machine.id, &machine.worker), (&before.id, &before.worker));
    assert_eq!(machine.state, State::Running);
    provider
        .end(pool, slice::from_ref(&before.id))
        .await
        .expect("end");
    until("it has ended", async || !exists(pid)).await;
    assert_eq!(provider.list(pool).await.expect("list"), []);
}

#[tokio::test]
async fn machine_without_a_written_process_is_found() {
    let (children, pool) = (Children::new(), pool("interrupted", LONG_MS));
    let (provider, machine) = started(&children, &pool).await;
    let mut file = children.read(&machine.id);
    let process = file["process"].take();
    children.write(&machine.id, &file);
    let listed = provider.list(&pool).await.expect("list");
    assert_eq!(listed, slice::from_ref(&machine));
    assert_eq!(children.read(&machine.id)["process"], process);
    assert_whole(&children, &provider, &pool, &machine).await;
}

#[tokio::test]
async fn machine_that_was_never_started_is_forgotten() {
    let (children, pool) = (Children::new(), pool("interrupted", LONG_MS));
    let (provider, machine) = started(&children, &pool).await;
    let mut file = children.read(&machine.id);
    file["process"].take();
    file["id"] = Value::from("interrupted-2-00000000");
    let never = children.folder().join("interrupted-2-00000000.json");
    fs::write(&never, file.to_string()).expect("written");
    assert_eq!(provider.list(&pool).await.expect("list"), [machine]);
    assert!(!never.exists());
}

#[tokio::test]
async fn truncated_and_garbled_files_are_mended() {
    for content in ["", "{\"id\": \"garb", "null", "[]", "\u{0}\u{0}", "{}"] {
        let (children, pool) = (Children::new(), pool("garbled", LONG_MS));
        let (provider, machine) = started(&children, &pool).await;
        fs::write(children.file(&machine.id), content).expect("written");
        let listed = provider.list(&pool).await.expect("list");
        assert_eq!(listed.len(), 1, "`{content}`: {listed:?}");
        assert_eq!(listed[0].since_ms, 0);
        assert_whole(&children, &provider, &pool, &machine).await;
    }
}

#[tokio::test]
async fn garbled_file_without_a_process_is_set_aside() {
    let (children, pool) = (Children::new(), pool("garbled", LONG_MS));
    let (provider, machine) = started(&children, &pool).await;
    fs::write(children.folder().join("old-1-0.json"), "{\"id\"").expect("written");
    fs::write(children.folder().join("old-2-0.json.new"), "{\"id\"").expect("written");
    fs::write(children.folder().join("notes.txt"), "not ours").expect("written");
    assert_eq!(provider.list(&pool).await.expect("list"), [machine]);
    let mut names: Vec<_> = fs::read_dir(children.folder())
        .expect("the folder")
        .map(|name| {
            name.expect("a name")
                .file_name()
                .into_string()
                .expect("text")
        })
        .filter(|name| name.starts_with("old") || name.starts_with("notes"))
        .collect();
    names.sort();
    assert_eq!(names, ["notes.txt", "old-1-0.unreadable"]);
}

/// A process that has got the id of an ended one is neither listed nor signalled.
#[tokio::test]
async fn reused_process_id_is_a_stranger() {
    for change in ["started", "boot"] {
        let children = Children::new();
        let mut settings = children.settings();
        settings.template = template(
            "trap 'echo asked' TERM; trap 'echo later' WINCH; echo up; \
             n=0; while [ $n -lt 600 ]; do sleep 0.1; n=$((n+1)); done",
        );
        let provider = Processes::open(settings).expect("it opens");
        let pool = pool("reused", LONG_MS);
        let stranger = children.up(&provider, &pool, 1).await.remove(0);
        let pid = children.pid(&stranger.id);
        let mut file = children.read(&stranger.id);
        let whole = file.clone();
        file["process"][change] = match change {
            "started" => Value::from(whole["process"]["started"].as_u64().expect("ticks") - 1),
            _ => Value::from("another start of the system"),
        };
        children.write(&stranger.id, &file);
        let named = slice::from_ref(&stranger.id);
        provider.end(&pool, named).await.expect("end");
        assert_eq!(provider.list(&pool).await.expect("list"), [], "{change}");
        children.write(&stranger.id, &whole);
        // A shell handles signals in the order of their numbers: if it had been asked to end, it would print that
        // first.
        kill_process(pid, Signal::WINCH).expect("it lives");
        let log = children.folder().join(format!("{}.log", stranger.id.0));
        let said = || fs::read_to_string(&log).expect("a log");
        until("it says so", async || said().contains("later")).await;
        assert_eq!(said(), "up\nlater\n", "{change}");
    }
}
