//! A folder of machines that are children of the test.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process};
use sextant_provider::{
    Machine, MachineId, Pool, Provider,
    conformance::{DEADLINE, Ground, MACHINE},
    process::{Processes, Settings, Template},
};
use sextant_types::DeviceTypeName;
use tempfile::TempDir;

pub const LONG_MS: u64 = 600_000;

pub struct Children {
    folder: TempDir,
}

impl Children {
    pub fn new() -> Self {
        let folder = TempDir::new().expect("a folder");
        Self { folder }
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn settings(&self) -> Settings {
        settings(self.folder())
    }

    pub fn open(&self) -> Processes {
        Processes::open(self.settings()).expect("it opens")
    }

    pub fn file(&self, id: &MachineId) -> PathBuf {
        self.folder().join(format!("{}.json", id.0))
    }

    pub fn read(&self, id: &MachineId) -> serde_json::Value {
        let text = fs::read(self.file(id)).expect("its file");
        serde_json::from_slice(&text).expect("JSON")
    }

    pub fn write(&self, id: &MachineId, content: &serde_json::Value) {
        fs::write(self.file(id), content.to_string()).expect("written");
    }

    pub fn pid(&self, id: &MachineId) -> Pid {
        let pid = self.read(id)["process"]["pid"].as_i64().expect("a pid");
        Pid::from_raw(pid as i32).expect("a pid")
    }

    /// Grows the pool and returns its machines once they are up.
    pub async fn up(&self, provider: &Processes, pool: &Pool, count: u32) -> Vec<Machine> {
        provider.grow(pool, count).await.expect("grow");
        let machines = provider.list(pool).await.expect("list");
        assert_eq!(machines.len(), count as usize);
        for machine in &machines {
            until("it is up", async || self.is_up(&machine.id).await).await;
        }
        machines
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        let names = fs::read_dir(self.folder()).expect("the folder");
        for name in names.flatten() {
            let text = fs::read(name.path()).unwrap_or_default();
            let file: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
            let pid = file["process"]["pid"].as_i64().unwrap_or_default();
            if let Some(pid) = Pid::from_raw(pid as i32) {
                kill_process_group(pid, Signal::KILL).ok();
            }
        }
    }
}

#[async_trait]
impl Ground for Children {
    async fn provider(&self) -> Arc<dyn Provider> {
        Arc::new(self.open())
    }

    fn pool(&self, name: &str, end_ms: u64) -> Pool {
        pool(name, end_ms)
    }

    async fn is_up(&self, machine: &MachineId) -> bool {
        let log = self.folder().join(format!("{}.log", machine.0));
        fs::read_to_string(log).is_ok_and(|log| log.contains("up"))
    }

    async fn crash(&self, machine: &MachineId) {
        kill_process_group(self.pid(machine), Signal::KILL).expect("it is killed");
    }
}

pub fn settings(folder: &Path) -> Settings {
    Settings {
        folder: folder.to_owned(),
        most: 8,
        template: template(MACHINE),
        pools: BTreeMap::new(),
    }
}

pub fn template(script: &str) -> Template {
    Template {
        program: "sh".to_owned(),
        arguments: ["-c", script, "{pool}", "{name}"].map(str::to_owned).into(),
        environment: BTreeMap::from([("WORKER".to_owned(), "is-{name}".to_owned())]),
        without: vec!["CARGO_PKG_NAME".to_owned()],
        places: Vec::new(),
    }
}

pub fn pool(name: &str, end_ms: u64) -> Pool {
    let device_type = DeviceTypeName::new(name).expect("a name");
    Pool {
        device_type,
        end_ms,
    }
}

/// Whether a process has this id, including one that has ended and was not reaped.
pub fn exists(pid: Pid) -> bool {
    test_kill_process(pid).is_ok()
}

pub async fn until(what: &str, mut seen: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !seen().await {
        assert!(Instant::now() < deadline, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
