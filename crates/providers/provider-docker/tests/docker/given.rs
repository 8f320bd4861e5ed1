//! What a container is given before it starts: files and limits.

use std::{collections::BTreeMap, path::PathBuf};

use bollard::models::HostConfig;
use sextant_provider::{Error, MachineId, Provider};
use sextant_provider_docker::{Containers, Content, Limits, Settings};
use tempfile::TempDir;

use super::support::{Fleet, LONG_MS, pool, template};

/// Prints two files and their permissions, and stays up.
const READS: &str = "ls -l /etc/machine; cat /etc/machine/worker.toml /etc/machine/fleet/key.pem; \
                     echo; echo up; sleep 120";

fn text(content: &str) -> Content {
    Content::Text(content.to_owned())
}

/// Settings of machines that read `key` of this machine.
fn reading(fleet: &Fleet, key: PathBuf) -> Settings {
    let mut settings = fleet.settings();
    settings.template = template(READS);
    settings.template.files = BTreeMap::from([
        ("/etc/machine/worker.toml".to_owned(), text("[prices]\n")),
        ("/etc/machine/fleet/key.pem".to_owned(), Content::Of(key)),
    ]);
    settings
}

#[tokio::test]
async fn files_are_there_before_the_program_starts() {
    let Some(fleet) = Fleet::new().await else {
        return;
    };
    let folder = TempDir::new().expect("a folder");
    let key = folder.path().join("key.pem");
    std::fs::write(&key, "first").expect("written");
    let provider = Containers::new(reading(&fleet, key.clone()));
    let pool = pool("files", LONG_MS);
    let first = fleet.up(&provider, &pool, 1).await.remove(0);
    let log = fleet.log(&first.id).await;
    assert!(log.contains("[prices]\nfirst\nup\n"), "{log}");
    assert!(
        log.contains("-r--r--r--"),
        "whoever it runs as reads them: {log}"
    );

    // Later containers get the renewed content.
    std::fs::write(&key, "second").expect("written");
    let both = fleet.up(&provider, &pool, 2).await;
    let second = both.iter().find(|it| it.id != first.id).expect("another");
    let log = fleet.log(&second.id).await;
    assert!(log.contains("[prices]\nsecond\nup\n"), "{log}");
}

#[tokio::test]
async fn file_that_is_missing_leaves_no_container() {
    let Some(fleet) = Fleet::new().await else {
        return;
    };
    let provider = Containers::new(reading(&fleet, PathBuf::from("/nothing/key.pem")));
    let pool = pool("missing", LONG_MS);
    let error = provider.grow(&pool, 2).await.expect_err("no such file");
    assert!(matches!(error, Error::Settings { .. }), "{error:?}");
    assert!(error.to_string().contains("`/nothing/key.pem`"), "{error}");
    assert_eq!(fleet.containers().await.len(), 0);
}

/// The engine's settings of a machine.
async fn host(fleet: &Fleet, machine: &MachineId) -> HostConfig {
    let inspected = fleet.client.inspect_container(&machine.0, None).await;
    inspected
        .expect("the container")
        .host_config
        .expect("its bounds")
}

#[tokio::test]
async fn container_has_its_bounds_and_no_capabilities() {
    let Some(fleet) = Fleet::new().await else {
        return;
    };
    let mut settings = fleet.settings();
    settings.template = template("cat /proc/self/status; echo up; sleep 120");
    settings.template.limits = Limits {
        cores: Some(1),
        memory_bytes: Some(64 << 20),
        threads: Some(32),
    };
    let (provider, pool) = (Containers::new(settings), pool("bounds", LONG_MS));
    let machine = fleet.up(&provider, &pool, 1).await.remove(0);
    let host = host(&fleet, &machine.id).await;
    assert_eq!(host.nano_cpus, Some(1_000_000_000));
    assert_eq!(host.memory, Some(64 << 20));
    assert_eq!(host.pids_limit, Some(32));
    let status = fleet.log(&machine.id).await;
    let is = |line: &str, value: &str| {
        let found = status.lines().find_map(|it| it.strip_prefix(line));
        assert_eq!(found.map(str::trim), Some(value), "{line} {status}");
    };
    is("CapEff:", "0000000000000000");
    is("CapBnd:", "0000000000000000");
    is("NoNewPrivs:", "1");
}
