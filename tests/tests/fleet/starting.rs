//! Processes that start while a store is unavailable.

use std::{
    fs::{self, File},
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};
use sextant_tests::sextant;
use tempfile::TempDir;

use super::*;

/// A front end that may not have its stores yet. It is killed when dropped.
struct StartingFrontEnd {
    child: Child,
    folder: TempDir,
}

impl StartingFrontEnd {
    fn over(fleet: &Fleet, patience_ms: u64) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let log = File::create(folder.path().join("log")).expect("the log opens");
        let settings = [
            format!("fleet.start_patience_ms={patience_ms}"),
            format!("metadata.url={}", fleet.redis.url()),
            format!("registry.url={}", fleet.postgres.url()),
            format!("objects.url=s3://{}", fleet.s3.bucket()),
            format!("objects.endpoint={}", fleet.s3.endpoint()),
        ];
        let mut command = Command::new(sextant());
        command.args(["serve", "--role", "api", "--listen", "127.0.0.1:0"]);
        command.arg("--data-dir").arg(folder.path().join("data"));
        for setting in settings {
            command.args(["--set", &setting]);
        }
        let child = command
            .env("AWS_ACCESS_KEY_ID", fleet.s3.access_key())
            .env("AWS_SECRET_ACCESS_KEY", fleet.s3.secret_key())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("the binary can be started");
        Self { child, folder }
    }

    fn log_file(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    async fn says(&self, desired: &str) {
        until("the log says so", || async {
            let log = fs::read_to_string(self.log_file()).expect("a log");
            log.contains(desired).then_some(())
        })
        .await;
    }

    fn is_told_to_end(&self) {
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(id.expect("a process id"), Signal::TERM).expect("told");
    }

    async fn ended(mut self) -> (ExitStatus, String) {
        let child = std::cell::RefCell::new(&mut self.child);
        let status = until("the front end ends", || async {
            child.borrow_mut().try_wait().expect("a child")
        })
        .await;
        (status, fs::read_to_string(self.log_file()).expect("a log"))
    }
}

impl Drop for StartingFrontEnd {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

#[tokio::test]
async fn a_process_waits_for_a_store_and_goes_on_when_it_is_there() {
    let mut fleet = Fleet::over_stores(FleetSettings::default());
    fleet.redis.kill();
    let starting = StartingFrontEnd::over(&fleet, 600_000);
    starting.says("a store is away").await;
    fleet.redis.restart();
    starting.says("listening on").await;
    starting.is_told_to_end();
    let (status, log) = starting.ended().await;
    assert!(status.success(), "{status}: {log}");

    fleet.s3.kill();
    let starting = StartingFrontEnd::over(&fleet, 600_000);
    starting.says("a store is away").await;
    fleet.s3.restart();
    starting.says("listening on").await;
}

#[tokio::test]
async fn a_process_that_waits_for_a_store_ends_when_it_is_told_to() {
    let mut fleet = Fleet::over_stores(FleetSettings::default());
    fleet.postgres.kill();
    let starting = StartingFrontEnd::over(&fleet, 600_000);
    starting.says("PostgreSQL does not answer").await;
    starting.is_told_to_end();
    let (status, log) = starting.ended().await;
    assert!(status.success(), "{status}: {log}");
}

#[tokio::test]
async fn a_process_without_patience_ends_and_names_the_store() {
    let mut fleet = Fleet::over_stores(FleetSettings::default());
    fleet.s3.kill();
    let (status, log) = StartingFrontEnd::over(&fleet, 0).ended().await;
    assert!(!status.success(), "{log}");
    assert!(log.contains("objects.url"), "{log}");
}
