//! Machines that cannot be started, and limits.

use std::{collections::BTreeMap, fs};

use sextant_provider::{Error, Provider, State, process::Processes};

use super::support::{Children, LONG_MS, exists, pool, template, until};

#[tokio::test]
async fn missing_program_is_named() {
    let children = Children::new();
    let mut settings = children.settings();
    settings.template.program = "/nowhere/{pool}".to_owned();
    let (provider, pool) = (Processes::open(settings).expect("it opens"), pool("cpu", 1));
    let refused = provider.grow(&pool, 2).await.expect_err("no program");
    assert!(matches!(refused, Error::Settings { .. }), "{refused:?}");
    assert!(refused.to_string().contains("/nowhere/"), "{refused}");
    assert_eq!(refused.code(), "provider_settings");
    assert_eq!(provider.list(&pool).await.expect("list"), []);
}

#[tokio::test]
async fn folder_that_cannot_be_made_is_named() {
    let children = Children::new();
    let file = children.folder().join("file");
    fs::write(&file, "no folder").expect("written");
    let mut settings = children.settings();
    settings.folder = file.join("machines");
    let away = Processes::open(settings).err().expect("no folder");
    assert!(matches!(away, Error::Away { .. }), "{away:?}");
    assert!(away.to_string().contains("file/machines"), "{away}");
}

#[tokio::test]
async fn lost_folder_is_no_empty_list() {
    let children = Children::new();
    let mut settings = children.settings();
    settings.folder = children.folder().join("machines");
    let provider = Processes::open(settings.clone()).expect("it opens");
    fs::remove_dir(&settings.folder).expect("removed");
    let pool = pool("cpu", 1);
    let lists = provider.list(&pool).await.map(drop);
    for away in [lists, provider.grow(&pool, 1).await] {
        assert!(matches!(away, Err(Error::Away { .. })), "{away:?}");
    }
}

#[tokio::test]
async fn no_more_start_than_there_is_room_for() {
    let children = Children::new();
    let mut settings = children.settings();
    settings.most = 2;
    let provider = Processes::open(settings).expect("it opens");
    let (one, other) = (pool("stubborn-one", LONG_MS), pool("other", LONG_MS));
    children.up(&provider, &one, 1).await;
    provider.grow(&other, 5).await.expect("grow");
    assert_eq!(provider.list(&other).await.expect("list").len(), 1);
    let ending = provider.list(&one).await.expect("list").remove(0);
    provider.end(&one, &[ending.id]).await.expect("end");
    provider.grow(&one, 1).await.expect("grow");
    let listed = provider.list(&one).await.expect("list");
    assert_eq!(listed.len(), 1, "those that end take room: {listed:?}");
    assert_eq!(listed[0].state, State::Ending);
}

#[tokio::test]
async fn long_name_of_a_pool_is_refused() {
    let (children, pool) = (Children::new(), pool(&"x".repeat(128), LONG_MS));
    let refused = children.open().grow(&pool, 1).await.expect_err("too long");
    assert!(matches!(refused, Error::Settings { .. }), "{refused:?}");
}

#[tokio::test]
async fn names_and_pools_are_filled_in() {
    let children = Children::new();
    let mut settings = children.settings();
    let gpu = pool("gpu-1", LONG_MS);
    let special = template(
        "echo \"$0 $1 $WORKER $CARGO_PKG_NAME-$CARGO\"; echo up >&2; while :; do sleep 0.1; done",
    );
    settings.pools = BTreeMap::from([(gpu.device_type.clone(), special)]);
    let provider = Processes::open(settings).expect("it opens");
    let machine = children.up(&provider, &gpu, 1).await.remove(0);
    let name = machine.worker.clone().expect("a name");
    assert_eq!(name.as_str(), machine.id.0);
    assert!(name.as_str().starts_with("gpu-1-1-"), "{name}");
    let log = children.folder().join(format!("{name}.log"));
    let log = fs::read_to_string(log).expect("a log");
    // Cargo sets both variables for a test: one is passed on, the other is not.
    assert!(std::env::var("CARGO_PKG_NAME").is_ok());
    let cargo = std::env::var("CARGO").expect("set");
    assert_eq!(log, format!("gpu-1 {name} is-{name} -{cargo}\nup\n"));
    let more = children.up(&provider, &gpu, 2).await;
    assert!(more[1].id.0.starts_with("gpu-1-2-"), "{more:?}");
}

/// A process that has ended is reaped, and its file is removed.
#[tokio::test]
async fn ended_processes_are_waited_for() {
    let children = Children::new();
    let mut settings = children.settings();
    settings.template = template("exit 3");
    let (provider, pool) = (Processes::open(settings).expect("it opens"), pool("cpu", 1));
    provider.grow(&pool, 1).await.expect("grow");
    until("it is forgotten", async || {
        provider.list(&pool).await.expect("list").is_empty()
    })
    .await;
    let running = children.open();
    let machine = children.up(&running, &pool, 1).await.remove(0);
    let pid = children.pid(&machine.id);
    running.end(&pool, &[machine.id]).await.expect("end");
    until("its id is free", async || !exists(pid)).await;
}

#[tokio::test]
async fn logs_of_the_latest_stay() {
    let (children, pool) = (Children::new(), pool("cpu", LONG_MS));
    for number in 0..50 {
        fs::write(children.folder().join(format!("old-{number}.log")), "x").expect("written");
    }
    let provider = children.open();
    let machine = children.up(&provider, &pool, 1).await.remove(0);
    children.up(&provider, &pool, 2).await;
    let names = fs::read_dir(children.folder())
        .expect("the folder")
        .flatten();
    let names = names.filter_map(|name| name.file_name().into_string().ok());
    let (own, old): (Vec<_>, Vec<_>) = names
        .filter(|name| name.ends_with(".log"))
        .partition(|name| name.starts_with(&machine.id.0) || name.starts_with("cpu"));
    assert_eq!((own.len(), old.len()), (2, 32));
}
